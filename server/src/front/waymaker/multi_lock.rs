//! `MultiLock`: all keys or none.

use super::outcome::Outcome;
use super::parameters::{Parameters, check_key};
use super::{Waymaker, lease};
use crate::driver::Local;
use waymaker_proto::waymaker::{Lease, MultiLockRequest};
use waymaker_protocol as wire;
use waymaker_protocol::limits::ITEM_COUNT_MAX;
use waymaker_protocol::{Items, KeyItem};

/// Acquires all keys, or says why not. One lease for each different key, in the order of the keys' bytes.
pub(super) async fn acquire(service: &Waymaker, request: &MultiLockRequest) -> Result<Vec<Lease>, Outcome> {
    let begun_ms = Local::with(|local| local.now().as_millis());
    let Parameters { wait_ms, lease_ms, options } = Parameters::of_multi_lock(request)?;
    if request.keys.len() > ITEM_COUNT_MAX {
        let count = request.keys.len();
        return Err(Outcome::bad_input(format!("keys has {count} keys, the limit is {ITEM_COUNT_MAX}")));
    }
    for key in &request.keys {
        check_key(&key.key)?;
    }
    let first = request.keys.iter().map(|key| key.key.as_bytes()).min().ok_or_else(Outcome::no_keys)?;
    let items = request.keys.iter().map(|key| KeyItem { shared: !key.write_lock, key: key.key.as_bytes() });
    let mut buffer = Vec::new();
    let items = Items::new(items, &mut buffer).map_err(|error| Outcome::bad_input(error.to_string()))?;
    let acquire =
        wire::AcquireKeys { lease_ms, wait_ms, session_lease: false, notify_queued: false, items, options };
    let reply =
        service.streams.get()?.ask_for_holds(first, |number, out| acquire.encode(number, out)).await?;
    let response = reply.response();
    let wire::Response::GrantedKeys(granted) = &response else { return Err(Outcome::of(&response)) };
    let mut keys: Vec<_> = granted.keys.iter().collect();
    keys.sort_unstable_by_key(|key| key.key);
    let mut leases = Vec::with_capacity(keys.len());
    for key in keys {
        let name = String::from_utf8_lossy(key.key);
        leases.push(if granted.repeated {
            lease::of(service.calls.get()?, key.id, &name).await?
        } else {
            Lease {
                id: key.id.to_string(),
                key: name.into_owned(),
                acquired: true,
                priority: request.priority,
                created_at: lease::unix_ms(begun_ms),
                lease_expires_at: lease::unix_ms(granted.stamp_ms + u64::from(key.remaining_ms)),
                waiting_expires_at: 0,
                fence_token: key.fence,
            }
        });
    }
    Ok(leases)
}
