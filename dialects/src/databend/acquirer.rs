//! Acquiring a permit step by step.

use waymaker_client::{AcquireBuilder, Enqueued, QueuePlace};

use super::{AcquireError, Permit};

/// Acquires one permit, from [`Semaphore::new_acquirer`](super::Semaphore::new_acquirer).
#[derive(Debug)]
pub struct Acquirer {
    name: String,
    /// Until it is in the queue.
    builder: Option<AcquireBuilder<waymaker_client::Permit>>,
}

/// An entry in the queue, which may have been granted already. Dropping it takes the entry out.
#[must_use = "dropping it gives up the queue position"]
#[derive(Debug)]
pub struct Queued {
    enqueued: Enqueued<waymaker_client::Permit>,
}

impl Acquirer {
    pub(super) fn new(name: String, builder: AcquireBuilder<waymaker_client::Permit>) -> Self {
        Self { name, builder: Some(builder) }
    }

    /// Comes into the queue, and does not wait there.
    ///
    /// # Errors
    ///
    /// As [`Acquirer::acquire`]; [`AcquireError::Refused`] also for a second call: an acquirer gets one permit.
    pub async fn enqueue_permit(&mut self) -> Result<Queued, AcquireError> {
        let builder = self.builder.take().ok_or_else(AcquireError::twice)?;
        Ok(Queued { enqueued: builder.enqueue().await? })
    }

    /// Waits in the queue until the permit is granted. There is no end of the wait; dropping the future is one.
    ///
    /// # Errors
    ///
    /// As [`Acquirer::acquire`].
    pub async fn await_permit(self, queued: Queued) -> Result<Permit, AcquireError> {
        Ok(Permit::new(self.name, queued.enqueued.granted().await?))
    }

    /// Comes into the queue and waits there.
    ///
    /// # Errors
    ///
    /// [`AcquireError::ConnectionClosed`] if the server cannot be reached, or cannot serve anybody now: asking again is sensible.
    /// [`AcquireError::EarlyRemoved`] if an operator took the entry out of the queue.
    /// [`AcquireError::Refused`] if the capacity is not what the server knows, if more permits are asked for than there are, or
    /// for a field beyond its limit: asking again for the same will not help.
    pub async fn acquire(mut self) -> Result<Permit, AcquireError> {
        let queued = self.enqueue_permit().await?;
        self.await_permit(queued).await
    }
}

impl Queued {
    /// Where the entry stood when it came into the queue; `None` if it was granted at once.
    pub fn place(&self) -> Option<QueuePlace> {
        match &self.enqueued {
            Enqueued::Granted(_) => None,
            Enqueued::Queued(queued) => Some(queued.place()),
        }
    }
}
