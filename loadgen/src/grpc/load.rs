//! A load of gRPC calls: threads, connections, lanes, and the measurement of each call.
//!
//! Counts as for every other target: a pair is two requests, each with its latency.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::prctl;
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;
use tonic::{Code, Status};

use super::channel::Channel;
use crate::codec::Claim;
use crate::connection::{HANDSHAKE_TIME_MAX, cannot_open};
use crate::faults::FaultKind;
use crate::latencies::Latencies;
use crate::options::WorkloadName;
use crate::plan::Plan;
use crate::player::WorkerResult;
use crate::process::Process;
use crate::schedule::Schedule;
use crate::threads::{Job, Outcome, Watcher, run_threads};
use crate::worker::{DRAIN_NS_MAX, NAP_TIME, Signals, Timetable};
use crate::workload::{Grant, Hot, HotLedger, Lane, Pair, PairLedger, Workload};

/// Interval between two checks whether the load has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Timers have a resolution of one millisecond, so the load busy-polls if the next request is due sooner than
/// this.
const NO_SLEEP_NS: u64 = 2_000_000;

/// One connection to one system, as one lane uses it; each lane has a clone.
pub(super) trait Caller: Clone + Send + Sized + 'static {
    /// Whether grants carry a fence that rises with each grant of a key.
    fn has_fences(plan: &Plan) -> bool;

    /// Prepares the connection. Fails if the server is another system.
    async fn open(plan: &Plan, channel: Channel) -> Result<Self>;

    /// Acquires and releases once. Returns `None` after an error, which ends the lane, because all later responses
    /// would be wrong too.
    async fn play_pair(&mut self, load: &Load, lane: Lane) -> Option<()>;

    /// Cleans up what `open` created.
    async fn close(&mut self) -> Result<(), Status> {
        Ok(())
    }
}

/// Runs a plan of pairs, or of the caller's other operation.
pub(super) fn run<C: Caller>(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
) -> Result<Outcome> {
    crate::process::raise_open_files_limit(u64::from(plan.connections))
        .context("--connections: too many open files")?;
    let pairs = Arc::new(PairLedger::new(plan, C::has_fences(plan)));
    let hot = Arc::new(HotLedger::default());
    let threads: Vec<GrpcThread<C>> = (0..plan.threads)
        .map(|thread| {
            let keys = match plan.workload {
                WorkloadName::Hot => Keys::Hot(Hot::new(Arc::clone(&hot))),
                _ => Keys::Own(Pair::new(Arc::clone(&pairs), plan.thread_seed(thread))),
            };
            GrpcThread::connect(plan, thread, keys)
        })
        .collect::<Result<_>>()?;
    let timetable = Timetable::of(plan);
    let jobs = threads
        .into_iter()
        .map(|thread| -> Job { Box::new(move |signals| thread.run(timetable, Arc::clone(signals))) });
    run_threads(plan, server, stop, watcher, timetable, jobs.collect())
}

/// Opens one connection, on the current runtime.
pub(super) async fn open<C: Caller>(plan: &Plan, index: u32) -> Result<C> {
    let channel = Channel::open(plan, index).await?;
    match timeout(HANDSHAKE_TIME_MAX, C::open(plan, channel)).await {
        Err(_) => Err(cannot_open(plan, index, std::io::ErrorKind::TimedOut.into())),
        Ok(opened) => opened.with_context(|| {
            let name = plan.system.name();
            format!("{}: the server does not speak the protocol of {name}", plan.address())
        }),
    }
}

/// Creates the runtime of one load thread.
pub(super) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// One load thread: its runtime and its connections.
#[derive(Debug)]
struct GrpcThread<C> {
    runtime: Runtime,
    /// Each connection with its first lane.
    connections: Vec<(C, u32)>,
    keys: Keys,
    schedule: Option<Schedule>,
    depth: u32,
    key_size: usize,
    naps: bool,
}

/// Keys that the lanes of a thread acquire.
#[derive(Debug)]
enum Keys {
    /// Each lane has its own keys.
    Own(Pair),
    /// All lanes use the same key.
    Hot(Hot),
}

/// State that all lanes of a thread share.
#[derive(Debug)]
pub(super) struct Load {
    state: RefCell<State>,
    signals: Arc<Signals>,
    timetable: Timetable,
    key_size: usize,
    /// Whether to sleep briefly even if the next request is due soon, because another load shares the core.
    naps: bool,
}

#[derive(Debug)]
struct State {
    keys: Keys,
    /// `Some` for an open loop.
    schedule: Option<Schedule>,
    result: WorkerResult,
    in_flight_count: u32,
}

impl<C: Caller> GrpcThread<C> {
    /// Opens the connections of this thread: every `plan.threads`-th connection.
    fn connect(plan: &Plan, thread: u32, keys: Keys) -> Result<Self> {
        let runtime = runtime()?;
        let connections: Vec<(C, u32)> = (thread..plan.connections)
            .step_by(plan.threads as usize)
            .map(|index| Ok((runtime.block_on(open(plan, index))?, index * plan.depth)))
            .collect::<Result<_>>()?;
        let schedule =
            plan.rate.map(|rate| Schedule::new(rate, u64::from(thread), u64::from(plan.threads), 1));
        let (depth, key_size) = (plan.depth, usize::from(plan.key_size));
        Ok(Self { runtime, connections, keys, schedule, depth, key_size, naps: plan.keeps_samples })
    }

