//! Results of requests in the terms of the contract `waymaker.WaymakerService`.

use tonic::Status;
use waymaker_protocol::{CancelReason, Contention, ErrorAnswer, ErrorCode, ErrorDetail, Response};

/// Reason why a request failed, in the terms of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    code: Code,
    detail: String,
}

/// The values of `result_code` other than `ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Timeout,
    NoKeys,
    InvalidScope,
    BadInput,
    Cancelled,
    /// Another call with the same request id took over the waiting claim.
    Superseded,
    Shutdown,
    NotFound,
    NotHeld,
    /// No rule grants the required right, or the identity of the client is no longer valid.
    Unauthorized,
    Internal,
}

impl Code {
    /// Returns the `result_code`.
    fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::NoKeys => "no_keys",
            Self::InvalidScope => "invalid_scope",
            Self::BadInput => "bad_input",
            Self::Cancelled | Self::Superseded => "cancelled",
            Self::Shutdown => "shutdown",
            Self::NotFound => "not_found",
            Self::NotHeld => "not_held",
            Self::Unauthorized => "unauthorized",
            Self::Internal => "internal",
        }
    }

    /// Returns the prefix of an event message.
    fn event_name(self) -> &'static str {
        match self {
            Self::BadInput | Self::InvalidScope | Self::NoKeys => "BadInput",
            other => other.name(),
        }
    }
}

impl Outcome {
    pub(super) fn bad_input(detail: impl Into<String>) -> Self {
        Self { code: Code::BadInput, detail: detail.into() }
    }

    pub(super) fn no_keys() -> Self {
        Self { code: Code::NoKeys, detail: "keys is empty".to_owned() }
    }

    pub(super) fn not_found() -> Self {
        Self { code: Code::NotFound, detail: "no lock of this key has this id".to_owned() }
    }

    pub(super) fn shutdown() -> Self {
        Self { code: Code::Shutdown, detail: "the server is stopping".to_owned() }
    }

    /// Converts an error response of the worker; any other response becomes `Internal`. This is the only mapping from
    /// our errors to codes of the contract.
    pub(super) fn of(response: &Response<'_>) -> Self {
        let Response::Error(ErrorAnswer { code, detail }) = response else {
            return Self {
                code: Code::Internal,
                detail: "the server produced a response that does not match the request".to_owned(),
            };
        };
        let own = match code {
            ErrorCode::Busy | ErrorCode::Timeout => Code::Timeout,
            ErrorCode::Cancelled if is_superseded(detail) => Code::Superseded,
            ErrorCode::Cancelled | ErrorCode::Revoked => Code::Cancelled,
            ErrorCode::NotFound | ErrorCode::Expired => Code::NotFound,
            ErrorCode::NotHeld => Code::NotHeld,
            ErrorCode::BadInput => Code::BadInput,
            ErrorCode::ScopeUnavailable => Code::InvalidScope,
            ErrorCode::Shutdown => Code::Shutdown,
            ErrorCode::Unauthorized => Code::Unauthorized,
            _ => Code::Internal,
        };
        let detail = match detail {
            ErrorDetail::Contention(contention) => in_words(contention),
            ErrorDetail::Text { message, field, .. } => {
                let message = String::from_utf8_lossy(message);
                match (own, field.is_empty()) {
                    (Code::BadInput, false) => format!("{}: {message}", String::from_utf8_lossy(field)),
                    (Code::Internal, _) => format!("{}: {message}", code.name()),
                    _ => message.into_owned(),
                }
            }
        };
        Self { code: own, detail }
    }

    /// Returns whether another call with the same request id took over the waiting claim.
    pub(super) fn is_superseded(&self) -> bool {
        self.code == Code::Superseded
    }

    /// Formats the outcome as the message of an event.
    pub(super) fn event_message(&self) -> String {
        format!("{}: {}", self.code.event_name(), self.detail)
    }

    /// Converts the outcome to a status, for list responses, which have no `result_code`. `Shutdown`, `BadInput` and
    /// `Unauthorized` have gRPC codes of their own. `Internal` and the codes with which a list cannot fail become
    /// INTERNAL.
    pub(super) fn into_status(self) -> Status {
        match self.code {
            Code::Shutdown => Status::unavailable(self.detail),
            Code::BadInput => Status::invalid_argument(self.detail),
            Code::Unauthorized => Status::permission_denied(self.detail),
            _ => Status::internal(self.detail),
        }
    }
}

fn is_superseded(detail: &ErrorDetail<'_>) -> bool {
    matches!(detail, ErrorDetail::Text { value, .. } if *value == CancelReason::Superseded.number())
}

/// Describes the holder or waiter that blocks a claim.
fn in_words(contention: &Contention<'_>) -> String {
    let what = if contention.held { "held" } else { "requested" };
    let mut words = format!("the key has been {what} for {} ms", contention.age_ms);
    if !contention.owner.is_empty() {
        words += &format!(" by {}", String::from_utf8_lossy(contention.owner));
    }
    words
}

/// The fields `success`, `result_code` and `message` of a response.
pub(super) type InBand = (bool, String, String);

/// Splits a result into the response value and the fields `success`, `result_code` and `message`. The contract reports
/// failures in these fields, not as a gRPC status.
pub(super) fn in_band<T>(result: Result<T, Outcome>) -> (Option<T>, InBand) {
    match result {
        Ok(value) => (Some(value), (true, "ok".to_owned(), String::new())),
        Err(outcome) => (None, (false, outcome.code.name().to_owned(), outcome.detail)),
    }
}
