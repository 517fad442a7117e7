//! Full checks of the invariants of a shard. For tests: they visit all records.

use super::Shard;
use super::work::Work;
use crate::account::{Account, Resource};
use crate::claim::{Detail, RegisteredAs, State, flag};
use crate::entry::{self, Occupancy};
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::ids::Fence;
use crate::lane::{Counts, LaneState};
use std::sync::Arc;

impl Shard {
    /// Checks the invariants of the shard.
    ///
    /// # Panics
    /// Panics if an invariant does not hold; the message names it and the record.
    pub fn verify(&self) {
        assert_eq!(self.nanos.round_up(), self.now, "the two parts of the reading of the clock");
        let mut placed = vec![0_u32; self.claims.end() as usize];
        let mut idle_count = 0;
        for index in self.keys.entries.handles() {
            let entry = &self.keys.entries[index];
            if !entry.has(entry::flag::LIVE) {
                continue;
            }
            let key = self.keys.key(index);
            let found = self.keys.find(entry.namespace, key, self.hash(entry.namespace, key));
            assert_eq!(found, index, "entry {index} is not found by its key");
            idle_count += u32::from(entry.is_free());
            self.verify_claims_of(index, &mut placed);
        }
        assert_eq!(idle_count, self.keys.idle_count(), "idle keys");
        self.verify_pool_counts();
        self.verify_node_count();
        self.verify_claims(&placed);
        self.verify_lanes();
        self.verify_accounts();
        self.verify_registrations();
        self.verify_watchers();
        self.verify_indexes();
    }

    /// Checks that a search of each index finds all of its records, and no others. Takes linear time, while
    /// [`Shard::verify`] compares each set of paths with all others. For tests.
    ///
    /// # Panics
    /// Panics if a check fails.
    pub fn verify_indexes(&self) {
        self.keys.verify_index();
        self.buckets.verify_index();
        self.lanes.verify_index();
        self.waiting.verify(|claim| self.ticket_hash(self.ticket(claim)));
        self.request_ids.verify(|claim| self.request_id_hash_of(claim));
        for space in self.trees.iter() {
            space.tree.verify_index();
        }
    }

    fn verify_registrations(&self) {
        let live = self.claims.handles().filter(|claim| self.claims[*claim].is_live());
        self.registrations.verify(live.filter(|claim| self.claims[*claim].detail.is_some()).filter_map(
            |claim| {
                let registered = self.details[self.claims[claim].detail].registration()?;
                Some((self.namespace_of(claim), &*registered.type_name))
            },
        ));
    }

    /// Checks the invariants of a waiter that hold in any kind of queue.
    pub(super) fn verify_waiter(&self, claim: ClaimIx) {
        let record = &self.claims[claim];
        if self.is_far(claim) {
            assert!(
                !record.has(flag::LINKED) && !record.wheel.is_set(),
                "another shard decides about {claim}"
            );
            return;
        }
        assert!(record.has(flag::LINKED), "waiter {claim} is not in the list of its lane");
        let found = self.find_waiting(self.ticket(claim));
        // `found` may be another claim: a client may reuse the number of a waiting request.
        assert!(
            found.is_some() || record.state() == State::Unknown,
            "waiter {claim} is not found by its ticket"
        );
        let timed = record.wheel.is_set() || record.has(flag::WAIT_OVER);
        assert_eq!(timed, record.deadline != crate::time::Time::NEVER, "timer of waiter {claim}");
    }

    /// Whether a work item for this queue or pool is pending. `number` is the number of the item, or 0 for no item.
    /// Panics unless the item is pending exactly once.
    pub(super) fn is_work_pending(&self, entry: KeyIx, number: u64) -> bool {
        let found = self.work.iter().filter(|work| **work == Work::Grant(entry, number)).count();
        assert_eq!(found, usize::from(number != 0), "work for entry {entry}");
        found > 0
    }

    pub(super) fn is_thawing(&self) -> bool {
        self.work.iter().any(|work| matches!(work, Work::Thaw | Work::ThawSets(_)))
    }

    /// Returns the claims, waiters and bytes of this shard that an account counts. For tests.
    pub fn count_account(&self, account: &Arc<Account>) -> [u64; 3] {
        let mut sum = [0; 3];
        for lane in self.lanes.lanes.handles().map(|index| &self.lanes.lanes[index]) {
            if lane.accounts.iter().any(|own| Arc::ptr_eq(own, account)) {
                let Counts { claims, waiters, bytes } = lane.counts;
                sum = [sum[0] + claims, sum[1] + waiters, sum[2] + bytes];
            }
        }
        sum
    }

