//! Parameters that `LockRequest` and `MultiLockRequest` share, validated and converted for the worker.

use super::outcome::Outcome;
use waymaker_proto::waymaker::{FenceScope, LockRequest, MultiLockRequest};
use waymaker_protocol::limits::{KEY_LEN_MAX, METADATA_LEN_MAX, OWNER_LEN_MAX, REQUEST_ID_LEN_MAX};
use waymaker_protocol::{AcquireOptions, TraceParent};

/// Maximum wait that ends by itself, in milliseconds. The next higher value means an endless wait to the worker.
const WAIT_MS_MAX: u32 = u32::MAX - 1;

/// Parameters that `LockRequest` and `MultiLockRequest` share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters<'a> {
    pub(super) wait_ms: u32,
    pub(super) lease_ms: u32,
    pub(super) options: AcquireOptions<'a>,
}

/// Validates and converts the fields that `LockRequest` and `MultiLockRequest` have under the same names.
macro_rules! check {
    ($request:expr, $traceparent:expr) => {{
        let request = $request;
        check_len("request_id", &request.request_id, REQUEST_ID_LEN_MAX)?;
        check_len("requester_application", &request.requester_application, OWNER_LEN_MAX)?;
        check_len("requester_info", &request.requester_info, METADATA_LEN_MAX)?;
        let scope = match FenceScope::try_from(request.fence_scope) {
            Ok(FenceScope::ScopeUnspecified | FenceScope::ScopeEphemeral) => None,
            Ok(FenceScope::ScopeLocal) => Some(2),
            // An unknown scope of a newer contract is treated as the strongest known scope.
            Ok(FenceScope::ScopeQuorum) | Err(_) => Some(3),
        };
        let options = AcquireOptions {
            release_after_ms: None,
            priority: (request.priority > 0).then_some(request.priority),
            scope,
            request_id: given(&request.request_id),
            owner: given(&request.requester_application),
            metadata: given(&request.requester_info),
            traceparent: $traceparent.map(TraceParent::as_bytes),
        };
        let wait_ms = request.max_wait_period.min(WAIT_MS_MAX);
        Ok(Self { wait_ms, lease_ms: request.max_lease_period, options })
    }};
}

impl<'a> Parameters<'a> {
    pub(super) fn of_lock(
        request: &'a LockRequest,
        traceparent: Option<&'a TraceParent>,
    ) -> Result<Self, Outcome> {
        check_key(&request.key)?;
        check!(request, traceparent)
    }

    pub(super) fn of_multi_lock(
        request: &'a MultiLockRequest,
        traceparent: Option<&'a TraceParent>,
    ) -> Result<Self, Outcome> {
        check!(request, traceparent)
    }
}

impl Parameters<'_> {
    /// Returns the priority as the contract expresses it: 0 without one.
    pub(super) fn priority(&self) -> u32 {
        self.options.priority.unwrap_or(0)
    }
}

/// Validates a key against the rules of the contract.
pub(super) fn check_key(key: &str) -> Result<(), Outcome> {
    if key.is_empty() {
        return Err(Outcome::bad_input("key is empty"));
    }
    check_len("key", key, KEY_LEN_MAX)
}

fn check_len(field: &str, text: &str, limit: usize) -> Result<(), Outcome> {
    if text.len() > limit {
        return Err(Outcome::bad_input(format!(
            "{field} is {} bytes long; the maximum is {limit}",
            text.len()
        )));
    }
    Ok(())
}

fn given(text: &str) -> Option<&[u8]> {
    (!text.is_empty()).then_some(text.as_bytes())
}
