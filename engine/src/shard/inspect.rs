//! Read-only requests.

use super::{Caller, Shard};
use crate::access::Rights;
use crate::claim::{Claim, Detail, flag};
use crate::effect::{
    Answer, ClaimStatus, Effects, HeldLock, KeyStatus, Page, Refusal, Verified, WaitingClaim,
};
use crate::entry::{self, Kind};
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::ids::ClaimId;
use crate::limits::{INSPECT_HOLDER_COUNT_MAX, KEY_LEN_MAX, LIST_SCAN_COUNT_MAX, OVERLAP_SCAN_COUNT_MAX};

/// Limits of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageBounds {
    /// Maximum number of items.
    pub count_max: usize,
    /// Number of bytes of keys and strings at which the page ends.
    pub bytes_max: usize,
}

impl Shard {
    /// Answers with the state of the claim with this id. The holder will rely on the lease in the answer, so a longer
    /// lease must be durable first.
    pub fn status(&self, caller: &Caller, id: ClaimId, key: Option<&[u8]>, effects: &mut impl Effects) {
        let claim = match self.claim_of(id, caller.namespace, key) {
            Ok(claim) => claim,
            Err(refusal) => return effects.answer(caller.ticket, Answer::Refused(refusal)),
        };
        if let Err(refusal) = self.check_access(caller, claim, Rights::INSPECT) {
            return effects.answer(caller.ticket, Answer::Refused(refusal));
        }
        let answer = Answer::Status(Box::new(self.claim_status(claim)));
        if self.claims[claim].is_recorded() && self.lengthened > self.durable {
            self.answer_durably(caller.ticket, answer, effects);
        } else {
            effects.answer(caller.ticket, answer);
        }
    }

    fn claim_status(&self, index: ClaimIx) -> ClaimStatus {
        let claim = &self.claims[index];
        ClaimStatus {
            held: claim.is_held(),
            shared: claim.has(flag::SHARED),
            session_lease: claim.has_session_lease(),
            fence: if claim.is_held() { claim.fence } else { 0 },
            remaining_ms: self.shown_remaining_ms(index),
            age_ms: self.age_ms(claim),
            priority: self.priority(index),
            waited_ms: self.details.get(claim.detail).map_or(0, Detail::waited_ms),
            key: self.shown_key(index),
        }
    }

    /// Returns the key of a claim for display.
    pub(super) fn shown_key(&self, claim: ClaimIx) -> Vec<u8> {
        let Claim { entry, position, .. } = self.claims[claim];
        if self.keys.entries[entry].kind() == Kind::Tree {
            // A set is shown by its first path, as much of it as fits into a key.
            return self.tree_of(claim).first_path(position.first_item(), KEY_LEN_MAX);
        }
        self.keys.key(entry).to_vec()
    }

    fn priority(&self, claim: ClaimIx) -> u32 {
        let detail = self.claims[claim].detail;
        if detail.is_none() { 0 } else { self.details[detail].priority }
    }

    /// Answers with the holders and waiters of a key.
    pub fn inspect(&self, caller: &Caller, key: &[u8], effects: &mut impl Effects) {
        let entry = self.entry_about(caller, key);
        let status = if entry.is_none() {
            KeyStatus { fence: self.keys.floor(), ..KeyStatus::default() }
        } else if self.keys.entries[entry].kind() == Kind::Tree {
            self.path_status(caller.lane, entry, key)
        } else {
            self.key_status(caller.lane, entry)
        };
        effects.answer(caller.ticket, Answer::Inspected(Box::new(status)));
    }

