//! A place in a queue, for those who want to know that they have one.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use waymaker_protocol::LockId;

use crate::acquire::{AcquireFuture, Guard};
use crate::error::Result;
use crate::lock::Lock;

/// What came of [`AcquireBuilder::enqueue`](crate::AcquireBuilder::enqueue).
#[derive(Debug)]
pub enum Enqueued<G = Lock> {
    /// It did not have to wait.
    Granted(G),
    /// It waits in its queue.
    Queued(Queued<G>),
}

/// A claim that waits in its queue. Await it to get the guard.
///
/// Dropping it takes the claim back, as dropping an [`AcquireFuture`] does. If the connection breaks, the claim loses its
/// place and is asked for again behind the others; [`Queued::place`] stays what it was.
#[must_use = "dropping it cancels the claim"]
pub struct Queued<G = Lock> {
    place: QueuePlace,
    future: AcquireFuture<G>,
}

/// Where a claim stood when it came into its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    /// The id that the claim keeps when it is granted. One on several keys gets an id for each of them instead.
    pub id: LockId,
    /// How many waited before it.
    pub position: u32,
    /// Rises with each claim that has to wait in the same shard: those of equal priority are served in this order.
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
            // Only told while the claim waits. Where it is refused or granted before, the other branch has the answer.
            Ok(place) = place => Ok(Enqueued::Queued(Self { place, future })),
        }
    }

    /// Where it stood when it came into its queue.
    pub fn place(&self) -> QueuePlace {
        self.place
    }
}

impl<G: Guard> Enqueued<G> {
    /// The guard, as soon as it is granted.
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
