//! Errors of requests, with the names and statuses of DynamoDB.

use super::space::namespace;
use crate::access::{LoginRefusal, NotIdentified};
use crate::driver::{ClosedLane, Reply};
use crate::front::conversion::{cut, text};
use http::StatusCode;
use serde_json::json;
use waymaker_protocol::{ErrorAnswer, ErrorCode, ErrorDetail, Response as Answer};

/// Reason why a DynamoDB request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    kind: Kind,
    /// Message for people.
    pub(super) message: String,
}

/// DynamoDB errors that this server returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ConditionalCheckFailed,
    ResourceNotFound,
    ResourceInUse,
    LimitExceeded,
    Throttling,
    InternalServerError,
    Validation,
    UnknownOperation,
    Serialization,
    AccessDenied,
    MissingAuthenticationToken,
    IncompleteSignature,
    InvalidSignature,
    UnrecognizedClient,
    ServiceUnavailable,
    BodyTooLarge,
    LateBody,
}

/// Maximum length of a message in characters.
const MESSAGE_CHARS_MAX: usize = 512;
const DYNAMODB: &str = "com.amazonaws.dynamodb.v20120810";
const SERVICE: &str = "com.amazon.coral.service";
const VALIDATE: &str = "com.amazon.coral.validate";

impl Kind {
    /// Returns the namespace and name of the error, and the status of its response.
    fn parts(self) -> (&'static str, &'static str, StatusCode) {
        let bad = StatusCode::BAD_REQUEST;
        match self {
            Self::ConditionalCheckFailed => (DYNAMODB, "ConditionalCheckFailedException", bad),
            Self::ResourceNotFound => (DYNAMODB, "ResourceNotFoundException", bad),
            Self::ResourceInUse => (DYNAMODB, "ResourceInUseException", bad),
            Self::LimitExceeded => (DYNAMODB, "LimitExceededException", bad),
            Self::Throttling => (DYNAMODB, "ThrottlingException", bad),
            Self::InternalServerError => (DYNAMODB, "InternalServerError", StatusCode::INTERNAL_SERVER_ERROR),
            Self::Validation => (VALIDATE, "ValidationException", bad),
            Self::UnknownOperation => (SERVICE, "UnknownOperationException", bad),
            Self::Serialization => (SERVICE, "SerializationException", bad),
            Self::AccessDenied => (SERVICE, "AccessDeniedException", bad),
            Self::MissingAuthenticationToken => (SERVICE, "MissingAuthenticationTokenException", bad),
            Self::IncompleteSignature => (SERVICE, "IncompleteSignatureException", bad),
            Self::InvalidSignature => (SERVICE, "InvalidSignatureException", bad),
            Self::UnrecognizedClient => (SERVICE, "UnrecognizedClientException", bad),
            Self::ServiceUnavailable => {
                (SERVICE, "ServiceUnavailableException", StatusCode::SERVICE_UNAVAILABLE)
            }
            Self::BodyTooLarge => (SERVICE, "RequestEntityTooLargeException", StatusCode::PAYLOAD_TOO_LARGE),
            Self::LateBody => (SERVICE, "RequestTimeoutException", StatusCode::REQUEST_TIMEOUT),
        }
    }
}

impl Problem {
    /// Creates a problem. A long message is truncated, because it may quote the request.
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: cut(message.into(), MESSAGE_CHARS_MAX) }
    }

    /// Returns the problem of a member that is missing, is not allowed, or has no meaning for a lock.
    pub(super) fn validation(message: impl Into<String>) -> Self {
        Self::new(Kind::Validation, message)
    }

    /// Returns the problem of a row that does not meet the condition.
    pub(super) fn condition_failed() -> Self {
        Self::new(Kind::ConditionalCheckFailed, "The conditional request failed")
    }

    /// Returns the problem of a table that does not exist, or that is being created or deleted.
    pub(super) fn no_table(table: &str) -> Self {
        Self::new(
            Kind::ResourceNotFound,
            format!(
                "Requested resource not found: Table: {table} not found. Create it with CreateTable, or declare the \
                 namespace {} of kind lazy in the configuration of the server",
                namespace(table)
            ),
        )
    }

    /// Returns the problem of a client without the required right.
    pub(super) fn denied(message: String) -> Self {
        Self::new(Kind::AccessDenied, message)
    }

    /// Returns the problem of a worker response that does not match the request.
    pub(super) fn unexpected() -> Self {
        Self::new(Kind::InternalServerError, "the server produced a response that does not match the request")
    }

    /// Returns the problem of a stopping server.
    pub(super) fn stopping() -> Self {
        Self::new(Kind::ServiceUnavailable, "the server is stopping")
    }

    /// Returns the name of the error.
    pub(super) fn name(&self) -> &'static str {
        self.kind.parts().1
    }

    /// Returns the status of the response.
    pub(super) fn status(&self) -> StatusCode {
        self.kind.parts().2
    }

    /// Returns the body of the response.
    pub(super) fn body(&self) -> String {
        let (namespace, name, _) = self.kind.parts();
        json!({ "__type": format!("{namespace}#{name}"), "message": self.message }).to_string()
    }
}

fn kind_of(code: ErrorCode) -> Kind {
    match code {
        ErrorCode::Busy | ErrorCode::NotOwner | ErrorCode::NotFound => Kind::ConditionalCheckFailed,
        ErrorCode::BadInput => Kind::Validation,
        ErrorCode::Unauthorized => Kind::AccessDenied,
        ErrorCode::Overloaded | ErrorCode::Throttled => Kind::Throttling,
        // The causes of these errors are temporary. Report the service as unavailable, so that the client retries the
        // request.
        ErrorCode::Shutdown | ErrorCode::Recovering | ErrorCode::NoSpace | ErrorCode::Frozen => {
            Kind::ServiceUnavailable
        }
        _ => Kind::InternalServerError,
    }
}

impl From<&ErrorAnswer<'_>> for Problem {
    fn from(error: &ErrorAnswer<'_>) -> Self {
        let kind = kind_of(error.code);
        match &error.detail {
            _ if kind == Kind::ConditionalCheckFailed => Self::condition_failed(),
            ErrorDetail::Text { message, .. } => Self::new(kind, text(message)),
            ErrorDetail::Contention(_) => Self::new(kind, error.to_string()),
        }
    }
}

impl From<&Reply> for Problem {
    fn from(reply: &Reply) -> Self {
        match reply.response() {
            Answer::Error(error) => Self::from(&error),
            _ => Self::unexpected(),
        }
    }
}

impl From<ClosedLane> for Problem {
    fn from(closed: ClosedLane) -> Self {
        closed.denial.as_ref().map_or_else(Self::stopping, Self::from)
    }
}

impl From<NotIdentified> for Problem {
    fn from(refusal: NotIdentified) -> Self {
        let message = refusal.to_string();
        match refusal {
            NotIdentified::Unauthenticated { reason: LoginRefusal::Missing, .. } => Self::new(
                Kind::UnrecognizedClient,
                "the server needs to know its clients: it has no access keys (--dynamodb-keys), and this client showed no certificate",
            ),
            NotIdentified::Unauthenticated { .. } => Self::new(Kind::UnrecognizedClient, message),
            NotIdentified::Paused { .. } => Self::new(Kind::Throttling, message),
        }
    }
}
