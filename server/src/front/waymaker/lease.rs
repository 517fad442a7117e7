//! Leases in the form of the contract `waymaker.WaymakerService`.

use super::outcome::Outcome;
use crate::driver::Inlet;
use crate::front::conversion::unix_ms;
use waymaker_proto::waymaker::Lease;
use waymaker_protocol as wire;
use waymaker_protocol::{LockId, LockState};

/// Reads the lease of one claim from the worker.
pub(super) async fn of(inlet: &Inlet, id: LockId, key: &str) -> Result<Lease, Outcome> {
    let status = wire::Status { id, key: Some(key.as_bytes()) };
    let reply = inlet.ask(|number, out| status.encode(number, out)).await?;
    match reply.response() {
        wire::Response::Status(status) => Ok(of_status(&status, id, key)),
        other => Err(Outcome::of(&other)),
    }
}

/// Converts a status answer of the worker to a lease.
pub(super) fn of_status(status: &wire::StatusAnswer<'_>, id: LockId, key: &str) -> Lease {
    let acquired = status.state == LockState::Held;
    let ends_at = unix_ms(status.stamp_ms.saturating_add(u64::from(status.remaining_ms)));
    let begun_ms = status.stamp_ms.saturating_sub(status.age_ms).saturating_sub(status.waited_ms);
    Lease {
        id: id.to_string(),
        key: key.to_owned(),
        acquired,
        priority: status.priority,
        created_at: unix_ms(begun_ms),
        lease_expires_at: if acquired { ends_at } else { 0 },
        waiting_expires_at: if acquired { 0 } else { ends_at },
        fence_token: status.fence,
    }
}
