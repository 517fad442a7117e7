//! Why a request failed, with the names and the statuses of DynamoDB.

use super::space::namespace;
use crate::access::{NotIdentified, Unauthenticated};
use crate::driver::{Closed, Reply};
use crate::front::shown::{cut, text};
use http::StatusCode;
use serde_json::json;
use waymaker_protocol::{ErrorAnswer, ErrorCode, ErrorDetail, Response as Answer};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    kind: Kind,
    /// Sentence for people.
    pub(super) message: String,
}

/// The errors of DynamoDB that this server has.
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

/// Longest message.
const MESSAGE_CHARS_MAX: usize = 512;
const DYNAMODB: &str = "com.amazonaws.dynamodb.v20120810";
const SERVICE: &str = "com.amazon.coral.service";
const VALIDATE: &str = "com.amazon.coral.validate";

impl Kind {
    /// Namespace and name of the error, and the status of its answer.
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
    /// A long message is cut, as it can quote the request.
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: cut(message.into(), MESSAGE_CHARS_MAX) }
    }

    /// A member of the request has a value that is not allowed, or that has no meaning for a lock.
    pub(super) fn validation(message: impl Into<String>) -> Self {
        Self::new(Kind::Validation, message)
    }

    /// The row is not as the condition says.
    pub(super) fn condition_failed() -> Self {
        Self::new(Kind::ConditionalCheckFailed, "The conditional request failed")
    }

    /// There is no such table.
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

    /// The client has no right for it.
    pub(super) fn denied(message: String) -> Self {
        Self::new(Kind::AccessDenied, message)
    }

    /// The response of the worker does not match the request.
    pub(super) fn unexpected() -> Self {
        Self::new(Kind::InternalServerError, "the server produced a response that does not match the request")
    }

    /// The server is stopping.
    pub(super) fn stopping() -> Self {
        Self::new(Kind::ServiceUnavailable, "the server is stopping")
    }

    /// Name of the error.
    pub(super) fn name(&self) -> &'static str {
        self.kind.parts().1
    }

    /// Status of the answer.
    pub(super) fn status(&self) -> StatusCode {
        self.kind.parts().2
    }

    /// Body of the answer.
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
        // A retry may succeed.
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

impl From<Closed> for Problem {
    fn from(closed: Closed) -> Self {
        closed.denial.as_ref().map_or_else(Self::stopping, Self::from)
    }
}

impl From<NotIdentified> for Problem {
    fn from(refusal: NotIdentified) -> Self {
        let message = refusal.to_string();
        match refusal {
            NotIdentified::Unauthenticated { reason: Unauthenticated::Missing, .. } => Self::new(
                Kind::UnrecognizedClient,
                "the server needs to know its clients: it has no access keys (--dynamodb-keys), and this client showed no certificate",
            ),
            NotIdentified::Unauthenticated { .. } => Self::new(Kind::UnrecognizedClient, message),
            NotIdentified::Paused { .. } => Self::new(Kind::Throttling, message),
        }
    }
}
