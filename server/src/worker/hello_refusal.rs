//! Reasons to refuse a `HELLO`.

use super::sessions::SessionRefusal;
use crate::access::{LoginRefusal, NotIdentified};
use crate::limits::SESSION_LEASE_MIN_MS;
use waymaker_engine::{Access, QuotaReached};
use waymaker_protocol::{ErrorCode, Quoted};

/// Refusal of a `HELLO`, after which the server closes the connection.
pub(super) struct HelloRefusal {
    pub(super) code: ErrorCode,
    pub(super) limit: u64,
    pub(super) field: &'static str,
    pub(super) message: String,
    /// Namespace in which the client has no right, for the audit log.
    pub(super) denied_namespace: Option<Box<[u8]>>,
}

impl HelloRefusal {
    pub(super) fn new(code: ErrorCode, limit: u64, field: &'static str, message: impl Into<String>) -> Self {
        Self { code, limit, field, message: message.into(), denied_namespace: None }
    }

    pub(super) fn bad_input(field: &'static str, limit: u64, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadInput, limit, field, message)
    }

    pub(super) fn overloaded(limited: &'static str, limit: usize, message: String) -> Self {
        Self::new(ErrorCode::Overloaded, limit as u64, limited, message)
    }

    pub(super) fn quota_reached(reached: QuotaReached) -> Self {
        let limit = usize::try_from(reached.max).unwrap_or(usize::MAX);
        Self::overloaded(reached.limit, limit, reached.to_string())
    }

    pub(super) fn no_session(refusal: SessionRefusal, count_max: usize) -> Self {
        match refusal {
            SessionRefusal::TooShort => {
                let message =
                    format!("the session lease is too short; the minimum is {SESSION_LEASE_MIN_MS} ms");
                Self::bad_input("session_lease_ms", u64::from(SESSION_LEASE_MIN_MS), message)
            }
            SessionRefusal::TooMany => {
                let message =
                    format!("the worker has reached its share of the {count_max} sessions of the server");
                Self::overloaded("sessions", count_max, message)
            }
            SessionRefusal::Quota(reached) => Self::quota_reached(reached),
        }
    }

    pub(super) fn unauthenticated(refusal: LoginRefusal) -> Self {
        Self::new(ErrorCode::Unauthorized, 0, "credentials", refusal.to_string())
    }

    pub(super) fn not_identified(refusal: NotIdentified) -> Self {
        match refusal {
            NotIdentified::Unauthenticated { reason, .. } => Self::unauthenticated(reason),
            // Too many logins from this address have failed, so the server checks no credentials from it for
            // `retry_ms`. The refusal is not `Unauthorized`, because a client treats that as final. After this pause,
            // the server may accept the credentials.
            NotIdentified::Paused { retry_ms } => {
                Self::new(ErrorCode::Overloaded, retry_ms, "credentials", refusal.to_string())
            }
        }
    }

    pub(super) fn no_rights(access: &Access, namespace: &[u8]) -> Self {
        let identity = Quoted(access.identity().as_bytes());
        let message = format!("no rule gives {identity} a right in the namespace {}", Quoted(namespace));
        let refusal = Self::new(ErrorCode::Unauthorized, 0, "namespace", message);
        Self { denied_namespace: Some(namespace.into()), ..refusal }
    }

    pub(super) fn session_gone() -> Self {
        let message = "the session has ended or is unknown to this server";
        Self::new(ErrorCode::SessionGone, 0, "session_id", message)
    }
}
