//! Threads of a load: runs them, reports their progress, and adds up their results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::clock::Clock;
use crate::cpu::{CpuSample, CpuShares};
use crate::faults::Faults;
use crate::latencies::Latencies;
use crate::pin::pin_current_thread;
use crate::plan::Plan;
use crate::player::{Sample, WorkerResult};
use crate::process::Process;
use crate::worker::{Signals, Timetable};
use crate::workload::Allowed;

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
    /// Latency of each request, or of acquires only (see [`crate::workload::Workload::RECORDS_RELEASES`]).
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
