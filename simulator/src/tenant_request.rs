//! The requests of tenants, as tenants and the auditor remember them.

use waymaker_protocol::{LockId, SessionRequest};

/// Owner of the acquires with a request id. All identities use it, so only their identities tell them apart.
pub(crate) const SHARED_OWNER: &[u8] = b"tenant";

/// A request of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TenantRequest {
    Hello { session: SessionRequest, is_closed: bool },
    Acquire { key: &'static [u8], shared: bool, is_durable: bool, is_on_session: bool, is_named: bool },
    Release { id: LockId },
    Extend { id: LockId, lease_ms: u32 },
    Status { id: LockId },
    ForceRelease { id: LockId },
    Inspect { key: &'static [u8] },
    Verify { key: &'static [u8] },
    List,
    Freeze,
    RemoveNamespace,
    Namespaces,
    Goodbye,
}
