//! Errors of console requests, as JSON with an HTTP status.

use crate::access::NotIdentified;
use crate::driver::{ClosedLane, Reply};
use crate::front::conversion::{json_text, text};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;
use std::borrow::Cow;
use waymaker_protocol::{DecodeError, ErrorAnswer, ErrorCode, ErrorDetail, Response as Answer};

/// Reason why a console request failed.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    #[serde(skip)]
    status: StatusCode,
    /// Error code for programs: the error name of the binary protocol, or `unauthenticated`.
    code: Cow<'static, str>,
    /// Message for people.
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

#[derive(Serialize)]
struct Body<'a> {
    error: &'a Problem,
}

impl Problem {
    fn new(code: ErrorCode, message: String) -> Self {
        Self { status: status_of(code), code: code.name().into(), message, retry_after_ms: None }
    }

    /// Returns the problem of an invalid request field.
    pub(super) fn bad_input(field: &str, message: &str) -> Self {
        Self::new(ErrorCode::BadInput, format!("{field}: {message}"))
    }

    /// Returns the problem of an object that does not exist.
    pub(super) fn not_found(message: String) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    /// Returns the problem of a client without the required right.
    pub(super) fn unauthorized(message: String) -> Self {
        Self::new(ErrorCode::Unauthorized, message)
    }

    /// Returns the problem of a stopping server.
    pub(super) fn stopping() -> Self {
        Self::new(ErrorCode::Shutdown, "the server is stopping".to_owned())
    }

    /// Returns the problem of a reached server limit.
    pub(super) fn overloaded(limit: &str, max: usize) -> Self {
        let message = format!("the server has its maximum of {max} {limit}");
        Self { retry_after_ms: Some(1_000), ..Self::new(ErrorCode::Overloaded, message) }
    }

    /// Returns the problem of a path that does not support the method.
    pub(super) fn wrong_method() -> Self {
        let problem = Self::bad_input("method", "the path does not serve this method");
        Self { status: StatusCode::METHOD_NOT_ALLOWED, ..problem }
    }

    /// Returns the problem of a body that is too long.
    pub(super) fn long_body(len_max: usize) -> Self {
        let problem = Self::bad_input("body", &format!("the maximum is {len_max} bytes"));
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, ..problem }
    }

    /// Returns the problem of a body that did not arrive in time.
    pub(super) fn late_body() -> Self {
        let problem = Self::bad_input("body", "did not arrive in time");
        Self { status: StatusCode::REQUEST_TIMEOUT, ..problem }
    }

    /// Returns the problem of a response that does not match its request, and of similar internal errors.
    pub(super) fn unexpected() -> Self {
        let message = "the server produced a response that does not match the request";
        Self::new(ErrorCode::Internal, message.to_owned())
    }
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BadInput => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthorized => StatusCode::FORBIDDEN,
        ErrorCode::NotFound | ErrorCode::NotHeld | ErrorCode::Expired => StatusCode::NOT_FOUND,
        ErrorCode::Overloaded | ErrorCode::Throttled => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Shutdown | ErrorCode::Recovering | ErrorCode::QuorumUnavailable | ErrorCode::NoSpace => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ErrorCode::Internal | ErrorCode::Unknown | ErrorCode::Other(_) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::CONFLICT,
    }
}

impl From<NotIdentified> for Problem {
    fn from(refusal: NotIdentified) -> Self {
        let message = refusal.to_string();
        match refusal {
            NotIdentified::Unauthenticated { .. } => Self {
                status: StatusCode::UNAUTHORIZED,
                code: "unauthenticated".into(),
                message,
                retry_after_ms: None,
            },
            NotIdentified::Paused { retry_ms } => {
                Self { retry_after_ms: Some(retry_ms), ..Self::new(ErrorCode::Overloaded, message) }
            }
        }
    }
}

impl From<&ErrorAnswer<'_>> for Problem {
    fn from(error: &ErrorAnswer<'_>) -> Self {
        let message = match &error.detail {
            ErrorDetail::Text { message, .. } => text(message),
            ErrorDetail::Contention(_) => error.to_string(),
        };
        let problem = Self::new(error.code, message);
        match &error.detail {
            // The identity is no longer valid.
            ErrorDetail::Text { field: b"credentials", .. } if error.code == ErrorCode::Unauthorized => {
                Self { status: StatusCode::UNAUTHORIZED, code: "unauthenticated".into(), ..problem }
            }
            _ => problem,
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

impl From<DecodeError> for Problem {
    fn from(error: DecodeError) -> Self {
        Self::new(ErrorCode::BadInput, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let json = json_text(&Body { error: &self });
        let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
        let mut response = (self.status, headers, json).into_response();
        if let Some(retry_ms) = self.retry_after_ms {
            response.headers_mut().insert(RETRY_AFTER, retry_ms.div_ceil(1_000).into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
        }
        response
    }
}
