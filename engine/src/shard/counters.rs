//! What happens in each namespace, counted where it is rare enough to count.

use super::Shard;
use crate::claim::{Claim, flag};
use crate::handle::{ClaimIx, LaneIx};
use crate::limits::LANE_SCAN_COUNT_MAX;

/// What is, and was, in one namespace of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NamespaceCounters {
    /// Claims that are held.
    pub held: u64,
    /// Claims that wait.
    pub waiting: u64,
    /// Waits that ended without a grant because their time was over.
    pub timeouts: u64,
    /// Holds that ended because their lease did.
    pub expired: u64,
    /// Holds that an operator ended.
    pub revoked: u64,
    /// Stubs of claims over several keys that have their home at another key. They are neither held nor claims of their own.
    pub(crate) far_stub_count: u64,
}

impl NamespaceCounters {
    /// Adds what another shard counted.
    pub fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.waiting += other.waiting;
        self.timeouts += other.timeouts;
        self.expired += other.expired;
        self.revoked += other.revoked;
    }
}

impl Shard {
    /// Adds to `held` how many claims the lanes from this one on have in each of the namespaces, whose numbers rise. Looks at no more
    /// than [`LANE_SCAN_COUNT_MAX`] lanes. Returns the lane to go on with, if there are more.
    pub fn count_claims_of_lanes(&self, from: u32, namespaces: &[u16], held: &mut [u64]) -> Option<u32> {
        let end = self.lanes.lanes.end();
        let next = end.min(from.saturating_add(LANE_SCAN_COUNT_MAX));
        for lane in (from..next).map(|index| &self.lanes.lanes[LaneIx::new(index)]) {
            // A lane asks about one namespace, so what it has is counted without looking at every claim.
            if lane.claim_count > 0
                && let Ok(place) = namespaces.binary_search(&lane.namespace)
            {
                held[place] += u64::from(lane.claim_count);
            }
        }
        Some(next).filter(|next| *next < end)
    }

    /// The counters of a namespace. `claim_count` is the number of its claims here, of which [`Self::count_claims_of_lanes`] tells.
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

    /// One part of a claim, waiting or reserved, that another shard decides about.
    pub(super) fn is_far(&self, claim: ClaimIx) -> bool {
        let Claim { detail, .. } = self.claims[claim];
        self.claims[claim].has(flag::STUB | flag::RESERVED)
            && self.details[detail].multi_key().is_some_and(|multi_key| multi_key.id() != self.id(claim))
    }
}
