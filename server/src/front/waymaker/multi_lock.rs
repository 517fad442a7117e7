//! `MultiLock`: acquires all keys or none.

use super::outcome::Outcome;
use super::parameters::{Parameters, check_key};
use super::{Waymaker, lease};
use crate::driver::Local;
use crate::front::conversion::unix_ms;
use waymaker_proto::waymaker::{Lease, MultiLockKey, MultiLockRequest};
use waymaker_protocol as wire;
use waymaker_protocol::limits::ITEM_COUNT_MAX;
use waymaker_protocol::{Items, KeyItem, LockId, TraceParent};

/// Acquires all keys, or returns the reason why none was acquired. For a repeated acquire, an error can also mean that
/// reading the state of an existing hold failed. The result has one lease for each distinct key, in byte order of the
/// keys.
pub(super) async fn acquire(
    service: &Waymaker,
    request: &MultiLockRequest,
    traceparent: Option<&TraceParent>,
) -> Result<Vec<Lease>, Outcome> {
    let parameters = Parameters::of_multi_lock(request, traceparent)?;
    if request.keys.len() > ITEM_COUNT_MAX {
        let count = request.keys.len();
        return Err(Outcome::bad_input(format!("keys has {count} keys; the maximum is {ITEM_COUNT_MAX}")));
    }
    for key in &request.keys {
        check_key(&key.key)?;
    }
    match &request.keys[..] {
        [] => Err(Outcome::no_keys()),
        // A single-key claim costs half as much as a multi-key claim. But an acquire with a request id must stay a
        // multi-key claim: the id belongs to the whole set of keys, and a single-key claim would not find an earlier
        // claim with this id.
        [key] if parameters.options.request_id.is_none() => {
            Ok(vec![acquire_one(service, key, parameters).await?])
        }
        _ => acquire_multi_key(service, request, parameters).await,
    }
}

async fn acquire_one(
    service: &Waymaker,
    key: &MultiLockKey,
    parameters: Parameters<'_>,
) -> Result<Lease, Outcome> {
    let Parameters { wait_ms, lease_ms, options } = parameters;
    let name = key.key.as_bytes();
    let acquire = wire::Acquire {
        key: name,
        shared: !key.write_lock,
        terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease: false, notify_queued: false, options },
    };
    let asked = service.streams.get()?.ask_for_holds(name, |number, out| acquire.encode(number, out));
    // `ask_for_holds` has sent the request to the worker, which set the worker's time. So that time is the start of the
    // claim.
    let begun_ms = Local::with(Local::worker_now).as_millis();
    let reply = asked.await?;
    match reply.response() {
        wire::Response::Granted(wire::Granted { id, fence, remaining_ms, stamp_ms, .. }) => {
            let grant = Grant { id, fence, ends_ms: stamp_ms + u64::from(remaining_ms) };
            Ok(lease_of(&key.key, &grant, begun_ms, parameters.priority()))
        }
        other => Err(Outcome::of(&other)),
    }
}

async fn acquire_multi_key(
    service: &Waymaker,
    request: &MultiLockRequest,
    parameters: Parameters<'_>,
) -> Result<Vec<Lease>, Outcome> {
    let Parameters { wait_ms, lease_ms, options } = parameters;
    // A CANCEL of a multi-key acquire must name its smallest key.
    let first = request.keys.iter().map(|key| key.key.as_bytes()).min().unwrap_or_default();
    let items = request.keys.iter().map(|key| KeyItem { shared: !key.write_lock, key: key.key.as_bytes() });
    let mut buffer = Vec::new();
    let items = Items::new(items, &mut buffer).map_err(|error| Outcome::bad_input(error.to_string()))?;
    let acquire = wire::AcquireKeys {
        items,
        terms: wire::AcquireTerms { lease_ms, wait_ms, session_lease: false, notify_queued: false, options },
    };
    let asked = service.streams.get()?.ask_for_holds(first, |number, out| acquire.encode(number, out));
    // `ask_for_holds` has sent the request to the worker, which set the worker's time. So that time is the start of the
    // claim.
    let begun_ms = Local::with(Local::worker_now).as_millis();
    let reply = asked.await?;
    let response = reply.response();
    let wire::Response::GrantedKeys(granted) = &response else { return Err(Outcome::of(&response)) };
    let mut keys: Vec<_> = granted.keys.iter().collect();
    keys.sort_unstable_by_key(|key| key.key);
    let mut leases = Vec::with_capacity(keys.len());
    for key in keys {
        let name = String::from_utf8_lossy(key.key);
        leases.push(if granted.repeated {
            lease::of(&*service.calls.get()?, key.id, &name).await?
        } else {
            let ends_ms = granted.stamp_ms + u64::from(key.remaining_ms);
            let grant = Grant { id: key.id, fence: key.fence, ends_ms };
            lease_of(&name, &grant, begun_ms, parameters.priority())
        });
    }
    Ok(leases)
}

/// One granted hold.
struct Grant {
    id: LockId,
    fence: u64,
    ends_ms: u64,
}

fn lease_of(key: &str, grant: &Grant, begun_ms: u64, priority: u32) -> Lease {
    Lease {
        id: grant.id.to_string(),
        key: key.to_owned(),
        acquired: true,
        priority,
        created_at: unix_ms(begun_ms),
        lease_expires_at: unix_ms(grant.ends_ms),
        waiting_expires_at: 0,
        fence_token: grant.fence,
    }
}
