//! Queued claims: returned before they are granted, with their queue position.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use waymaker_protocol::LockId;

use crate::acquire::{AcquireFuture, Guard};
use crate::error::Result;
use crate::lock::Lock;

/// Result of [`AcquireBuilder::enqueue`](crate::AcquireBuilder::enqueue).
#[derive(Debug)]
pub enum Enqueued<G = Lock> {
    /// The claim was granted without waiting.
    Granted(G),
    /// The claim waits in its queue.
    Queued(Queued<G>),
}

/// A claim that waits in its queue. Await it to get the guard.
///
/// Dropping it withdraws the claim, as dropping an [`AcquireFuture`] does. If the connection breaks, the claim loses
/// its queue position and is queued again behind the others. [`Queued::place`] does not change then.
#[must_use = "dropping it cancels the claim"]
pub struct Queued<G = Lock> {
    place: QueuePlace,
    future: AcquireFuture<G>,
}

/// Queue position of a claim at the time when it was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    /// Id of the claim, which its hold keeps. The holds of a multi-key claim get ids of their own instead.
    pub id: LockId,
    /// Number of claims before this one.
    pub position: u32,
    /// Ticket, which rises with each queued claim of the same shard. Claims of equal priority are served in this
    /// order.
    pub ticket: u64,
}

impl<G: Guard> Queued<G> {
    pub(crate) async fn begin(
        mut future: AcquireFuture<G>,
        place: oneshot::Receiver<QueuePlace>,
    ) -> Result<Enqueued<G>> {
        tokio::select! {
            biased;
            granted = &mut future => granted.map(Enqueued::Granted),
            // The position arrives only while the claim waits. If the claim is refused or granted first, the other
            // branch has the result.
            Ok(place) = place => Ok(Enqueued::Queued(Self { place, future })),
        }
    }

    /// Returns the queue position that the claim had when it was queued.
    pub fn place(&self) -> QueuePlace {
        self.place
    }
}

impl<G: Guard> Enqueued<G> {
    /// Waits until the claim is granted, and returns its guard.
    ///
    /// # Errors
    ///
    /// As awaiting an [`AcquireBuilder`](crate::AcquireBuilder).
    pub async fn granted(self) -> Result<G> {
        match self {
            Self::Granted(guard) => Ok(guard),
            Self::Queued(queued) => queued.await,
        }
    }
}

impl<G: Guard> Future for Queued<G> {
    type Output = Result<G>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<G>> {
        Pin::new(&mut self.future).poll(context)
    }
}

impl<G> fmt::Debug for Queued<G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Queued").field("place", &self.place).finish_non_exhaustive()
    }
}
