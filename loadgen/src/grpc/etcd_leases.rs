//! Leases of etcd that each connection acquires when it opens and keeps alive from then on. Keys stay locked as
//! long as their lease.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, ensure};
use futures_core::Stream;
use tokio::sync::{Mutex, mpsc};
use tonic::{Status, Streaming};
use waymaker_proto::etcd::etcdserverpb::lease_client::LeaseClient;
use waymaker_proto::etcd::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
};

use super::channel::Channel;
use super::load::{Caller, Load};
use crate::faults::FaultKind;
use crate::plan::Plan;
use crate::workload::Lane;

/// One connection and its leases.
#[derive(Clone, Debug)]
pub(super) struct EtcdLeases {
    service: LeaseClient<Channel>,
    leases: Vec<i64>,
    next: usize,
    conversation: Arc<Mutex<Conversation>>,
}

/// Stream that keeps leases alive.
#[derive(Debug)]
struct Conversation {
    requests: mpsc::Sender<LeaseKeepAliveRequest>,
    answers: Streaming<LeaseKeepAliveResponse>,
}

impl Caller for EtcdLeases {
    fn has_fences(_plan: &Plan) -> bool {
        false
    }

    async fn open(plan: &Plan, channel: Channel) -> Result<Self> {
        let mut service = LeaseClient::with_origin(channel.clone(), channel.origin());
        let mut leases = Vec::new();
        for _ in 0..plan.key_count.div_ceil(plan.connections) {
            let grant = LeaseGrantRequest { ttl: i64::from(plan.lease_ms.div_ceil(1000)), id: 0 };
            let granted = service.lease_grant(grant).await?.into_inner();
            ensure!(granted.id != 0, "no lease was granted: {:?}", granted.error);
            leases.push(granted.id);
        }
        let conversation = Conversation::begin(&mut service, leases[0]).await?;
        Ok(Self { service, leases, next: 0, conversation: Arc::new(Mutex::new(conversation)) })
    }

    async fn play_pair(&mut self, load: &Load, _lane: Lane) -> Option<()> {
        let lease = self.leases[self.next];
        self.next = (self.next + 1) % self.leases.len();
        let answer = load.measure("LeaseKeepAlive", self.keep_alive(lease)).await?;
        if answer.id != lease || answer.ttl <= 0 {
            load.add_fault(FaultKind::WrongAnswer, || {
                format!("unexpected response to LeaseKeepAlive of {lease}: {answer:?}")
            });
        }
        Some(())
    }

    async fn close(&mut self) -> Result<(), Status> {
        for lease in &self.leases {
            self.service.lease_revoke(LeaseRevokeRequest { id: *lease }).await?;
        }
        Ok(())
    }
}

impl EtcdLeases {
    async fn keep_alive(&self, lease: i64) -> Result<LeaseKeepAliveResponse, Status> {
        self.conversation.lock().await.ask(lease).await
    }
}

impl Conversation {
    /// The server sends nothing on the stream before the first request, so this renews one lease.
    async fn begin(service: &mut LeaseClient<Channel>, lease: i64) -> Result<Self> {
        let (requests, receiver) = mpsc::channel(1);
        requests.send(LeaseKeepAliveRequest { id: lease }).await?;
        let mut answers = service.lease_keep_alive(Requests(receiver)).await?.into_inner();
        answers.message().await?.context("the stream of renewals ended")?;
        Ok(Self { requests, answers })
    }

    async fn ask(&mut self, lease: i64) -> Result<LeaseKeepAliveResponse, Status> {
        let ended = || Status::unavailable("the stream of renewals ended");
        self.requests.send(LeaseKeepAliveRequest { id: lease }).await.map_err(|_| ended())?;
        self.answers.message().await?.ok_or_else(ended)
    }
}

/// Request stream in the form that the library needs.
struct Requests(mpsc::Receiver<LeaseKeepAliveRequest>);

impl Stream for Requests {
    type Item = LeaseKeepAliveRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
