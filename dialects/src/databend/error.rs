//! Why a permit cannot be had, or be believed in.

use waymaker_client::{Error, ErrorCode, LossReason};

/// Why no permit was acquired.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AcquireError {
    /// The server cannot be reached, or cannot serve anybody now. Asking again is sensible.
    #[error(transparent)]
    ConnectionClosed(#[from] ConnectionClosed),
    /// The entry was taken out of the queue while it waited.
    #[error(transparent)]
    EarlyRemoved(#[from] EarlyRemoved),
    /// The server said no at once: it knows another capacity, there are not so many permits, or a field is beyond its limit.
    /// Asking again for the same will not help as long as the semaphore is in use.
    #[error("refused: {0}")]
    Refused(Error),
}

/// There is no connection by which something could be known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection to the semaphore is closed: {reason}")]
pub struct ConnectionClosed {
    /// What happened, for people.
    pub reason: String,
}

/// The entry vanished before it was granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the entry was removed before it was granted: {reason}")]
pub struct EarlyRemoved {
    /// What happened, for people.
    pub reason: String,
}

impl AcquireError {
    /// An acquirer was to come into the queue once more.
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
            // Where the entry is there all the same, nobody renews it, and it ends with its lease.
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
