//! `OwnedLockService`: locks that belong to the owner that the request names.

use super::connection::Connection;
use super::status;
use crate::front::conversion::{text, unix_ms};
use crate::front::trace_context;
use rand::seq::SliceRandom as _;
use tonic::{Request, Response, Status};
use waymaker_proto::v1;
use waymaker_proto::v1::owned_lease::Lease;
use waymaker_proto::v1::owned_lock_service_server::OwnedLockService;
use waymaker_protocol as wire;
use waymaker_protocol::limits::ITEM_COUNT_MAX;
use waymaker_protocol::{ErrorAnswer, ErrorDetail, NamespaceKind, TraceParent};

const KIND: NamespaceKind = NamespaceKind::Lazy;
/// Time from the end of a lock's lease until the server forgets the lock, in milliseconds.
const FORGET_MS: i64 = waymaker_engine::limits::LAZY_FORGET_MS;

/// `OwnedLockService` of the contract `waymaker.v1`, for one caller on a gRPC connection.
#[derive(Debug)]
pub(super) struct OwnedLocks(pub(super) Connection);

/// Returns the namespace of a table; empty for the default table. The client library of this project uses the same
/// namespace for a registry named `clever/TABLE` of kind lazy. In a lazy registry, a key stays registered after its
/// lease until another owner registers it or `FORGET_MS` have passed.
fn namespace(table: &str) -> String {
    if table.is_empty() { String::new() } else { format!("lazy/clever/{table}") }
}

fn required(field: &str, given: &str) -> Result<(), Status> {
    if given.is_empty() { Err(status::bad_input(field, 0, "must not be empty")) } else { Ok(()) }
}

fn form<'a>(
    key: &'a str,
    owner: &'a str,
    lease: Option<&v1::OwnedLease>,
    traceparent: Option<&'a TraceParent>,
) -> Result<wire::Register<'a>, Status> {
    required("key", key)?;
    required("owner", owner)?;
    let (lease_ms, absolute) = match lease.and_then(|lease| lease.lease) {
        Some(Lease::DurationMs(duration_ms)) => (duration_ms, false),
        Some(Lease::EndAtMs(end_at_ms)) => (end_at_ms, true),
        None => return Err(status::bad_input("lease", 0, "must be set")),
    };
    let (key, owner) = (key.as_bytes(), owner.as_bytes());
    let traceparent = traceparent.map(TraceParent::as_bytes);
    Ok(wire::Register { lease_ms, absolute, key, owner, traceparent, ..wire::Register::default() })
}

/// Converts the worker's response to a REGISTER or HEARTBEAT to the lock of the contract `waymaker.v1`, or to an error
/// status.
fn granted(register: &wire::Register<'_>, response: &wire::Response<'_>) -> Result<v1::OwnedLock, Status> {
    let registered = match response {
        wire::Response::Registered(registered) => registered,
        wire::Response::Error(error) => return Err(status::unavailable(error)),
        _ => return Err(status::unexpected()),
    };
    let now = unix_ms(registered.stamp_ms);
    let leased_until_ms = now.saturating_add(registered.remaining_ms);
    Ok(v1::OwnedLock {
        key: text(register.key),
        owner: text(register.owner),
        leased_until_ms,
        remaining_ms: registered.remaining_ms,
        created_at_ms: now,
        ttl_ms: leased_until_ms.saturating_add(FORGET_MS),
        fence: registered.fence,
    })
}

/// Returns the remaining lease of the current holder, in milliseconds; the largest number if the error does not contain
/// it.
fn remaining_ms(error: &ErrorAnswer<'_>) -> u32 {
    match error.detail {
        ErrorDetail::Contention(contention) => contention.remaining_ms,
        ErrorDetail::Text { .. } => u32::MAX,
    }
}

impl OwnedLocks {
    async fn any(
        &self,
        request: &v1::AcquireAnyLockRequest,
        traceparent: Option<&TraceParent>,
    ) -> Result<v1::OwnedLock, Status> {
        let mut keys: Vec<&String> = request.keys.iter().collect();
        if keys.is_empty() {
            return Err(status::bad_input("keys", 0, "must have at least one key"));
        }
        if keys.len() > ITEM_COUNT_MAX {
            let message = format!("{} keys; the maximum is {ITEM_COUNT_MAX}", keys.len());
            return Err(status::bad_input("keys", ITEM_COUNT_MAX as u64, &message));
        }
        if request.randomize_order {
            keys.shuffle(&mut rand::rng());
        }
        let namespace = namespace(&request.table);
        let mut soonest: Option<(u32, Status)> = None;
        for key in keys {
            let register = form(key, &request.owner, request.lease.as_ref(), traceparent)?;
            let reply = self.0.ask_whole(KIND, &namespace, wire::Request::Register(register)).await?;
            match reply.response() {
                wire::Response::Error(error) if error.code == wire::ErrorCode::Busy => {
                    let remaining_ms = remaining_ms(&error);
                    if soonest.as_ref().is_none_or(|(soonest_ms, _)| remaining_ms < *soonest_ms) {
                        soonest = Some((remaining_ms, status::unavailable(&error)));
                    }
                }
                response => return granted(&register, &response),
            }
        }
        Err(soonest.map_or_else(status::unexpected, |(_, status)| status))
    }
}

