//! The parameters that an acquire has in every form of it, checked and as the worker is asked them.

use super::outcome::Outcome;
use waymaker_proto::waymaker::{FenceScope, LockRequest, MultiLockRequest};
use waymaker_protocol::AcquireOptions;
use waymaker_protocol::limits::{KEY_LEN_MAX, METADATA_LEN_MAX, OWNER_LEN_MAX, REQUEST_ID_LEN_MAX};

/// The longest wait that ends by itself; the number above means another thing to the worker.
const WAIT_MS_MAX: u32 = u32::MAX - 1;

/// What `LockRequest` and `MultiLockRequest` have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters<'a> {
    pub(super) wait_ms: u32,
    pub(super) lease_ms: u32,
    pub(super) options: AcquireOptions<'a>,
}

/// The fields of a request by their names in the contract.
struct Fields<'a> {
    max_wait_period: u32,
    max_lease_period: u32,
    priority: u32,
    requester_info: &'a str,
    requester_application: &'a str,
    request_id: &'a str,
    fence_scope: i32,
}

impl<'a> Parameters<'a> {
    pub(super) fn of_lock(request: &'a LockRequest) -> Result<Self, Outcome> {
        check_key(&request.key)?;
        Self::check(&Fields {
            max_wait_period: request.max_wait_period,
            max_lease_period: request.max_lease_period,
            priority: request.priority,
            requester_info: &request.requester_info,
            requester_application: &request.requester_application,
            request_id: &request.request_id,
            fence_scope: request.fence_scope,
        })
    }

    pub(super) fn of_multi_lock(request: &'a MultiLockRequest) -> Result<Self, Outcome> {
        Self::check(&Fields {
            max_wait_period: request.max_wait_period,
            max_lease_period: request.max_lease_period,
            priority: request.priority,
            requester_info: &request.requester_info,
            requester_application: &request.requester_application,
            request_id: &request.request_id,
            fence_scope: request.fence_scope,
        })
    }

    fn check(fields: &Fields<'a>) -> Result<Self, Outcome> {
        check_len("request_id", fields.request_id, REQUEST_ID_LEN_MAX)?;
        check_len("requester_application", fields.requester_application, OWNER_LEN_MAX)?;
        check_len("requester_info", fields.requester_info, METADATA_LEN_MAX)?;
        let given = |text: &'a str| (!text.is_empty()).then_some(text.as_bytes());
        let scope = match FenceScope::try_from(fields.fence_scope) {
            Ok(FenceScope::ScopeUnspecified | FenceScope::ScopeEphemeral) => None,
            Ok(FenceScope::ScopeLocal) => Some(2),
            // A scope that a newer contract may have is stronger than those of this one.
            Ok(FenceScope::ScopeQuorum) | Err(_) => Some(3),
        };
        let options = AcquireOptions {
            release_after_ms: None,
            priority: (fields.priority > 0).then_some(fields.priority),
            scope,
            request_id: given(fields.request_id),
            owner: given(fields.requester_application),
            metadata: given(fields.requester_info),
        };
        let wait_ms = fields.max_wait_period.min(WAIT_MS_MAX);
        Ok(Self { wait_ms, lease_ms: fields.max_lease_period, options })
    }
}

impl Parameters<'_> {
    /// As the contract has it, where none is 0.
    pub(super) fn priority(&self) -> u32 {
        self.options.priority.unwrap_or(0)
    }
}

/// A key as the contract allows it.
pub(super) fn check_key(key: &str) -> Result<(), Outcome> {
    if key.is_empty() {
        return Err(Outcome::bad_input("key is empty"));
    }
    check_len("key", key, KEY_LEN_MAX)
}

fn check_len(field: &str, text: &str, limit: usize) -> Result<(), Outcome> {
    if text.len() > limit {
        return Err(Outcome::bad_input(format!("{field} has {} bytes, the limit is {limit}", text.len())));
    }
    Ok(())
}
