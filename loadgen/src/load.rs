//! Runs one plan: connects, runs the load threads, and collects their results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::clock::Clock;
use crate::codec::{
    Codec, Consul, ConsulRenewals, Echo, Locktopus, Postgres, Redis, RedisRenewals, Slock, Waymaker,
    WaymakerKeys, WaymakerLimiter, WaymakerPermits, WaymakerRenewals, WaymakerSets, WebSocketEcho,
};
use crate::connection::Connection;
use crate::cpu::{CpuSample, CpuShares};
use crate::faults::Faults;
use crate::grpc;
use crate::guard;
use crate::latencies::Latencies;
use crate::options::WorkloadName;
use crate::pin::pin_current_thread;
use crate::plan::Plan;
use crate::player::{Sample, WorkerResult};
use crate::process::Process;
use crate::schedule::Schedule;
use crate::system::System;
use crate::worker::{Signals, Timetable, Worker};
use crate::workload::{
    Allowed, Buckets, Hot, HotLedger, Pair, PairLedger, PermitLedger, Permits, ReadWrite, ReadWriteLedger,
    Renewals, Throttled, Workload,
};

/// Interval between two progress updates.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Result of one load.
#[derive(Debug)]
pub struct Outcome {
    /// Length of the measurement.
    pub measured: Duration,
    /// Number of requests answered during the measurement.
    pub request_count: u64,
    /// Number of acquires that were answered busy and sent again; not included in the requests.
    pub poll_count: u64,
    /// Latency of each request, or of acquires only (see [`Workload::RECORDS_RELEASES`]).
    pub latency: Latencies,
    /// Time from a release to the next grant.
    pub hand_over: Option<Latencies>,
    /// Each single latency, if the plan keeps them.
    pub samples: Vec<Sample>,
    /// Clock of the samples.
    pub clock: Clock,
    /// Tokens that the limiter allowed.
    pub allowed: Option<Allowed>,
    /// Wrong responses.
    pub faults: Faults,
    /// CPU use of the server, the load generator and other processes.
    pub cpu: CpuShares,
    /// Whether the load was stopped before its end.
    pub is_interrupted: bool,
}

/// Progress callback; gets the elapsed time and the number of responses.
pub type Watcher<'a> = dyn Fn(Duration, u64) + 'a;

/// Part of a load that runs on one thread.
pub(crate) type Job = Box<dyn FnOnce(&Arc<Signals>) -> Result<WorkerResult> + Send>;

/// Runs a plan.
pub fn run(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
) -> Result<Outcome> {
    plan.check()?;
    match (plan.system, plan.workload) {
        (_, workload) if workload.is_scenario() => {
            bail!(
                "the workload {} consists of several phases and cannot run as a single load",
                workload.name()
            )
        }
        (System::Waymaker, WorkloadName::Tree) => run_codec::<WaymakerSets>(plan, server, stop, watcher),
        (System::Waymaker, WorkloadName::Multi) => run_codec::<WaymakerKeys>(plan, server, stop, watcher),
        (System::Waymaker, WorkloadName::Semaphore) => {
            run_codec::<WaymakerPermits>(plan, server, stop, watcher)
        }
        (System::Waymaker, WorkloadName::Throttle) => {
            run_codec::<WaymakerLimiter>(plan, server, stop, watcher)
        }
        (System::Waymaker, WorkloadName::Renew) => run_codec::<WaymakerRenewals>(plan, server, stop, watcher),
        (System::Waymaker, WorkloadName::Guard) => guard::run(plan, server, stop, watcher),
        (System::Waymaker, _) => run_codec::<Waymaker>(plan, server, stop, watcher),
        (System::Redis, WorkloadName::Renew) => run_codec::<RedisRenewals>(plan, server, stop, watcher),
        (System::Redis, _) => run_codec::<Redis>(plan, server, stop, watcher),
        (System::Consul, WorkloadName::Renew) => run_codec::<ConsulRenewals>(plan, server, stop, watcher),
        (System::Consul, _) => run_codec::<Consul>(plan, server, stop, watcher),
        (System::Postgres, _) => run_codec::<Postgres>(plan, server, stop, watcher),
        (System::Slock, _) => run_codec::<Slock>(plan, server, stop, watcher),
        (System::Locktopus, _) => run_codec::<Locktopus>(plan, server, stop, watcher),
        (System::Echo, _) => run_codec::<Echo>(plan, server, stop, watcher),
        (System::WebSocketEcho, _) => run_codec::<WebSocketEcho>(plan, server, stop, watcher),
        (System::Grpc | System::GrpcEcho | System::Etcd, _) => grpc::run(plan, server, stop, watcher),
    }
}

