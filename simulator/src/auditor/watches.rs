//! Rules about watches: a watch gets each grant once and in order, and KEY_FREED only while the key is free.

use super::Auditor;
use super::duties::{Duty, Word};
use crate::key::Key;
use crate::operation::Operation;
use std::collections::BTreeMap;
use waymaker_protocol::{Event, Watching};

/// One watch of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchView {
    key: Key,
    /// Newest fence that the connection got for the watch.
    fence: u64,
    is_held: bool,
    /// Time before which the watch began.
    since_ms: u64,
    /// Whether events after `fence` were dropped.
    is_behind: bool,
    /// Whether no event of the watch was ever dropped.
    is_complete: bool,
}

/// Watches by connection and request number.
pub(crate) type Watches = BTreeMap<(usize, u32), WatchView>;

impl Auditor {
    /// Rules `view` and `count` for the response to a new watch.
    pub(super) fn judge_watching(
        &mut self,
        connection: usize,
        request: usize,
        watching: &Watching,
        now_ms: u64,
    ) {
        let record = &self.requests[request];
        let Operation::Watch { key } = record.operation else { return };
        let (number, fence_before) = (record.number, record.fence_before);
        if watching.fence < fence_before {
            self.accuse("view", || {
                format!(
                    "key {key}: fence {fence_before} was known before, but the watch shows an older one: {watching:?}"
                )
            });
        }
        let counts = (watching.holder_count, watching.waiter_count);
        self.judge_counts(key, counts, None, self.requests[request].first_sent_ms, now_ms);
        let view = WatchView {
            key,
            fence: watching.fence,
            is_held: watching.holder_count > 0,
            since_ms: now_ms,
            is_behind: false,
            is_complete: true,
        };
        let is_reset = !self.connections[connection].asked_watches.contains(&number);
        if !is_reset {
            self.watches.insert((connection, number), view);
        }
    }

    /// Returns whether this watch still exists and gets each grant.
    pub(super) fn hears_each_grant(&self, connection: usize, number: u32) -> bool {
        self.watches.get(&(connection, number)).is_some_and(|view| view.is_complete)
    }

    /// Adds the duty to send KEY_HELD to each watch of the key that began before the grant.
    pub(super) fn owe_grant_to_watchers(&mut self, key: Key, fence: u64, stamp_ms: u64, now_ms: u64) {
        let watches = self.watches.iter().filter(|(_, view)| view.key == key && view.since_ms < stamp_ms);
        let watches: Vec<(usize, u32)> = watches.map(|(name, _)| *name).collect();
        for (connection, number) in watches {
            self.owe(self.to_us(now_ms), Duty::Event { connection, word: Word::KeyHeld(number, fence) });
        }
    }

    /// Rule `watch`: UNWATCHED reports whether a watch with this number and key existed. The watch has ended
    /// then.
    pub(super) fn judge_unwatched(&mut self, connection: usize, watch: u32, key: Key, was_watching: bool) {
        let is_known = self.watches.get(&(connection, watch)).is_some_and(|view| view.key == key);
        if is_known != was_watching {
            // A number reused for another key may end the watch of that key, if both keys lie in one shard.
            let is_other = self.watches.contains_key(&(connection, watch)) && !is_known;
            if !is_other {
                self.accuse("watch", || {
                    format!(
                        "UNWATCHED of watch {watch} on connection {connection} must report was_watching {is_known}, but reports {was_watching}"
                    )
                });
            }
        }
        if was_watching {
            self.watches.remove(&(connection, watch));
        }
    }

    /// Records that a client of a front end has reset the stream of this request. Events in flight may still
    /// arrive.
    pub(crate) fn note_reset(&mut self, connection: usize, number: u32) {
        self.watches.remove(&(connection, number));
        self.connections[connection].asked_watches.remove(&number);
        self.connections[connection].reset.insert(number);
    }

    /// Rule `watch`: the events of a watched key follow each other without gaps, and a freed key has no
    /// holder.
    pub(super) fn hear_watch(&mut self, connection: usize, number: u32, event: &Event<'_>, now_ms: u64) {
        let lane = &self.lanes[self.connections[connection].lane];
        // The event may have been in flight when an earlier connection, which requested the watch, was lost.
        let was_asked = lane
            .requests
            .get(&number)
            .is_some_and(|request| matches!(self.requests[*request].operation, Operation::Watch { .. }));
        let is_late = was_asked && !self.connections[connection].asked_watches.contains(&number);
        if let Event::KeyHeld { fence, .. } = *event {
            self.connections[connection].heard.insert(Word::KeyHeld(number, fence));
        }
        let Some(view) = self.watches.get_mut(&(connection, number)) else {
            if !is_late {
                self.accuse("watch", || {
                    format!(
                        "connection {connection} got an event of watch {number}, which it never requested: {event:?}"
                    )
                });
            }
            return;
        };
        let before = *view;
        // The watch continues after dropped events. The server announces each later drop again.
        view.is_behind = false;
        let follows = match *event {
            Event::KeyHeld { fence, .. } => {
                view.is_held = true;
                view.fence = fence;
                fence == before.fence + 1 || before.is_behind && fence > before.fence
            }
            Event::KeyFreed { fence } => {
                view.is_held = false;
                view.fence = fence;
                fence == before.fence && before.is_held || before.is_behind && fence > before.fence
            }
            _ => {
                view.is_behind = true;
                view.is_complete = false;
                return;
            }
        };
        // The order in which durable holds become held may differ from the order of their fences.
        let is_prompt =
            self.settings.durability.is_none() || self.is_plain(before.key) && self.is_prompt(before.key);
        if !follows && is_prompt {
            return self.accuse("watch", || {
                format!("connection {connection}: {event:?} cannot follow the state {before:?} of its watch")
            });
        }
        if let Event::KeyFreed { fence } = *event {
            let still_held = self.holds.iter().find(|(id, hold)| {
                hold.key == before.key && hold.fence <= fence && self.surely_lives(**id, now_ms)
            });
            if let Some((id, _)) = still_held {
                let id = *id;
                self.accuse("watch", || {
                    format!("KEY_FREED reports key {} as free at {now_ms} ms, but {id} is held", before.key)
                });
            }
        }
    }

