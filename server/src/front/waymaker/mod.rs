//! The published contract `waymaker.WaymakerService`.
//!
//! All locks of this contract are in the namespace `waymaker`, of kind flat. The engine decides about holders and
//! waiters; this module translates between the engine and the contract. `docs/reference/compatibility.md` lists the
//! points that the contract leaves open, and how we read them.

mod lease;
mod lock_stream;
mod multi_lock;
mod outcome;
mod parameters;

use self::lock_stream::LockStream;
use self::outcome::Outcome;
use super::client::FrontCaller;
use super::conversion::{now_ms, text, unix_ms};
use super::lazy_inlet::LazyInlet;
use super::trace_context;
use crate::driver::front_turn::next_turn;
use crate::driver::{ClosedLane, Reply};
use crate::front::FrontConfig;
use crate::front::lists::List;
use crate::limits::LIST_PAGE_COUNT;
use prost::Message as _;
use std::sync::Arc;
use tonic::{Request, Response, Status};
use waymaker_proto::waymaker::waymaker_service_server::WaymakerService;
use waymaker_proto::waymaker::{
    AcquiredLock, ExtendLeaseRequest, ExtendLeaseResponse, LeaseStatusRequest, LeaseStatusResponse,
    ListAcquiredLocksRequest, ListAcquiredLocksResponse, LockRequest, MultiLockRequest, MultiLockResponse,
    UnLockRequest, UnLockResponse,
};
use waymaker_protocol as wire;
use waymaker_protocol::limits::KEY_LEN_MAX;
use waymaker_protocol::{LockId, NamespaceKind};

/// Namespace of all locks of this contract.
const NAMESPACE: &[u8] = b"waymaker";

/// `WaymakerService` for one caller on a gRPC connection.
#[derive(Debug)]
pub(super) struct Waymaker {
    /// Lane of all acquires of this caller.
    streams: LazyInlet,
    /// Lane of all requests other than acquires. The worker reports a release to the claim's stream only if another
    /// lane requested it. With this separate lane, the stream hears even of releases that its own connection sent.
    calls: LazyInlet,
}

impl Waymaker {
    /// Creates the service for calls of this caller.
    pub(super) fn new(caller: &FrontCaller) -> Self {
        let lane = || LazyInlet::new(NamespaceKind::Flat, NAMESPACE, caller.clone());
        Self { streams: lane(), calls: lane() }
    }

    fn lock(&self, request: Request<LockRequest>, shared: bool) -> Response<LockStream> {
        let traceparent = trace_context::of_metadata(request.metadata());
        let request = request.into_inner();
        Response::new(match LockStream::begin(&self.streams, &request, shared, traceparent.as_ref()) {
            Ok(stream) => stream,
            Err(outcome) => LockStream::failed(request.key, &outcome),
        })
    }

    async fn release(&self, request: &UnLockRequest) -> Result<(), Outcome> {
        let id = checked_id(&request.key, &request.id)?;
        let release = wire::Release { id, key: Some(request.key.as_bytes()), own: false };
        let reply = self.calls.get()?.ask(|number, out| release.encode(number, out)).await?;
        match reply.response() {
            wire::Response::Released(_) => Ok(()),
            other => Err(Outcome::of(&other)),
        }
    }

    async fn extend(&self, request: &ExtendLeaseRequest) -> Result<waymaker_proto::waymaker::Lease, Outcome> {
        let id = checked_id(&request.key, &request.id)?;
        if request.lease_timeout == 0 {
            return Err(Outcome::bad_input(
                "lease_timeout is 0; it must be at least 1 ms; use UnLock to release a lock",
            ));
        }
        let key = Some(request.key.as_bytes());
        let extend = wire::Extend { id, lease_ms: request.lease_timeout, key, own: false };
        let reply = self.calls.get()?.ask(|number, out| extend.encode(number, out)).await?;
        match reply.response() {
            wire::Response::Extended(_) => {}
            other => return Err(Outcome::of(&other)),
        }
        lease::of(&*self.calls.get()?, id, &request.key).await
    }

    async fn status(&self, request: &LeaseStatusRequest) -> Result<waymaker_proto::waymaker::Lease, Outcome> {
        let id = checked_id(&request.key, &request.id)?;
        lease::of(&*self.calls.get()?, id, &request.key).await
    }