    /// Counts the claims, waiters and bytes of a lane by a visit of all claims of the shard.
    fn recount(&self, lane: LaneIx) -> Counts {
        let mut counts = Counts::default();
        for index in self.claims.handles().filter(|claim| self.claims[*claim].is_live()) {
            let claim = &self.claims[index];
            if claim.lane == lane {
                let more = self.details.get(claim.detail).map_or(0, |detail| detail.counted_len);
                counts.claims += 1;
                counts.waiters += u64::from(!claim.is_held() && !self.is_far(index));
                counts.bytes += self.keys.key(claim.entry).len() as u64 + u64::from(more);
            }
        }
        counts
    }

    /// Checks the accounts. Other shards may use the same accounts, so each account has at least the amounts of this
    /// shard.
    fn verify_accounts(&self) {
        for index in self.lanes.lanes.handles() {
            let lane = &self.lanes.lanes[index];
            assert_eq!(lane.is_counted, !lane.accounts.is_empty(), "accounts of lane {index}");
            let needs_care = lane.is_counted || lane.state == LaneState::Closed;
            assert_eq!(lane.needs_care, needs_care, "care for lane {index}");
            assert!(
                self.has_accounts || !lane.is_counted,
                "lane {index} is counted, and the shard does not know"
            );
            if lane.is_counted {
                let (counts, recounted) = (lane.counts, self.recount(index));
                assert_eq!(counts.claims, recounted.claims, "counted claims of lane {index}");
                let is_within = counts.waiters <= recounted.waiters && counts.bytes <= recounted.bytes;
                assert!(is_within, "{counts:?} of lane {index}, which has {recounted:?}");
                assert!(lane.is_late || counts == recounted, "{counts:?} of lane {index}, not {recounted:?}");
            }
            for account in lane.accounts.iter() {
                let counts = self.count_account(account);
                let used = [Resource::Claims, Resource::Waiters, Resource::Bytes].map(|of| account.used(of));
                let has_all = used.iter().zip(counts).all(|(used, count)| *used >= count);
                assert!(has_all, "{used:?} is less than what lane {index} and others have: {counts:?}");
            }
        }
        let room = if self.has_accounts { 0 } else { self.claim_room };
        assert_eq!(self.room_at_once, room, "claims for which there is room at once");
        for index in self.claims.handles().filter(|claim| self.claims[*claim].is_live()) {
            if let Some(detail) = self.details.get(self.claims[index].detail) {
                self.verify_counted_len(index, detail);
            }
        }
    }

    /// Checks that a quota account counts for a claim, besides its key, at most the bytes of the strings that the claim
    /// has.
    fn verify_counted_len(&self, index: ClaimIx, detail: &Detail) {
        let claim = &self.claims[index];
        if let Occupancy::Tree(_) = self.keys.entries[claim.entry].occupancy() {
            // A quota account counts all paths of the request. The tree keeps no path that another path of the same set
            // covers, so its strings are fewer.
            return;
        }
        let strings = [&detail.owner, &detail.metadata, &detail.request_id].into_iter().flatten();
        let mut len = strings.map(|string| string.len()).sum::<usize>();
        len += detail.registration().map_or(0, RegisteredAs::len);
        assert!(
            detail.counted_len as usize <= len,
            "{} bytes of claim {index}, which has {len}",
            detail.counted_len
        );
    }

    fn verify_watchers(&self) {
        let mut watched = 0;
        for (entry, watchers) in &self.watchers {
            let record = &self.keys.entries[*entry];
            assert!(record.has(entry::flag::QUEUED), "watched entry {entry} has no queue");
            assert!(self.queues[record.queue()].watched && !watchers.is_empty(), "watchers of entry {entry}");
            watched += watchers.len();
        }
        let watches = self.lanes.lanes.handles().map(|lane| self.lanes.lanes[lane].watches.len());
        assert_eq!(watches.sum::<usize>(), watched, "watches of lanes");
    }

