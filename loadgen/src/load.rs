//! Carries out one plan: connects, loads from its threads, and gathers what they saw.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::address::System;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::cpu::{CpuSample, CpuShares};
use crate::faults::Faults;
use crate::latencies::Latencies;
use crate::ledger::FenceLedger;
use crate::options::WorkloadName;
use crate::pin::pin_current_thread;
use crate::plan::Plan;
use crate::player::WorkerResult;
use crate::process::Process;
use crate::schedule::Schedule;
use crate::target::{Echo, Redis, Target, Waymaker};
use crate::units::as_ns;
use crate::worker::{Signals, Timetable, Worker};
use crate::workload::{Hot, HotLedger, Pair, ReadWrite, ReadWriteLedger, Workload};

/// Between two updates of whoever watches.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// What one load showed.
#[derive(Debug)]
pub struct Outcome {
    /// For how long it was measured.
    pub measured: Duration,
    /// Requests answered in that time.
    pub request_count: u64,
    /// Acquires that were answered busy and sent again; not among the requests.
    pub poll_count: u64,
    /// Of each request, or of acquires only (see [`Workload::RECORDS_RELEASES`]).
    pub latency: Latencies,
    /// From one release to the next grant.
    pub hand_over: Option<Latencies>,
    /// What was wrong.
    pub faults: Faults,
    /// Who kept how many cores busy.
    pub cpu: CpuShares,
    /// It was stopped before its end.
    pub is_interrupted: bool,
}

/// Somebody who looks on: how much of the time is over, and how many answers came.
pub type Watcher<'a> = dyn Fn(Duration, u64) + 'a;

/// Carries out a plan.
pub fn run(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
) -> Result<Outcome> {
    plan.check()?;
    match plan.system {
        System::Waymaker => run_target::<Waymaker>(plan, server, stop, watcher),
        System::Redis => run_target::<Redis>(plan, server, stop, watcher),
        System::Echo => run_target::<Echo>(plan, server, stop, watcher),
    }
}

fn run_target<T: Target + 'static>(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
) -> Result<Outcome> {
    // Every thread draws from a stream of its own.
    let seed = |thread: u64| plan.seed.wrapping_add(thread.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    match plan.workload {
        WorkloadName::Pair => {
            let keys_per_lane = plan.key_count / (plan.connections * plan.depth);
            let fences = Arc::new(FenceLedger::new(if T::HAS_FENCES { plan.key_count } else { 0 }));
            run_workload::<T, _>(plan, server, stop, watcher, |thread| {
                Pair::new(Arc::clone(&fences), keys_per_lane, seed(thread))
            })
        }
        WorkloadName::Hot => {
            let ledger = Arc::new(HotLedger::default());
            run_workload::<T, _>(plan, server, stop, watcher, |_| Hot::new(Arc::clone(&ledger)))
        }
        WorkloadName::Rw => {
            let ledger = Arc::new(ReadWriteLedger::new(plan.key_count));
            run_workload::<T, _>(plan, server, stop, watcher, |thread| {
                ReadWrite::new(Arc::clone(&ledger), plan.key_count, seed(thread))
            })
        }
    }
}

fn run_workload<T: Target + 'static, W: Workload + 'static>(
    plan: &Plan,
    server: Option<Process>,
    stop: &Arc<AtomicBool>,
    watcher: &Watcher<'_>,
    workload: impl Fn(u64) -> W,
) -> Result<Outcome> {
    let mut parts: Vec<Vec<Connection<T>>> = (0..plan.threads).map(|_| Vec::new()).collect();
    for (index, connection) in Connection::<T>::open_all(plan)?.into_iter().enumerate() {
        parts[index % plan.threads as usize].push(connection);
    }
    let clock = Clock::start();
    let measure_from_ns = as_ns(plan.warmup);
    let timetable =
        Timetable { clock, measure_from_ns, measure_until_ns: measure_from_ns + as_ns(plan.duration) };
    let mut threads = Vec::new();
    for (thread, connections) in parts.into_iter().enumerate() {
        let schedule = plan
            .rate
            .map(|rate| Schedule::new(rate, thread as u64, u64::from(plan.threads), connections.len()));
        let worker =
            Worker::new(connections, workload(thread as u64), plan.window, schedule, plan.spin, timetable);
        let signals = Arc::new(Signals { stop: Arc::clone(stop), ..Signals::default() });
        let core = (!plan.pin.is_empty()).then(|| plan.pin[thread % plan.pin.len()]);
        let of_thread = Arc::clone(&signals);
        let handle = thread::Builder::new().name(format!("load {thread}")).spawn(move || {
            core.map_or(Ok(()), pin_current_thread)?;
            worker.run(&of_thread).context("the event loop failed")
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
    let measured_ns = clock.now_ns().min(timetable.measure_until_ns).saturating_sub(measure_from_ns);
    let is_interrupted = stop.load(Ordering::Relaxed);

    let mut sum = WorkerResult::default();
    for (_, handle) in threads {
        let result = handle.join().map_err(|_| anyhow!("a thread of the load panicked"))??;
        merge(&mut sum, result);
    }
    Ok(Outcome {
        measured: Duration::from_nanos(measured_ns),
        request_count: sum.request_count,
        poll_count: sum.poll_count,
        latency: sum.latency,
        hand_over: sum.hand_over,
        faults: sum.faults,
        cpu: before.shares_until(&after),
        is_interrupted,
    })
}

fn merge(sum: &mut WorkerResult, result: WorkerResult) {
    sum.request_count += result.request_count;
    sum.poll_count += result.poll_count;
    sum.latency.merge(&result.latency);
    sum.faults.merge(result.faults);
    if let Some(hand_over) = result.hand_over {
        sum.hand_over.get_or_insert_default().merge(&hand_over);
    }
}