#[tonic::async_trait]
impl OwnedLockService for OwnedLocks {
    async fn acquire_lock(
        &self,
        request: Request<v1::AcquireLockRequest>,
    ) -> Result<Response<v1::AcquireLockResponse>, Status> {
        let traceparent = trace_context::of_metadata(request.metadata());
        let request = request.get_ref();
        let register = form(&request.key, &request.owner, request.lease.as_ref(), traceparent.as_ref())?;
        let asked = wire::Request::Register(register);
        let reply = self.0.ask_whole(KIND, &namespace(&request.table), asked).await?;
        let lock = granted(&register, &reply.response())?;
        Ok(Response::new(v1::AcquireLockResponse { lock: Some(lock) }))
    }

    async fn acquire_any_lock(
        &self,
        request: Request<v1::AcquireAnyLockRequest>,
    ) -> Result<Response<v1::AcquireAnyLockResponse>, Status> {
        let traceparent = trace_context::of_metadata(request.metadata());
        let lock = self.any(request.get_ref(), traceparent.as_ref()).await?;
        Ok(Response::new(v1::AcquireAnyLockResponse { lock: Some(lock) }))
    }

    async fn heartbeat_lock(
        &self,
        request: Request<v1::HeartbeatLockRequest>,
    ) -> Result<Response<v1::HeartbeatLockResponse>, Status> {
        let request = request.get_ref();
        let register = form(&request.key, &request.owner, request.lease.as_ref(), None)?;
        let asked = wire::Request::Heartbeat(wire::Heartbeat(register));
        let reply = self.0.ask_whole(KIND, &namespace(&request.table), asked).await?;
        let lock = granted(&register, &reply.response())?;
        Ok(Response::new(v1::HeartbeatLockResponse { lock: Some(lock) }))
    }

    async fn release_lock(
        &self,
        request: Request<v1::ReleaseLockRequest>,
    ) -> Result<Response<v1::ReleaseLockResponse>, Status> {
        let request = request.get_ref();
        required("key", &request.key)?;
        required("owner", &request.owner)?;
        let unregister = wire::Unregister { key: request.key.as_bytes(), owner: request.owner.as_bytes() };
        let asked = wire::Request::Unregister(unregister);
        let reply = self.0.ask_whole(KIND, &namespace(&request.table), asked).await?;
        match reply.response() {
            wire::Response::Unregistered(_) => {}
            wire::Response::Error(error) if error.code == wire::ErrorCode::NotFound => {}
            wire::Response::Error(error) => return Err(status::unavailable(&error)),
            _ => return Err(status::unexpected()),
        }
        Ok(Response::new(v1::ReleaseLockResponse {}))
    }

    async fn get_current_lock(
        &self,
        request: Request<v1::GetCurrentLockRequest>,
    ) -> Result<Response<v1::GetCurrentLockResponse>, Status> {
        let request = request.get_ref();
        required("key", &request.key)?;
        let look_up = wire::Request::LookUp(wire::LookUp { key: request.key.as_bytes() });
        let read = |response: wire::Response<'_>| match response {
            wire::Response::LookedUp(found) => {
                let lock = found.found.then(|| current(&found));
                Some(v1::GetCurrentLockResponse { lock })
            }
            _ => None,
        };
        self.0.ask(KIND, &namespace(&request.table), look_up, read).await.map(Response::new)
    }
}

fn current(found: &wire::LookedUp<'_>) -> v1::OwnedLock {
    let (now, registration) = (unix_ms(found.stamp_ms), &found.entry);
    let leased_until_ms = now.saturating_add(registration.remaining_ms);
    v1::OwnedLock {
        key: text(registration.key),
        owner: text(registration.owner),
        leased_until_ms,
        remaining_ms: registration.remaining_ms,
        created_at_ms: now.saturating_sub_unsigned(registration.age_ms),
        ttl_ms: leased_until_ms.saturating_add(FORGET_MS),
        fence: registration.fence,
    }
}
