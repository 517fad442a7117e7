//! Records of the lanes whose requests a shard has served or whose holds it has restored.

use crate::access::Access;
use crate::account::{Accounts, Resource};
use crate::claim::{Claim, Detail, flag};
use crate::handle::{ClaimIx, DetailIx, KeyIx, LaneIx};
use crate::ids::LaneAddress;
use crate::index::HashIndex;
use crate::slab::Slab;
use crate::steps::WorkNumber;
use crate::time::Time;
use ahash::RandomState;
use std::sync::Arc;
use waymaker_log::SessionTag;

/// State of a lane in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum LaneState {
    /// The connection is open.
    #[default]
    Open,
    /// The connection was lost; a client may resume the session.
    Detached,
    /// The lane ended for good. Its record stays until its last claim ends.
    Closed,
}

/// A lane, as one shard knows it: the requests of one connection to one worker. With a session, the lane survives its
/// connection. Each shard has a record of its own for a lane, so the handle is valid in one shard only.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) address: LaneAddress,
    pub(crate) owner: Arc<[u8]>,
    /// Identity and rights. Without them, the lane may do everything.
    pub(crate) access: Option<Arc<Access>>,
    /// Accounts that count the claims of the lane; empty if no quota limits them.
    pub(crate) accounts: Accounts,
    /// Amounts of this lane in `accounts`.
    pub(crate) counts: Counts,
    /// Whether the lane had claims when it last got accounts after having none, and has had claims ever since. The
    /// accounts count neither waiters nor bytes of those claims.
    pub(crate) is_late: bool,
    /// Whether `accounts` are not empty.
    pub(crate) is_counted: bool,
    /// Whether the end of a claim requires more than a smaller `claim_count`: accounts count the lane, or the lane is
    /// closed and is removed with its last claim.
    pub(crate) needs_care: bool,
    /// Namespace of all requests of the lane.
    pub(crate) namespace: u16,
    pub(crate) state: LaneState,
    /// Time at which the open lane last lost its connection or was closed, or at which it was restored.
    pub(crate) lost_at: Time,
    /// Value of the shard's counter of arrivals when the lane was last detached, because its connection was lost. A
    /// waiter with a smaller `Detail::asked` belongs to the lost connection: its wait ends, even if another connection
    /// has resumed the lane since.
    pub(crate) lost_arrivals: u64,
    /// Linked claims: waiters, claims whose fence is not durable yet, holds on the session's lease, and holds that end
    /// with the connection. A change of `state` has consequences for them. For example, the waiters of a lost
    /// connection end. `unsettled` has the claims for which the present state has yet to be applied, `settled` the
    /// others.
    pub(crate) unsettled: LinkedClaims,
    pub(crate) settled: LinkedClaims,
    pub(crate) linked_count: u32,
    /// Number of paths of all sets of the lane, without the first path of each set.
    pub(crate) path_count: u32,
    /// Number of all claims of the lane in this shard. 1 more while `Shard::settle_lane` works on the lane.
    pub(crate) claim_count: u32,
    /// Identification of the lane's session and of the lane in it, for the durable log; `None` without a session.
    pub(crate) session: Option<SessionTag>,
    /// Time until which the session lives at least; for display.
    pub(crate) session_end: Time,
    /// Number of the work item that will apply the state of the lane (open, detached or closed) to the claims in
    /// `unsettled` in a later turn. For example, the waiters of a lost connection end. 0 if there is no such item.
    pub(crate) settling: WorkNumber,
    /// Whether the session ended. If so, closing the lane ends the holds on the session's lease.
    pub(crate) session_ended: bool,
    /// Whether the lane was restored for grants of an earlier server process. Its client is unknown until the session
    /// is resumed.
    pub(crate) is_restored: bool,
    /// Watched keys, each with the number of the request that began the watch.
    pub(crate) watches: Vec<(u32, KeyIx)>,
}

impl Lane {
    pub(crate) fn set_state(&mut self, state: LaneState) {
        self.state = state;
        self.needs_care = self.is_counted || state == LaneState::Closed;
    }

    /// Replaces the accounts of the lane, and moves the counted amounts from the old accounts to the new ones. If the
    /// lane had no accounts before, only the number of its claims is known, so the new accounts count no waiters and
    /// bytes for these claims.
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

    /// Adds `more` of a resource to the counts of the lane and to its accounts. Has no effect if the lane has no
    /// accounts because no quota limits it.
    pub(crate) fn add(&mut self, resource: Resource, more: u64) {
        if self.is_counted {
            *self.counts.of(resource) += more;
            self.accounts.add(resource, more);
        }
    }

    /// Subtracts `less` of a resource from the counts and the accounts of the lane, but no more than it has counted:
    /// the claim that ended or moved may not have been counted.
    pub(crate) fn subtract(&mut self, resource: Resource, less: u64) {
        if self.is_counted {
            let count = self.counts.of(resource);
            let less = less.min(*count);
            *count -= less;
            self.accounts.subtract(resource, less);
        }
    }
}

/// Amounts that accounts count for the claims of one lane.
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

    /// Returns each resource with its amount.
    pub(crate) fn all(self) -> [(Resource, u64); 3] {
        [(Resource::Claims, self.claims), (Resource::Waiters, self.waiters), (Resource::Bytes, self.bytes)]
    }
}

/// List of claims, linked through their details.
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

/// Number of lanes for which the index reserves address space once it has grown. More lanes are possible.
const LANE_COUNT_MAX: usize = 1 << 24;

/// Lanes of a shard, by handle and by address.
#[derive(Debug)]
pub(crate) struct LaneTable {
    pub(crate) lanes: Slab<LaneIx, Lane>,
    index: HashIndex<LaneIx>,
    hasher: RandomState,
}

impl LaneTable {
    /// Returns the memory of the table in bytes, without the data to which the records refer, such as owners and
    /// watches.
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

    /// Checks that the index finds each lane. For tests.
    pub(crate) fn verify_index(&self) {
        self.index.verify(|index| self.hasher.hash_one(self.lanes[index].address));
        assert_eq!(self.index.len(), self.lanes.live_count() as usize, "lanes that are found");
    }

    /// Subtracts 1 from the number of claims of a lane, because a claim ended or moved to another lane. Removes the
    /// lane if it is closed and that was its last claim.
    #[inline]
    pub(crate) fn drop_claim(&mut self, index: LaneIx) {
        let lane = &mut self.lanes[index];
        lane.claim_count -= 1;
        if lane.claim_count == 0 && lane.state == LaneState::Closed {
            self.remove(index);
        }
    }

    /// Removes a lane that is closed and has no claims.
    #[cold]
    pub(crate) fn remove(&mut self, index: LaneIx) {
        let address = self.lanes[index].address;
        debug_assert!(self.lanes[index].linked_count == 0 && self.lanes[index].claim_count == 0);
        self.index.remove(self.hasher.hash_one(address), index);
        self.lanes[index] = Lane::default();
        self.lanes.release(index);
    }

    /// Links a claim to its lane, in the list `unsettled`. Has no effect if the claim is linked.
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

    /// Unlinks a claim from its lane. Has no effect if the claim is not linked.
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
        // Claims do not record which of the two lists they are in. A list refers only to its ends, so the ends of both
        // lists are compared with the claim.
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

    /// Moves all claims of the lane's list `settled` to its list `unsettled`, because the state of the lane changed.
    /// The shard must now apply the new state to each of these claims.
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

    /// Moves a linked claim to the lane's list `settled`: the claims that are adapted to the state of the lane (open,
    /// detached or closed). The caller must then adapt this claim. For example, it ends a waiter whose connection was
    /// lost.
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
