//! Errors of the Locket contract, with the statuses and messages that Locket's clients expect.

use crate::driver::{ClosedLane, Reply};
use crate::front::refused_stream::refused_stream;
use tonic::{Code, Status};
use waymaker_protocol::{ErrorCode, Response};

/// Reason why a Locket request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Another owner has the key.
    Collision,
    /// The time to live is not above 0.
    InvalidTtl,
    /// The owner is empty.
    InvalidOwner,
    /// The type is unknown, its name contradicts its code, or it is missing although it is required.
    InvalidType,
    /// The request has no resource.
    InvalidResource,
    /// A field is longer than the contract or this server allows.
    BadRequest,
    /// The key is free.
    NotFound,
    /// The server is stopping and rejects new work.
    Stopping,
    /// An error that the contract does not define.
    Other(Code, String),
}

impl Fault {
    /// Converts an error response of the worker. Any other response becomes an internal error.
    pub(super) fn of(response: &Response<'_>) -> Self {
        let Response::Error(error) = response else {
            return Self::Other(
                Code::Internal,
                "the server produced a response that does not match the request".to_owned(),
            );
        };
        let status = match error.code {
            ErrorCode::Busy | ErrorCode::NotOwner => return Self::Collision,
            ErrorCode::NotFound => return Self::NotFound,
            ErrorCode::Shutdown => return Self::Stopping,
            ErrorCode::BadInput => Code::InvalidArgument,
            ErrorCode::Overloaded | ErrorCode::NoSpace => Code::ResourceExhausted,
            ErrorCode::Frozen | ErrorCode::ScopeUnavailable => Code::FailedPrecondition,
            ErrorCode::Recovering => Code::Unavailable,
            ErrorCode::Unauthorized => Code::PermissionDenied,
            ErrorCode::Unknown => Code::Unknown,
            _ => Code::Internal,
        };
        Self::Other(status, error.to_string())
    }
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let (code, message) = match fault {
            Fault::Collision => (Code::AlreadyExists, "lock-collision"),
            Fault::InvalidTtl => (Code::InvalidArgument, "invalid-ttl"),
            Fault::InvalidOwner => (Code::InvalidArgument, "invalid-owner"),
            // Existing clients of Locket expect `NotFound` for an invalid type.
            Fault::InvalidType => (Code::NotFound, "invalid-type"),
            Fault::InvalidResource => (Code::InvalidArgument, "invalid-resource"),
            Fault::BadRequest => (Code::InvalidArgument, "sql-bad-request"),
            Fault::NotFound => (Code::NotFound, "resource-not-found"),
            Fault::Stopping => return refused_stream(),
            Fault::Other(code, message) => return Self::new(code, message),
        };
        Self::new(code, message)
    }
}

impl From<ClosedLane> for Fault {
    fn from(closed: ClosedLane) -> Self {
        let stopping = || Self::Other(Code::Unavailable, "the server is stopping".to_owned());
        closed.denial.map_or_else(stopping, Self::from)
    }
}

impl From<Reply> for Fault {
    fn from(reply: Reply) -> Self {
        Self::of(&reply.response())
    }
}
