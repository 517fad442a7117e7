//! Why a call failed.

use std::time::{Duration, SystemTime};

use waymaker_client::{Contention, ErrorCode};

/// Result of a call of this dialect.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another owner has the lock, or there is no lock to keep. Another attempt helps only after that has changed.
    #[error("lock unavailable: {0}")]
    Unavailable(Unavailable),
    /// No lock of several was acquired, and at least one failed for another reason than its owner.
    #[error("{}", listed(.0))]
    NoneOfSeveral(Vec<KeyError>),
    /// A heartbeat in the background failed. No further heartbeats are sent.
    #[error("heartbeat error: {0}")]
    Heartbeat(Box<Error>),
    /// The input is not valid; nothing was done.
    #[error("{field}: {message}")]
    Invalid {
        /// Name of the field.
        field: String,
        /// Description for people.
        message: String,
    },
    /// Another error of the client. [`waymaker_client::Error::Uncertain`] says that the call may have taken effect.
    #[error(transparent)]
    System(waymaker_client::Error),
}

/// Reason why a lock is unavailable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unavailable {
    /// Another owner has the lock.
    #[error("held by \"{}\", {}", .owner.escape_debug(), lease(.remaining))]
    Owned {
        /// The other owner.
        owner: String,
        /// End of the lease, by the clock of this machine. If the lease had already expired: the time of the response.
        lease_end: SystemTime,
        /// Remaining lease at the response; zero if it had expired.
        remaining: Duration,
    },
    /// There is no such lock: it was released, or the server forgot it.
    #[error("the lock no longer exists")]
    Gone,
    /// All of several locks are unavailable.
    #[error("{}", listed(.0))]
    All(Vec<KeyError>),
}

/// Reason why one of several locks was not acquired.
#[derive(Clone, Debug, thiserror::Error)]
#[error("locking key {key}: {error}")]
pub struct KeyError {
    /// Key of the lock.
    pub key: String,
    /// Reason.
    pub error: Error,
}

impl Error {
    /// Returns whether another owner has the lock, or there is no lock to keep; also if a background heartbeat learned it.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Heartbeat(error) => error.is_unavailable(),
            _ => false,
        }
    }

    pub(super) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }
}

impl From<waymaker_client::Error> for Error {
    fn from(error: waymaker_client::Error) -> Self {
        match error {
            waymaker_client::Error::Busy(contention) | waymaker_client::Error::NotOwner(contention) => {
                Self::Unavailable(contention.into())
            }
            waymaker_client::Error::Refused { code: ErrorCode::NotFound, .. } => {
                Self::Unavailable(Unavailable::Gone)
            }
            waymaker_client::Error::Refused { code: ErrorCode::BadInput, field, message, .. } => {
                Self::invalid(field, message)
            }
            error => Self::System(error),
        }
    }
}

impl From<Contention> for Unavailable {
    fn from(contention: Contention) -> Self {
        let remaining = contention.remaining.unwrap_or_default();
        let now = SystemTime::now();
        Self::Owned {
            owner: String::from_utf8_lossy(&contention.owner).into_owned(),
            lease_end: now.checked_add(remaining).unwrap_or(now),
            remaining,
        }
    }
}

fn lease(remaining: &Duration) -> String {
    match *remaining {
        Duration::ZERO => "whose lease has expired".to_owned(),
        remaining => format!("lease expires in {:.1} s unless renewed", remaining.as_secs_f64()),
    }
}

fn listed(errors: &[KeyError]) -> String {
    errors.iter().map(KeyError::to_string).collect::<Vec<_>>().join("; ")
}