    /// Runs the load until the timetable ends or the load is stopped, then waits for the outstanding responses.
    fn run(self, timetable: Timetable, signals: Arc<Signals>) -> Result<WorkerResult> {
        let Self { runtime, connections, keys, schedule, depth, key_size, naps } = self;
        if naps {
            prctl::set_timerslack(1)?;
        }
        let state = State { keys, schedule, result: WorkerResult::default(), in_flight_count: 0 };
        let load = Rc::new(Load { state: RefCell::new(state), signals, timetable, key_size, naps });
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
                    load.add_failure("closing the connection", &status);
                }
            }
            anyhow::Ok(())
        })?;
        let load = Rc::into_inner(load).context("a lane of the load is still running")?;
        let State { keys, result, .. } = load.state.into_inner();
        Ok(WorkerResult { hand_over: keys.into_hand_over(), ..result })
    }
}

/// Plays one pair after the other until the load ends or a response is an error.
async fn play<C: Caller>(load: Rc<Load>, mut caller: C, lane: Lane) {
    while !load.is_over() && caller.play_pair(&load, lane).await.is_some() {}
}

impl Load {
    fn is_over(&self) -> bool {
        self.signals.stop.load(Ordering::Relaxed)
            || self.timetable.clock.now_ns() >= self.timetable.measure_until_ns
    }

    /// Returns the next claim of this lane, and its key as text.
    pub(super) fn choose(&self, lane: Lane) -> (Claim, Vec<u8>) {
        let claim = match &mut self.state.borrow_mut().keys {
            Keys::Own(pair) => pair.choose(lane),
            Keys::Hot(hot) => hot.choose(lane),
        };
        (claim, claim.key.text(self.key_size))
    }

    /// Waits for one response and counts it; `None` if it is an error.
    pub(super) async fn measure<T>(
        &self,
        name: &str,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Option<T> {
        let due_ns = self.due().await;
        self.count(name, due_ns, true, answer).await
    }

    /// The same for the release of a claim. Counts its latency if the workload counts releases.
    pub(super) async fn release<T>(
        &self,
        name: &str,
        claim: Claim,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Option<T> {
        let due_ns = self.due().await;
        let records_releases = self.state.borrow_mut().keys.release(claim, self.timetable.clock.now_ns());
        self.count(name, due_ns, records_releases, answer).await
    }

    /// Waits until the next request is due (at once without a schedule) and returns its due time. Returns early
    /// only if the load ends.
    async fn due(&self) -> u64 {
        let now_ns = self.timetable.clock.now_ns();
        let due_ns = self.state.borrow_mut().schedule.as_mut().map(Schedule::take_next);
        let Some(due_ns) = due_ns else { return now_ns };
        let sleep_ns = due_ns.saturating_sub(now_ns).saturating_sub(NO_SLEEP_NS);
        if sleep_ns > 0 {
            tokio::time::sleep(Duration::from_nanos(sleep_ns)).await;
        }
        while self.timetable.clock.now_ns() < due_ns && !self.is_over() {
            if self.naps {
                std::thread::sleep(NAP_TIME);
            }
            tokio::task::yield_now().await;
        }
        due_ns.min(self.timetable.clock.now_ns())
    }

    async fn count<T>(
        &self,
        name: &str,
        sent_at_ns: u64,
        is_recorded: bool,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Option<T> {
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
                    if is_recorded {
                        state.result.latency.record(now_ns.saturating_sub(sent_at_ns), 1);
                    }
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

    /// Checks a grant, and its fence if the system has fences.
    pub(super) fn granted(&self, claim: Claim, fence: Option<u64>) {
        let now_ns = self.timetable.clock.now_ns();
        let is_measured = self.timetable.is_measured(now_ns);
        let grant = Grant { claim, fence, fence_floor: 0, now_ns, is_measured };
        let mut state = self.state.borrow_mut();
        let judged = match &mut state.keys {
            Keys::Own(pair) => pair.granted(grant),
            Keys::Hot(hot) => hot.granted(grant),
        };
        if let Err(wrong) = judged {
            state.result.faults.add(wrong.kind, || wrong.message);
        }
    }

    fn add_failure(&self, name: &str, status: &Status) {
        let kind = match status.code() {
            // Codes that the library reports for a lost connection.
            Code::Unavailable | Code::Unknown | Code::Cancelled => FaultKind::ConnectionLost,
            _ => FaultKind::UnexpectedError,
        };
        self.add_fault(kind, || format!("{name}: {status}"));
    }

    /// Records a fault.
    pub(super) fn add_fault(&self, kind: FaultKind, example: impl FnOnce() -> String) {
        self.state.borrow_mut().result.faults.add(kind, example);
    }

    /// Waits for all lanes; abandons lanes that have no response long after the end.
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
                format!("no response within {} s after the end", DRAIN_NS_MAX / 1_000_000_000)
            });
        }
        Ok(())
    }
}

impl Keys {
    /// Records that a release is about to be sent; returns whether its latency counts.
    fn release(&mut self, claim: Claim, now_ns: u64) -> bool {
        match self {
            Self::Own(pair) => {
                pair.releasing(claim, now_ns);
                Pair::RECORDS_RELEASES
            }
            Self::Hot(hot) => {
                hot.releasing(claim, now_ns);
                Hot::RECORDS_RELEASES
            }
        }
    }

    fn into_hand_over(self) -> Option<Latencies> {
        match self {
            Self::Own(pair) => pair.into_hand_over(),
            Self::Hot(hot) => hot.into_hand_over(),
        }
    }
}
