//! Watches of the holders of keys.

use super::{Caller, Shard};
use crate::effect::{Answer, Effects, Event, Refusal};
use crate::entry;
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::limits::WATCH_COUNT_MAX;
use std::sync::Arc;

/// Watch of a key: the lane that watches it, and the number of its watch request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Watcher {
    lane: LaneIx,
    number: u32,
}

impl Shard {
    /// Begins to send the caller an event each time this key gets a new holder, or is left without a holder. The watch
    /// lasts until the caller calls `unwatch` or its connection is lost. If the last hold ends and a waiter gets the
    /// key at once, only the new holder causes an event. A watched key keeps its queue even without contention. So
    /// grants and releases of keys without a queue need not look for watchers.
    pub fn watch(&mut self, caller: &Caller, key: &[u8], effects: &mut impl Effects) {
        let answer = match self.begin_watch(caller, key) {
            Ok(answer) => answer,
            Err(refusal) => Answer::Refused(refusal),
        };
        effects.answer(caller.ticket, answer);
    }

    fn begin_watch(&mut self, caller: &Caller, key: &[u8]) -> Result<Answer, Refusal> {
        let full = |limit| Refusal::Overloaded { limit, value: WATCH_COUNT_MAX as u64 };
        if self.lanes.lanes[caller.lane].watches.len() >= WATCH_COUNT_MAX {
            return Err(full("watches per connection"));
        }
        let hash = self.hash(caller.namespace, key);
        let mut entry = self.keys.find(caller.namespace, key, hash);
        if entry.is_none() {
            entry = self.insert_key(caller.namespace, key, hash);
        }
        let watchers = self.watchers.entry(entry).or_default();
        if watchers.len() >= WATCH_COUNT_MAX {
            return Err(full("watches per key"));
        }
        watchers.push(Watcher { lane: caller.lane, number: caller.ticket.number });
        self.lanes.lanes[caller.lane].watches.push((caller.ticket.number, entry));
        let queue = self.queue_of(entry);
        self.queues[queue].watched = true;
        let (holders, waiter_count) = (self.queues[queue].holders, self.queues[queue].waiter_count());
        let holder_count = holders.count - self.reserved_count(entry);
        Ok(Answer::Watching { fence: self.keys.entries[entry].fence, holder_count, waiter_count })
    }

    /// Ends the caller's watch with this number.
    pub fn unwatch(&mut self, caller: &Caller, watch_number: u32, effects: &mut impl Effects) {
        let watches = &mut self.lanes.lanes[caller.lane].watches;
        let place = watches.iter().position(|(number, _)| *number == watch_number);
        if let Some(place) = place {
            let (number, entry) = watches.swap_remove(place);
            self.drop_watcher(entry, Watcher { lane: caller.lane, number });
        }
        effects.answer(caller.ticket, Answer::Unwatched { was_watching: place.is_some() });
    }

    /// Ends all watches of a lane.
    pub(super) fn unwatch_all(&mut self, lane: LaneIx) {
        for (number, entry) in std::mem::take(&mut self.lanes.lanes[lane].watches) {
            self.drop_watcher(entry, Watcher { lane, number });
        }
    }

    fn drop_watcher(&mut self, entry: KeyIx, watcher: Watcher) {
        let Some(watchers) = self.watchers.get_mut(&entry) else { return };
        if let Some(place) = watchers.iter().position(|other| *other == watcher) {
            watchers.swap_remove(place);
        }
        if watchers.is_empty() {
            self.watchers.remove(&entry);
            let queue = self.keys.entries[entry].queue();
            self.queues[queue].watched = false;
            self.simplify(entry);
        }
    }

    /// Notifies the watchers of a key that this claim holds it.
    #[inline]
    pub(super) fn tell_held(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        if !self.watchers.is_empty() {
            let fence = self.claims[claim].fence;
            let shared = self.claims[claim].has(crate::claim::flag::SHARED);
            let owner = Arc::clone(self.owner_of(claim));
            self.tell_watchers(self.claims[claim].entry, effects, |number| {
                let owner = Arc::clone(&owner);
                Event::KeyHeld { number, fence, shared, owner }
            });
        }
    }

    /// Notifies the watchers of a key if it has no holder any more.
    pub(super) fn tell_freed(&mut self, entry: KeyIx, effects: &mut impl Effects) {
        let record = &self.keys.entries[entry];
        if self.watchers.is_empty() || !record.has(entry::flag::QUEUED) {
            return;
        }
        if self.queues[record.queue()].holders.count == 0 {
            let fence = record.fence;
            self.tell_watchers(entry, effects, |number| Event::KeyFreed { number, fence });
        }
    }

    /// Sends an event to all watchers of a key. Each event takes one step of the limited follow-up work of this turn,
    /// so grants stop early and continue in a later turn. These steps do not limit requests. So after each part of a
    /// batch, the worker compares [`Shard::told_count`] with its value before the batch, and postpones the rest after
    /// very many events.
    fn tell_watchers(&mut self, entry: KeyIx, effects: &mut impl Effects, event: impl Fn(u32) -> Event) {
        let Some(watchers) = self.watchers.get(&entry) else { return };
        for watcher in watchers {
            effects.event(self.lanes.lanes[watcher.lane].address, event(watcher.number));
        }
        let count = watchers.len() as u32;
        self.told_count = self.told_count.wrapping_add(count);
        self.steps.charge(count);
    }

    /// Whether any key is watched.
    #[inline]
    pub fn is_watched(&self) -> bool {
        !self.watchers.is_empty()
    }

    /// Returns the number of events that were sent to watchers. It wraps around after `u32::MAX`.
    #[inline]
    pub fn told_count(&self) -> u32 {
        self.told_count
    }
}