    pub(super) fn verify_holder(&self, entry: KeyIx, index: ClaimIx) {
        let claim = &self.claims[index];
        assert!(claim.is_among_holders(), "holder {index} is not held");
        assert_eq!(claim.entry, entry, "holder {index} names another key");
        assert!(
            claim.fence > Fence::NONE && claim.fence <= self.keys.entries[entry].fence,
            "fence of holder {index}"
        );
        // The timer of a reserved claim may have fired although the claim has not ended yet, for example because the
        // turn had no steps of follow-up work left. Then `WAIT_OVER` is set and counts like a timer here.
        let timed = claim.wheel.is_set() || claim.is_reserved() && claim.has(flag::WAIT_OVER);
        assert_eq!(timed, claim.deadline != crate::time::Time::NEVER, "timer of holder {index}");
        let untimed = claim.lease().is_untimed() || claim.is_reserved();
        assert!(timed || untimed, "holder {index} has no end: no timer, session or connection");
        assert!(!claim.is_stub(), "holder {index} is still a stub");
        assert!(
            !self.is_far(index) || !claim.has(flag::LINKED),
            "another shard decides about holder {index}"
        );
    }

    fn verify_claims(&self, placed: &[u32]) {
        let mut live = 0;
        for (index, places) in placed.iter().enumerate() {
            let claim = &self.claims[ClaimIx::new(index as u32)];
            let expected = u32::from(claim.is_live());
            live += expected;
            assert_eq!(*places, expected, "claim {index} was found {places} times instead of {expected}");
        }
        assert_eq!(live, self.claims.live_count(), "live claims");
        let near = |claim: &ClaimIx| self.claims[*claim].is_live() && !self.is_far(*claim);
        let is_waiting = |claim: &ClaimIx| near(claim) && !self.claims[*claim].is_held();
        let waiting = self.claims.handles().filter(is_waiting);
        let found = waiting.clone().filter(|claim| self.claims[*claim].state() != State::Unknown).count();
        assert_eq!(self.waiting.len(), found, "waiters that are found by their tickets");
        let has_request_id = |claim: &ClaimIx| {
            let detail = self.details.get(self.claims[*claim].detail);
            let is_findable = near(claim) || self.claims[*claim].is_reserved();
            is_findable && detail.is_some_and(|detail| detail.request_id.is_some())
        };
        let named = self.claims.handles().filter(has_request_id).count();
        assert_eq!(self.request_ids.len(), named, "claims that are found by their request ids");
        let counted: u64 = self.counters.iter().map(|counters| counters.waiting).sum();
        assert_eq!(counted, waiting.count() as u64, "counted waiters");
        let far = self.claims.handles().filter(|claim| self.is_far(*claim)).count();
        let counted: u64 = self.counters.iter().map(|counters| counters.far_stub_count).sum();
        assert_eq!(counted, far as u64, "counted stubs whose home is elsewhere");
    }

    fn verify_lanes(&self) {
        let mut counts = vec![0; self.lanes.lanes.end() as usize];
        let mut linked = vec![0; self.lanes.lanes.end() as usize];
        let mut path_counts = vec![0; self.lanes.lanes.end() as usize];
        for index in self.claims.handles() {
            let claim = &self.claims[index];
            if claim.is_live() {
                counts[claim.lane.at()] += 1;
                linked[claim.lane.at()] += u32::from(claim.has(flag::LINKED));
                if let Occupancy::Tree(_) = self.keys.entries[claim.entry].occupancy() {
                    path_counts[claim.lane.at()] += claim.position.more_path_count();
                }
            }
        }
        for index in self.lanes.lanes.handles() {
            let lane = &self.lanes.lanes[index];
            assert_eq!(lane.claim_count, counts[index.at()], "claims of lane {index}");
            assert_eq!(lane.linked_count, linked[index.at()], "linked claims of lane {index}");
            assert_eq!(lane.path_count, path_counts[index.at()], "paths of lane {index}");
            let pending = self.work.iter().any(|work| *work == Work::Lane(index, lane.settling));
            assert_eq!(lane.settling != 0, pending, "work for lane {index}");
            let mut walked = 0;
            for first in [lane.unsettled.first, lane.settled.first] {
                let mut claim = first;
                while claim.is_some() {
                    assert_eq!(
                        self.claims[claim].lane, index,
                        "claim {claim} is in the list of another lane"
                    );
                    let stays = self.claims[claim].is_held() || self.is_asker_there(claim);
                    assert!(stays || pending, "waiter {claim} remains after the loss of its connection");
                    walked += 1;
                    claim = self.details[self.claims[claim].detail].lane_next;
                }
            }
            assert_eq!(walked, lane.linked_count, "list of lane {index}");
        }
    }
}
