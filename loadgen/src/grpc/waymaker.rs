//! `waymaker.WaymakerService`: pairs of two calls, and pairs whose lock is a stream.

use anyhow::Result;
use tonic::{Status, Streaming};
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{
    FenceScope, Lease, LockEvent, LockEventType, LockRequest, MultiLockKey, MultiLockRequest, UnLockRequest,
};

use super::channel::Channel;
use super::load::{Caller, Load};
use crate::address::System;
use crate::faults::FaultKind;
use crate::options::WorkloadName;
use crate::plan::Plan;
use crate::scope::Scope;
use crate::target::Claim;
use crate::workload::Lane;

/// One connection.
#[derive(Clone, Debug)]
pub(super) struct Service {
    client: WaymakerServiceClient<Channel>,
    lease_ms: u32,
    fence_scope: FenceScope,
    /// It says the same to everybody, so there is nothing to check.
    is_echo: bool,
    /// A pair is `Lock` until its stream says that the lock is held, and `UnLock` until the stream has ended; otherwise it is
    /// `MultiLock` of one key, which does not wait, and `UnLock`.
    is_stream: bool,
}

impl Caller for Service {
    fn has_fences(plan: &Plan) -> bool {
        plan.system == System::Grpc
    }

    async fn open(plan: &Plan, channel: Channel) -> Result<Self> {
        let mut client = WaymakerServiceClient::with_origin(channel.clone(), channel.origin());
        // Nothing is called so; what counts is that there is an answer.
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
    /// One try, by one call.
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

    /// The stream of a lock, once it is held, and the event that said so.
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
            None => Err(Status::data_loss("the stream ended before it said anything")),
        }
    }

    /// Releases by one call.
    pub(super) async fn unlock(&mut self, key: String, id: String) -> Result<(), Status> {
        let response = self.client.un_lock(UnLockRequest { key, id }).await?.into_inner();
        if response.success { Ok(()) } else { Err(refused(&response.result_code, &response.message)) }
    }

    fn check(&self, load: &Load, claim: Claim, asked: &str, key: &str, fence: u64) {
        if self.is_echo {
            return;
        }
        if key != asked {
            load.add_fault(FaultKind::WrongAnswer, || format!("the lock of {asked} gave the key {key}"));
        }
        load.granted(claim, Some(fence));
    }
}

/// The end of the stream of a lock that was released.
pub(super) async fn end_of(mut events: Streaming<LockEvent>) -> Result<(), Status> {
    while let Some(event) = events.message().await? {
        if event.event_type() != LockEventType::Heartbeat {
            return Err(refused(event.event_type().as_str_name(), &event.message));
        }
    }
    Ok(())
}

/// What was said in band, as what the load counts as an error.
fn refused(code: &str, message: &str) -> Status {
    Status::failed_precondition(format!("{code} {message}"))
}

/// Returns the same text; a key by gRPC is made of letters.
pub(super) fn text_of(key: Vec<u8>) -> String {
    String::from_utf8(key).unwrap_or_default()
}