    fn key_status(&self, lane: LaneIx, index: KeyIx) -> KeyStatus {
        let entry = &self.keys.entries[index];
        let (first, holder_count, waiter_count) = if entry.has(entry::flag::QUEUED) {
            let queue = &self.queues[entry.queue()];
            (queue.holders.first, queue.holders.count, queue.waiter_count())
        } else {
            (entry.holder(), u32::from(!entry.is_free()), 0)
        };
        let holder_count = holder_count - self.reserved_count(index);
        let holders =
            self.shown_holders(first, holder_count).map(|claim| self.held_lock(lane, claim)).collect();
        let waiters = if entry.has(entry::flag::QUEUED) {
            let queue = &self.queues[entry.queue()];
            let waiters = queue.waiters(&self.claims, &self.details).take(INSPECT_HOLDER_COUNT_MAX);
            waiters.map(|claim| self.waiting_claim(lane, claim)).collect()
        } else {
            Vec::new()
        };
        KeyStatus { fence: entry.fence, holder_count, waiter_count, holders, waiters }
    }

    /// Returns the holders for a response, from a list that begins with `first` and has `count` holders that are not
    /// reserved.
    ///
    /// Claims become durable in the order in which they were granted, so reserved holders are mostly behind all others.
    /// If very many reserved holders are first, the response names none.
    pub(super) fn shown_holders(&self, first: ClaimIx, count: u32) -> impl Iterator<Item = ClaimIx> {
        let holders = std::iter::successors(first.some(), |claim| self.claims[*claim].position.next().some());
        let scanned = holders.take(LIST_SCAN_COUNT_MAX as usize);
        let shown = scanned.filter(|claim| self.claims[*claim].is_held());
        shown.take(INSPECT_HOLDER_COUNT_MAX.min(count as usize))
    }

    /// Returns the number of reserved holders of a flat key, which no response shows.
    pub(super) fn reserved_count(&self, entry: KeyIx) -> u32 {
        let entry = &self.keys.entries[entry];
        if entry.has(entry::flag::QUEUED) {
            return self.queues[entry.queue()].reserved_count;
        }
        u32::from(!entry.is_free() && self.claims[entry.holder()].is_reserved())
    }

    fn waiting_claim(&self, lane: LaneIx, index: ClaimIx) -> WaitingClaim {
        let claim = &self.claims[index];
        let is_known = self.may(lane, index, Rights::INSPECT);
        WaitingClaim {
            id: if is_known { self.deciding_id(index) } else { ClaimId::default() },
            shared: claim.has(flag::SHARED),
            ticket: self.details[claim.detail].order.arrival,
            age_ms: self.age_ms(claim),
            remaining_ms: self.shown_remaining_ms(index),
            priority: self.priority(index),
            owner: self.owner_if(is_known, index),
        }
    }

    /// Returns the record with the state of a key, or `NONE`. In a tree namespace, this is the record of the namespace
    /// for every path.
    fn entry_about(&self, caller: &Caller, key: &[u8]) -> KeyIx {
        let find = |key: &[u8]| self.keys.find(caller.namespace, key, self.hash(caller.namespace, key));
        let whole = find(b"");
        if whole.is_some() && self.keys.entries[whole].kind() == Kind::Tree { whole } else { find(key) }
    }

