//! Who asks: the lanes that have claims in a shard.

use crate::access::Access;
use crate::account::{Accounts, Resource};
use crate::claim::{Claim, Detail, flag};
use crate::handle::{ClaimIx, DetailIx, KeyIx, LaneIx};
use crate::ids::LaneAddress;
use crate::index::HashIndex;
use crate::log::SessionTag;
use crate::slab::Slab;
use crate::steps::WorkNumber;
use crate::time::Time;
use ahash::RandomState;
use std::sync::Arc;

/// What a lane is to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum LaneState {
    /// Someone listens.
    #[default]
    Open,
    /// The connection was lost; a session may bring it back.
    Detached,
    /// Gone for ever; the record stays until its last claim ends.
    Closed,
}

/// One lane: a connection, or a connection's place in a session that outlives it. The number is local to the shard.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) address: LaneAddress,
    pub(crate) owner: Arc<[u8]>,
    /// Its identity and rights. `None`: it may do everything.
    pub(crate) access: Option<Arc<Access>>,
    /// Count its claims, unless they are empty.
    pub(crate) accounts: Accounts,
    /// How much they count.
    pub(crate) counts: Counts,
    /// It had claims when it got accounts, which count none of their waiters and bytes.
    pub(crate) is_late: bool,
    /// `accounts` are not empty.
    pub(crate) is_counted: bool,
    /// The end of a claim means more than one claim less: the lane is counted, or closed.
    pub(crate) needs_care: bool,
    /// What it asks about lies in this namespace.
    pub(crate) namespace: u16,
    pub(crate) state: LaneState,
    /// When its connection was last lost.
    pub(crate) lost_at: Time,
    /// Number of requests that had arrived in the shard by then. A waiter of an earlier request leaves, even if another
    /// connection has resumed the lane since.
    pub(crate) lost_arrivals: u64,
    /// Claims that hang on this lane: waiting, on its session's lease, or to be released when its connection is lost.
    /// Those on the first list may not be in line with `state` yet, those on the second are.
    pub(crate) unsettled: LinkedClaims,
    pub(crate) settled: LinkedClaims,
    pub(crate) linked_count: u32,
    /// Paths of all its sets, beside the first of each.
    pub(crate) path_count: u32,
    /// All claims that name this lane.
    pub(crate) claim_count: u32,
    /// What the durable log says of its session, if it has one.
    pub(crate) session: Option<SessionTag>,
    /// The session lives at least until then; for display.
    pub(crate) session_end: Time,
    /// Number of the work item that goes on with `unsettled`; 0 without one.
    pub(crate) settling: WorkNumber,
    /// Claims on the session's lease end when the lane is closed.
    pub(crate) session_ended: bool,
    /// It was made for what an earlier server had granted: whose it is, is known when its session comes back.
    pub(crate) is_restored: bool,
    /// Keys that it watches, by the number of the watch.
    pub(crate) watches: Vec<(u32, KeyIx)>,
}

impl Lane {
    pub(crate) fn set_state(&mut self, state: LaneState) {
        self.state = state;
        self.needs_care = self.is_counted || state == LaneState::Closed;
    }

    /// Moves what is counted from the old accounts to these. Of claims that were not counted, only their number is known.
    pub(crate) fn set_accounts(&mut self, accounts: Accounts) {
        if self.accounts == accounts {
            return;
        }
        if !self.is_counted {
            self.counts = Counts { claims: self.claim_count.into(), ..Counts::default() };
            self.is_late = self.claim_count > 0;
        }
        for (resource, count) in self.counts.all() {
            self.accounts.subtract(resource, if self.is_counted { count } else { 0 });
            accounts.add(resource, count);
        }
        self.is_counted = !accounts.is_empty();
        self.accounts = accounts;
        self.set_state(self.state);
    }

    /// Counts so much more of a resource, if the lane is counted.
    pub(crate) fn add(&mut self, resource: Resource, more: u64) {
        if self.is_counted {
            *self.counts.of(resource) += more;
            self.accounts.add(resource, more);
        }
    }

    /// Counts so much less of a resource, but never less than nothing: what ends may not have been counted.
    pub(crate) fn subtract(&mut self, resource: Resource, less: u64) {
        if self.is_counted {
            let count = self.counts.of(resource);
            let less = less.min(*count);
            *count -= less;
            self.accounts.subtract(resource, less);
        }
    }
}

/// What accounts count of the claims of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) claims: u64,
    pub(crate) waiters: u64,
    pub(crate) bytes: u64,
}

impl Counts {
    fn of(&mut self, resource: Resource) -> &mut u64 {
        match resource {
            Resource::Waiters => &mut self.waiters,
            Resource::Bytes => &mut self.bytes,
            _ => &mut self.claims,
        }
    }

    /// Each resource with its count.
    pub(crate) fn all(self) -> [(Resource, u64); 3] {
        [(Resource::Claims, self.claims), (Resource::Waiters, self.waiters), (Resource::Bytes, self.bytes)]
    }
}

/// A list of claims that is linked through their details.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkedClaims {
    pub(crate) first: ClaimIx,
    last: ClaimIx,
}

impl Default for LinkedClaims {
    fn default() -> Self {
        Self { first: ClaimIx::NONE, last: ClaimIx::NONE }
    }
}

/// The index of lanes sets aside address space for this many.
const LANE_COUNT_MAX: usize = 1 << 24;

/// The lanes of a shard, by number and by address.
#[derive(Debug)]
pub(crate) struct LaneTable {
    pub(crate) lanes: Slab<LaneIx, Lane>,
    index: HashIndex<LaneIx>,
    hasher: RandomState,
}

