//! Reasons why a permit was not acquired, or no longer counts as held.

use waymaker_client::{Error, ErrorCode, LossReason};

/// Reason why no permit was acquired.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AcquireError {
    /// The server cannot be reached, or cannot serve any client now. Another attempt may succeed.
    #[error(transparent)]
    ConnectionClosed(#[from] ConnectionClosed),
    /// The entry was removed from the queue while it waited.
    #[error(transparent)]
    EarlyRemoved(#[from] EarlyRemoved),
    /// The server refused the request: the semaphore has another capacity or fewer permits, or a field exceeds its limit. The
    /// same request fails again as long as the semaphore is in use.
    #[error("refused: {0}")]
    Refused(Error),
}

/// No connection can tell whether the permit is held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection to the semaphore is closed: {reason}")]
pub struct ConnectionClosed {
    /// What happened, for people.
    pub reason: String,
}

/// The entry was removed before it was granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the entry was removed before it was granted: {reason}")]
pub struct EarlyRemoved {
    /// What happened, for people.
    pub reason: String,
}

impl AcquireError {
    /// Returns the error for a second use of an acquirer.
    pub(super) fn twice() -> Self {
        Self::Refused(Error::Refused {
            code: ErrorCode::BadInput,
            field: "acquirer".to_owned(),
            message: "the acquirer was already used; create a new one".to_owned(),
            value: 1,
        })
    }
}

impl ConnectionClosed {
    pub(super) fn new(reason: LossReason) -> Self {
        Self { reason: reason.to_string() }
    }
}

impl From<Error> for AcquireError {
    fn from(error: Error) -> Self {
        let reason = error.to_string();
        match error {
            Error::Lost(LossReason::Expired | LossReason::Revoked(_)) | Error::Cancelled { .. } => {
                EarlyRemoved { reason }.into()
            }
            // The server may still have the entry. No client renews it, so it ends with its lease.
            Error::Lost(_)
            | Error::Unavailable(_)
            | Error::Uncertain(_)
            | Error::Protocol(_)
            | Error::Closed
            | Error::Refused { code: ErrorCode::SessionGone, .. } => ConnectionClosed { reason }.into(),
            error => Self::Refused(error),
        }
    }
}