    /// Returns the holders and waiters of the paths that overlap a path.
    fn path_status(&self, lane: LaneIx, entry: KeyIx, path: &[u8]) -> KeyStatus {
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

    /// Returns the sets that hold, or wait for, a path that overlaps this one, and their number. If too many paths
    /// overlap it, returns the sets of the first ones, and the number of paths.
    fn overlapping(&self, entry: KeyIx, path: &[u8], held: bool) -> (Vec<ClaimIx>, u32) {
        let tree = self.tree_at(entry);
        let (mut claims, is_complete) = tree.overlapping(path, held, OVERLAP_SCAN_COUNT_MAX);
        if if held { tree.is_granting() } else { tree.is_entering() } {
            // A large set that was just granted may have paths that still count as awaited. A set that enters may have
            // paths that count as held.
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

    /// Returns a hold as a lane may see it: without its id and the strings of its holder, unless the lane may know
    /// them.
    fn held_lock(&self, lane: LaneIx, index: ClaimIx) -> HeldLock {
        let claim = &self.claims[index];
        let is_known = self.may(lane, index, Rights::INSPECT);
        let detail = self.details.get(claim.detail).filter(|_| is_known);
        HeldLock {
            id: match is_known {
                true if claim.is_held() => self.id(index),
                true => self.deciding_id(index),
                false => ClaimId::default(),
            },
            shared: claim.has(flag::SHARED),
            fence: if claim.is_held() { claim.fence } else { 0 },
            held_ms: self.age_ms(claim),
            remaining_ms: self.shown_remaining_ms(index),
            priority: self.priority(index),
            key: self.shown_key(index),
            owner: self.owner_if(is_known, index),
            request_id: detail.and_then(|detail| detail.request_id.as_deref()).unwrap_or_default().to_vec(),
            metadata: detail.and_then(Detail::text).unwrap_or_default().to_vec(),
        }
    }

    /// Lists held locks of the namespace, or waiting claims, from this slot on. Their keys begin with `prefix`, and the
    /// caller may list them. A page has at most `count_max` of them, and ends once it has `bytes_max` of keys and
    /// strings. A claim keeps its slot, so a lock that is held from the first page to the last is in exactly one page.
    pub fn list(
        &self,
        caller: &Caller,
        prefix: &[u8],
        waiting: bool,
        from: u32,
        page: &PageBounds,
        effects: &mut impl Effects,
    ) {
        let wanted = |slot: ClaimIx, looked: &mut u32| {
            self.is_listed(slot, waiting)
                && self.namespace_of(slot) == caller.namespace
                && self.has_key_prefix(slot, prefix, looked)
                && self.may_list(caller.lane, slot, looked)
        };
        let page = self.page_of(caller.lane, from, page, wanted);
        effects.answer(caller.ticket, Answer::Listed(Box::new(page)));
    }

    /// Lists live holds of the caller from this slot on. A client that reconnected thus learns of events that it may
    /// have missed.
    pub fn holds(&self, caller: &Caller, from: u32, page: &PageBounds, effects: &mut impl Effects) {
        // Most lanes have no claims in this shard, so a search is rarely necessary.
        let any = self.lanes.lanes[caller.lane].claim_count > 0;
        let wanted =
            |slot: ClaimIx, _: &mut u32| self.is_listed(slot, false) && self.claims[slot].lane == caller.lane;
        let page = if any { self.page_of(caller.lane, from, page, wanted) } else { Page::default() };
        effects.answer(caller.ticket, Answer::Listed(Box::new(page)));
    }

    /// Whether a list of waiting claims, or of holds, contains this live claim.
    fn is_listed(&self, slot: ClaimIx, waiting: bool) -> bool {
        let claim = &self.claims[slot];
        if waiting { claim.is_waiting() } else { claim.is_held() }
    }

    /// Returns a page of the claims for which `wanted` returns true, as the lane may see them. `wanted` adds the cost
    /// of its work besides the visit of the claim to its second argument.
    fn page_of(
        &self,
        lane: LaneIx,
        from: u32,
        bounds: &PageBounds,
        wanted: impl Fn(ClaimIx, &mut u32) -> bool,
    ) -> Page {
        let mut page = Page::default();
        let mut bytes = 0;
        let mut looked = 0;
        page.next = self.scan(from, |slot| {
            if wanted(slot, &mut looked) {
                let lock = self.held_lock(lane, slot);
                bytes += 64 + lock.key.len() + lock.owner.len() + lock.request_id.len() + lock.metadata.len();
                page.locks.push(lock);
            }
            page.locks.len() < bounds.count_max && bytes < bounds.bytes_max && looked < LIST_SCAN_COUNT_MAX
        });
        page
    }

    /// Passes live claims from this slot on to `visit`, until it returns false or the share of one turn was visited.
    /// Returns the slot to continue with, if claims are left.
    pub(super) fn scan(&self, from: u32, mut visit: impl FnMut(ClaimIx) -> bool) -> Option<u32> {
        let end = self.claims.end().min(from.saturating_add(LIST_SCAN_COUNT_MAX));
        let mut slot = from;
        while slot < end {
            let claim = ClaimIx::new(slot);
            let go_on = !self.claims[claim].is_live() || visit(claim);
            slot += 1;
            if !go_on {
                break;
            }
        }
        (slot < self.claims.end()).then_some(slot)
    }

    fn has_key_prefix(&self, claim: ClaimIx, prefix: &[u8], looked: &mut u32) -> bool {
        let Claim { entry, position, .. } = self.claims[claim];
        if self.keys.entries[entry].kind() == Kind::Tree {
            return self.tree_of(claim).paths(position.first_item()).any(|(path, _)| {
                // Each segment costs at least the comparison of its length.
                *looked += 1 + path.len() as u32 / 2;
                path.starts_with(prefix)
            });
        }
        self.keys.key(entry).starts_with(prefix)
    }

    /// Answers whether a fence is still the newest of its key.
    pub fn verify_fence(&self, caller: &Caller, key: &[u8], fence: u64, effects: &mut impl Effects) {
        let answer = match self.verified(caller, key, fence) {
            Ok(verified) => Answer::Verified(verified),
            Err(refusal) => Answer::Refused(refusal),
        };
        effects.answer(caller.ticket, answer);
    }

    fn verified(&self, caller: &Caller, key: &[u8], fence: u64) -> Result<Verified, Refusal> {
        let entry = self.entry_about(caller, key);
        // A counter that was folded into the floor is not above it.
        let newest_fence = if entry.is_none() { self.keys.floor() } else { self.keys.entries[entry].fence };
        let newest = newest_fence == fence && fence > 0;
        if entry.is_none() || self.keys.entries[entry].kind() != Kind::Tree {
            let held = newest && entry.is_some() && self.is_fence_held(entry, fence);
            return Ok(Verified { newest_fence, newest, held });
        }
        // One counter serves all paths, so a hold with an older fence is still valid: no conflicting path can have been
        // granted since.
        if fence > newest_fence {
            return Ok(Verified { newest_fence, newest: false, held: false });
        }
        let value = OVERLAP_SCAN_COUNT_MAX as u64;
        let held = self
            .is_held_with_fence(entry, key, fence)
            .ok_or(Refusal::Overloaded { limit: "held paths to look at", value })?;
        Ok(Verified { newest_fence, newest: newest || held, held })
    }

    /// Whether a set with this fence holds a path that overlaps this one. Returns `None` if too many paths overlap it.
    fn is_held_with_fence(&self, entry: KeyIx, path: &[u8], fence: u64) -> Option<bool> {
        let tree = self.tree_at(entry);
        let is_it = |claim: ClaimIx| {
            let claim = &self.claims[claim];
            claim.fence == fence && claim.is_held()
        };
        let held = tree.is_any_holder(path, is_it);
        if held != Some(true) && tree.is_granting() {
            // A large set that was just granted may have paths that still count as awaited.
            let (awaited, _) = tree.overlapping(path, false, OVERLAP_SCAN_COUNT_MAX);
            return if awaited.into_iter().any(is_it) { Some(true) } else { held };
        }
        held
    }

    fn is_fence_held(&self, entry: KeyIx, fence: u64) -> bool {
        // The newest grant is the last of the holders.
        let record = &self.keys.entries[entry];
        if record.kind() == Kind::Pool {
            return self.is_permit_fence_held(record.pool(), fence);
        }
        let last = if record.has(entry::flag::QUEUED) {
            self.queues[record.queue()].holders.last
        } else {
            record.holder()
        };
        last.is_some() && self.claims[last].fence == fence && self.claims[last].is_held()
    }
}
