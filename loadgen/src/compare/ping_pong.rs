//! Time that a cache line takes from one core to another.
//!
//! Virtual machines have states that last seconds to minutes, in which two cores are near each other or far from
//! each other. Loopback throughput differs by a third between these states. Slices of different states must not be
//! compared, so each slice is between two of these measurements.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use crossbeam_utils::CachePadded;
use serde::Serialize;

use crate::pin::pin_current_thread;

/// Round trips of one sample; about a fifth of a millisecond if the cores are near.
const ROUND_TRIPS: u32 = 2_000;
/// Number of samples. The median is used, so that a thread that briefly loses its core has no effect.
const SAMPLES: usize = 7;
/// Threshold between the near state (60 to 100 ns) and the far state (360 to 420 ns).
const NEAR_NS_MAX: u64 = 200;

/// Distance of two cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CoreDistance {
    /// The cores are near each other.
    Near,
    /// The cores are far from each other.
    Far,
    /// Load and servers share one core, or threads cannot be pinned to the cores.
    Unknown,
}

impl CoreDistance {
    /// Returns the distance for this latency.
    pub fn of(latency_ns: Option<u64>) -> Self {
        match latency_ns {
            None => Self::Unknown,
            Some(0..=NEAR_NS_MAX) => Self::Near,
            Some(_) => Self::Far,
        }
    }

    /// Returns the name of the distance.
    pub fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
            Self::Unknown => "unknown",
        }
    }
}

/// Returns the round-trip time in nanoseconds; `None` between a core and itself.
pub fn core_latency_ns(core: usize, other_core: usize) -> Result<Option<u64>> {
    if core == other_core {
        return Ok(None);
    }
    let turn = CachePadded::new(AtomicU32::new(0));
    let last = ROUND_TRIPS * SAMPLES as u32 * 2;
    // Even numbers are the turn of one thread, odd numbers the turn of the other.
    let take_turns = |parity: u32, mut note: Box<dyn FnMut(u32) + '_>| {
        for number in (parity..last).step_by(2) {
            while turn.load(Ordering::Acquire) != number {
                std::hint::spin_loop();
            }
            turn.store(number + 1, Ordering::Release);
            note(number);
        }
    };
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let pinned = pin_current_thread(other_core);
            // Takes its turns even if it could not be pinned, because the other thread waits for them.
            take_turns(1, Box::new(|_| {}));
            pinned
        });
        let asking = scope.spawn(|| {
            let pinned = pin_current_thread(core);
            let mut marks = vec![Instant::now()];
            let note = |number: u32| {
                if (number / 2 + 1).is_multiple_of(ROUND_TRIPS) {
                    marks.push(Instant::now());
                }
            };
            take_turns(0, Box::new(note));
            pinned.map(|()| marks)
        });
        let answered = answering.join().map_err(|_| anyhow!("the ping-pong panicked"))?;
        let marks = asking.join().map_err(|_| anyhow!("the ping-pong panicked"))??;
        answered?;
        let mut samples: Vec<u64> = marks
            .windows(2)
            .map(|pair| crate::units::as_ns(pair[1] - pair[0]) / u64::from(ROUND_TRIPS))
            .collect();
        samples.sort_unstable();
        Ok(Some(samples[samples.len() / 2]))
    })
}

#[cfg(test)]
mod tests {
    use super::{CoreDistance, core_latency_ns};

    #[test]
    fn a_core_has_no_distance_from_itself() {
        assert_eq!(core_latency_ns(0, 0).expect("nothing is measured"), None);
        assert_eq!(CoreDistance::of(None), CoreDistance::Unknown);
        assert_eq!(CoreDistance::of(Some(90)), CoreDistance::Near);
        assert_eq!(CoreDistance::of(Some(390)), CoreDistance::Far);
    }

    #[test]
    fn two_cores_have_a_distance() {
        if crate::pin::core_count() > 1 {
            assert!(core_latency_ns(0, 1).expect("two cores").is_some_and(|latency_ns| latency_ns > 0));
        }
    }
}
