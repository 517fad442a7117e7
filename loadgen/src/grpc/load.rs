//! A load of gRPC calls: threads, connections, lanes, and what is counted of each call.
//!
//! What is counted is the same as of every other target: a pair is two requests, each with its latency.

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
use crate::connection::{HANDSHAKE_TIME_MAX, cannot_open};
use crate::faults::FaultKind;
use crate::latencies::Latencies;
use crate::load::{Job, Outcome, Watcher, run_threads};
use crate::options::WorkloadName;
use crate::plan::Plan;
use crate::player::WorkerResult;
use crate::process::Process;
use crate::schedule::Schedule;
use crate::target::Claim;
use crate::worker::{DRAIN_NS_MAX, NAP_TIME, Signals, Timetable};
use crate::workload::{Grant, Hot, HotLedger, Lane, Pair, PairLedger, Workload};

/// Between two looks at whether the load is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Timers count whole milliseconds, so what is due sooner is waited for without sleeping.
const NO_SLEEP_NS: u64 = 2_000_000;

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

/// Carries out a plan of pairs, or of what a caller does instead.
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
    keys: Keys,
    schedule: Option<Schedule>,
    depth: u32,
    key_size: usize,
    naps: bool,
}

/// Which keys the lanes of a thread acquire.
#[derive(Debug)]
enum Keys {
    /// Each its own.
    Own(Pair),
    /// All the same.
    Hot(Hot),
}

/// What all lanes of a thread share.
#[derive(Debug)]
pub(super) struct Load {
    state: RefCell<State>,
    signals: Arc<Signals>,
    timetable: Timetable,
    key_size: usize,
    /// Sleeps a little even where the next request is due soon: another load has the same core.
    naps: bool,
}

#[derive(Debug)]
struct State {
    keys: Keys,
    /// `Some` is an open loop.
    schedule: Option<Schedule>,
    result: WorkerResult,
    in_flight_count: u32,
}

impl<C: Caller> GrpcThread<C> {
    /// Opens every `plan.threads`-th connection.
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

    /// Loads until the timetable ends or it is stopped, then waits for the answers that are still due.
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
                    load.add_failure("the end of a connection", &status);
                }
            }
            anyhow::Ok(())
        })?;
        let load = Rc::into_inner(load).context("a lane of the load goes on")?;
        let State { keys, result, .. } = load.state.into_inner();
        Ok(WorkerResult { hand_over: keys.into_hand_over(), ..result })
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
        let claim = match &mut self.state.borrow_mut().keys {
            Keys::Own(pair) => pair.choose(lane),
            Keys::Hot(hot) => hot.choose(lane),
        };
        (claim, claim.key.text(self.key_size))
    }

    /// Waits for one answer and counts it; `None` if it is an error.
    pub(super) async fn measure<T>(
        &self,
        name: &str,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Option<T> {
        let due_ns = self.due().await;
        self.count(name, due_ns, true, answer).await
    }

    /// The same for the release of a claim. Its latency counts where that of releases does.
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

    /// When the next request should be sent: now, or when the schedule says. Returns no sooner, unless the load is over.
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

    /// Judges a grant, and its fence where the system has fences.
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

impl Keys {
    /// Notes that a release is about to be sent; says whether its latency counts.
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
