//! Rule `watcher`: a watch of a real client shows the newest state of its key that its process has read, and
//! lasts until it is dropped.

use super::Auditor;
use crate::key::Key;
use crate::operation::Operation;
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::{ErrorCode, Event, Response};

/// News about a watched key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WatchNews {
    /// New state of the key.
    State { number: u32, key: Option<Key>, state: WatchState },
    /// The watch with this number has ended.
    Over { number: u32 },
}

/// State of a watched key: whether it is held, its fence, and the newest holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchState {
    pub(crate) is_held: bool,
    pub(crate) fence: u64,
    /// Mode and owner of the newest holder; `None` if the watch began while the key was held.
    pub(crate) holder: Option<(bool, Vec<u8>)>,
}

impl WatchNews {
    /// Returns the news about a watched key in this response.
    pub(super) fn of(number: u32, operation: Option<Operation>, response: &Response<'_>) -> Option<Self> {
        let state = |key, is_held, fence, holder| {
            Some(Self::State { number, key, state: WatchState { is_held, fence, holder } })
        };
        match (operation, response) {
            (Some(Operation::Watch { key }), Response::Watching(watching)) => {
                state(Some(key), watching.holder_count > 0, watching.fence, None)
            }
            (Some(Operation::Unwatch { watch, .. }), Response::Unwatched(_)) => {
                Some(Self::Over { number: watch })
            }
            (_, Response::Event(Event::KeyHeld { fence, shared, owner })) => {
                state(None, true, *fence, Some((*shared, owner.to_vec())))
            }
            (_, Response::Event(Event::KeyFreed { fence })) => state(None, false, *fence, None),
            (_, Response::Event(Event::Overrun)) => Some(Self::Over { number }),
            _ => None,
        }
    }
}

/// Watches that the server has for one process, as far as the process knows.
#[derive(Debug, Default)]
pub(super) struct ProcessWatches {
    /// ProcessWatches keys and their states, by lane and number.
    states: BTreeMap<(usize, u32), (Key, WatchState)>,
}

impl ProcessWatches {
    pub(super) fn note(&mut self, lane: usize, news: WatchNews) {
        match news {
            WatchNews::State { number, key: Some(key), state } => {
                self.states.insert((lane, number), (key, state));
            }
            WatchNews::State { number, key: None, state } => {
                if let Some((_, known)) = self.states.get_mut(&(lane, number)) {
                    *known = state;
                }
            }
            WatchNews::Over { number } => {
                self.states.remove(&(lane, number));
            }
        }
    }

    /// Drops the watches of a lane, which end with its connection.
    pub(super) fn forget(&mut self, lane: usize) {
        self.states.retain(|(other, _), _| *other != lane);
    }

    /// Returns the newest watch of a key.
    fn newest(&self, lane: usize, key: Key) -> Option<&WatchState> {
        let of_lane = self.states.range((lane, 0)..=(lane, u32::MAX)).rev();
        of_lane.map(|(_, (of, state))| (*of, state)).find(|(of, _)| *of == key).map(|(_, state)| state)
    }
}

impl Auditor {
    /// Rule `watcher`: checks all watches of a process. `shown` has the newest state that each watch shows,
    /// by key. The lane has sent all requests that are due.
    pub(crate) fn judge_watches_of(
        &mut self,
        process: usize,
        lane: usize,
        shown: &BTreeMap<Key, Option<WatchState>>,
    ) {
        // A stopping server has no watches.
        if !self.has_room(process, lane) || self.is_stopping() || self.has_read_of_stop(process, lane) {
            return;
        }
        let (mut begun, mut ended) = (BTreeSet::new(), BTreeSet::new());
        for operation in self.unanswered(process, lane) {
            match operation {
                Operation::Watch { key } => drop(begun.insert(key)),
                Operation::Unwatch { watch, .. } => drop(ended.insert(watch)),
                _ => {}
            }
        }
        let Some(watched) = self.readers.watched_by(process) else { return };
        let left = watched.states.iter().find(|((of, number), (key, _))| {
            *of == lane && !ended.contains(number) && !shown.contains_key(key)
        });
        let left = left.map(|(name, _)| {
            format!(
                "process {process} has dropped its watch, but does not end it at the server; (lane, request): {name:?}"
            )
        });
        let settled = shown.iter().filter(|(key, _)| !begun.contains(key));
        let wrong = settled.into_iter().find_map(|(key, shown)| match (watched.newest(lane, *key), shown) {
            (None, _) => {
                Some(format!(
                    "process {process} has a watch of key {key} that the server does not have, and shows {shown:?}"
                ))
            }
            (Some(state), Some(shown)) if !shown.is_as_good_as(state) => {
                Some(format!("process {process} shows {shown:?} for key {key}, but has read {state:?}"))
            }
            (Some(state), None) => {
                Some(format!("process {process} shows no state of key {key}, but has read {state:?}"))
            }
            _ => None,
        });
        if let Some(problem) = left.or(wrong) {
            self.accuse("watcher", || problem);
        }
    }

