//! Table that maps wire errors to gRPC statuses.

use super::claims::times;
use crate::driver::{ClosedLane, Reply};
use crate::front::conversion::{now_ms, text};
use prost::Message as _;
use tonic::{Code, Status};
use waymaker_engine::QuotaReached;
use waymaker_proto::v1;
use waymaker_protocol::{DecodeError, ErrorAnswer, ErrorCode, ErrorDetail, Response};

/// Type URL of the detail in each error status that this module makes.
const REFUSAL_TYPE_URL: &str = "type.googleapis.com/waymaker.v1.Refusal";

/// Returns the gRPC code of a wire error. [`of`] replaces it for clients that are not authenticated.
fn code(error: ErrorCode) -> Code {
    match error {
        ErrorCode::BadInput => Code::InvalidArgument,
        ErrorCode::NotFound => Code::NotFound,
        ErrorCode::Timeout => Code::DeadlineExceeded,
        ErrorCode::Cancelled | ErrorCode::Revoked | ErrorCode::SessionGone => Code::Aborted,
        ErrorCode::Busy
        | ErrorCode::NotOwner
        | ErrorCode::NotHeld
        | ErrorCode::Expired
        | ErrorCode::CapacityMismatch
        | ErrorCode::Frozen
        | ErrorCode::ScopeUnavailable => Code::FailedPrecondition,
        ErrorCode::Throttled | ErrorCode::NoSpace | ErrorCode::Overloaded => Code::ResourceExhausted,
        ErrorCode::QuorumUnavailable | ErrorCode::Shutdown | ErrorCode::Recovering => Code::Unavailable,
        ErrorCode::Unauthorized => Code::PermissionDenied,
        ErrorCode::Unknown | ErrorCode::Other(_) => Code::Unknown,
        ErrorCode::Internal => Code::Internal,
    }
}

/// Converts an error in wire form to a status.
pub(super) fn of(error: &ErrorAnswer<'_>) -> Status {
    let mut message = error.to_string();
    if let ErrorDetail::Text { value, field, .. } = &error.detail {
        let named = match (field.is_empty(), *value) {
            (true, _) => String::new(),
            (false, 0) => format!(" [{}]", text(field)),
            (false, value) => format!(" [{}, {value}]", text(field)),
        };
        message.push_str(&named);
    }
    let code = if is_unidentified(error) { Code::Unauthenticated } else { code(error.code) };
    with_refusal(code, message, &refusal(error))
}

/// Returns whether the error says that the client is not authenticated, or no longer authenticated.
fn is_unidentified(error: &ErrorAnswer<'_>) -> bool {
    error.code == ErrorCode::Unauthorized
        && matches!(error.detail, ErrorDetail::Text { field: b"credentials", .. })
}

/// Converts the worker's error for an acquire, heartbeat or release of `OwnedLockService`. If the lock belongs to
/// another owner or nobody holds it, the status is FAILED_PRECONDITION, and its message begins with `lock unavailable`.
/// Any other error gets the gRPC code that [`of`] chooses for it in all services.
pub(super) fn unavailable(error: &ErrorAnswer<'_>) -> Status {
    match error.code {
        ErrorCode::Busy | ErrorCode::NotOwner | ErrorCode::NotFound => {
            with_refusal(Code::FailedPrecondition, format!("lock unavailable: {error}"), &refusal(error))
        }
        _ => of(error),
    }
}

/// Converts the ERROR with which the worker refused to open a lane, or ended it, to a gRPC status.
pub(super) fn of_reply(reply: &Reply) -> Status {
    match reply.response() {
        Response::Error(error) => of(&error),
        _ => unexpected(),
    }
}

/// Returns the status for an invalid request field.
pub(super) fn bad_input(field: &str, limit: u64, message: &str) -> Status {
    own(ErrorCode::BadInput, field, limit, message)
}

/// Returns the status for a request field that violates the wire format.
pub(super) fn of_decode(error: &DecodeError) -> Status {
    of(&error.answer(&error.to_string()))
}

/// Returns the status for a per-connection limit that is reached.
pub(super) fn overloaded(limited: &str, limit: usize, message: &str) -> Status {
    own(ErrorCode::Overloaded, limited, limit as u64, message)
}

