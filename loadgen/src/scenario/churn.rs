//! Connections that open, take one lock and close without a release; the server has to free the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use waymaker_protocol::{
    Acquire, AcquireOptions, AcquireTerms, Goodbye, Hello, NamespaceKind, SessionRequest,
};

use super::Findings;
use super::bystanders::{ns_between, pause};
use super::client::{Client, in_words};
use crate::codec::greeting::hello;
use crate::cpu::{CpuSample, CpuShares};
use crate::faults::{FaultKind, Faults};
use crate::key::KeyIndex;
use crate::latencies::{Latencies, Percentiles};
use crate::pin::pin_current_thread;
use crate::plan::Plan;
use crate::process::Process;
use crate::units::{show_ns, show_percent, show_rate};

/// A separate namespace, so that its counters cover only the churn.
const NAMESPACE: &[u8] = b"loadgen-churn";
/// Maximum wait; a key is free by then, because its last holder has disconnected.
const WAIT_MS: u32 = 5_000;
/// Time limit for the server to free the locks of closed connections.
const LEFT_TIME_MAX: Duration = Duration::from_secs(5);

/// Results of the churn.
#[derive(Debug, Serialize)]
pub(super) struct Churn {
    measured_seconds: f64,
    visits_per_second: f64,
    /// Time from connecting to the WELCOME.
    opening: Percentiles,
    /// Time from the acquire to the grant.
    acquiring: Percentiles,
    /// Time from connecting to closing.
    visit: Percentiles,
    /// Time from the last close until no lock was held.
    freed_after_ns: u64,
    cpu: CpuShares,
    faults: Faults,
}

