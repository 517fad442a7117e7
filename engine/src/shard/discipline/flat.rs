//! Keys: each has one exclusive holder or any number of shared ones, and a queue once claims conflict.
//!
//! A waiter is granted if it conflicts with no holder and all waiters before it were granted. A waiting multi-key claim
//! has one waiter at each of its keys, a *stub*. A stub may be *clear* (nothing blocks it at its key) while another key
//! of the claim is not free. Such a stub holds nothing, so a reader also passes clear stubs that are readers. A reader
//! never passes a writer that waits before it, and consecutive readers at the front are granted together.

use super::Discipline;
use crate::access::{Access, Rights};
use crate::claim::{Detail, Extra, OrderKey, flag};
use crate::effect::{Contention, Effects, Grant, KeyStatus, Refusal, Verified};
use crate::entry;
use crate::handle::{ClaimIx, KeyIx, LaneIx, QueueIx};
use crate::ids::Fence;
use crate::limits::{INSPECT_HOLDER_COUNT_MAX, POSITION_COUNT_MAX};
use crate::measure::FreedAt;
use crate::queue::Queue;
use crate::shard::Shard;
use waymaker_log::Item;

/// Discipline of keys.
pub(in crate::shard) struct Flat;

impl Discipline for Flat {
    fn end_hold(shard: &mut Shard, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects) {
        let queue = shard.keys.entries[entry].queue();
        shard.queues[queue].holders.remove(&mut shard.claims, claim);
        shard.free_claim(claim);
        if shard.queues[queue].holders.count > 0 {
            // The key had several holders, so all of them are readers. The remaining ones still block the writers, so
            // no waiter can be granted.
            return shard.simplify(entry);
        }
        shard.grant_from_head(entry, FreedAt::at(shard.cause), effects);
        shard.tell_freed(entry, effects);
    }

    fn end_wait(shard: &mut Shard, entry: KeyIx, claim: ClaimIx, effects: &mut impl Effects) {
        let queue = &shard.queues[shard.keys.entries[entry].queue()];
        // The end of a wait may allow a grant even if the waiter was not the first. Before it may be reading stubs:
        // waiters of multi-key claims that want to read and hold nothing yet, so other readers may pass them. If a
        // writer behind such stubs leaves, the readers behind this writer can be granted.
        let matters = queue.has_writers() && (queue.first_waiter() == claim || queue.has_reading_stubs());
        let multi_key = shard.details[shard.claims[claim].detail].multi_key().cloned();
        shard.leave_queue(claim);
        shard.free_claim(claim);
        if let Some(multi_key) = multi_key {
            effects.withdraw(&multi_key);
        }
        if matters {
            shard.grant_from_head(entry, FreedAt::NEVER, effects);
        } else {
            shard.simplify(entry);
        }
    }

    fn thaw(shard: &mut Shard, entry: KeyIx, effects: &mut impl Effects) {
        let queue = shard.keys.entries[entry].queue();
        let version = shard.freezes.version();
        if std::mem::replace(&mut shard.queues[queue].thawed, version) < version {
            shard.grant_from_head(entry, FreedAt::NEVER, effects);
        }
    }

    fn count_reserved(shard: &mut Shard, claim: ClaimIx, is_reserved: bool) {
        let entry = &shard.keys.entries[shard.claims[claim].entry];
        // A key without a queue has one holder, whose state shows whether it is reserved.
        if entry.has(entry::flag::QUEUED) {
            let count = &mut shard.queues[entry.queue()].reserved_count;
            *count = if is_reserved { *count + 1 } else { *count - 1 };
        }
    }

    fn waiter_count(shard: &Shard, entry: KeyIx) -> u32 {
        let record = &shard.keys.entries[entry];
        if record.has(entry::flag::QUEUED) { shard.queues[record.queue()].waiter_count() } else { 0 }
    }

    fn position_of(shard: &Shard, claim: ClaimIx) -> usize {
        let queue = &shard.queues[shard.keys.entries[shard.claims[claim].entry].queue()];
        queue.position_of(&shard.claims, &shard.details, claim, POSITION_COUNT_MAX)
    }

    fn blocker_of(shard: &Shard, claim: ClaimIx) -> ClaimIx {
        let record = &shard.claims[claim];
        let in_front = shard.in_front(record.entry, record.has(flag::SHARED));
        if in_front != claim {
            return in_front;
        }
        shard.queues[shard.keys.entries[record.entry].queue()].holders.first
    }