    /// Rule `watcher`: a watch ends by itself only if the server refused to watch the key again.
    pub(crate) fn judge_end_of_watch(&mut self, process: usize, since_us: u64) {
        let codes = [ErrorCode::Overloaded, ErrorCode::BadInput, ErrorCode::Unauthorized];
        if !self.has_heard_refusal(process, &codes, since_us) {
            self.accuse("watcher", || {
                format!(
                    "a watch of process {process} ended without a drop and without a refusal of the server"
                )
            });
        }
    }
}

impl WatchState {
    /// Returns whether a watch that shows this state knows everything in `read`.
    fn is_as_good_as(&self, read: &Self) -> bool {
        (self.is_held, self.fence) == (read.is_held, read.fence)
            && (read.holder.is_none() || self.holder == read.holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auditor::scene::{auditor, rule, says};
    use waymaker_protocol::Watching;

    const PROCESS: usize = 7;
    const CONNECTION: usize = 3;
    const LANE: usize = 3;
    /// More bytes than the server ever sends.
    const ALL: usize = 1 << 40;
    const KEY: Key = 0;

    /// Returns an auditor with a process that watches a free key.
    fn watching() -> Auditor {
        let mut auditor = auditor();
        let lane = auditor.new_lane_of_process(3, PROCESS);
        auditor.open(lane, false);
        auditor.asks(CONNECTION, 1, Operation::Watch { key: KEY }, 0, 100);
        let free = Watching { fence: 0, stamp_ms: 100, holder_count: 0, waiter_count: 0 };
        says(&mut auditor, CONNECTION, 1, &Response::Watching(free), 100);
        auditor.note_heard(CONNECTION, ALL, 100_000);
        auditor.violation = None;
        auditor
    }

    fn shows(auditor: &mut Auditor, shown: &[(bool, u64)]) {
        let state = |(is_held, fence): &(bool, u64)| {
            (KEY, Some(WatchState { is_held: *is_held, fence: *fence, holder: None }))
        };
        auditor.judge_watches_of(PROCESS, LANE, &shown.iter().map(state).collect());
    }

    #[test]
    fn a_watch_shows_the_newest_state_that_was_read() {
        let mut auditor = watching();
        shows(&mut auditor, &[(false, 0)]);
        assert_eq!(auditor.violation(), None);
        shows(&mut auditor, &[(true, 0)]);
        assert_eq!(rule(&auditor), Some("watcher"));
    }

    #[test]
    fn a_watch_with_dropped_events_is_requested_again() {
        let mut auditor = watching();
        says(&mut auditor, CONNECTION, 1, &Response::Event(Event::Overrun), 110);
        auditor.note_heard(CONNECTION, 1, 111_000);
        auditor.violation = None;
        auditor.asks(CONNECTION, 2, Operation::Watch { key: KEY }, 0, 111);
        shows(&mut auditor, &[(false, 0)]);
        assert_eq!(auditor.violation(), None);
        auditor.note_greeting(LANE);
        shows(&mut auditor, &[(false, 0)]);
        assert_eq!(rule(&auditor), Some("watcher"));
    }

    #[test]
    fn a_dropped_watch_ends_at_the_server() {
        let mut auditor = watching();
        auditor.asks(CONNECTION, 2, Operation::Unwatch { watch: 1, key: KEY }, 0, 120);
        shows(&mut auditor, &[]);
        assert_eq!(auditor.violation(), None);
        let mut auditor = watching();
        shows(&mut auditor, &[]);
        assert_eq!(rule(&auditor), Some("watcher"));
    }
}