impl LaneTable {
    /// Memory of the table without the owners.
    pub(crate) fn len_bytes(&self) -> usize {
        self.lanes.len_bytes() + self.index.len_bytes()
    }

    pub(crate) fn new(hasher: RandomState) -> Self {
        Self { lanes: Slab::default(), index: HashIndex::new(LANE_COUNT_MAX), hasher }
    }

    pub(crate) fn find(&self, address: LaneAddress) -> Option<LaneIx> {
        let hash = self.hasher.hash_one(address);
        self.index.find(hash, |index| self.lanes[index].address == address)
    }

    pub(crate) fn open(&mut self, address: LaneAddress, owner: &Arc<[u8]>, namespace: u16) -> LaneIx {
        if let Some(index) = self.find(address) {
            return index;
        }
        let index = self.lanes.allocate();
        self.lanes[index] = Lane { address, owner: Arc::clone(owner), namespace, ..Lane::default() };
        let Self { lanes, hasher, index: table, .. } = self;
        table.insert(hasher.hash_one(address), index, |other| hasher.hash_one(lanes[other].address));
        index
    }

    /// Checks the index. For tests.
    pub(crate) fn verify_index(&self) {
        self.index.verify(|index| self.hasher.hash_one(self.lanes[index].address));
        assert_eq!(self.index.len(), self.lanes.live_count() as usize, "lanes that are found");
    }

    /// One claim of this lane is over.
    #[inline]
    pub(crate) fn drop_claim(&mut self, index: LaneIx) {
        let lane = &mut self.lanes[index];
        lane.claim_count -= 1;
        if lane.claim_count == 0 && lane.state == LaneState::Closed {
            self.remove(index);
        }
    }

    /// Forgets a lane that is closed and has no claims.
    #[cold]
    pub(crate) fn remove(&mut self, index: LaneIx) {
        let address = self.lanes[index].address;
        debug_assert!(self.lanes[index].linked_count == 0 && self.lanes[index].claim_count == 0);
        self.index.remove(self.hasher.hash_one(address), index);
        self.lanes[index] = Lane::default();
        self.lanes.release(index);
    }

    /// Hangs a claim on its lane.
    pub(crate) fn link(
        &mut self,
        claims: &mut Slab<ClaimIx, Claim>,
        details: &mut Slab<DetailIx, Detail>,
        claim: ClaimIx,
    ) {
        if claims[claim].has(flag::LINKED) {
            return;
        }
        claims[claim].flags |= flag::LINKED;
        let lane = &mut self.lanes[claims[claim].lane];
        lane.linked_count += 1;
        lane.unsettled.push_front(claims, details, claim);
    }

    /// Takes a claim off its lane. Without effect where it does not hang on it.
    pub(crate) fn unlink(
        &mut self,
        claims: &mut Slab<ClaimIx, Claim>,
        details: &mut Slab<DetailIx, Detail>,
        claim: ClaimIx,
    ) {
        if !claims[claim].has(flag::LINKED) {
            return;
        }
        claims[claim].flags &= !flag::LINKED;
        let lane = &mut self.lanes[claims[claim].lane];
        lane.linked_count -= 1;
        let (next, previous) = {
            let detail = &details[claims[claim].detail];
            (detail.lane_next, detail.lane_previous)
        };
        // Only the ends tell which of the two lists it was on, and only the ends need to know.
        for list in [&mut lane.unsettled, &mut lane.settled] {
            if list.first == claim {
                list.first = next;
            }
            if list.last == claim {
                list.last = previous;
            }
        }
        if previous.is_some() {
            details[claims[previous].detail].lane_next = next;
        }
        if next.is_some() {
            details[claims[next].detail].lane_previous = previous;
        }
    }

    /// The state of the lane changed: everything that hangs on it has to be looked at again.
    pub(crate) fn unsettle(
        &mut self,
        claims: &Slab<ClaimIx, Claim>,
        details: &mut Slab<DetailIx, Detail>,
        lane: LaneIx,
    ) {
        let lane = &mut self.lanes[lane];
        let settled = std::mem::take(&mut lane.settled);
        if settled.first.is_none() {
            return;
        }
        if lane.unsettled.first.is_none() {
            lane.unsettled = settled;
            return;
        }
        details[claims[settled.last].detail].lane_next = lane.unsettled.first;
        details[claims[lane.unsettled.first].detail].lane_previous = settled.last;
        lane.unsettled.first = settled.first;
    }

    /// This claim, which is still linked, is in line with the state of its lane.
    pub(crate) fn settle(
        &mut self,
        claims: &mut Slab<ClaimIx, Claim>,
        details: &mut Slab<DetailIx, Detail>,
        claim: ClaimIx,
    ) {
        self.unlink(claims, details, claim);
        claims[claim].flags |= flag::LINKED;
        let lane = &mut self.lanes[claims[claim].lane];
        lane.linked_count += 1;
        lane.settled.push_front(claims, details, claim);
    }
}

impl LinkedClaims {
    fn push_front(
        &mut self,
        claims: &Slab<ClaimIx, Claim>,
        details: &mut Slab<DetailIx, Detail>,
        claim: ClaimIx,
    ) {
        let detail = &mut details[claims[claim].detail];
        (detail.lane_previous, detail.lane_next) = (ClaimIx::NONE, self.first);
        if self.first.is_none() {
            self.last = claim;
        } else {
            details[claims[self.first].detail].lane_previous = claim;
        }
        self.first = claim;
    }
}
