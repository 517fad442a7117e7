//! Leases that all expire in one timer tick.
//!
//! A request names the length of a lease, so each lease gets the remaining time until the common end. The
//! responses contain the true ends of the leases; these are within as many milliseconds as one batch takes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::message::acquire::GRANTED;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{Acquire, AcquireTerms, LockId};

use super::Findings;
use super::bystanders::{Bystanders, Unrelated, ns_between, pause};
use super::client::{BATCH, Client, grant_in, in_words};
use super::crowd::Crowd;
use crate::faults::{FaultKind, Faults};
use crate::key::KeyIndex;
use crate::pin::pin_current_thread;
use crate::plan::Plan;
use crate::units::show_ns;

/// A separate namespace, so that its counters cover only the storm.
const NAMESPACE: &[u8] = b"loadgen-expiry";
/// Number of leases per connection. The expiry events of one connection must fit the events that the server keeps
/// for a client that does not read.
const LEASES_PER_CONNECTION: usize = 30_000;
/// Number of waiters per connection.
const WAITERS_PER_CONNECTION: usize = 10_000;
/// Lease of the waiters, which release it.
const WAITER_LEASE_MS: u32 = 60_000;
/// Time limit for the storm.
const STORM_TIME_MAX: Duration = Duration::from_secs(60);
/// Minimum length of the bystanders' load before the storm.
const QUIET_TIME_MIN: Duration = Duration::from_millis(20);

/// Results of the storm.
#[derive(Debug, Serialize)]
pub(super) struct ExpiryStorm {
    lease_count: u32,
    connection_count: usize,
    /// Time between the first and the last expiry.
    spread_ms: u64,
    /// Time from the first expiry to the event of the last.
    freed_after_ns: u64,
    /// Time from the first expiry to the last grant of a waiter.
    granted_after_ns: Option<u64>,
    unrelated: Unrelated,
    faults: Faults,
}

impl Findings for ExpiryStorm {
    fn describe(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "leases      {} of {} connections, all expiring within {} ms",
                self.lease_count,
                self.connection_count,
                self.spread_ms + 1
            ),
            format!("freed       all within {} of the first expiry", show_ns(self.freed_after_ns)),
        ];
        lines.extend(
            self.granted_after_ns
                .map(|ns| format!("waiters     all granted within {} of the first expiry", show_ns(ns))),
        );
        lines.extend(self.unrelated.describe());
        lines
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// Estimate of the server's clock.
#[derive(Clone, Copy)]
struct ServerClock {
    stamp_ms: u64,
    read_at: Instant,
}

impl ServerClock {
    fn now_ms(self) -> u64 {
        self.stamp_ms + self.read_at.elapsed().as_millis() as u64
    }

    fn instant_of(self, stamp_ms: u64) -> Instant {
        self.read_at + Duration::from_millis(stamp_ms.saturating_sub(self.stamp_ms))
    }
}

/// Expiry times of the leases by the server's clock.
#[derive(Clone, Copy)]
struct Ends {
    first_ms: u64,
    last_ms: u64,
}

