//! Read-only requests.

use super::{Caller, Shard};
use crate::access::Rights;
use crate::claim::{Detail, flag};
use crate::effect::{
    Answer, ClaimStatus, Effects, HeldLock, KeyStatus, Page, Refusal, Verified, WaitingClaim,
};
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::ids::{ClaimId, Fence};
use crate::limits::{INSPECT_HOLDER_COUNT_MAX, LIST_SCAN_COUNT_MAX};

/// Limits of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageBounds {
    /// Maximum number of items.
    pub count_max: usize,
    /// Number of bytes at which the page ends. Each item counts 64 bytes, and its key and strings.
    pub bytes_max: usize,
}

impl Shard {
    /// Answers with the state of the claim with this id. The holder will rely on the lease in the answer. So if the
    /// claim is in the log, the answer waits until the records of all longer leases in this shard are durable.
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
            fence: if claim.is_held() { claim.fence } else { Fence::NONE },
            remaining_ms: self.shown_remaining_ms(index),
            age_ms: self.age_ms(claim),
            priority: self.priority(index),
            waited_ms: self.details.get(claim.detail).map_or(0, Detail::waited_ms),
            key: self.shown_key(index),
        }
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
        } else {
            self.status_of_key(caller.lane, entry, key)
        };
        effects.answer(caller.ticket, Answer::Inspected(Box::new(status)));
    }

    /// Returns the first holders, at most `INSPECT_HOLDER_COUNT_MAX`, for a response. Their list begins with `first`
    /// and has `count` holders that are not reserved.
    ///
    /// The search visits at most `LIST_SCAN_COUNT_MAX` holders. Claims become durable in the order in which they were
    /// granted, so reserved holders (their fence is not durable yet) are mostly behind all others. If so many reserved
    /// holders are first that the search visits no other, the response names no holder.
    pub(super) fn shown_holders(&self, first: ClaimIx, count: u32) -> impl Iterator<Item = ClaimIx> {
        let holders = std::iter::successors(first.some(), |claim| self.claims[*claim].position.next().some());
        let scanned = holders.take(LIST_SCAN_COUNT_MAX as usize);
        let shown = scanned.filter(|claim| self.claims[*claim].is_held());
        shown.take(INSPECT_HOLDER_COUNT_MAX.min(count as usize))
    }

    pub(super) fn waiting_claim(&self, lane: LaneIx, index: ClaimIx) -> WaitingClaim {
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
        let Caller { namespace, .. } = *caller;
        let find = || self.keys.find(namespace, key, self.hash(namespace, key));
        self.tree_of_namespace(namespace).unwrap_or_else(find)
    }

    /// Returns a hold or a waiting claim as a lane may see it: without its id, owner, request id and metadata, unless
    /// the lane may know them.
    pub(super) fn held_lock(&self, lane: LaneIx, index: ClaimIx) -> HeldLock {
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
            fence: if claim.is_held() { claim.fence } else { Fence::NONE },
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
    /// caller may list them. A page has at most `count_max` of them. The page ends when it has `bytes_max` bytes: 64
    /// for each item, and its key and strings. The page also ends when `LIST_SCAN_COUNT_MAX` claims were visited; some
    /// comparisons count like visits. A claim keeps its slot, so a lock that is held from the first page to the last is
    /// in exactly one page.
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

    /// Lists the holds of the caller's lane in this shard, from the slot `from` on. A client that reconnected learns
    /// from the list which holds have ended since its connection was lost.
    pub fn holds(&self, caller: &Caller, from: u32, page: &PageBounds, effects: &mut impl Effects) {
        // Most lanes have no claims in this shard. For these lanes, the answer is an empty page, and no claim is
        // visited.
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
    /// of its comparisons, in visits of a claim, to its second argument. If the sum reaches `LIST_SCAN_COUNT_MAX`, the
    /// page ends.
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

    /// Passes live claims from this slot on to `visit`, until it returns false or `LIST_SCAN_COUNT_MAX` slots were
    /// visited. Returns the slot to continue with, if there are more.
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

    /// Answers whether a fence is still the newest of its key, and whether it is still held.
    pub fn verify_fence(&self, caller: &Caller, key: &[u8], fence: Fence, effects: &mut impl Effects) {
        let answer = match self.verified(caller, key, fence) {
            Ok(verified) => Answer::Verified(verified),
            Err(refusal) => Answer::Refused(refusal),
        };
        effects.answer(caller.ticket, answer);
    }

    fn verified(&self, caller: &Caller, key: &[u8], fence: Fence) -> Result<Verified, Refusal> {
        let entry = self.entry_about(caller, key);
        if entry.is_some() {
            return self.verified_of_key(entry, key, fence);
        }
        // The first fence of an unknown key is above the floor. The key has no record, so no fence above the floor was
        // granted for it. So the answer shows the floor as the newest fence.
        let newest_fence = self.keys.floor();
        Ok(Verified { newest_fence, newest: newest_fence == fence && fence > Fence::NONE, held: false })
    }
}
