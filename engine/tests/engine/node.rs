//! Several shards, and what a worker does between their turns.

use crate::recorder::{FollowUp, Recorder};
use std::sync::Arc;
use waymaker_engine::several::{self, Participant, Several};
use waymaker_engine::{LaneAddress, Limits, NONE, Shard, ShardConfig, Time};

/// The shards of a server in which one thing happens at a time.
pub(crate) struct Node {
    pub(crate) shards: Vec<Shard>,
}

impl Node {
    pub(crate) fn new(shard_count: u16, limits: Limits, start: Time, seed: u64) -> Self {
        let shard = |number| {
            Shard::new(&ShardConfig {
                number,
                limits,
                hash_seeds: [seed, 2, 3, 4],
                secret_seed: [(seed as u8).wrapping_add(number as u8); 32],
                start,
            })
        };
        Self { shards: (0..shard_count).map(shard).collect() }
    }

    pub(crate) fn verify(&self) {
        self.shards.iter().for_each(Shard::verify);
    }

    pub(crate) fn begin_turns(&mut self, now: Time, drained: Time, effects: &mut Recorder) {
        for shard in &mut self.shards {
            shard.begin_turn(now, drained, effects);
        }
    }

    /// Turns until nothing is left over. What they leave to be done with several turns stays to be done.
    pub(crate) fn settle(&mut self, now: Time, drained: Time, effects: &mut Recorder) {
        for shard in &mut self.shards {
            loop {
                shard.begin_turn(now, drained, effects);
                if shard.next_deadline() > drained {
                    break;
                }
            }
        }
    }

    /// The numbers of these shards, each once, rising.
    pub(crate) fn distinct(numbers: impl IntoIterator<Item = u16>) -> Vec<u16> {
        let mut numbers: Vec<u16> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The turns of these shards, for a lane that asks, or for nobody.
    pub(crate) fn participants(
        &mut self,
        numbers: &[u16],
        asking: Option<(LaneAddress, &Arc<[u8]>, u16)>,
    ) -> Vec<Participant<'_>> {
        let wanted = self.shards.iter_mut().enumerate().filter(|(at, _)| numbers.contains(&(*at as u16)));
        wanted
            .map(|(_, shard)| {
                let lane =
                    asking.map_or(NONE, |(address, owner, namespace)| shard.lane(address, owner, namespace));
                Participant { shard, lane }
            })
            .collect()
    }

    /// Does all that turns left to be done with several turns, and what that leaves. Says how much it was.
    pub(crate) fn follow_up(&mut self, now: Time, drained: Time, effects: &mut Recorder) -> u32 {
        let mut count = 0;
        while let Some(follow_up) = effects.follow_ups.pop_front() {
            self.follow_up_one(&follow_up, now, drained, effects);
            count += 1;
        }
        count
    }

    pub(crate) fn follow_up_one(
        &mut self,
        follow_up: &FollowUp,
        now: Time,
        drained: Time,
        effects: &mut Recorder,
    ) {
        let (FollowUp::Recheck(several) | FollowUp::Withdraw(several)) = follow_up;
        let several: &Several = several;
        for shard in several.shards() {
            self.shards[usize::from(*shard)].begin_turn(now, drained, effects);
        }
        match follow_up {
            FollowUp::Recheck(_) => {
                several::recheck(&mut self.participants(several.shards(), None), several, effects);
            }
            FollowUp::Withdraw(_) => {
                for shard in several.shards() {
                    self.shards[usize::from(*shard)].withdraw(several, effects);
                }
            }
        }
    }
}
