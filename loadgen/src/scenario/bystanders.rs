//! Bystanders of a storm: acquire and release pairs at a fixed rate, before, during and after the storm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde::Serialize;

use crate::latencies::{Latencies, Percentiles};
use crate::load;
use crate::options::{Window, WorkloadName};
use crate::plan::Plan;
use crate::shape::Shape;
use crate::threads::Outcome;
use crate::units::as_ns;

/// Number of keys of the bystanders.
const KEY_COUNT: u32 = 100_000;
/// Longer than any storm.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

/// A load that runs during a storm.
#[derive(Debug)]
pub(super) struct Bystanders {
    thread: JoinHandle<Result<Outcome>>,
    stop: Arc<AtomicBool>,
}

/// Latencies of the bystanders: of each acquire and each release from its due time, grouped by whether any part of
/// that time is within the storm.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Unrelated {
    before: Percentiles,
    during: Percentiles,
    after: Percentiles,
}

impl Bystanders {
    /// Starts the load, with the connections and the rate of the plan.
    pub(super) fn start(plan: &Plan) -> Result<Self> {
        let plan = Plan {
            workload: WorkloadName::Pair,
            shape: Shape::default(),
            key_count: KEY_COUNT.max(plan.connections * plan.depth),
            lease_ms: 30_000,
            warmup: Duration::ZERO,
            duration: DURATION_MAX,
            window: Window::Sliding,
            keeps_samples: true,
            ..plan.clone()
        };
        plan.check()?;
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("bystanders".into())
            .spawn(move || load::run(&plan, None, &of_thread, &|_, _| ()))?;
        Ok(Self { thread, stop })
    }

    /// Ends the load and returns its results.
    pub(super) fn end(self) -> Result<Outcome> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the bystanders panicked"))?
    }
}

impl Unrelated {
    /// Returns the latencies of a storm between these two instants.
    pub(super) fn of(outcome: &Outcome, from: Instant, until: Instant) -> Self {
        let (from_ns, until_ns) = (outcome.clock.ns_at(from), outcome.clock.ns_at(until));
        let [mut before, mut during, mut after] = [(); 3].map(|()| Latencies::default());
        for sample in &outcome.samples {
            let phase = if sample.answered_at_ns < from_ns {
                &mut before
            } else if sample.sent_at_ns > until_ns {
                &mut after
            } else {
                &mut during
            };
            phase.record(sample.answered_at_ns.saturating_sub(sample.sent_at_ns), sample.count);
        }
        let [before, during, after] = [before, during, after].map(|phase| phase.percentiles());
        Self { before, during, after }
    }

    /// Formats the latencies for people, one line each.
    pub(super) fn describe(&self) -> [String; 3] {
        let line = |name: &str, points: &Percentiles| {
            format!("{name}{}  ({} requests)", points.describe(), points.count)
        };
        [
            line("bystanders  before  ", &self.before),
            line("            during  ", &self.during),
            line("            after   ", &self.after),
        ]
    }
}

/// Sleeps for this time, or until the load is stopped.
pub(super) fn pause(duration: Duration, stop: &AtomicBool) {
    let until = Instant::now() + duration;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// Returns the time between two instants in nanoseconds; 0 if the second is not later than the first.
pub(super) fn ns_between(from: Instant, until: Instant) -> u64 {
    as_ns(until.saturating_duration_since(from))
}