    fn shown_key(shard: &Shard, claim: ClaimIx) -> Vec<u8> {
        shard.keys.key(shard.claims[claim].entry).to_vec()
    }

    fn has_prefix(shard: &Shard, claim: ClaimIx, prefix: &[u8], _: &mut u32) -> bool {
        shard.keys.key(shard.claims[claim].entry).starts_with(prefix)
    }

    fn is_covered(shard: &Shard, claim: ClaimIx, access: &Access, right: Rights) -> bool {
        access.covers(right, shard.keys.key(shard.claims[claim].entry))
    }

    fn status(shard: &Shard, lane: LaneIx, entry: KeyIx, _: &[u8]) -> KeyStatus {
        shard.key_status(lane, entry)
    }

    fn verified(shard: &Shard, entry: KeyIx, _: &[u8], fence: Fence) -> Result<Verified, Refusal> {
        let record = &shard.keys.entries[entry];
        let newest_holder = if record.has(entry::flag::QUEUED) {
            shard.queues[record.queue()].holders.last
        } else {
            record.holder()
        };
        Ok(shard.verified_of_newest(entry, fence, newest_holder))
    }

    fn with_item(shard: &Shard, claim: ClaimIx, detail: &Detail, put: impl FnOnce(Item<'_>)) {
        let key = shard.keys.key(shard.claims[claim].entry);
        put(match &detail.extra {
            Extra::Registration(registered) => Item::Registration {
                key,
                type_name: &registered.type_name,
                end_ms: registered.end_ms,
                lazy: registered.lazy,
            },
            _ => Item::Key(key),
        });
    }

    fn verify(shard: &Shard, entry: KeyIx, placed: &mut [u32]) {
        let record = &shard.keys.entries[entry];
        if record.has(entry::flag::QUEUED) {
            shard.verify_queue(entry, placed);
        } else if !record.is_free() {
            placed[record.holder().at()] += 1;
            shard.verify_holder(entry, record.holder());
        }
    }
}

impl Shard {
    /// Makes a claim the only holder of its free key, and starts its lease.
    #[inline(always)]
    pub(in crate::shard) fn hold_alone(&mut self, claim: ClaimIx, lease_ms: u32) -> Grant {
        let entry = self.claims[claim].entry;
        debug_assert!(self.keys.entries[entry].is_free());
        self.keys.entries[entry].set_holder(claim);
        self.keys.leave_idle();
        self.start_lease(claim, lease_ms)
    }

    /// Adds a claim that is in no queue to the holders of its key. It must not conflict with them.
    pub(in crate::shard) fn join_holders(&mut self, claim: ClaimIx) {
        let entry = self.claims[claim].entry;
        if self.keys.entries[entry].is_free() {
            self.keys.entries[entry].set_holder(claim);
            return self.keys.leave_idle();
        }
        let queue = self.queue_of(entry);
        debug_assert!(self.queues[queue].is_open_to(self.claims[claim].has(flag::SHARED), &self.claims));
        self.queues[queue].holders.push_back(&mut self.claims, claim);
    }

    /// Returns the queue of a key. If the key has none, creates it with the present holder of the key, if any.
    pub(in crate::shard) fn queue_of(&mut self, entry_index: KeyIx) -> QueueIx {
        let entry = &self.keys.entries[entry_index];
        if entry.has(entry::flag::QUEUED) {
            return entry.queue();
        }
        let queue = self.queues.allocate();
        self.queues[queue] = Queue::default();
        if entry.is_free() {
            self.keys.leave_idle();
        } else {
            let holder = entry.holder();
            self.queues[queue].holders.push_back(&mut self.claims, holder);
            self.queues[queue].reserved_count = u32::from(self.claims[holder].is_reserved());
        }
        self.keys.entries[entry_index].set_queue(queue);
        queue
    }

