//! Check that a lane of a real client gives up a connection whose server is silent. Nothing else may tell the
//! lane that the connection is dead.

use super::RealClient;
use crate::world::World;

/// Limits of the time between two keep-alives and of the patience of a lane, in microseconds.
const KEEP_ALIVE_MAX_US: u64 = 5_000_000;
const PATIENCE_US: std::ops::RangeInclusive<u64> = 1_000_000..=5_000_000;
/// Tolerance for inaccurate clocks and for one step of the process.
const SLACK_US: u64 = 100_000;

impl RealClient {
    pub(super) fn judge_silence(&self, world: &mut World) {
        let max_us = silence_max_us(self.plan.session_lease_ms);
        for lane in &self.lanes {
            let Some(heard_us) = lane.heard_us() else { continue };
            let since_us = heard_us.max(self.awake_us);
            if since_us + max_us < world.now_us {
                let index = self.index;
                world.auditor.accuse("silence", || {
                    format!("process {index} has received nothing since {since_us} us but keeps the connection of {lane:?}")
                });
            }
        }
    }
}

/// Returns the longest time for which a lane keeps a silent connection: until the next keep-alive, and for
/// its patience. The patience begins anew if the server sent something else after the keep-alive.
fn silence_max_us(session_lease_ms: u32) -> u64 {
    let third_us = u64::from(session_lease_ms) * 1_000 / 3;
    third_us.min(KEEP_ALIVE_MAX_US) + 2 * third_us.clamp(*PATIENCE_US.start(), *PATIENCE_US.end()) + SLACK_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_has_patience_for_a_third_of_its_session_lease_within_limits() {
        assert_eq!(silence_max_us(300), 100_000 + 2_000_000 + SLACK_US);
        assert_eq!(silence_max_us(4_500), 1_500_000 + 3_000_000 + SLACK_US);
        assert_eq!(silence_max_us(60_000), 5_000_000 + 10_000_000 + SLACK_US);
    }
}
