//! Properties of a seed.

use crate::random::Dice;
use waymaker_engine::Limits;

/// Properties of one seed, drawn first.
#[derive(Debug)]
pub(super) struct Character {
    pub(super) limits: Limits,
    pub(super) has_quorum: bool,
    /// Percentage of single-key acquires whose fences are durable.
    pub(super) single_durable_percent: u64,
    /// Percentage of multi-key acquires whose fences are durable.
    pub(super) multi_key_durable_percent: u64,
    /// Number of leading keys that are ephemeral unless a multi-key claim raises their scope.
    pub(super) ephemeral_key_count: usize,
    /// Percentage of multi-key acquires that repeat the last one with a request id.
    pub(super) again_percent: u64,
    pub(super) lane_weight: u64,
    /// With a small weight, shards hear of the same change at very different times.
    pub(super) send_weight: u64,
    pub(super) restart_weight: u64,
}

impl Character {
    pub(super) fn new(dice: &mut Dice) -> Self {
        let limits = Limits {
            lease_min_ms: 1,
            claim_count_max: 1 << 8,
            bucket_count_max: 1,
            // A turn with four steps leaves lanes unsettled that change again.
            work_per_turn: dice.pick(&[4, 256]),
            ..Limits::default()
        };
        Self {
            limits,
            has_quorum: dice.percent(50),
            single_durable_percent: dice.pick(&[20, 70]),
            multi_key_durable_percent: dice.pick(&[0, 20, 70]),
            ephemeral_key_count: dice.pick(&[0, 0, 2]),
            again_percent: dice.pick(&[25, 60]),
            lane_weight: dice.pick(&[3, 6, 15]),
            send_weight: dice.pick(&[10, 40]),
            restart_weight: dice.pick(&[0, 1, 3]),
        }
    }
}