impl Findings for Churn {
    fn describe(&self) -> Vec<String> {
        let server = self.cpu.server.map_or_else(|| "unknown".to_owned(), show_percent);
        vec![
            format!("throughput  {} visits", show_rate(self.visits_per_second)),
            format!("opening     {}", self.opening.describe()),
            format!("acquire     {}", self.acquiring.describe()),
            format!("visit       {}", self.visit.describe()),
            format!(
                "freed       no lock was held {} after the last connection closed",
                show_ns(self.freed_after_ns)
            ),
            format!("CPU         server {server}, load {} of one core", show_percent(self.cpu.load)),
        ]
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// One client and its results.
#[derive(Default)]
struct Visitor {
    visit_count: u64,
    opening: Latencies,
    acquiring: Latencies,
    visit: Latencies,
    faults: Faults,
}

/// Runs the churn for the time of the plan.
pub(super) fn run(plan: &Plan, stop: &Arc<AtomicBool>) -> Result<Churn> {
    crate::process::raise_open_files_limit(u64::from(plan.connections))?;
    let mut observer = Client::open(plan, NAMESPACE)?;
    if plan.key_count < plan.connections {
        bail!("--keys is too small; each of the {} connections needs its own key", plan.connections);
    }
    let server = Process::listening_at(plan.socket_address);
    let measure_from = Instant::now() + plan.warmup;
    let measure_until = measure_from + plan.duration;
    let (sum, cpu) = thread::scope(|scope| {
        let visitors: Vec<_> = (0..plan.connections)
            .map(|number| scope.spawn(move || visit_until(plan, number, measure_from, measure_until, stop)))
            .collect();
        pause(plan.warmup, stop);
        let before = CpuSample::take(server);
        pause(plan.duration, stop);
        let cpu = before.shares_until(&CpuSample::take(server));
        let mut sum = Visitor::default();
        for visitor in visitors {
            let visitor = visitor.join().map_err(|_| anyhow!("a thread of the churn panicked"))??;
            sum.visit_count += visitor.visit_count;
            sum.opening.merge(&visitor.opening);
            sum.acquiring.merge(&visitor.acquiring);
            sum.visit.merge(&visitor.visit);
            sum.faults.merge(visitor.faults);
        }
        anyhow::Ok((sum, cpu))
    })?;
    let left_at = Instant::now();
    let mut faults = sum.faults;
    loop {
        let counters = observer.counters(NAMESPACE)?;
        if (counters.held, counters.waiting) == (0, 0) {
            break;
        }
        if left_at.elapsed() > LEFT_TIME_MAX {
            faults.add(FaultKind::WrongCount, || format!("{counters:?} after all connections closed"));
            break;
        }
    }
    let measured_seconds = Instant::now().min(measure_until).duration_since(measure_from).as_secs_f64();
    Ok(Churn {
        measured_seconds,
        visits_per_second: sum.visit_count as f64 / measured_seconds.max(1e-9),
        opening: sum.opening.percentiles(),
        acquiring: sum.acquiring.percentiles(),
        visit: sum.visit.percentiles(),
        freed_after_ns: ns_between(left_at, Instant::now()),
        cpu,
        faults,
    })
}

/// Opens and closes connections, each time for one of the client's own keys.
fn visit_until(
    plan: &Plan,
    number: u32,
    measure_from: Instant,
    measure_until: Instant,
    stop: &AtomicBool,
) -> Result<Visitor> {
    if !plan.pin.is_empty() {
        pin_current_thread(plan.pin[number as usize % plan.pin.len()])?;
    }
    let mut visitor = Visitor::default();
    let mut random = SmallRng::seed_from_u64(plan.seed.wrapping_add(u64::from(number)));
    let key_count = plan.key_count / plan.connections;
    let mut newest = vec![0; if plan.has_distinct_keys { 0 } else { key_count as usize }];
    let mut turn = 0;
    while Instant::now() < measure_until && !stop.load(Ordering::Relaxed) {
        let place = if plan.has_distinct_keys { turn } else { random.random_range(0..key_count) };
        turn = (turn + 1) % key_count;
        match visitor.visit(plan, KeyIndex(place * plan.connections + number), measure_from) {
            Ok(fence) => {
                let Some(newest) = newest.get_mut(place as usize) else { continue };
                if fence <= *newest {
                    let was = *newest;
                    visitor.faults.add(FaultKind::FenceNotRising, || format!("fence {fence} after {was}"));
                }
                *newest = fence;
            }
            Err(error) => {
                // The next visit would fail for the same reason, so the client stops.
                visitor.faults.add(FaultKind::UnexpectedError, || format!("{error:#}"));
                break;
            }
        }
    }
    Ok(visitor)
}

impl Visitor {
    /// Connects, takes the lock and disconnects. Returns the fence.
    fn visit(&mut self, plan: &Plan, key: KeyIndex, measure_from: Instant) -> Result<u64> {
        let has_session = plan.shape.has_sessions;
        let session = if has_session { SessionRequest::New { lease_ms: 0 } } else { SessionRequest::None };
        let key = key.key(usize::from(plan.key_size));
        let release_after_ms = if has_session { None } else { Some(0) };
        let acquire = Acquire {
            key: &key,
            terms: AcquireTerms {
                lease_ms: if has_session { 0 } else { plan.lease_ms },
                wait_ms: WAIT_MS,
                session_lease: has_session,
                options: AcquireOptions { release_after_ms, ..AcquireOptions::default() },
                ..AcquireTerms::default()
            },
            ..Acquire::default()
        };
        let begin = Instant::now();
        let mut client =
            Client::open_with(plan, &Hello { session, ..hello(plan, NAMESPACE, NamespaceKind::Flat) })?;
        let opened = Instant::now();
        let granted = client.acquire(&acquire)?;
        let acquired = Instant::now();
        if has_session {
            Goodbye.encode(4, &mut client.outgoing);
            client.exchange(1, &mut |frame| match frame.opcode() {
                waymaker_protocol::message::goodbye::FAREWELL => Ok(()),
                _ => bail!("unexpected response to GOODBYE: {}", in_words(frame)),
            })?;
        }
        drop(client);
        if begin >= measure_from {
            self.visit_count += 1;
            self.opening.record(ns_between(begin, opened), 1);
            self.acquiring.record(ns_between(opened, acquired), 1);
            self.visit.record(ns_between(begin, Instant::now()), 1);
        }
        Ok(granted.fence)
    }
}