    /// Unless an operator froze the key, grants waiters from the front of the queue, within the budget of steps, until
    /// a waiter is blocked. A waiter that may not be granted any more is refused or, if it lost its connection,
    /// cancelled. A waiter of a multi-key claim (a stub) is not granted here. Instead, the shard requests a recheck of
    /// all keys of its claim: it *announces* the stub.
    pub(in crate::shard) fn grant_from_head(
        &mut self,
        entry: KeyIx,
        freed_at: FreedAt,
        effects: &mut impl Effects,
    ) {
        if !self.keys.entries[entry].has(entry::flag::QUEUED) {
            return;
        }
        let queue = self.keys.entries[entry].queue();
        if self.is_entry_frozen(entry) {
            return self.simplify(entry);
        }
        loop {
            let waiter = self.queues[queue].next_to_grant(&self.claims, &self.details);
            if waiter.is_none() {
                break;
            }
            let claim = &self.claims[waiter];
            let (shared, is_stub) = (claim.has(flag::SHARED), claim.is_stub());
            // `next_to_grant` skips waiters of multi-key claims for which the shard has already requested a check of
            // all keys of the claim. A reader may pass the skipped waiters. A writer may not, so it is granted only as
            // the first waiter.
            let is_first = shared || self.queues[queue].first_waiter() == waiter;
            if !self.queues[queue].is_open_to(shared, &self.claims) || !is_first {
                break;
            }
            if !self.steps.take() {
                let queue = &mut self.queues[queue];
                queue.freed_at = freed_at;
                return self.work.push_grant(entry, &mut queue.granting);
            }
            if is_stub {
                self.queues[queue].note_announced(&self.claims, &self.details, waiter);
                self.tell_clear(waiter, effects);
                if !shared {
                    break;
                }
            } else if self.may_begin(waiter, effects) {
                self.leave_queue(waiter);
                self.queues[queue].holders.push_back(&mut self.claims, waiter);
                self.begin_hold(waiter, freed_at, effects);
                if !shared {
                    break;
                }
            } else {
                self.leave_queue(waiter);
                self.free_claim(waiter);
            }
        }
        self.simplify(entry);
    }

    /// Removes a waiter from its queue, its timer and the table of tickets. It stays linked to its lane.
    pub(in crate::shard) fn leave_queue(&mut self, claim: ClaimIx) {
        let queue = self.keys.entries[self.claims[claim].entry].queue();
        self.queues[queue].remove_waiter(&mut self.claims, &self.details, claim);
        self.stop_waiting(claim);
    }

    /// Removes the queue of a key if it has no waiter and at most one holder, and nobody watches the key.
    pub(in crate::shard) fn simplify(&mut self, entry_index: KeyIx) {
        let entry = &mut self.keys.entries[entry_index];
        if !entry.has(entry::flag::QUEUED) {
            return;
        }
        let queue = entry.queue();
        let Queue { holders, watched, .. } = self.queues[queue];
        if self.queues[queue].waiter_count() > 0 || holders.count > 1 || watched {
            return;
        }
        let holder = holders.first;
        entry.end_queue(holder);
        self.queues.release(queue);
        if holder.is_none() {
            self.keys.become_idle(entry_index);
        }
    }

    /// Returns the data about the claim that blocks a claim of this lane and mode: a conflicting holder, otherwise the
    /// first waiter.
    pub(in crate::shard) fn contention(&self, lane: LaneIx, entry: KeyIx, shared: bool) -> Contention {
        self.contention_with(lane, entry, self.in_front(entry, shared))
    }

    /// Returns the claim that blocks a claim of this mode, or `NONE`. Without a queue, returns the only holder even if
    /// both claims could share the key.
    fn in_front(&self, entry: KeyIx, shared: bool) -> ClaimIx {
        let record = &self.keys.entries[entry];
        if !record.has(entry::flag::QUEUED) {
            return record.holder();
        }
        let queue = &self.queues[record.queue()];
        let conflicts = !queue.is_open_to(shared, &self.claims);
        if conflicts { queue.holders.first } else { queue.first_waiter() }
    }

    /// Adds a claim to the waiters of its key. `is_clear_stub` says whether it belongs to a multi-key claim and nothing
    /// blocks it at this key. The caller has just checked all keys of that claim, so the shard requests no recheck of
    /// it.
    pub(in crate::shard) fn enqueue(&mut self, claim: ClaimIx, is_clear_stub: bool) {
        let entry = self.claims[claim].entry;
        let queue = self.queue_of(entry);
        self.queues[queue].add_waiter(&mut self.claims, &self.details, claim, is_clear_stub);
        let is_far = self.is_far(claim);
        let counters = self.counters_of(self.namespace_of(claim));
        *if is_far { &mut counters.far_stub_count } else { &mut counters.waiting } += 1;
        self.count_waiter(claim);
    }

    /// Notes that a newly arrived claim holds the key. It may block waiters of multi-key claims that could be granted
    /// at this key before, so the shard must later check their claims again.
    pub(in crate::shard) fn note_newcomer_holds(&mut self, holder: ClaimIx) {
        let claim = &self.claims[holder];
        let queue = self.keys.entries[claim.entry].queue();
        self.queues[queue].note_newcomer_holds(claim.has(flag::SHARED));
    }

