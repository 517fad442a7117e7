//! `waymaker.WaymakerService`: pairs of two unary calls, and pairs whose lock is a stream.

use anyhow::Result;
use tonic::{Status, Streaming};
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{
    FenceScope, Lease, LockEvent, LockEventType, LockRequest, MultiLockKey, MultiLockRequest, UnLockRequest,
};

use super::channel::Channel;
use super::load::{Caller, Load};
use crate::codec::Claim;
use crate::faults::FaultKind;
use crate::options::WorkloadName;
use crate::plan::Plan;
use crate::scope::Scope;
use crate::system::System;
use crate::workload::Lane;

/// One connection.
#[derive(Clone, Debug)]
pub(super) struct Service {
    client: WaymakerServiceClient<Channel>,
    lease_ms: u32,
    fence_scope: FenceScope,
    /// Whether the server is the bare server, whose constant responses need no check.
    is_echo: bool,
    /// If true, a pair is `Lock` until its stream reports that the lock is held, and `UnLock` until the stream has
    /// ended. Otherwise it is `MultiLock` of one key, which does not wait, and `UnLock`.
    is_stream: bool,
}

impl Caller for Service {
    fn has_fences(plan: &Plan) -> bool {
        plan.system == System::Grpc
    }

    async fn open(plan: &Plan, channel: Channel) -> Result<Self> {
        let mut client = WaymakerServiceClient::with_origin(channel.clone(), channel.origin());
        // The key does not exist; the call only checks that the server responds.
        let unlock = UnLockRequest { key: "waymaker-loadgen".to_owned(), id: "none".to_owned() };
        client.un_lock(unlock).await?;
        let fence_scope = match plan.scope {
            Scope::Ephemeral => FenceScope::ScopeUnspecified,
            Scope::Local => FenceScope::ScopeLocal,
            Scope::Quorum => FenceScope::ScopeQuorum,
        };
        let is_echo = plan.system == System::GrpcEcho;
        let is_stream = plan.workload == WorkloadName::Stream;
        Ok(Self { client, lease_ms: plan.lease_ms, fence_scope, is_echo, is_stream })
    }

    async fn play_pair(&mut self, load: &Load, lane: Lane) -> Option<()> {
        let (claim, key) = load.choose(lane);
        let key = text_of(key);
        if !self.is_stream {
            let lease = load.measure("MultiLock", self.try_lock(key.clone())).await?;
            self.check(load, claim, &key, &lease.key, lease.fence_token);
            return load.measure("UnLock", self.unlock(key, lease.id)).await;
        }
        let (events, held) = load.measure("Lock", self.lock(key.clone())).await?;
        self.check(load, claim, &key, &held.key, held.fence_token);
        let release = async {
            self.unlock(key, held.id).await?;
            end_of(events).await
        };
        load.measure("UnLock", release).await
    }
}

impl Service {
    /// Tries once, with one call.
    async fn try_lock(&mut self, key: String) -> Result<Lease, Status> {
        let request = MultiLockRequest {
            keys: vec![MultiLockKey { key, write_lock: true }],
            max_lease_period: self.lease_ms,
            fence_scope: self.fence_scope.into(),
            ..MultiLockRequest::default()
        };
        let mut response = self.client.multi_lock(request).await?.into_inner();
        match response.leases.pop() {
            Some(lease) if response.success && response.leases.is_empty() => Ok(lease),
            _ => Err(refused(&response.result_code, &response.message)),
        }
    }

    /// Returns the stream of a lock once the lock is held, and the event that reported it.
    pub(super) async fn lock(&mut self, key: String) -> Result<(Streaming<LockEvent>, LockEvent), Status> {
        let request = LockRequest {
            key,
            max_lease_period: self.lease_ms,
            fence_scope: self.fence_scope.into(),
            ..LockRequest::default()
        };
        let mut events = self.client.lock(request).await?.into_inner();
        match events.message().await? {
            Some(event) if event.event_type() == LockEventType::Acquired => Ok((events, event)),
            Some(event) => Err(refused(event.event_type().as_str_name(), &event.message)),
            None => Err(Status::data_loss("the stream ended before its first event")),
        }
    }

    /// Releases with one call.
    pub(super) async fn unlock(&mut self, key: String, id: String) -> Result<(), Status> {
        let response = self.client.un_lock(UnLockRequest { key, id }).await?.into_inner();
        if response.success { Ok(()) } else { Err(refused(&response.result_code, &response.message)) }
    }

    fn check(&self, load: &Load, claim: Claim, asked: &str, key: &str, fence: u64) {
        if self.is_echo {
            return;
        }
        if key != asked {
            load.add_fault(FaultKind::WrongAnswer, || format!("the lock of {asked} returned the key {key}"));
        }
        load.granted(claim, Some(fence));
    }
}

/// Waits for the end of the stream of a released lock.
pub(super) async fn end_of(mut events: Streaming<LockEvent>) -> Result<(), Status> {
    while let Some(event) = events.message().await? {
        if event.event_type() != LockEventType::Heartbeat {
            return Err(refused(event.event_type().as_str_name(), &event.message));
        }
    }
    Ok(())
}

/// Converts an error inside a response into a status, which the load counts as an error.
fn refused(code: &str, message: &str) -> Status {
    Status::failed_precondition(format!("{code} {message}"))
}

/// Returns the same text; gRPC keys consist of letters.
pub(super) fn text_of(key: Vec<u8>) -> String {
    String::from_utf8(key).unwrap_or_default()
}
