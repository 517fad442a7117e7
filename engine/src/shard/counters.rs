//! Counters of each namespace. Holds are too frequent to count them here: their number is computed from the number of
//! claims that each lane keeps.

use super::Shard;
use crate::handle::{ClaimIx, LaneIx};
use crate::limits::LANE_SCAN_COUNT_MAX;

/// Counters of one namespace in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NamespaceCounters {
    /// Number of held claims.
    pub held: u64,
    /// Number of waiting claims, including claims whose grant is not durable yet. A multi-key claim counts once.
    pub waiting: u64,
    /// Number of waits that ended because their time expired.
    pub timeouts: u64,
    /// Number of holds that ended because their lease expired.
    pub expired: u64,
    /// Number of holds that an operator ended.
    pub revoked: u64,
    /// Number of claims at keys other than the first of a multi-key claim that waits or is reserved (granted, but held
    /// only once its fences are durable). Only the claim at the first key counts as waiting. To get `held`, these
    /// claims are subtracted from the number of all claims.
    pub(crate) far_stub_count: u64,
}

impl NamespaceCounters {
    /// Adds the public counters of the same namespace in another shard.
    pub fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.waiting += other.waiting;
        self.timeouts += other.timeouts;
        self.expired += other.expired;
        self.revoked += other.revoked;
    }
}

impl Shard {
    /// Adds to `held`, for each of `namespaces`, the number of claims of the lanes from `from` on. The numbers of the
    /// namespaces must be in rising order. Visits no more than [`LANE_SCAN_COUNT_MAX`] lanes. Returns the lane to
    /// continue with, if there are more.
    pub fn count_claims_of_lanes(&self, from: u32, namespaces: &[u16], held: &mut [u64]) -> Option<u32> {
        let end = self.lanes.lanes.end();
        let next = end.min(from.saturating_add(LANE_SCAN_COUNT_MAX));
        for lane in (from..next).map(|index| &self.lanes.lanes[LaneIx::new(index)]) {
            // All claims of a lane are in one namespace, so the number that the lane keeps suffices; no claim is
            // visited.
            if lane.claim_count > 0
                && let Ok(place) = namespaces.binary_search(&lane.namespace)
            {
                held[place] += u64::from(lane.claim_count);
            }
        }
        Some(next).filter(|next| *next < end)
    }

    /// Returns the counters of a namespace. `claim_count` is the number of its claims in this shard, from
    /// [`Self::count_claims_of_lanes`].
    pub fn namespace_counters(&self, namespace: u16, claim_count: u64) -> NamespaceCounters {
        let mut counters = self.counters.get(usize::from(namespace)).copied().unwrap_or_default();
        counters.held = claim_count.saturating_sub(counters.waiting + counters.far_stub_count);
        counters
    }

    #[inline]
    pub(super) fn counters_of(&mut self, namespace: u16) -> &mut NamespaceCounters {
        let namespace = usize::from(namespace);
        if self.counters.len() <= namespace {
            self.count_namespaces(namespace + 1);
        }
        &mut self.counters[namespace]
    }

    #[cold]
    fn count_namespaces(&mut self, count: usize) {
        self.counters.resize(count, NamespaceCounters::default());
    }

    #[inline]
    pub(super) fn namespace_of(&self, claim: ClaimIx) -> u16 {
        self.keys.entries[self.claims[claim].entry].namespace
    }

    /// Whether a waiting or reserved claim belongs to a multi-key claim but is not at its first key. The claim at the
    /// first key, maybe in another shard, decides for it.
    pub(super) fn is_far(&self, claim: ClaimIx) -> bool {
        let record = &self.claims[claim];
        (record.is_stub() || record.is_reserved())
            && self.details[record.detail]
                .multi_key()
                .is_some_and(|multi_key| multi_key.id() != self.id(claim))
    }
}