    /// Whether nothing blocks a newly arrived claim with this queue position. A claim that may not wait (`wait_ms` is
    /// 0) has no queue position: every waiter blocks it, unless it is a reader and all waiters are readers of multi-key
    /// claims.
    pub(in crate::shard) fn is_newcomer_clear(
        &self,
        entry: KeyIx,
        shared: bool,
        wait_ms: u32,
        order: OrderKey,
    ) -> bool {
        let record = &self.keys.entries[entry];
        if wait_ms == 0 || !record.has(entry::flag::QUEUED) {
            return self.is_clear(entry, shared);
        }
        let queue = &self.queues[record.queue()];
        queue.is_open_to(shared, &self.claims)
            && (queue.is_before_all(&self.claims, &self.details, order)
                || shared && queue.only_clear_readers_before(&self.claims, &self.details, order))
    }

    /// Whether a claim of this mode conflicts with no holder of the key, and no waiter blocks it. If all waiters are
    /// readers of multi-key claims, they do not block a reader.
    pub(in crate::shard) fn is_clear(&self, entry: KeyIx, shared: bool) -> bool {
        let entry = &self.keys.entries[entry];
        if entry.has(entry::flag::QUEUED) {
            let queue = &self.queues[entry.queue()];
            queue.is_open_to(shared, &self.claims)
                && (queue.waiter_count() == 0 || shared && queue.is_readable_behind_waiters())
        } else {
            entry.is_free() || shared && self.claims[entry.holder()].has(flag::SHARED)
        }
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

    /// Returns the number of reserved holders of a key that is no pool or tree. A reserved claim is granted and blocks
    /// other claims, but is held only once its fence is durable. Callers subtract this number from the number of
    /// holders, because responses show only holds.
    pub(in crate::shard) fn reserved_count(&self, entry: KeyIx) -> u32 {
        let entry = &self.keys.entries[entry];
        if entry.has(entry::flag::QUEUED) {
            return self.queues[entry.queue()].reserved_count;
        }
        u32::from(!entry.is_free() && self.claims[entry.holder()].is_reserved())
    }

    fn verify_queue(&self, index: KeyIx, placed: &mut [u32]) {
        let entry = &self.keys.entries[index];
        let queue = &self.queues[entry.queue()];
        let mut holders = 0;
        let mut reserved_count = 0;
        let mut claim = queue.holders.first;
        while claim.is_some() {
            holders += 1;
            placed[claim.at()] += 1;
            self.verify_holder(index, claim);
            reserved_count += u32::from(self.claims[claim].is_reserved());
            let alone = queue.holders.count == 1;
            assert!(alone || self.claims[claim].has(flag::SHARED), "holders of entry {index} conflict");
            claim = self.claims[claim].position.next();
        }
        assert_eq!(holders, queue.holders.count, "holders of entry {index}");
        assert_eq!(reserved_count, queue.reserved_count, "reserved holders of entry {index}");
        let waiters: Vec<ClaimIx> = queue.waiters(&self.claims, &self.details).collect();
        assert!(holders > 1 || !waiters.is_empty() || queue.watched, "entry {index} needs no queue");
        queue.verify(&self.claims, &self.details);
        for claim in &waiters {
            placed[claim.at()] += 1;
            let record = &self.claims[*claim];
            assert!(record.is_waiting() && record.fence == Fence::NONE, "waiter {claim}");
            assert_eq!(record.entry, index, "waiter {claim} names another key");
            self.verify_waiter(*claim);
        }
        // A reader behind nothing but readers of multi-key claims can be granted like the first waiter. The loop below
        // ends with an assertion at the first other waiter, so the readers before this one are of that kind.
        let only_readers =
            |before: &[ClaimIx]| before.iter().all(|claim| self.claims[*claim].has(flag::SHARED));
        let clear = |place: usize, shared: bool| {
            queue.is_open_to(shared, &self.claims)
                && (place == 0 || shared && only_readers(&waiters[..place]))
        };
        let pending = self.is_work_pending(index, queue.granting);
        if self.is_entry_frozen(index) || self.is_thawing() || pending {
            return;
        }
        for (place, claim) in waiters.iter().enumerate() {
            let record = &self.claims[*claim];
            if !clear(place, record.has(flag::SHARED)) {
                break;
            }
            assert!(record.is_stub(), "waiter {claim} of entry {index} could be granted");
        }
    }
}
