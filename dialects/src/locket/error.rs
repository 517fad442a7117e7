//! Errors, with the words of Locket.

use tonic::{Code, Status};

/// Reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another owner has the key.
    #[error("lock-collision")]
    LockCollision,
    /// The time to live is not above 0.
    #[error("invalid-ttl")]
    InvalidTtl,
    /// The owner is empty.
    #[error("invalid-owner")]
    InvalidOwner,
    /// No owner has the key.
    #[error("resource-not-found")]
    ResourceNotFound,
    /// The type is unknown, or missing in a call that needs it.
    #[error("invalid-type")]
    InvalidType,
    /// Another status: the server failed, or could not be called.
    #[error("{0}")]
    Status(Status),
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        match (status.code(), status.message()) {
            (Code::AlreadyExists, "lock-collision") => Self::LockCollision,
            (Code::InvalidArgument, "invalid-ttl") => Self::InvalidTtl,
            (Code::InvalidArgument, "invalid-owner") => Self::InvalidOwner,
            (Code::NotFound, "resource-not-found") => Self::ResourceNotFound,
            (Code::NotFound, "invalid-type") => Self::InvalidType,
            _ => Self::Status(status),
        }
    }
}

impl Error {
    /// Returns whether the response did not arrive before the deadline.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Status(status) if status.code() == Code::DeadlineExceeded)
    }
}
