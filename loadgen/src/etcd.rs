//! etcd: `Lock` and `Unlock` of its lock service, by gRPC.
//!
//! The one system that is no [`crate::target::Target`]: its frames are those of HTTP/2, so tonic owns the sockets, on a
//! runtime of each thread. What is counted is the same: a pair is two requests, each with its latency. Each connection
//! has one lease, as a client of etcd would, granted before the load and revoked after it.

use std::cell::RefCell;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use waymaker_proto::etcd::etcdserverpb::lease_client::LeaseClient;
use waymaker_proto::etcd::etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest, ResponseHeader};
use waymaker_proto::etcd::v3lockpb::lock_client::LockClient;
use waymaker_proto::etcd::v3lockpb::{LockRequest, UnlockRequest};

use crate::connection::{HANDSHAKE_TIME_MAX, cannot_open};
use crate::faults::FaultKind;
use crate::load::{Job, Outcome, Watcher, run_threads};
use crate::plan::Plan;
use crate::player::WorkerResult;
use crate::process::Process;
use crate::worker::{DRAIN_NS_MAX, Signals, Timetable};
use crate::workload::{Lane, Pair, PairLedger, Workload};

/// Between two looks at whether the load is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Carries out a plan of pairs.
pub fn run(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
) -> Result<Outcome> {
    crate::process::raise_open_files_limit(u64::from(plan.connections))
        .context("--connections: too many open files")?;
    let ledger = Arc::new(PairLedger::new(plan, false));
    let workers: Vec<EtcdWorker> = (0..plan.threads)
        .map(|thread| {
            EtcdWorker::connect(plan, thread, Pair::new(Arc::clone(&ledger), plan.thread_seed(thread)))
        })
        .collect::<Result<_>>()?;
    let timetable = Timetable::of(plan);
    let jobs = workers
        .into_iter()
        .map(|worker| -> Job { Box::new(move |signals| worker.run(timetable, Arc::clone(signals))) });
    run_threads(plan, server, stop, watcher, timetable, jobs.collect())
}

/// One thread of load: its runtime, and the connections that live on it.
#[derive(Debug)]
struct EtcdWorker {
    runtime: Runtime,
    connections: Vec<EtcdConnection>,
    workload: Pair,
    depth: u32,
    key_size: usize,
}

/// One connection and its lease.
#[derive(Clone, Debug)]
struct EtcdConnection {
    channel: Channel,
    lease: i64,
    first_lane: u32,
}

/// What all lanes of a thread share.
#[derive(Debug)]
struct Shared {
    state: RefCell<State>,
    signals: Arc<Signals>,
    timetable: Timetable,
    key_size: usize,
}

#[derive(Debug)]
struct State {
    workload: Pair,
    result: WorkerResult,
    in_flight_count: u32,
}

impl EtcdWorker {
    /// Opens every `plan.threads`-th connection.
    fn connect(plan: &Plan, thread: u32, workload: Pair) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let indexes = (thread..plan.connections).step_by(plan.threads as usize);
        let connections = indexes
            .map(|index| runtime.block_on(EtcdConnection::open(plan, index)))
            .collect::<Result<_>>()?;
        Ok(Self { runtime, connections, workload, depth: plan.depth, key_size: usize::from(plan.key_size) })
    }

    /// Loads until the timetable ends or it is stopped, then waits for the answers that are still due.
    fn run(self, timetable: Timetable, signals: Arc<Signals>) -> Result<WorkerResult> {
        let state = State { workload: self.workload, result: WorkerResult::default(), in_flight_count: 0 };
        let shared =
            Rc::new(Shared { state: RefCell::new(state), signals, timetable, key_size: self.key_size });
        let lanes = LocalSet::new();
        lanes.block_on(&self.runtime, async {
            let mut lanes = JoinSet::new();
            for connection in &self.connections {
                for place in 0..self.depth {
                    let lane = Lane(connection.first_lane + place);
                    lanes.spawn_local(play(Rc::clone(&shared), connection.clone(), lane));
                }
            }
            shared.join(&mut lanes).await?;
            for connection in &self.connections {
                if let Err(status) = connection.revoke().await {
                    shared.add_failure("LeaseRevoke", &status);
                }
            }
            anyhow::Ok(())
        })?;
        let mut state = shared.state.borrow_mut();
        Ok(std::mem::take(&mut state.result))
    }
}

impl EtcdConnection {
    async fn open(plan: &Plan, index: u32) -> Result<Self> {
        // Says more clearly why it cannot be opened than tonic does.
        let probe = TcpStream::connect_timeout(&plan.socket_address, HANDSHAKE_TIME_MAX);
        drop(probe.map_err(|error| cannot_open(plan, index, error))?);
        // Nobody keeps the lease alive, so it lasts for the whole of the load.
        let lasts = plan.warmup + plan.duration + Duration::from_millis(u64::from(plan.lease_ms));
        let grant = LeaseGrantRequest { ttl: i64::try_from(lasts.as_secs())? + 1, id: 0 };
        let open = async {
            let endpoint =
                Endpoint::from_shared(format!("http://{}", plan.socket_address))?.tcp_nodelay(true);
            let channel = endpoint.connect().await?;
            let granted = LeaseClient::new(channel.clone()).lease_grant(grant).await?.into_inner();
            if granted.id == 0 || !granted.error.is_empty() {
                return Err(anyhow!("no lease was granted: {:?}", granted.error));
            }
            Ok(Self { channel, lease: granted.id, first_lane: index * plan.depth })
        };
        match timeout(HANDSHAKE_TIME_MAX, open).await {
            Err(_) => Err(cannot_open(plan, index, std::io::ErrorKind::TimedOut.into())),
            Ok(opened) => opened.with_context(|| {
                format!("{}: what answers there does not speak as etcd does", plan.address())
            }),
        }
    }