    /// Lists all held locks whose keys begin with `prefix`, page by page. Between pages, other connections get a turn.
    async fn list(&self, prefix: &[u8]) -> Result<Arc<List>, Status> {
        let fields = ListAcquiredLocksResponse { success: true, locks: Vec::new() }.encode_to_vec();
        let list = FrontConfig::with(|fronts| fronts.lists.begin(fields));
        let mut cursor = 0;
        loop {
            let page = self.page(prefix, cursor).await.map_err(Outcome::into_status)?;
            let response = page.response();
            let wire::Response::Listed(page) = &response else {
                return Err(Outcome::of(&response).into_status());
            };
            let now_unix_ms = unix_ms(now_ms());
            let mut locks: Vec<_> = page.locks.iter().map(|lock| acquired_lock(lock, now_unix_ms)).collect();
            locks.sort_unstable_by(|a, b| (&a.key, &a.lock_id).cmp(&(&b.key, &b.lock_id)));
            // Protobuf does not encode fields with default values, such as `success: false`. So the bytes of this page
            // contain only the items of `locks`. The whole message is `fields` followed by the items of all pages.
            list.push(ListAcquiredLocksResponse { success: false, locks }.encode_to_vec())?;
            cursor = page.next;
            if cursor == 0 {
                return Ok(list);
            }
            next_turn().await;
        }
    }

    async fn page(&self, prefix: &[u8], cursor: u64) -> Result<Reply, Outcome> {
        let list = wire::List { cursor, count_max: LIST_PAGE_COUNT, prefix, ..wire::List::default() };
        Ok(self.calls.get()?.ask(|number, out| list.encode(number, out)).await?)
    }
}

#[tonic::async_trait]
impl WaymakerService for Waymaker {
    type LockStream = LockStream;
    type ReadLockStream = LockStream;

    async fn lock(&self, request: Request<LockRequest>) -> Result<Response<LockStream>, Status> {
        Ok(self.lock(request, false))
    }

    async fn read_lock(&self, request: Request<LockRequest>) -> Result<Response<LockStream>, Status> {
        Ok(self.lock(request, true))
    }

    async fn un_lock(&self, request: Request<UnLockRequest>) -> Result<Response<UnLockResponse>, Status> {
        let (success, result_code, message) = outcome::in_band(self.release(request.get_ref()).await).1;
        Ok(Response::new(UnLockResponse { success, result_code, message }))
    }

    async fn lease_status(
        &self,
        request: Request<LeaseStatusRequest>,
    ) -> Result<Response<LeaseStatusResponse>, Status> {
        let (lease, (success, result_code, message)) = outcome::in_band(self.status(request.get_ref()).await);
        Ok(Response::new(LeaseStatusResponse { success, result_code, message, lease }))
    }

    async fn extend_lease(
        &self,
        request: Request<ExtendLeaseRequest>,
    ) -> Result<Response<ExtendLeaseResponse>, Status> {
        let (lease, (success, result_code, message)) = outcome::in_band(self.extend(request.get_ref()).await);
        Ok(Response::new(ExtendLeaseResponse { success, result_code, message, lease }))
    }

    async fn multi_lock(
        &self,
        request: Request<MultiLockRequest>,
    ) -> Result<Response<MultiLockResponse>, Status> {
        let traceparent = trace_context::of_metadata(request.metadata());
        let granted = multi_lock::acquire(self, request.get_ref(), traceparent.as_ref()).await;
        let (leases, (success, result_code, message)) = outcome::in_band(granted);
        let leases = leases.unwrap_or_default();
        Ok(Response::new(MultiLockResponse { success, result_code, message, leases }))
    }

    async fn list_acquired_locks(
        &self,
        request: Request<ListAcquiredLocksRequest>,
    ) -> Result<Response<ListAcquiredLocksResponse>, Status> {
        let prefix = request.get_ref().key_prefix.as_bytes();
        if prefix.len() > KEY_LEN_MAX {
            // The prefix is longer than any key can be, so no lock has it.
            return Ok(Response::new(ListAcquiredLocksResponse { success: true, locks: Vec::new() }));
        }
        let mut response = Response::new(ListAcquiredLocksResponse::default());
        response.extensions_mut().insert(self.list(prefix).await?);
        Ok(response)
    }
}

/// Validates the key and parses the id. An id that cannot exist is reported as not found.
fn checked_id(key: &str, id: &str) -> Result<LockId, Outcome> {
    parameters::check_key(key)?;
    if id.is_empty() {
        return Err(Outcome::bad_input("id is missing"));
    }
    id.parse().map_err(|_| Outcome::not_found())
}

fn acquired_lock(lock: &wire::ListedLock<'_>, now_unix_ms: i64) -> AcquiredLock {
    AcquiredLock {
        key: text(lock.key),
        lock_id: lock.id.to_string(),
        write_lock: !lock.shared,
        priority: lock.priority,
        fence_token: lock.fence,
        lease_expires_at: now_unix_ms.saturating_add(i64::from(lock.remaining_ms)),
        acquired_at: now_unix_ms.saturating_sub(i64::try_from(lock.held_ms).unwrap_or(i64::MAX)),
        request_id: text(lock.request_id),
        requester_info: text(lock.metadata),
        requester_application: text(lock.owner),
    }
}

impl From<ClosedLane> for Outcome {
    fn from(closed: ClosedLane) -> Self {
        closed.denial.map_or_else(Self::shutdown, Self::from)
    }
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Self::of(&reply.response())
    }
}
