//! What those hear who watch a key: each grant once and in order, and that it is free only when it is.

use super::Auditor;
use super::duties::{Duty, Word};
use crate::operation::{Key, Operation};
use std::collections::BTreeMap;
use waymaker_protocol::{Event, Watching};

/// One watch of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchView {
    key: Key,
    /// The newest fence that it heard of.
    fence: u64,
    is_held: bool,
    /// It began before this time.
    since_ms: u64,
    /// Events behind the newest that it heard were dropped.
    is_behind: bool,
    /// No event of it was ever dropped.
    is_complete: bool,
}

/// By connection and number.
pub(crate) type Watches = BTreeMap<(usize, u32), WatchView>;

impl Auditor {
    pub(super) fn judge_watching(
        &mut self,
        connection: usize,
        request: usize,
        watching: &Watching,
        now_ms: u64,
    ) {
        let asked = &self.requests[request];
        let Operation::Watch { key } = asked.operation else { return };
        let (number, fence_before) = (asked.number, asked.fence_before);
        if watching.fence < fence_before {
            self.accuse("view", || format!("key {key}: fence {fence_before} was said before: {watching:?}"));
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

    /// Returns whether this watch goes on and hears each grant.
    pub(super) fn hears_each_grant(&self, connection: usize, number: u32) -> bool {
        self.watches.get(&(connection, number)).is_some_and(|view| view.is_complete)
    }

    /// The server owes KEY_HELD to each watch of the key that began before the grant.
    pub(super) fn owe_grant_to_watchers(&mut self, key: Key, fence: u64, stamp_ms: u64, now_ms: u64) {
        let watches = self.watches.iter().filter(|(_, view)| view.key == key && view.since_ms < stamp_ms);
        let watches: Vec<(usize, u32)> = watches.map(|(name, _)| *name).collect();
        for (connection, number) in watches {
            self.owe(self.to_us(now_ms), Duty::Event { connection, word: Word::KeyHeld(number, fence) });
        }
    }

    /// A watch is over, if there was one of this number and this key.
    pub(super) fn judge_unwatched(&mut self, connection: usize, watch: u32, key: Key, was_watching: bool) {
        let is_known = self.watches.get(&(connection, watch)).is_some_and(|view| view.key == key);
        if is_known != was_watching {
            // A number that was given to a watch of another key may end that one, if both lie in one shard.
            let is_other = self.watches.contains_key(&(connection, watch)) && !is_known;
            if !is_other {
                self.accuse("watch", || {
                    format!(
                        "watch {watch} of connection {connection} over: {was_watching}, known: {is_known}"
                    )
                });
            }
        }
        if was_watching {
            self.watches.remove(&(connection, watch));
        }
    }

    /// Nobody listens to this request of a connection of a front end any more. Words that are on their way may still come.
    pub(crate) fn note_reset(&mut self, connection: usize, number: u32) {
        self.watches.remove(&(connection, number));
        self.connections[connection].asked_watches.remove(&number);
        self.connections[connection].reset.insert(number);
    }

    /// The newest word on a watched key.
    pub(super) fn hear_watch(&mut self, connection: usize, number: u32, event: &Event<'_>, now_ms: u64) {
        let lane = &self.lanes[self.connections[connection].lane];
        // It may have been on its way when the earlier connection was lost that asked for it.
        let was_asked = lane
            .asked
            .get(&number)
            .is_some_and(|request| matches!(self.requests[*request].operation, Operation::Watch { .. }));
        let is_late = was_asked && !self.connections[connection].asked_watches.contains(&number);
        if let Event::KeyHeld { fence, .. } = *event {
            self.connections[connection].heard.insert(Word::KeyHeld(number, fence));
        }
        let Some(view) = self.watches.get_mut(&(connection, number)) else {
            if !is_late {
                self.accuse("watch", || format!("connection {connection}: nobody asked {number}: {event:?}"));
            }
            return;
        };
        let before = *view;
        // The watch goes on behind dropped events. Each event that is dropped later is announced again.
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
        // Of what must be durable some may be held before others that got their fences first, or never.
        let is_prompt =
            self.settings.durability.is_none() || self.is_plain(before.key) && self.is_prompt(before.key);
        if !follows && is_prompt {
            return self
                .accuse("watch", || format!("{event:?} follows {before:?} on connection {connection}"));
        }
        if let Event::KeyFreed { fence } = *event {
            let still_held = self.holds.iter().find(|(id, hold)| {
                hold.key == before.key && hold.fence <= fence && self.surely_lives(**id, now_ms)
            });
            if let Some((id, _)) = still_held {
                let id = *id;
                self.accuse("watch", || {
                    format!("key {} is said to be free at {now_ms}, {id} is held", before.key)
                });
            }
        }
    }

    /// Whoever watches a key that is free for long knows it. `is_free` says so, and its fence.
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
                    "nobody holds key {}, and watch {number} of {connection} heard last {view:?}",
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

    /// Returns the rule that these events break for a watch that began when the key was held with fence 1.
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
    fn a_watch_hears_each_grant_in_order() {
        assert_eq!(heard(&[Event::KeyFreed { fence: 1 }, held(2)]), None);
        assert_eq!(heard(&[held(3)]), Some("watch"));
        assert_eq!(heard(&[Event::KeyFreed { fence: 2 }]), Some("watch"));
    }

    #[test]
    fn a_watch_goes_on_behind_dropped_events() {
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
    fn the_last_event_of_a_watch_says_whether_its_key_is_free() {
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
