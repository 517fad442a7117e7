//! A load of gRPC calls: threads, connections, lanes, and what is counted of each call.
//!
//! What is counted is the same as of every other target: a pair is two requests, each with its latency.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;
use tonic::{Code, Status};

use super::channel::Channel;
use crate::connection::{HANDSHAKE_TIME_MAX, cannot_open};
use crate::faults::FaultKind;
use crate::load::{Job, Outcome, Watcher, run_threads};
use crate::plan::Plan;
use crate::player::WorkerResult;
use crate::process::Process;
use crate::target::Claim;
use crate::worker::{DRAIN_NS_MAX, Signals, Timetable};
use crate::workload::{Grant, Lane, Pair, PairLedger, Workload};

/// Between two looks at whether the load is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// One connection to one system, as one lane uses it; each lane has a clone.
pub(super) trait Caller: Clone + Send + Sized + 'static {
    /// Grants carry a fence that rises with each grant of a key.
    fn has_fences(plan: &Plan) -> bool;

    /// Opens the conversation. Fails where something else answers.
    async fn open(plan: &Plan, channel: Channel) -> Result<Self>;

    /// Acquires once and releases. `None` after an answer that is an error: whatever is wrong there is wrong for all that
    /// follow, so it ends the lane.
    async fn play_pair(&mut self, load: &Load, lane: Lane) -> Option<()>;

    /// Takes back what was opened.
    async fn close(&mut self) -> Result<(), Status> {
        Ok(())
    }
}

/// Carries out a plan of pairs.
pub(super) fn run<C: Caller>(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
) -> Result<Outcome> {
    crate::process::raise_open_files_limit(u64::from(plan.connections))
        .context("--connections: too many open files")?;
    let ledger = Arc::new(PairLedger::new(plan, C::has_fences(plan)));
    let threads: Vec<GrpcThread<C>> = (0..plan.threads)
        .map(|thread| {
            GrpcThread::connect(plan, thread, Pair::new(Arc::clone(&ledger), plan.thread_seed(thread)))
        })
        .collect::<Result<_>>()?;
    let timetable = Timetable::of(plan);
    let jobs = threads
        .into_iter()
        .map(|thread| -> Job { Box::new(move |signals| thread.run(timetable, Arc::clone(signals))) });
    run_threads(plan, server, stop, watcher, timetable, jobs.collect())
}

/// Opens one connection, on the runtime that this runs on.
pub(super) async fn open<C: Caller>(plan: &Plan, index: u32) -> Result<C> {
    let channel = Channel::open(plan, index).await?;
    match timeout(HANDSHAKE_TIME_MAX, C::open(plan, channel)).await {
        Err(_) => Err(cannot_open(plan, index, std::io::ErrorKind::TimedOut.into())),
        Ok(opened) => opened.with_context(|| {
            let name = plan.system.name();
            format!("{}: what answers there does not speak as {name} does", plan.address())
        }),
    }
}

/// The runtime of one thread of load.
pub(super) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// One thread of load: its runtime, and the connections that live on it.
#[derive(Debug)]
struct GrpcThread<C> {
    runtime: Runtime,
    /// Each with its first lane.
    connections: Vec<(C, u32)>,
    workload: Pair,
    depth: u32,
    key_size: usize,
}

/// What all lanes of a thread share.
#[derive(Debug)]
pub(super) struct Load {
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

impl<C: Caller> GrpcThread<C> {
    /// Opens every `plan.threads`-th connection.
    fn connect(plan: &Plan, thread: u32, workload: Pair) -> Result<Self> {
        let runtime = runtime()?;
        let connections = (thread..plan.connections)
            .step_by(plan.threads as usize)
            .map(|index| Ok((runtime.block_on(open(plan, index))?, index * plan.depth)))
            .collect::<Result<_>>()?;
        Ok(Self { runtime, connections, workload, depth: plan.depth, key_size: usize::from(plan.key_size) })
    }

    /// Loads until the timetable ends or it is stopped, then waits for the answers that are still due.
    fn run(self, timetable: Timetable, signals: Arc<Signals>) -> Result<WorkerResult> {
        let Self { runtime, connections, workload, depth, key_size } = self;
        let state = State { workload, result: WorkerResult::default(), in_flight_count: 0 };
        let load = Rc::new(Load { state: RefCell::new(state), signals, timetable, key_size });
        LocalSet::new().block_on(&runtime, async {
            let mut lanes = JoinSet::new();
            for (caller, first_lane) in &connections {
                for place in 0..depth {
                    lanes.spawn_local(play(Rc::clone(&load), caller.clone(), Lane(first_lane + place)));
                }
            }
            load.join(&mut lanes).await?;
            for (mut caller, _) in connections {
                if let Err(status) = caller.close().await {
                    load.add_failure("the end of a connection", &status);
                }
            }
            anyhow::Ok(())
        })?;
        let mut state = load.state.borrow_mut();
        Ok(std::mem::take(&mut state.result))
    }
}

/// Plays one pair after the other, until the load is over or an answer is an error.
async fn play<C: Caller>(load: Rc<Load>, mut caller: C, lane: Lane) {
    while !load.is_over() && caller.play_pair(&load, lane).await.is_some() {}
}

impl Load {
    fn is_over(&self) -> bool {
        self.signals.stop.load(Ordering::Relaxed)
            || self.timetable.clock.now_ns() >= self.timetable.measure_until_ns
    }

    /// What this lane acquires next, and its text.
    pub(super) fn choose(&self, lane: Lane) -> (Claim, Vec<u8>) {
        let claim = self.state.borrow_mut().workload.choose(lane);
        (claim, claim.key.text(self.key_size))
    }

    /// Waits for one answer and counts it; `None` if it is an error.
    pub(super) async fn measure<T>(
        &self,
        name: &str,
        answer: impl Future<Output = Result<T, Status>>,
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
                Some(answer)
            }
            Err(status) => {
                drop(state);
                self.add_failure(name, &status);
                None
            }
        }
    }

    /// Judges the fence of a grant.
    pub(super) fn check_fence(&self, claim: Claim, fence: u64) {
        let now_ns = self.timetable.clock.now_ns();
        let is_measured = self.timetable.is_measured(now_ns);
        let grant = Grant { claim, fence: Some(fence), fence_floor: 0, now_ns, is_measured };
        let mut state = self.state.borrow_mut();
        if let Err(wrong) = state.workload.granted(grant) {
            state.result.faults.add(wrong.kind, || wrong.message);
        }
    }

    fn add_failure(&self, name: &str, status: &Status) {
        let kind = match status.code() {
            // What is said of a connection that is gone.
            Code::Unavailable | Code::Unknown | Code::Cancelled => FaultKind::ConnectionLost,
            _ => FaultKind::UnexpectedError,
        };
        self.add_fault(kind, || format!("{name}: {status}"));
    }

    /// Notes that something was wrong.
    pub(super) fn add_fault(&self, kind: FaultKind, example: impl FnOnce() -> String) {
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