    async fn revoke(&self) -> Result<(), Status> {
        let revoke = LeaseRevokeRequest { id: self.lease };
        let mut client = LeaseClient::new(self.channel.clone());
        let revoked = timeout(HANDSHAKE_TIME_MAX, client.lease_revoke(revoke)).await;
        revoked.map_err(|_| Status::deadline_exceeded("no answer"))?.map(drop)
    }
}

/// Locks and unlocks one key after the other. Ends with the load, or with the first answer that is an error: whatever is
/// wrong there is wrong for all that follow.
async fn play(shared: Rc<Shared>, connection: EtcdConnection, lane: Lane) {
    let mut client = LockClient::new(connection.channel);
    let mut newest_revision = 0;
    while !shared.is_over() {
        let name = shared.state.borrow_mut().workload.choose(lane).key.text(shared.key_size);
        let request = LockRequest { name: name.clone(), lease: connection.lease };
        let Some(locked) = shared.measure("Lock", client.lock(request)).await else { return };
        shared.check_revision("Lock", locked.header, &mut newest_revision);
        if !locked.key.starts_with(&name) {
            shared.add_fault(FaultKind::WrongAnswer, || {
                let [name, key] = [&name, &locked.key].map(|bytes| String::from_utf8_lossy(bytes));
                format!("Lock of {name} gave the key {key}")
            });
        }
        let request = UnlockRequest { key: locked.key };
        let Some(unlocked) = shared.measure("Unlock", client.unlock(request)).await else { return };
        // It rises only where there was something to delete.
        shared.check_revision("Unlock", unlocked.header, &mut newest_revision);
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.signals.stop.load(Ordering::Relaxed)
            || self.timetable.clock.now_ns() >= self.timetable.measure_until_ns
    }

    /// Waits for one answer and counts it; `None` if it is an error.
    async fn measure<T>(
        &self,
        name: &str,
        answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Option<T> {
        let sent_at_ns = self.timetable.clock.now_ns();
        self.state.borrow_mut().in_flight_count += 1;
        let answer = answer.await;
        let now_ns = self.timetable.clock.now_ns();
        self.signals.answer_count.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.borrow_mut();
        state.in_flight_count -= 1;
        match answer {
            Ok(answer) => {
                if self.timetable.is_measured(now_ns) {
                    state.result.request_count += 1;
                    state.result.latency.record(now_ns.saturating_sub(sent_at_ns), 1);
                }
                Some(answer.into_inner())
            }
            Err(status) => {
                drop(state);
                self.add_failure(name, &status);
                None
            }
        }
    }

    /// Every change of the store has a revision of its own, so what one lane does comes with ever larger ones.
    fn check_revision(&self, name: &str, header: Option<ResponseHeader>, newest: &mut i64) {
        let revision = header.map_or(0, |header| header.revision);
        if revision <= *newest {
            self.add_fault(FaultKind::FenceNotRising, || {
                format!("{name} answered with revision {revision} after revision {newest} was seen")
            });
        }
        *newest = revision;
    }

    fn add_failure(&self, name: &str, status: &Status) {
        let kind = match status.code() {
            // What tonic says of a connection that is gone.
            Code::Unavailable | Code::Unknown | Code::Cancelled => FaultKind::ConnectionLost,
            _ => FaultKind::UnexpectedError,
        };
        self.add_fault(kind, || format!("{name}: {status}"));
    }

    fn add_fault(&self, kind: FaultKind, example: impl FnOnce() -> String) {
        self.state.borrow_mut().result.faults.add(kind, example);
    }

    /// Waits for all lanes; those that have no answer long after the end are left.
    async fn join(&self, lanes: &mut JoinSet<()>) -> Result<()> {
        let mut over_at_ns = None;
        while !lanes.is_empty() {
            if let Ok(Some(ended)) = timeout(LOOK_INTERVAL, lanes.join_next()).await {
                ended.context("a lane of the load panicked")?;
            }
            if self.is_over() {
                let now_ns = self.timetable.clock.now_ns();
                if now_ns > *over_at_ns.get_or_insert(now_ns) + DRAIN_NS_MAX {
                    break;
                }
            }
        }
        let mut state = self.state.borrow_mut();
        for _ in 0..state.in_flight_count {
            state.result.faults.add(FaultKind::Unanswered, || {
                format!("no answer within {} s after the end", DRAIN_NS_MAX / 1_000_000_000)
            });
        }
        Ok(())
    }
}
