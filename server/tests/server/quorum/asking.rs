//! A client of the cluster on a thread of its own, as a server has it.

use super::members::Members;
use crate::harness::WATCHDOG;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use waymaker_proto::etcd::etcdserverpb::compare::{CompareTarget, TargetUnion};
use waymaker_proto::etcd::etcdserverpb::request_op::Request;
use waymaker_proto::etcd::etcdserverpb::{
    Compare, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use waymaker_proto::etcd::mvccpb::KeyValue;
use waymaker_server::quorum::cluster::{Cluster, ClusterError};
use waymaker_server::quorum::options::QuorumOptions;

/// Turns of the runtime in which a call ends whose timer has fired.
const TURNS: usize = 100;

/// Asks a cluster over one connection.
pub(super) struct Asking {
    cluster: Cluster,
    handle: Handle,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    /// Asks these members, the first of them first.
    pub(super) fn of(members: &Members) -> Self {
        Self::with(&options(members))
    }

    pub(super) fn with(options: &QuorumOptions) -> Self {
        let cluster = Cluster::new(options).expect("good options");
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || drop(runtime.block_on(stopped)));
        Self { cluster, handle, stop: Some(stop), thread: Some(thread) }
    }

    /// Asks like [`Self::all`], and asserts that every call ends before a timer of `timeout` and `slack` in the same runtime fires.
    pub(super) fn all_in_time(
        &self,
        txns: impl IntoIterator<Item = TxnRequest>,
        timeout: Duration,
        slack: Duration,
    ) -> Vec<Result<TxnResponse, ClusterError>> {
        let cluster = self.cluster.clone();
        let txns: Vec<_> = txns.into_iter().collect();
        let asked = self.handle.spawn(async move {
            let ask = |txn| {
                let cluster = cluster.clone();
                tokio::spawn(async move { cluster.txn(txn, timeout).await })
            };
            let asked: Vec<_> = txns.into_iter().map(ask).collect();
            let end = tokio::time::Instant::now() + timeout + slack;
            let mut results = Vec::new();
            for mut task in asked {
                let ended = tokio::time::timeout_at(end, &mut task).await;
                results.push(match ended {
                    Ok(result) => result.expect("no panic"),
                    // If this thread was stopped, the timers of the calls have fired too, and the calls end in the next turns.
                    Err(_) => {
                        for _ in 0..TURNS {
                            tokio::task::yield_now().await;
                        }
                        assert!(task.is_finished(), "a call goes on {slack:?} after it should have ended");
                        task.await.expect("no panic")
                    }
                });
            }
            results
        });
        self.handle.block_on(asked).expect("every call ends in time")
    }

    /// Asks for as many transactions at once as there are here.
    pub(super) fn all(
        &self,
        txns: impl IntoIterator<Item = TxnRequest>,
        timeout: Duration,
    ) -> Vec<Result<TxnResponse, ClusterError>> {
        let ask = |txn| {
            let cluster = self.cluster.clone();
            self.handle.spawn(async move { cluster.txn(txn, timeout).await })
        };
        let asked: Vec<_> = txns.into_iter().map(ask).collect();
        asked.into_iter().map(|task| self.handle.block_on(task).expect("no panic")).collect()
    }

    pub(super) fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, ClusterError> {
        self.all([txn], WATCHDOG).remove(0)
    }

    /// What is under a key, if there is something.
    pub(super) fn get(&self, key: &str) -> Result<Option<KeyValue>, ClusterError> {
        let (cluster, range) = (self.cluster.clone(), range(key));
        let asked = self.handle.spawn(async move { cluster.range(range, WATCHDOG).await });
        Ok(self.handle.block_on(asked).expect("no panic")?.kvs.pop())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().expect("it was not joined").join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

pub(super) fn options(members: &Members) -> QuorumOptions {
    QuorumOptions { endpoints: members.endpoints(), ..QuorumOptions::default() }
}

fn range(key: &str) -> RangeRequest {
    RangeRequest { key: key.into(), ..RangeRequest::default() }
}

pub(super) fn get(key: &str) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(range(key))) }
}

pub(super) fn put(key: &str, value: &str) -> RequestOp {
    let put = PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() };
    RequestOp { request: Some(Request::RequestPut(put)) }
}

pub(super) fn nested(txn: TxnRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestTxn(txn)) }
}

/// The key was not changed after this revision; 0 for one that does not exist.
pub(super) fn unchanged(key: &str, mod_revision: i64) -> Compare {
    Compare {
        target: CompareTarget::Mod.into(),
        key: key.into(),
        target_union: Some(TargetUnion::ModRevision(mod_revision)),
        ..Compare::default()
    }
}

/// Puts what the key does not have yet, else reads it.
pub(super) fn create(key: &str, value: &str) -> TxnRequest {
    let (compare, success, failure) = (vec![unchanged(key, 0)], vec![put(key, value)], vec![get(key)]);
    TxnRequest { compare, success, failure }
}
