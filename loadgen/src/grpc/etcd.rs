//! etcd: `Lock` and `Unlock` of its lock service, or puts of keys.
//!
//! Each connection has one lease, as a client of etcd would, granted before the load and revoked after it.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::timeout;
use tonic::Status;
use waymaker_proto::etcd::etcdserverpb::kv_client::KvClient;
use waymaker_proto::etcd::etcdserverpb::lease_client::LeaseClient;
use waymaker_proto::etcd::etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest, PutRequest, ResponseHeader};
use waymaker_proto::etcd::v3lockpb::lock_client::LockClient;
use waymaker_proto::etcd::v3lockpb::{LockRequest, UnlockRequest};

use super::channel::Channel;
use super::load::{Caller, Load};
use crate::connection::HANDSHAKE_TIME_MAX;
use crate::faults::FaultKind;
use crate::options::WorkloadName;
use crate::plan::Plan;
use crate::workload::Lane;

/// One connection and its lease.
#[derive(Clone, Debug)]
pub(super) struct Etcd {
    channel: Channel,
    locks: LockClient<Channel>,
    keys: KvClient<Channel>,
    /// Whether a request is a put of a key; otherwise a pair is `Lock` and `Unlock`.
    puts: bool,
    lease: i64,
    newest_revision: i64,
}

impl Caller for Etcd {
    fn has_fences(_plan: &Plan) -> bool {
        false
    }

    async fn open(plan: &Plan, channel: Channel) -> Result<Self> {
        // The lease is not renewed, so it covers the whole load.
        let lasts = plan.warmup + plan.duration + Duration::from_millis(u64::from(plan.lease_ms));
        let grant = LeaseGrantRequest { ttl: i64::try_from(lasts.as_secs())? + 1, id: 0 };
        let mut leases = LeaseClient::with_origin(channel.clone(), channel.origin());
        let granted = leases.lease_grant(grant).await?.into_inner();
        if granted.id == 0 || !granted.error.is_empty() {
            return Err(anyhow!("no lease was granted: {:?}", granted.error));
        }
        let locks = LockClient::with_origin(channel.clone(), channel.origin());
        let keys = KvClient::with_origin(channel.clone(), channel.origin());
        let puts = plan.workload == WorkloadName::Put;
        Ok(Self { channel, locks, keys, puts, lease: granted.id, newest_revision: 0 })
    }

    async fn play_pair(&mut self, load: &Load, lane: Lane) -> Option<()> {
        let (claim, name) = load.choose(lane);
        if self.puts {
            return self.put(load, name).await;
        }
        let request = LockRequest { name: name.clone(), lease: self.lease };
        let locked = load.measure("Lock", self.locks.lock(request)).await?.into_inner();
        self.check_revision(load, "Lock", locked.header);
        load.granted(claim, None);
        if !locked.key.starts_with(&name) {
            load.add_fault(FaultKind::WrongAnswer, || {
                let [name, key] = [&name, &locked.key].map(|bytes| String::from_utf8_lossy(bytes));
                format!("Lock of {name} returned the key {key}")
            });
        }
        let request = UnlockRequest { key: locked.key };
        let unlocked = load.release("Unlock", claim, self.locks.unlock(request)).await?.into_inner();
        // The revision rises only if there was something to delete.
        self.check_revision(load, "Unlock", unlocked.header);
        Some(())
    }

    async fn close(&mut self) -> Result<(), Status> {
        let revoke = LeaseRevokeRequest { id: self.lease };
        let mut leases = LeaseClient::with_origin(self.channel.clone(), self.channel.origin());
        let revoked = timeout(HANDSHAKE_TIME_MAX, leases.lease_revoke(revoke)).await;
        revoked.map_err(|_| Status::deadline_exceeded("no response"))?.map(drop)
    }
}

impl Etcd {
    /// Locks the name and keeps the lock.
    pub(super) async fn hold(&mut self, name: Vec<u8>) -> Result<(), Status> {
        let request = LockRequest { name, lease: self.lease };
        self.locks.lock(request).await.map(drop)
    }

    /// Puts a key, with itself as its value: the minimum cost of each step of an etcd lock.
    async fn put(&mut self, load: &Load, key: Vec<u8>) -> Option<()> {
        let request = PutRequest { value: key.clone(), key, ..PutRequest::default() };
        let put = load.measure("Put", self.keys.put(request)).await?.into_inner();
        self.check_revision(load, "Put", put.header);
        Some(())
    }

    /// Every change of the store has its own revision, so the revisions of one lane must rise.
    fn check_revision(&mut self, load: &Load, name: &str, header: Option<ResponseHeader>) {
        let newest = self.newest_revision;
        let revision = header.map_or(0, |header| header.revision);
        if revision <= newest {
            load.add_fault(FaultKind::FenceNotRising, || {
                format!("{name} returned revision {revision} after revision {newest}")
            });
        }
        self.newest_revision = revision;
    }
}
