//! Readers that wait behind one writer until it releases.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{Acquire, AcquireTerms, LockId};

use super::Findings;
use super::bystanders::{Bystanders, Unrelated, ns_between, pause};
use super::client::{Client, grant_in};
use super::crowd::Crowd;
use crate::faults::{FaultKind, Faults};
use crate::pin::pin_current_thread;
use crate::plan::Plan;
use crate::units::show_ns;

/// A separate namespace, so that its counters cover only the storm.
const NAMESPACE: &[u8] = b"loadgen-readers";
const KEY: &[u8] = b"that all want to read";
/// Number of waiting claims that a server allows per connection.
const READERS_PER_CONNECTION: usize = 10_000;
/// Time limit for the storm.
const STORM_TIME_MAX: Duration = Duration::from_secs(60);

/// Results of the storm.
#[derive(Debug, Serialize)]
pub(super) struct ReadersStorm {
    reader_count: u32,
    connection_count: usize,
    /// Time from sending the writer's release to its response.
    released_after_ns: u64,
    /// Time from sending the writer's release to the first grant of a reader.
    first_granted_after_ns: u64,
    /// Time from sending the writer's release to the last grant of a reader.
    granted_after_ns: u64,
    unrelated: Unrelated,
    faults: Faults,
}

impl Findings for ReadersStorm {
    fn describe(&self) -> Vec<String> {
        let mut lines = vec![
            format!("readers     {} of {} connections", self.reader_count, self.connection_count),
            format!(
                "granted     all within {} of the writer's release, the first within {}",
                show_ns(self.granted_after_ns),
                show_ns(self.first_granted_after_ns)
            ),
            format!("release     response within {}", show_ns(self.released_after_ns)),
        ];
        lines.extend(self.unrelated.describe());
        lines
    }

    fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// Runs the storm once.
pub(super) fn run(plan: &Plan, stop: &Arc<AtomicBool>) -> Result<ReadersStorm> {
    plan.pin.last().map_or(Ok(()), |core| pin_current_thread(*core))?;
    let reader_count = plan.shape.reader_count as usize;
    let mut writer = Client::open(plan, NAMESPACE)?;
    // No lease may expire during the measurement.
    let lease_ms = plan.lease_ms.max(600_000);
    let held = writer.acquire(&Acquire {
        key: KEY,
        terms: AcquireTerms { lease_ms, ..AcquireTerms::default() },
        ..Acquire::default()
    });
    let held = held.context("another client holds the key of the storm")?;
    let mut readers = Vec::new();
    for first in (0..reader_count).step_by(READERS_PER_CONNECTION) {
        let mut client = Client::open(plan, NAMESPACE)?;
        let wanted = Acquire {
            key: KEY,
            shared: true,
            terms: AcquireTerms { lease_ms, wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() },
        };
        let numbers = first..(first + READERS_PER_CONNECTION).min(reader_count);
        client.queue(numbers.map(|number| (number as u32 + 1, wanted)))?;
        readers.push(client);
    }
    let connection_count = readers.len();
    let mut crowd = Crowd::gather(readers)?;
    let bystanders = Bystanders::start(plan)?;
    pause(plan.duration, stop);

    let begin = Instant::now();
    writer.release_all(&[held.id])?;
    let released_at = Instant::now();
    let mut grants: Vec<Vec<LockId>> = vec![Vec::new(); connection_count];
    let mut fences = Vec::with_capacity(reader_count);
    let granted_count = Cell::new(0);
    let (mut first_at, mut last_at) = (None, None);
    crowd.listen(
        begin + STORM_TIME_MAX,
        |client, frame| {
            let granted = grant_in(frame)?;
            grants[client].push(granted.id);
            fences.push(granted.fence);
            granted_count.set(granted_count.get() + 1);
            Ok(())
        },
        |now| {
            first_at = first_at.or((granted_count.get() > 0).then_some(now));
            last_at = last_at.or((granted_count.get() >= reader_count).then_some(now));
            last_at.is_some() || stop.load(Ordering::Relaxed)
        },
    )?;
    let (Some(first_at), Some(last_at)) = (first_at, last_at) else {
        bail!("only {} of {reader_count} readers received a grant", granted_count.get());
    };
    pause(plan.duration, stop);
    let outcome = bystanders.end()?;

    for (client, holds) in crowd.dissolve()?.iter_mut().zip(&grants) {
        client.release_all(holds)?;
    }
    let mut faults = outcome.faults.clone();
    fences.sort_unstable();
    fences.dedup();
    if fences.len() != reader_count || fences.first().is_some_and(|fence| *fence <= held.fence) {
        faults.add(FaultKind::FenceNotRising, || {
            format!("{} different fences of {reader_count} readers after {}", fences.len(), held.fence)
        });
    }
    let counters = writer.counters(NAMESPACE)?;
    if (counters.held, counters.waiting) != (0, 0) {
        faults.add(FaultKind::WrongCount, || format!("{counters:?} after all clients released their holds"));
    }
    Ok(ReadersStorm {
        reader_count: plan.shape.reader_count,
        connection_count,
        released_after_ns: ns_between(begin, released_at),
        first_granted_after_ns: ns_between(begin, first_at),
        granted_after_ns: ns_between(begin, last_at),
        unrelated: Unrelated::of(&outcome, begin, last_at),
        faults,
    })
}
