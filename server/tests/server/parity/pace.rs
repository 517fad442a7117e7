//! How the time of a spec file becomes real time.
//!
//! In a file no time passes but with `advance`; in a server it passes with every command. So all lengths of a file are
//! multiplied by one factor, by which whatever it waits for ends soon and whatever it does not wait for stays far away.

use super::command::{Ask, OnClaim};
use super::script::Script;
use std::time::{Duration, Instant};

/// How long the waiting of one file may take in all.
const TOTAL_MS: f64 = 2_000.0;
/// The shortest length that can be told from the time that commands take, and one that is long enough for any machine.
const SHORTEST_MS: f64 = 100.0;
const COMFORTABLE_MS: f64 = 300.0;
/// Longer than any run takes.
const NEVER_MS: f64 = 600_000.0;
/// Lengths outside of these are sent as they are: they are there to be refused, or cut.
const BOUNDS_MS: std::ops::Range<u64> = 10..86_400_000;
/// Time that the server needs after an `advance` to expire everything that is due.
const MARGIN: Duration = Duration::from_millis(20);
/// How far a length may be off though nothing was late.
const TOLERANCE: Duration = Duration::from_millis(100);

/// The time of one run of one file.
#[derive(Debug)]
pub(super) struct Pace {
    factor: f64,
    /// Real lengths of the file's advances, in their order.
    advances: Vec<Duration>,
    advanced: usize,
    /// By how much earlier than it says the file is looked at just before something ends.
    early: Duration,
    begun: Instant,
    waited: Duration,
    /// Time that the commands of the blocks so far took. In the file it is zero.
    late: Duration,
    /// The shortest length that matters, in real time.
    resolution: Duration,
}

impl Pace {
    /// The pace of a file, so many times slower than need be. None if its lengths are too far apart.
    pub(super) fn of(script: &Script, slowness: u32) -> Option<Self> {
        let mut advances: Vec<f64> = script
            .commands()
            .filter_map(|command| match command.ask {
                Ask::Advance(length_ms) if length_ms > 0 => Some(f64::from(length_ms)),
                _ => None,
            })
            .collect();
        let total: f64 = advances.iter().sum();
        let early = come_early(&mut advances);
        let lengths: Vec<f64> = lengths_ms(script)
            .filter(|length| BOUNDS_MS.contains(length))
            .map(|length| length as f64)
            .collect();
        let shortest = advances.iter().chain(lengths.iter()).copied().fold(f64::INFINITY, f64::min);
        let factor = if total == 0.0 {
            // Nothing may end.
            (NEVER_MS / shortest).max(1.0)
        } else {
            let factor = (TOTAL_MS / total).min(COMFORTABLE_MS / shortest);
            if factor * shortest < SHORTEST_MS {
                return None;
            }
            factor * f64::from(slowness)
        };
        let real = |ms: f64| Duration::from_secs_f64(ms * factor / 1000.0);
        Some(Self {
            factor,
            advances: advances.iter().copied().map(real).collect(),
            advanced: 0,
            early: real(early),
            begun: Instant::now(),
            waited: Duration::ZERO,
            late: Duration::ZERO,
            resolution: if total == 0.0 { Duration::MAX } else { real(shortest) },
        })
    }

    /// A length of the file, as it is sent. 0 is the default of the server, which a file takes for 30 s.
    pub(super) fn millis(&self, length_ms: u32) -> u32 {
        match length_ms {
            u32::MAX => length_ms,
            0 if self.factor == 1.0 => 0,
            0 => self.scaled(30_000) as u32,
            _ => self.scaled(u64::from(length_ms)) as u32,
        }
    }

    /// The same where 0 has no meaning of its own.
    pub(super) fn wait_ms(&self, length_ms: u32) -> u32 {
        if length_ms == 0 { 0 } else { self.millis(length_ms) }
    }

    /// The same for a length that may be below zero.
    pub(super) fn signed_millis(&self, length_ms: i64) -> i64 {
        length_ms.signum() * (length_ms.unsigned_abs() as f64 * self.factor) as i64
    }

    /// The same in nanoseconds.
    pub(super) fn nanos(&self, length_ns: u64) -> u64 {
        (length_ns as f64 * self.factor) as u64
    }

    fn scaled(&self, length_ms: u64) -> u64 {
        if BOUNDS_MS.contains(&length_ms) {
            ((length_ms as f64 * self.factor) as u64).clamp(BOUNDS_MS.start, BOUNDS_MS.end - 1)
        } else {
            length_ms
        }
    }

    /// Waits for the length of the next `advance`, then for `caught_up`: the server has expired everything that is due.
    pub(super) async fn advance(&mut self, caught_up: impl Future<Output = ()>) {
        let length = self.advances[self.advanced];
        self.advanced += 1;
        let begun = Instant::now();
        tokio::time::sleep(length).await;
        caught_up.await;
        self.waited += begun.elapsed().min(length + MARGIN);
    }

    /// Notes how late the run is. Call this after the commands of a block.
    pub(super) fn end_block(&mut self) {
        self.late = self.begun.elapsed().saturating_sub(self.waited);
    }

    /// Whether so much time was lost that what was heard says nothing.
    pub(super) fn is_void(&self) -> bool {
        self.late > self.resolution / 4
    }

    /// Whether a length that was heard is the one that the file expects, in nanoseconds.
    pub(super) fn matches(&self, expected_ns: i128, heard_ns: i128) -> bool {
        let scaled_ns = (expected_ns as f64 * self.factor) as i128;
        let capped_ns = scaled_ns.min(i128::from(BOUNDS_MS.end - 1) * 1_000_000);
        let tolerance = TOLERANCE + self.early + self.late;
        let near = |ns: i128| (ns - heard_ns).unsigned_abs() <= tolerance.as_nanos();
        near(scaled_ns) || near(capped_ns) || near(expected_ns)
    }
}

/// Where a file looks twice, just before something ends and when it has ended, the first look comes earlier. By how much at
/// most is said.
fn come_early(advances: &mut [f64]) -> f64 {
    let mut most: f64 = 0.0;
    for index in 1..advances.len() {
        let (before, after) = (advances[index - 1], advances[index]);
        if after * 10.0 <= before {
            let earlier = before / 3.0;
            advances[index - 1] -= earlier;
            advances[index] += earlier;
            most = most.max(earlier);
        }
    }
    most
}

/// The lengths that a file gives to leases and waits.
fn lengths_ms(script: &Script) -> impl Iterator<Item = u64> {
    script.commands().flat_map(|command| match &command.ask {
        Ask::Acquire(acquire) => {
            vec![
                u64::from(acquire.lease_ms),
                u64::from(acquire.wait_ms),
                acquire.release_after_ms.unwrap_or(0).into(),
            ]
        }
        Ask::OnClaim { ask: OnClaim::Extend { lease_ms, .. }, .. } => vec![u64::from(*lease_ms)],
        Ask::Register { register, .. } => vec![register.lease_ms.unsigned_abs()],
        Ask::Throttle { buckets, .. } => buckets
            .iter()
            .map(|bucket| bucket.period_ns / u64::from(bucket.rate.max(1)) / 1_000_000)
            .collect(),
        _ => Vec::new(),
    })
}
