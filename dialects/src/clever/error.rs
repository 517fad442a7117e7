//! Why a call failed.

use std::time::{Duration, SystemTime};

use waymaker_client::{Contention, ErrorCode};

/// Short for a result of this dialect.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The lock is another owner's, or there is none to be kept. Asking again only helps once that has changed.
    #[error("lock unavailable: {0}")]
    Unavailable(Unavailable),
    /// None of several locks could be had, and not only because they are other owners'.
    #[error("{}", listed(.0))]
    NoneOfSeveral(Vec<KeyError>),
    /// A heartbeat in the background failed, and was the last.
    #[error("heartbeat error: {0}")]
    Heartbeat(Box<Error>),
    /// The input makes no sense; nothing was done.
    #[error("{field}: {message}")]
    Invalid {
        /// The field it is about.
        field: String,
        /// For people.
        message: String,
    },
    /// Anything else. [`waymaker_client::Error::Uncertain`] says that the call may have taken effect.
    #[error(transparent)]
    System(waymaker_client::Error),
}

/// What stands in the way.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unavailable {
    /// Another owner has it.
    #[error("held by \"{}\", {}", .owner.escape_debug(), lease(.remaining))]
    Owned {
        /// The other owner.
        owner: String,
        /// The end of the lease, by the clock of this machine. Where the lease is over already: when that was learned.
        lease_end: SystemTime,
        /// Time that was left of the lease then; zero if it is over.
        remaining: Duration,
    },
    /// There is no such lock to be kept: it was released, or forgotten.
    #[error("the lock no longer exists")]
    Gone,
    /// Each of several is unavailable.
    #[error("{}", listed(.0))]
    All(Vec<KeyError>),
}

/// Why one of several locks could not be had.
#[derive(Clone, Debug, thiserror::Error)]
#[error("locking key {key}: {error}")]
pub struct KeyError {
    /// Which.
    pub key: String,
    /// Why.
    pub error: Error,
}

impl Error {
    /// Returns true if the lock is another owner's, or there is none to be kept; also if a heartbeat in the background learned it.
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
