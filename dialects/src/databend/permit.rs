//! The permit.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use waymaker_client::LossReason;

use super::ConnectionClosed;

/// A permit that is held until it is dropped or lost. Dropping it sends the release without waiting for the response.
///
/// It is a future that ends when the permit is lost. To check it and keep it, await `&mut permit`.
///
/// # Errors
///
/// `Ok(())` means that the entry was removed: by an operator, or because its lease expired on the server. [`ConnectionClosed`]
/// means that the client can no longer prove that it holds the permit: it has not reached the server for the length of the
/// lease, or it was closed.
#[must_use = "dropping it releases the permit"]
pub struct Permit {
    /// Name of the acquirer, for messages.
    pub acquirer_name: String,
    permit: waymaker_client::Permit,
    lost: Pin<Box<dyn Future<Output = LossReason> + Send>>,
}

impl Permit {
    pub(super) fn new(acquirer_name: String, permit: waymaker_client::Permit) -> Self {
        let lost = Box::pin(permit.lost());
        Self { acquirer_name, permit, lost }
    }

    /// Returns the fence, which rises by one with each grant of the semaphore. The original has no fence.
    pub fn fence(&self) -> u64 {
        self.permit.fence()
    }
}

impl Future for Permit {
    type Output = Result<(), ConnectionClosed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The clock decides, because the future may be late. A later poll returns the same result.
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
