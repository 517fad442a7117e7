//! Acquiring a permit step by step.

use waymaker_client::{AcquireBuilder, Enqueued, QueuePlace};

use super::{AcquireError, Permit};

/// Acquires one permit; from [`Semaphore::new_acquirer`](super::Semaphore::new_acquirer).
#[derive(Debug)]
pub struct Acquirer {
    name: String,
    /// `None` once the acquirer has entered the queue.
    builder: Option<AcquireBuilder<waymaker_client::Permit>>,
}

/// A queue entry, which may already be granted. Dropping it removes the entry from the queue.
#[must_use = "dropping it gives up the queue position"]
#[derive(Debug)]
pub struct Queued {
    enqueued: Enqueued<waymaker_client::Permit>,
}

impl Acquirer {
    pub(super) fn new(name: String, builder: AcquireBuilder<waymaker_client::Permit>) -> Self {
        Self { name, builder: Some(builder) }
    }

    /// Enters the queue without waiting for the grant.
    ///
    /// # Errors
    ///
    /// The errors of [`Acquirer::acquire`]. A second call returns [`AcquireError::Refused`], because an acquirer gets one
    /// permit.
    pub async fn enqueue_permit(&mut self) -> Result<Queued, AcquireError> {
        let builder = self.builder.take().ok_or_else(AcquireError::twice)?;
        Ok(Queued { enqueued: builder.enqueue().await? })
    }

    /// Waits until the permit is granted, without limit. Dropping the future ends the wait.
    ///
    /// # Errors
    ///
    /// As [`Acquirer::acquire`].
    pub async fn await_permit(self, queued: Queued) -> Result<Permit, AcquireError> {
        Ok(Permit::new(self.name, queued.enqueued.granted().await?))
    }

    /// Enters the queue and waits until the permit is granted.
    ///
    /// # Errors
    ///
    /// - [`AcquireError::ConnectionClosed`] if the server cannot be reached or cannot serve any client now. Another attempt may
    ///   succeed.
    /// - [`AcquireError::EarlyRemoved`] if an operator removed the entry from the queue.
    /// - [`AcquireError::Refused`] if the semaphore has another capacity, if it has fewer permits than the request, or if a
    ///   field exceeds its limit. The same request fails again.
    pub async fn acquire(mut self) -> Result<Permit, AcquireError> {
        let queued = self.enqueue_permit().await?;
        self.await_permit(queued).await
    }
}

impl Queued {
    /// Returns the queue position that the entry got; `None` if the permit was granted at once.
    pub fn place(&self) -> Option<QueuePlace> {
        match &self.enqueued {
            Enqueued::Granted(_) => None,
            Enqueued::Queued(queued) => Some(queued.place()),
        }
    }
}