    /// Rule `watch`: a client that watches a key that has been free for long has got KEY_FREED. `is_free`
    /// returns whether a key is such a key.
    pub(crate) fn judge_watches(&mut self, is_free: impl Fn(Key) -> bool) {
        // A watch ends with its connection, and with its session.
        let lost = |connection: usize| {
            let listener = &self.connections[connection];
            let session = self.lanes[listener.lane].session;
            listener.is_lost || session.is_some_and(|session| self.goodbye_ms(session) < u64::MAX)
        };
        let wrong = self
            .watches
            .iter()
            .find(|((connection, _), view)| {
                !lost(*connection) && view.is_held && !view.is_behind && is_free(view.key)
            })
            .map(|(name, view)| (*name, *view));
        if let Some(((connection, number), view)) = wrong {
            self.accuse("watch", || {
                format!(
                    "key {} is free, but the last event of watch {number} on connection {connection} gives {view:?}",
                    view.key
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auditor::scene::{auditor, rule, says};
    use waymaker_protocol::{Response, Unwatched};

    const KEY: Key = 0;

    fn held(fence: u64) -> Event<'static> {
        Event::KeyHeld { fence, shared: false, owner: b"" }
    }

    /// Returns the rule that these events break for a watch that began while the key was held with fence 1.
    fn heard(events: &[Event<'_>]) -> Option<&'static str> {
        rule(&auditor_of(events))
    }

    fn auditor_of(events: &[Event<'_>]) -> Auditor {
        let mut auditor = auditor();
        auditor.settings.durability = None;
        auditor.asks(0, 1, Operation::Watch { key: KEY }, 0, 100);
        let watching = Watching { fence: 1, stamp_ms: 100, holder_count: 1, waiter_count: 0 };
        says(&mut auditor, 0, 1, &Response::Watching(watching), 100);
        auditor.violation = None;
        for event in events {
            says(&mut auditor, 0, 1, &Response::Event(*event), 110);
        }
        auditor
    }

    #[test]
    fn a_watch_gets_each_grant_in_order() {
        assert_eq!(heard(&[Event::KeyFreed { fence: 1 }, held(2)]), None);
        assert_eq!(heard(&[held(3)]), Some("watch"));
        assert_eq!(heard(&[Event::KeyFreed { fence: 2 }]), Some("watch"));
    }

    #[test]
    fn a_watch_continues_after_dropped_events() {
        assert_eq!(heard(&[Event::Overrun, held(4), held(5)]), None);
        assert_eq!(heard(&[Event::Overrun, Event::KeyFreed { fence: 1 }]), None);
        assert_eq!(heard(&[Event::Overrun, Event::KeyFreed { fence: 4 }]), None);
        assert_eq!(heard(&[Event::Overrun, held(1)]), Some("watch"));
        assert_eq!(heard(&[Event::Overrun, held(4), held(6)]), Some("watch"));
        assert_eq!(
            heard(&[Event::KeyFreed { fence: 1 }, Event::Overrun, Event::KeyFreed { fence: 1 }]),
            Some("watch")
        );
        let mut auditor = auditor_of(&[Event::Overrun]);
        auditor.asks(0, 2, Operation::Unwatch { watch: 1, key: KEY }, 0, 120);
        says(&mut auditor, 0, 2, &Response::Unwatched(Unwatched { was_watching: true }), 120);
        assert_eq!(rule(&auditor), None);
    }

    #[test]
    fn the_last_event_of_a_watch_shows_whether_its_key_is_free() {
        let judged = |events: &[Event<'_>]| {
            let mut auditor = auditor_of(events);
            auditor.judge_watches(|_| true);
            rule(&auditor)
        };
        assert_eq!(judged(&[Event::KeyFreed { fence: 1 }]), None);
        assert_eq!(judged(&[]), Some("watch"));
        assert_eq!(judged(&[Event::Overrun]), None);
        assert_eq!(judged(&[Event::Overrun, held(4)]), Some("watch"));
    }
}
