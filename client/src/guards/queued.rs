//! Queued claims: callers get them before the grant, with the queue position.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::acquire::{AcquireBuilder, AcquireFuture};
use super::guard::Guard;
use super::lock::Lock;
use crate::error::Result;
use crate::request::queue_place::QueuePlace;

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
/// Dropping this value withdraws the claim, as dropping an [`AcquireFuture`] does. If the connection breaks, the claim
/// loses its queue position and is queued again behind the others. [`Queued::place`] still returns the old position.
#[must_use = "dropping it cancels the claim"]
pub struct Queued<G = Lock> {
    place: QueuePlace,
    future: AcquireFuture<G>,
}

impl<G: Guard> AcquireBuilder<G> {
    /// Sends the request and returns as soon as it is granted or queued, instead of waiting for the grant.
    ///
    /// ```
    /// # use waymaker_client::Enqueued;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
    /// let lock = match client.write("printer").enqueue().await? {
    ///     Enqueued::Granted(lock) => lock,
    ///     Enqueued::Queued(queued) => {
    ///         println!("{} before us", queued.place().position);
    ///         queued.await?
    ///     }
    /// };
    /// # lock.release().await
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// As awaiting the builder.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the claim.
    pub async fn enqueue(self) -> Result<Enqueued<G>> {
        let (future, place) = self.send_for_place()?;
        Queued::begin(future, place).await
    }
}

impl<G: Guard> Queued<G> {
    /// Waits until the claim is granted or queued.
    async fn begin(
        mut future: AcquireFuture<G>,
        place: oneshot::Receiver<QueuePlace>,
    ) -> Result<Enqueued<G>> {
        tokio::select! {
            biased;
            granted = &mut future => granted.map(Enqueued::Granted),
            // The position arrives only while the claim waits. If the claim is granted or refused first, `future` has
            // the result.
            Ok(place) = place => Ok(Enqueued::Queued(Self { place, future })),
        }
    }

    /// Returns the queue position that the claim had when the server first queued this acquire.
    pub fn place(&self) -> QueuePlace {
        self.place
    }
}

impl<G: Guard> Enqueued<G> {
    /// Waits until the claim is granted, and returns its guard.
    ///
    /// # Errors
    ///
    /// As awaiting an [`AcquireBuilder`].
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
