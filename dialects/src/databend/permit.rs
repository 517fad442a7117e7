//! A permit that is held.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use waymaker_client::LossReason;

use super::ConnectionClosed;

/// A permit that is held until it is dropped or lost. Dropping it sends the release and does not wait for it.
///
/// It is a future that ends when the permit is lost. To look at it without giving it up, await `&mut permit`.
///
/// # Errors
///
/// `Ok(())` if the entry was removed: by an operator, or because its lease ended on the server. [`ConnectionClosed`] if it can no
/// longer be proved that the permit is held: the server was not reached for as long as the lease, or the client was closed.
#[must_use = "dropping it releases the permit"]
pub struct Permit {
    /// Whose it is, for messages.
    pub acquirer_name: String,
    permit: waymaker_client::Permit,
    lost: Pin<Box<dyn Future<Output = LossReason> + Send>>,
}

impl Permit {
    pub(super) fn new(acquirer_name: String, permit: waymaker_client::Permit) -> Self {
        let lost = Box::pin(permit.lost());
        Self { acquirer_name, permit, lost }
    }

    /// Rises by one with each grant of the semaphore. The original has nothing like it.
    pub fn fence(&self) -> u64 {
        self.permit.fence()
    }
}

impl Future for Permit {
    type Output = Result<(), ConnectionClosed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // By the clock, which is never late. And whoever asks again is told again.
        let reason = match self.permit.loss_reason() {
            Some(reason) => reason,
            None => ready!(self.lost.as_mut().poll(context)),
        };
        Poll::Ready(match reason {
            LossReason::Expired | LossReason::Revoked(_) => Ok(()),
            reason => Err(ConnectionClosed::new(reason)),
        })
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Permit")
            .field("acquirer_name", &self.acquirer_name)
            .field("permit", &self.permit)
            .finish_non_exhaustive()
    }
}
