//! Looking without touching.

use super::{Caller, Shard};
use crate::claim::flag;
use crate::effect::{Answer, ClaimId, ClaimStatus, Effects, HeldLock, KeyStatus, Page};
use crate::entry;
use crate::limits::{INSPECT_HOLDER_COUNT_MAX, LIST_SCAN_COUNT_MAX};
use crate::slab::NONE;

impl Shard {
    /// Says what became of the claim with this id.
    pub fn status(&self, caller: &Caller, id: ClaimId, key: Option<&[u8]>, effects: &mut impl Effects) {
        let answer = match self.claim_of(id, caller.namespace, key) {
            Ok(claim) => Answer::Status(Box::new(self.claim_status(claim))),
            Err(refusal) => Answer::Refused(refusal),
        };
        effects.answer(caller.ticket, answer);
    }

    fn claim_status(&self, index: u32) -> ClaimStatus {
        let claim = &self.claims[index];
        ClaimStatus {
            held: claim.has(flag::HELD),
            shared: claim.has(flag::SHARED),
            session_lease: claim.has(flag::SESSION_LEASE),
            fence: claim.fence,
            remaining_ms: self.shown_remaining_ms(index),
            age_ms: self.now.ms_since(claim.since),
            priority: self.priority(index),
            key: self.keys.key(claim.entry).to_vec(),
        }
    }

    fn priority(&self, claim: u32) -> u32 {
        let detail = self.claims[claim].detail;
        if detail == NONE { 0 } else { self.details[detail].priority }
    }

    /// Says who holds a key and how many wait for it.
    pub fn inspect(&self, caller: &Caller, key: &[u8], effects: &mut impl Effects) {
        let entry = self.keys.find(caller.namespace, key, self.hash(caller.namespace, key));
        let status = if entry == NONE { KeyStatus::default() } else { self.key_status(entry) };
        effects.answer(caller.ticket, Answer::Inspected(Box::new(status)));
    }

    fn key_status(&self, index: u32) -> KeyStatus {
        let entry = &self.keys.entries[index];
        let (first, holder_count, waiter_count) = if entry.has(entry::flag::QUEUED) {
            let queue = &self.queues[entry.head];
            (queue.holders.first, queue.holders.count, queue.waiter_count())
        } else {
            (entry.head, u32::from(entry.head != NONE), 0)
        };
        let step = |claim: &u32| Some(self.claims[*claim].next).filter(|next| *next != NONE);
        let holders = std::iter::successors(Some(first).filter(|first| *first != NONE), step);
        let holders = holders.take(INSPECT_HOLDER_COUNT_MAX).map(|claim| self.held_lock(claim)).collect();
        KeyStatus { fence: entry.fence, holder_count, waiter_count, holders }
    }

    fn held_lock(&self, index: u32) -> HeldLock {
        let claim = &self.claims[index];
        let detail = self.details.get(claim.detail);
        HeldLock {
            id: self.id(index),
            shared: claim.has(flag::SHARED),
            fence: claim.fence,
            held_ms: self.now.ms_since(claim.since),
            remaining_ms: self.shown_remaining_ms(index),
            priority: self.priority(index),
            key: self.keys.key(claim.entry).to_vec(),
            owner: self.owner_of(index).clone(),
            request_id: detail.and_then(|detail| detail.request_id.as_deref()).unwrap_or_default().to_vec(),
            metadata: detail.and_then(|detail| detail.metadata.as_deref()).unwrap_or_default().to_vec(),
        }
    }

    /// Some of the locks held in the namespace whose keys begin with `prefix`, from this slot on: at most `count_max`,
    /// and no more once `bytes_max` of keys and strings are reached. A claim keeps its slot, so a lock that is held
    /// from the first page to the last stands in exactly one.
    pub fn list(
        &self,
        caller: &Caller,
        prefix: &[u8],
        from: u32,
        count_max: usize,
        bytes_max: usize,
        effects: &mut impl Effects,
    ) {
        let mut page = Page::default();
        let mut bytes = 0;
        let end = self.claims.end().min(from.saturating_add(LIST_SCAN_COUNT_MAX));
        let mut slot = from;
        while slot < end && page.locks.len() < count_max && bytes < bytes_max {
            let claim = &self.claims[slot];
            let held = claim.has(flag::LIVE) && claim.has(flag::HELD);
            if held
                && self.keys.entries[claim.entry].namespace == caller.namespace
                && self.keys.key(claim.entry).starts_with(prefix)
            {
                {
                    let lock = self.held_lock(slot);
                    bytes +=
                        64 + lock.key.len() + lock.owner.len() + lock.request_id.len() + lock.metadata.len();
                    page.locks.push(lock);
                }
            }
            slot += 1;
        }
        page.next = (slot < self.claims.end()).then_some(slot);
        effects.answer(caller.ticket, Answer::Listed(Box::new(page)));
    }
}