/// Returns the status for a reached quota of the client.
pub(in crate::front) fn quota_reached(reached: &QuotaReached) -> Status {
    own(ErrorCode::Overloaded, reached.limit, reached.max, &reached.to_string())
}

/// Returns the status for a client whose address had too many failed logins.
pub(in crate::front) fn logins_paused(retry_ms: u64, message: &str) -> Status {
    own(ErrorCode::Overloaded, "credentials", retry_ms, message)
}

/// Returns the status for a client without this right.
pub(super) fn unauthorized(right: &str, message: &str) -> Status {
    own(ErrorCode::Unauthorized, right, 0, message)
}

/// Returns the status for an object that does not exist.
pub(super) fn not_found(field: &str, message: &str) -> Status {
    own(ErrorCode::NotFound, field, 0, message)
}

/// Returns the status for a call whose claim was taken over by another call.
pub(super) fn taken_over() -> Status {
    own(ErrorCode::Cancelled, "request_id", 0, "another call with this request id took over the claim")
}

/// Returns the status for a closed lane.
pub(in crate::front) fn closed(closed: ClosedLane) -> Status {
    match closed.denial {
        Some(denial) => of_reply(&denial),
        None => own(ErrorCode::Shutdown, "", 0, "the server is stopping"),
    }
}

/// Returns the status for a response that does not match its request.
pub(super) fn unexpected() -> Status {
    own(ErrorCode::Internal, "", 0, "the server produced a response that does not match the request")
}

fn own(code: ErrorCode, field: &str, value: u64, message: &str) -> Status {
    let detail = ErrorDetail::Text { value, field: field.as_bytes(), message: message.as_bytes() };
    of(&ErrorAnswer { code, detail })
}

fn refusal(error: &ErrorAnswer<'_>) -> v1::Refusal {
    let code = i32::from(error.code.number());
    match &error.detail {
        ErrorDetail::Text { value, field, message } => {
            v1::Refusal { code, field: text(field), value: *value, message: text(message), contention: None }
        }
        ErrorDetail::Contention(contention) => {
            let (_, ends_at_ms) = times(now_ms(), 0, contention.remaining_ms);
            let contention = v1::Contention {
                held: contention.held,
                shared: contention.shared,
                owner: text(contention.owner),
                age_ms: contention.age_ms,
                remaining_ms: contention.remaining_ms,
                ends_at_ms,
                waiter_count: contention.waiter_count,
            };
            let message = error.to_string();
            v1::Refusal { code, field: String::new(), value: 0, message, contention: Some(contention) }
        }
    }
}

fn with_refusal(code: Code, message: String, refusal: &v1::Refusal) -> Status {
    let detail = prost_types::Any { type_url: REFUSAL_TYPE_URL.to_owned(), value: refusal.encode_to_vec() };
    let status =
        tonic_types::pb::Status { code: i32::from(code), message: message.clone(), details: vec![detail] };
    Status::with_details(code, message, status.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wire_error_code_has_the_same_number_in_the_contract() {
        for error in ErrorCode::ALL {
            let number = i32::from(error.number());
            let ours = v1::ErrorCode::try_from(number).expect("the contract has the number");
            let name = format!("ERROR_CODE_{}", error.name().to_uppercase());
            assert_eq!(ours.as_str_name(), name);
            assert_ne!(code(*error), Code::Ok);
        }
    }

    #[test]
    fn a_status_names_field_and_limit_in_its_message_and_details() {
        let status = bad_input("key", 1024, "too long");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "bad_input: too long [key, 1024]");
        let details = tonic_types::pb::Status::decode(status.details()).expect("a status").details;
        let [detail] = &details[..] else { panic!("{details:?}") };
        assert_eq!(detail.type_url, REFUSAL_TYPE_URL);
        let refusal = v1::Refusal::decode(&detail.value[..]).expect("a refusal");
        assert_eq!((refusal.field.as_str(), refusal.value), ("key", 1024));
        assert_eq!(refusal.code(), v1::ErrorCode::BadInput);
    }
}
