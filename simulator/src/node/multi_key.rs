//! Checks of multi-key claims across all shards and workers: a claim whose keys are clear is not overlooked,
//! and a crash keeps all of it or nothing.

use super::log::OPTIONS;
use super::{Server, contents, leave};
use crate::world::World;
use waymaker_engine::multi_key::{MultiKeyClaim, Participant, is_grant_due, reserved_multi_key_claims};
use waymaker_engine::{LaneIx, TurnCell};
use waymaker_protocol::LockId;

impl Server {
    /// Checks that, for each waiting multi-key claim whose keys are all clear, some worker is about to look
    /// at it. Does nothing if the server is down.
    ///
    /// # Panics
    /// If no worker is about to look at such a claim.
    pub(crate) fn verify_multi_key_claims(&self) {
        if self.threads.is_empty() {
            return;
        }
        for cell in &self.node.0.shards {
            let Some(turn) = cell.enter() else { continue };
            let waiting = turn.shard.waiting_multi_key_claims();
            leave(turn);
            for multi_key in waiting {
                let expected = self.threads.iter().any(|thread| thread.worker.will_recheck(&multi_key));
                assert!(
                    expected || !self.is_due(&multi_key),
                    "{multi_key:?} is clear, but no worker rechecks it"
                );
            }
        }
    }

    /// Returns whether all keys of the claim are clear; false while a turn is in transit, because the worker
    /// that has the turn may be about to handle the claim.
    fn is_due(&self, multi_key: &MultiKeyClaim) -> bool {
        let cells = multi_key.shards().iter().map(|shard| &self.node.0.shards[usize::from(*shard)]);
        let mut turns = Vec::new();
        let mut all_here = true;
        for cell in cells {
            match cell.enter() {
                Some(turn) => turns.push(turn),
                None => all_here = false,
            }
        }
        let participants: Vec<Participant<'_>> = turns
            .iter_mut()
            .map(|turn| Participant { shard: &mut turn.shard, lane: LaneIx::new(0) })
            .collect();
        let is_due = all_here && is_grant_due(&participants, multi_key);
        for turn in turns {
            leave(turn);
        }
        is_due
    }

    /// Checks the disk after a crash: it has all keys of a reserved claim or none, and no hold that was
    /// released durably.
    pub(super) fn verify_disk(&mut self, world: &mut World) {
        self.uncounted.clear();
        let Some(held) = self.disk.as_ref().and_then(|disk| contents::holds_on(disk, &OPTIONS)) else {
            return;
        };
        self.uncounted.extend(held.iter().filter(|(_, awaits_count)| **awaits_count).map(|(id, _)| *id));
        if let Some((floor, longest_lease_ms)) = self.disk.as_ref().and_then(contents::bounds_on) {
            world.auditor.judge_bounds(floor, longest_lease_ms);
        }
        world.auditor.judge_disk(held.keys().map(|id| LockId { place: id.place, secret: id.secret }));
        let turns: Vec<_> = self.node.0.shards.iter().filter_map(TurnCell::enter).collect();
        let shards: Vec<_> = turns.iter().map(|turn| &turn.shard).collect();
        let reserved = reserved_multi_key_claims(&shards);
        turns.into_iter().for_each(leave);
        let is_part = |ids: &&Vec<_>| {
            let count = ids.iter().filter(|id| held.contains_key(id)).count();
            count > 0 && count < ids.len()
        };
        if let Some(ids) = reserved.iter().find(is_part) {
            world.auditor.accuse("all-or-none", || format!("after a crash only some of {ids:?} are held"));
        }
    }

    /// Checks that a server that has just started holds nothing that no cluster had counted before the crash.
    pub(super) fn verify_start(&mut self, world: &mut World) {
        let uncounted = std::mem::take(&mut self.uncounted);
        if uncounted.is_empty() {
            return;
        }
        let held = contents::holds_of(&self.node.0);
        if let Some(id) = uncounted.intersection(&held).next() {
            world
                .auditor
                .accuse("start", || format!("{id:?} is held, but the cluster has not counted its fence"));
        }
    }
}