/// Runs the storm once.
pub(super) fn run(plan: &Plan, stop: &Arc<AtomicBool>) -> Result<ExpiryStorm> {
    plan.pin.last().map_or(Ok(()), |core| pin_current_thread(*core))?;
    let lease_count = plan.key_count as usize;
    let waiter_count = plan.shape.waiter_count as usize;
    let mut observer = Client::open(plan, NAMESPACE)?;
    let counters_before = observer.counters(NAMESPACE)?;
    if counters_before.held > 0 {
        bail!("{} leases of an earlier storm are still held; wait until they expire", counters_before.held);
    }
    let open = |count: usize, each: usize| -> Result<Vec<Client>> {
        (0..count.div_ceil(each)).map(|_| Client::open(plan, NAMESPACE)).collect()
    };
    let mut holders = open(lease_count, LEASES_PER_CONNECTION)?;
    let mut waiters = open(waiter_count, WAITERS_PER_CONNECTION)?;
    let clock =
        ServerClock { stamp_ms: Client::open(plan, NAMESPACE)?.welcome.stamp_ms, read_at: Instant::now() };
    let ends = take_leases(plan, &mut holders, clock)?;
    for (index, client) in waiters.iter_mut().enumerate() {
        let keys = index * WAITERS_PER_CONNECTION..((index + 1) * WAITERS_PER_CONNECTION).min(waiter_count);
        queue(plan, client, keys)?;
    }
    let begin = clock.instant_of(ends.first_ms);
    if begin.saturating_duration_since(Instant::now()) < plan.duration.max(QUIET_TIME_MIN) {
        bail!(
            "--lease is {} ms, which is too short to take all {lease_count} leases; use a longer lease",
            plan.lease_ms
        );
    }
    // Not earlier, so that the latencies before the storm cover exactly this length.
    pause(begin.saturating_duration_since(Instant::now() + plan.duration.max(QUIET_TIME_MIN)), stop);
    let bystanders = Bystanders::start(plan)?;

    let holder_count = holders.len();
    holders.append(&mut waiters);
    let mut crowd = Crowd::gather(holders)?;
    let (mut expired_count, mut grants) =
        (0, vec![Vec::<LockId>::new(); waiter_count.div_ceil(WAITERS_PER_CONNECTION)]);
    let (mut freed_at, mut granted_at) = (None, None);
    let counts = std::cell::Cell::new((0, 0));
    crowd.listen(
        begin + STORM_TIME_MAX,
        |client, frame| {
            match frame.opcode() {
                opcode::EXPIRED => expired_count += 1,
                GRANTED if client >= holder_count => grants[client - holder_count].push(grant_in(frame)?.id),
                _ => bail!("unexpected response: {}", in_words(frame)),
            }
            let (expired, granted) = counts.get();
            counts.set(if frame.opcode() == GRANTED {
                (expired, granted + 1)
            } else {
                (expired + 1, granted)
            });
            Ok(())
        },
        |now| {
            let (expired, granted) = counts.get();
            freed_at = freed_at.or((expired >= lease_count).then_some(now));
            granted_at = granted_at.or((granted >= waiter_count).then_some(now));
            (freed_at.is_some() && granted_at.is_some()) || stop.load(std::sync::atomic::Ordering::Relaxed)
        },
    )?;
    let freed_at =
        freed_at.with_context(|| format!("only {expired_count} of {lease_count} leases expired"))?;
    let granted_at = granted_at.context("not all waiters received a grant")?;
    pause(plan.duration, stop);
    let outcome = bystanders.end()?;

    for (client, holds) in crowd.dissolve()?.iter_mut().skip(holder_count).zip(&grants) {
        client.release_all(holds)?;
    }
    let mut faults = outcome.faults.clone();
    let counters = observer.counters(NAMESPACE)?;
    let expired = counters.expired - counters_before.expired;
    if (expired, counters.held, counters.waiting) != (lease_count as u64, 0, 0) {
        faults.add(FaultKind::WrongCount, || format!("{counters:?} after {lease_count} leases expired"));
    }
    Ok(ExpiryStorm {
        lease_count: plan.key_count,
        connection_count: holder_count,
        spread_ms: ends.last_ms - ends.first_ms,
        freed_after_ns: ns_between(begin, freed_at),
        granted_after_ns: (waiter_count > 0).then(|| ns_between(begin, granted_at)),
        unrelated: Unrelated::of(&outcome, begin, freed_at.max(granted_at)),
        faults,
    })
}

/// Takes all leases so that they expire together.
fn take_leases(plan: &Plan, holders: &mut [Client], clock: ServerClock) -> Result<Ends> {
    let end_ms = clock.stamp_ms + u64::from(plan.lease_ms);
    let mut ends = Ends { first_ms: u64::MAX, last_ms: 0 };
    for (index, client) in holders.iter_mut().enumerate() {
        let first = index * LEASES_PER_CONNECTION;
        let last = (first + LEASES_PER_CONNECTION).min(plan.key_count as usize);
        for start in (first..last).step_by(BATCH) {
            let batch = start..last.min(start + BATCH);
            let lease_ms = end_ms.saturating_sub(clock.now_ms()).max(1) as u32;
            for number in batch.clone() {
                let key = KeyIndex(number as u32).key(usize::from(plan.key_size));
                Acquire {
                    key: &key,
                    terms: AcquireTerms { lease_ms, ..AcquireTerms::default() },
                    ..Acquire::default()
                }
                .encode(number as u32 + 1, &mut client.outgoing);
            }
            client.exchange(batch.len(), &mut |frame| {
                let granted = grant_in(frame).context(
                    "no grant; the --lease may be too short to take all leases before they expire",
                )?;
                let end_ms = granted.stamp_ms + u64::from(granted.remaining_ms);
                ends.first_ms = ends.first_ms.min(end_ms);
                ends.last_ms = ends.last_ms.max(end_ms);
                Ok(())
            })?;
        }
    }
    Ok(ends)
}

/// Lets a client wait for these keys.
fn queue(plan: &Plan, client: &mut Client, keys: std::ops::Range<usize>) -> Result<()> {
    let texts: Vec<_> =
        keys.clone().map(|number| KeyIndex(number as u32).key(usize::from(plan.key_size))).collect();
    let (lease_ms, wait_ms) = (WAITER_LEASE_MS, WAIT_FOREVER_MS);
    let acquire = |key| Acquire {
        key,
        terms: AcquireTerms { lease_ms, wait_ms, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    client.queue(keys.zip(&texts).map(|(number, text)| (number as u32 + 1, acquire(text))))
}