fn run_codec<C: Codec + 'static>(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
) -> Result<Outcome> {
    match plan.workload {
        WorkloadName::Hot => {
            let ledger = Arc::new(HotLedger::default());
            run_workload::<C, _>(plan, server, stop, watcher, |_| Hot::new(Arc::clone(&ledger)))
        }
        WorkloadName::Renew => run_workload::<C, _>(plan, server, stop, watcher, |_| Renewals),
        WorkloadName::Rw | WorkloadName::Tree | WorkloadName::Multi => {
            let ledger = Arc::new(ReadWriteLedger::new(plan));
            run_workload::<C, _>(plan, server, stop, watcher, |thread| {
                ReadWrite::new(Arc::clone(&ledger), plan, plan.thread_seed(thread))
            })
        }
        WorkloadName::Semaphore => {
            let ledger = Arc::new(PermitLedger::new(plan));
            run_workload::<C, _>(plan, server, stop, watcher, |thread| {
                Permits::new(Arc::clone(&ledger), plan, plan.thread_seed(thread))
            })
        }
        WorkloadName::Throttle => {
            let buckets = Arc::new(Buckets::new(plan.key_count));
            let mut outcome = run_workload::<C, _>(plan, server, stop, watcher, |thread| {
                Throttled::new(Arc::clone(&buckets), plan.thread_seed(thread))
            })?;
            let lasted_ns = outcome.clock.now_ns();
            outcome.allowed = Some(buckets.judge(&plan.shape, lasted_ns, &mut outcome.faults));
            Ok(outcome)
        }
        _ => {
            let ledger = Arc::new(PairLedger::new(plan, C::HAS_FENCES));
            run_workload::<C, _>(plan, server, stop, watcher, |thread| {
                Pair::new(Arc::clone(&ledger), plan.thread_seed(thread))
            })
        }
    }
}

fn run_workload<C: Codec + 'static, W: Workload + 'static>(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
    workload: impl Fn(u32) -> W,
) -> Result<Outcome> {
    let mut parts: Vec<Vec<Connection<C>>> = (0..plan.threads).map(|_| Vec::new()).collect();
    for (index, connection) in Connection::<C>::open_all(plan)?.into_iter().enumerate() {
        parts[index % plan.threads as usize].push(connection);
    }
    let timetable = Timetable::of(plan);
    let jobs = parts.into_iter().enumerate().map(|(thread, connections)| -> Job {
        let schedule = plan
            .rate
            .map(|rate| Schedule::new(rate, thread as u64, u64::from(plan.threads), connections.len()));
        let worker = Worker::new(connections, workload(thread as u32), plan, schedule, timetable);
        Box::new(move |signals| worker.run(signals))
    });
    run_threads(plan, server, stop, watcher, timetable, jobs.collect())
}

/// Runs each part on its own thread and reports progress.
pub(crate) fn run_threads(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
    timetable: Timetable,
    jobs: Vec<Job>,
) -> Result<Outcome> {
    let clock = timetable.clock;
    let mut threads = Vec::new();
    for (thread, job) in jobs.into_iter().enumerate() {
        let signals = Arc::new(Signals { stop: Arc::clone(stop), ..Signals::default() });
        let core = (!plan.pin.is_empty()).then(|| plan.pin[thread % plan.pin.len()]);
        let of_thread = Arc::clone(&signals);
        let handle = thread::Builder::new().name(format!("load {thread}")).spawn(move || {
            core.map_or(Ok(()), pin_current_thread)?;
            job(&of_thread)
        })?;
        threads.push((signals, handle));
    }

    let watch_until = |until: Duration| {
        loop {
            let elapsed = Duration::from_nanos(clock.now_ns());
            watcher(
                elapsed,
                threads.iter().map(|(signals, _)| signals.answer_count.load(Ordering::Relaxed)).sum(),
            );
            if elapsed >= until
                || stop.load(Ordering::Relaxed)
                || threads.iter().any(|(_, handle)| handle.is_finished())
            {
                break;
            }
            thread::sleep((until - elapsed).min(WATCH_INTERVAL));
        }
    };
    watch_until(plan.warmup);
    let before = CpuSample::take(server);
    watch_until(plan.warmup + plan.duration);
    let after = CpuSample::take(server);
    let measured_ns =
        clock.now_ns().min(timetable.measure_until_ns).saturating_sub(timetable.measure_from_ns);
    let is_interrupted = stop.load(Ordering::Relaxed);

    let mut sum = WorkerResult::default();
    for (_, handle) in threads {
        let result = handle.join().map_err(|_| anyhow!("a thread of the load panicked"))?;
        let result = result.with_context(|| plan.target.clone())?;
        merge(&mut sum, result);
    }
    Ok(Outcome {
        measured: Duration::from_nanos(measured_ns),
        request_count: sum.request_count,
        poll_count: sum.poll_count,
        latency: sum.latency,
        hand_over: sum.hand_over,
        samples: sum.samples,
        clock,
        allowed: None,
        faults: sum.faults,
        cpu: before.shares_until(&after),
        is_interrupted,
    })
}

/// Adds the result of one part of a load to the sum.
pub(crate) fn merge(sum: &mut WorkerResult, result: WorkerResult) {
    sum.request_count += result.request_count;
    sum.poll_count += result.poll_count;
    sum.latency.merge(&result.latency);
    sum.samples.extend(result.samples);
    sum.faults.merge(result.faults);
    if let Some(hand_over) = result.hand_over {
        sum.hand_over.get_or_insert_default().merge(&hand_over);
    }
}
