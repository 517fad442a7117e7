//! Holders and waiters of paths that overlap a path.

use crate::effect::KeyStatus;
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::ids::Fence;
use crate::limits::{INSPECT_HOLDER_COUNT_MAX, OVERLAP_SCAN_COUNT_MAX};
use crate::shard::Shard;

impl Shard {
    /// Returns the holders and waiters of the paths that overlap a path.
    pub(super) fn path_status(&self, lane: LaneIx, entry: KeyIx, path: &[u8]) -> KeyStatus {
        let (holders, holder_count) = self.overlapping(entry, path, true);
        let (waiters, waiter_count) = self.overlapping(entry, path, false);
        let listed = |claims: Vec<ClaimIx>| claims.into_iter().take(INSPECT_HOLDER_COUNT_MAX);
        KeyStatus {
            fence: self.keys.entries[entry].fence,
            holder_count,
            waiter_count,
            holders: listed(holders).map(|claim| self.held_lock(lane, claim)).collect(),
            waiters: listed(waiters).map(|claim| self.waiting_claim(lane, claim)).collect(),
        }
    }

    /// Returns the sets that hold (if `held`) or wait for a path that overlaps `path`, and their number. If too many
    /// paths overlap `path`, returns only the sets of the first ones, and the number of overlapping paths.
    fn overlapping(&self, entry: KeyIx, path: &[u8], held: bool) -> (Vec<ClaimIx>, u32) {
        let tree = self.tree_at(entry);
        let (mut claims, is_complete) = tree.overlapping(path, held, OVERLAP_SCAN_COUNT_MAX);
        if if held { tree.is_granting() } else { tree.is_entering() } {
            // The tree marks the paths of a large set step by step. So it may still mark some paths of a set as awaited
            // that was just granted. The tree may also mark some paths of a set as held while the set is being added.
            claims.extend(tree.overlapping(path, !held, OVERLAP_SCAN_COUNT_MAX).0);
            claims.sort_unstable();
            claims.dedup();
        }
        claims.retain(|claim| {
            let claim = &self.claims[*claim];
            if held { claim.is_held() } else { claim.is_waiting() }
        });
        if held {
            // Order of the grants.
            claims.sort_unstable_by_key(|claim| self.claims[*claim].fence);
        } else if tree.is_entering() {
            // Order in which the waiters are served.
            claims.sort_unstable_by_key(|claim| self.details[self.claims[*claim].detail].order.arrival);
        }
        let count = if is_complete { claims.len() } else { tree.overlapping_count(path, held) };
        (claims, count as u32)
    }

    /// Whether a set with this fence holds a path that overlaps `path`. Returns `None` if no such set was found among
    /// the overlapping paths that were visited, and too many others overlap `path`.
    pub(super) fn is_held_with_fence(&self, entry: KeyIx, path: &[u8], fence: Fence) -> Option<bool> {
        let tree = self.tree_at(entry);
        let is_it = |claim: ClaimIx| {
            let claim = &self.claims[claim];
            claim.fence == fence && claim.is_held()
        };
        let held = tree.is_any_holder(path, is_it);
        if held != Some(true) && tree.is_granting() {
            // The tree marks the paths of a large set step by step. So it may still mark some paths of a set as awaited
            // that was just granted.
            let (awaited, _) = tree.overlapping(path, false, OVERLAP_SCAN_COUNT_MAX);
            return if awaited.into_iter().any(is_it) { Some(true) } else { held };
        }
        held
    }
}
