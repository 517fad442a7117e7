//! Responses and events that the server must send within a bounded time, and holds and sessions that must end.
//!
//! A duty has a due time. Stalls of workers, and a client that does not read, postpone the duty. The loss of the connection
//! ends it.

use super::stalls::LEFT_US;
use super::{Auditor, RequestRecord};
use crate::key::Key;
use crate::operation::Operation;
use std::collections::BTreeMap;
use waymaker_protocol::{LockId, SessionId};
use waymaker_server::limits::{HOUSEKEEPING_MS, QUORUM_ANSWER_MS, QUORUM_ATTEMPT_MS, QUORUM_PROBE_MS};

/// Time between two checks of a duty if it is not clear yet whether the server owes it.
const AGAIN_US: u64 = 300_000;
/// Longest time for which a front end may delay an event or a response: its client does not read for a while,
/// and then housekeeping runs.
const FRONT_LATE_US: u64 = 1000 * HOUSEKEEPING_MS + 600_000;
/// Maximum number of rounds of all shards for a removal: a removal in progress goes first. Some shards check
/// a namespace over several turns, so each round counts twice.
const REMOVALS_IN_A_ROW: u32 = 4;
/// Longest time that running workers need for one such round.
const REMOVAL_US: u64 = 200_000;
/// Maximum number of checks of an unclear duty.
const LOOK_COUNT_MAX: u32 = 40;

/// An event that one connection must get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Word {
    Revoked(LockId),
    LeaseMoved(LockId, u32),
    TakenUp(u32, LockId),
    KeyHeld(u32, u64),
    SessionExpired,
}

/// A response, an event or an end that the server owes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Duty {
    /// The response to a request that arrived on this connection.
    Answer { connection: usize, request: usize },
    /// An event for a connection.
    Event { connection: usize, word: Word },
    /// The end of a hold with its own lease, reported to its lane.
    Expiry(LockId),
    /// The end of a session, reported to each of its connections.
    SessionEnd(SessionId),
    /// A reported count; the value is its index in `counts`.
    Count(usize),
    /// The response to a request of a visitor.
    Visit { connection: usize, number: u32 },
}

/// A reported count that is too low if more than `said` of these requests really waited at `at_ms`. A claim
/// with an unreported grant does not wait any more, which shows only later.
#[derive(Debug)]
struct OpenCount {
    requests: Vec<usize>,
    said: u64,
    at_ms: u64,
    text: String,
}

/// All open duties, by the time of their next check.
#[derive(Debug, Default)]
pub(crate) struct Duties {
    open: BTreeMap<(u64, u64), (u64, u32, Duty)>,
    count: u64,
    counts: Vec<Option<OpenCount>>,
}

/// Result of the check of a duty.
enum DutyState {
    /// The duty is fulfilled or void.
    Settled,
    /// Due at this time, in microseconds of the run.
    DueAt(u64),
    /// Unclear until a later check.
    Unclear,
}

impl Duties {
    fn add(&mut self, look_us: u64, due_us: u64, looks: u32, duty: Duty) {
        self.count += 1;
        self.open.insert((look_us, self.count), (due_us, looks, duty));
    }

    /// Drops all duties: the server has ended.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }
}

impl Auditor {
    /// Adds a duty that is due at `due_us`.
    pub(super) fn owe(&mut self, due_us: u64, duty: Duty) {
        self.duties.add(due_us + LEFT_US, due_us, 0, duty);
    }

    /// Adds the duty to send an event to the current connection of a lane, if the lane already had this
    /// connection at `since_ms`.
    pub(super) fn owe_event(&mut self, lane: usize, since_ms: u64, now_ms: u64, word: Word) {
        let Some(connection) = self.lanes[lane].connections.last().copied() else { return };
        let listener = &self.connections[connection];
        if !listener.is_lost && listener.welcome_ms.is_some_and(|welcome_ms| welcome_ms < since_ms) {
            self.owe(self.to_us(now_ms), Duty::Event { connection, word });
        }
    }

    /// Adds the duty to answer a request that has fully arrived.
    pub(super) fn owe_answer(&mut self, connection: usize, request: usize, now_ms: u64) {
        let due_ms = match self.requests[request].operation {
            Operation::Acquire(acquire) if acquire.wait_ms == u32::MAX => return,
            Operation::Acquire(acquire) => now_ms + u64::from(acquire.wait_ms),
            _ => now_ms,
        };
        self.owe(self.to_us(due_ms + 1), Duty::Answer { connection, request });
    }

    /// Adds the duty to answer a cancelled acquire on the connection that sent it. A connection that has
    /// resumed the lane since then gets the response only if it repeats the request.
    pub(super) fn owe_cancelled(&mut self, request: usize, now_ms: u64) {
        let RequestRecord { lane, connection, arrived_ms, sent_count, .. } = self.requests[request];
        let is_newest = self.lanes[lane].connections.last() == Some(&connection);
        if is_newest && arrived_ms.is_some() && sent_count == 1 {
            self.owe(self.to_us(now_ms), Duty::Answer { connection, request });
        }
    }

    /// Records a response that counted `said` waiters, or left room for only that many, while these requests
    /// seemed to wait.
    pub(super) fn expect_at_least(
        &mut self,
        requests: Vec<usize>,
        said: u64,
        at_ms: u64,
        text: impl FnOnce() -> String,
    ) {
        if requests.len() as u64 > said {
            let place = self.duties.counts.len();
            self.duties.counts.push(Some(OpenCount { requests, said, at_ms, text: text() }));
            self.owe(self.to_us(at_ms), Duty::Count(place));
        }
    }

    /// Rule `count`: no more requests waited than the response counted.
    fn find_count(&mut self, place: usize) -> DutyState {
        let Some(open) = self.duties.counts[place].take() else { return DutyState::Settled };
        let waited = |request: &&usize| {
            let record = &self.requests[**request];
            record.granted_ms.is_some_and(|granted_ms| granted_ms > open.at_ms) || record.is_timed_out
        };
        if open.requests.iter().filter(waited).count() as u64 > open.said {
            self.accuse("count", || {
                format!("{}; requests that may have waited: {:?}", open.text, open.requests)
            });
            return DutyState::Settled;
        }
        if open.requests.iter().all(|request| self.requests[*request].is_answered) {
            return DutyState::Settled;
        }
        self.duties.counts[place] = Some(open);
        DutyState::Unclear
    }

    /// Checks all duties whose check is due.
    pub(crate) fn look_at_duties(&mut self, now_us: u64) {
        while let Some(entry) = self.duties.open.first_entry().filter(|entry| entry.key().0 < now_us) {
            let (due_us, looks, duty) = entry.remove();
            let found = match duty {
                Duty::Answer { connection, request } => self.find_answer(connection, request, due_us),
                Duty::Event { connection, word } => self.find_event(connection, word, due_us),
                Duty::Expiry(id) => self.find_expiry(id),
                Duty::SessionEnd(id) => self.find_session_end(id),
                Duty::Count(place) => self.find_count(place),
                Duty::Visit { connection, number } => self.find_visit(connection, number, due_us),
            };
            match found {
                DutyState::Settled => {}
                DutyState::Unclear if looks < LOOK_COUNT_MAX || matches!(duty, Duty::SessionEnd(_)) => {
                    self.duties.add(now_us + AGAIN_US, due_us, looks + 1, duty);
                }
                DutyState::Unclear => {}
                DutyState::DueAt(due_us) => {
                    let latest_us = self.stalls.latest_us(due_us);
                    if now_us <= latest_us {
                        self.duties.add(latest_us, due_us, looks, duty);
                    } else {
                        self.accuse_of_silence(duty, due_us);
                    }
                }
            }
        }
    }

    /// Reports a duty that the server has not fulfilled in time.
    fn accuse_of_silence(&mut self, duty: Duty, due_us: u64) {
        let due_ms = self.settings.server_ms(due_us);
        match duty {
            Duty::Answer { request, .. } => {
                let text = format!("{:?}", self.requests[request]);
                self.accuse("late-answer", || {
                    format!("the response, due at {due_ms} ms, is missing: {text}")
                });
            }
            Duty::Event { connection, word } => {
                self.accuse("event", || {
                    format!("connection {connection} did not get the event {word:?}, due at {due_ms} ms")
                });
            }
            Duty::Expiry(id) => {
                let text = format!("{:?}", self.holds.get(&id));
                self.accuse("late-expiry", || {
                    format!("{id} ended at {due_ms} ms, but its lane got no event about it: {text}")
                });
            }
            Duty::Count(_) => {}
            Duty::Visit { connection, number } => {
                self.accuse("late-answer", || {
                    format!(
                        "the response to request {number} of the visitor on connection {connection}, due at {due_ms} ms, is missing"
                    )
                });
            }
            Duty::SessionEnd(id) => {
                let text = format!("{:?}", self.sessions.get(&id));
                self.accuse("late-session", || {
                    format!("the end of session {id}, due at {due_ms} ms, was not reported: {text}")
                });
            }
        }
    }

    /// Returns when a connection must have got an event or a response that was due at `due_us`.
    fn heard_from_us(&self, connection: usize, due_us: u64) -> DutyState {
        let listener = &self.connections[connection];
        if listener.is_lost {
            return DutyState::Settled;
        }
        if listener.is_clogged {
            return DutyState::Unclear;
        }
        // A worker writes records to the log when it serves the request.
        let left_ms = self.settings.server_ms(self.stalls.latest_us(due_us));
        if self.settings.log().is_some() && self.restarts.durable_ms() <= left_ms {
            return DutyState::Unclear;
        }
        let durable_us = self.restarts.durable_since_us(left_ms);
        let heard_us = due_us.max(listener.flows_from_us).max(durable_us);
        // A stream of a front end may be silent for a while.
        DutyState::DueAt(if listener.is_front {
            self.stalls.latest_us(heard_us) + FRONT_LATE_US
        } else {
            heard_us
        })
    }

    fn find_answer(&self, connection: usize, request: usize, due_us: u64) -> DutyState {
        let record = &self.requests[request];
        let is_answered = self.connections[connection].answered.contains(&record.number)
            || record.is_answered && record.sent_count == 1;
        if is_answered
            || self.is_session_over(record.lane)
            || self.is_unheard_request(connection, request)
            || self.is_behind_goodbye(connection, request)
        {
            return DutyState::Settled;
        }
        let Some(end_us) = self.wait_end_us(request) else { return DutyState::Unclear };
        // A cancelled acquire is due earlier.
        let due_us = if record.is_cancelled { due_us } else { due_us.max(end_us) };
        let is_counted = |(key, _): &(Key, bool)| self.keys.get(key).is_some_and(|key| key.is_counted_asked);
        let waits_for_cluster =
            matches!(record.operation, Operation::Acquire(acquire) if acquire.keys().iter().any(is_counted));
        let cluster_ms =
            if waits_for_cluster { QUORUM_ANSWER_MS + QUORUM_PROBE_MS + QUORUM_ATTEMPT_MS } else { 0 };
        match self.heard_from_us(connection, due_us + 1000 * cluster_ms) {
            // If the request took over a claim before that was durable, the response waits for the log once
            // more after the claim is durable.
            DutyState::DueAt(durable_us) if self.may_have_taken_over(request) => {
                self.heard_from_us(connection, durable_us)
            }
            found => found,
        }
    }

    /// Returns whether an acquire may have taken over the claim of another one.
    fn may_have_taken_over(&self, request: usize) -> bool {
        match self.requests[request].operation {
            Operation::Acquire(acquire) if acquire.request_id.is_some() => {
                let sent_ms = self.requests[request].sent_ms;
                let is_earlier = |other: usize| self.requests[other].first_sent_ms <= sent_ms;
                self.same_requests(request, &acquire).any(is_earlier)
            }
            _ => false,
        }
    }

    /// Returns the latest end of the wait of an acquire; `None` if it is unknown. An acquire that took over a
    /// waiter has the deadline of that waiter.
    fn wait_end_us(&self, request: usize) -> Option<u64> {
        let record = &self.requests[request];
        let Operation::Acquire(acquire) = record.operation else { return Some(0) };
        // A wait begins when a worker serves the request.
        let begun_ms = record.queued.map_or(u64::MAX, |(.., queued_ms)| queued_ms);
        let mut end_ms = self.latest_ms(record.arrived_ms?).min(begun_ms) + u64::from(acquire.wait_ms) + 1;
        if acquire.request_id.is_none() {
            return Some(self.to_us(end_ms));
        }
        for other in self.same_requests(request, &acquire) {
            let Operation::Acquire(earlier) = self.requests[other].operation else { continue };
            let arrived_ms = self.requests[other].arrived_ms?;
            if earlier.wait_ms == u32::MAX {
                return None;
            }
            end_ms = end_ms.max(self.latest_ms(arrived_ms) + 1 + u64::from(earlier.wait_ms));
        }
        Some(self.to_us(end_ms))
    }

    /// A removal may wait for the end of another one. All shards check for each of them, in turns of any
    /// worker.
    fn find_visit(&self, connection: usize, number: u32, due_us: u64) -> DutyState {
        if self.connections[connection].answered.contains(&number) {
            return DutyState::Settled;
        }
        let due_us =
            (0..REMOVALS_IN_A_ROW).fold(due_us, |at_us, _| self.stalls.latest_us(at_us) + REMOVAL_US);
        self.heard_from_us(connection, due_us)
    }

    fn find_event(&self, connection: usize, word: Word, due_us: u64) -> DutyState {
        let listener = &self.connections[connection];
        let is_over = word != Word::SessionExpired && self.is_session_over(listener.lane)
            || matches!(word, Word::KeyHeld(number, _) if !self.hears_each_grant(connection, number));
        if is_over || listener.heard.contains(&word) || self.is_unheard_word(connection, word) {
            return DutyState::Settled;
        }
        self.heard_from_us(connection, due_us)
    }

    /// Rule `late-expiry`: a hold ends with its lease, and its lane gets the event.
    fn find_expiry(&self, id: LockId) -> DutyState {
        let Some(hold) = self.holds.get(&id) else { return DutyState::Settled };
        if hold.over_ms.is_some() || hold.session.is_some() || hold.was_repeated {
            return DutyState::Settled;
        }
        let lane = &self.lanes[hold.lane];
        let Some(connection) = lane.connections.last().copied() else { return DutyState::Settled };
        let end_us = self.to_us(hold.lease_end_ms.max(hold.late_ms));
        if hold.may_have_moved
            || self.lane_end_of(hold) < hold.lease_end_ms.max(hold.late_ms)
            || self.connections[connection].is_lost
            || self.connections[connection].welcome_ms.is_none_or(|at_ms| at_ms >= hold.lease_end_ms)
            || self.is_session_over(hold.lane)
            || !self.is_followed(hold)
        {
            return DutyState::Settled;
        }
        let is_open = !hold.may_move.is_empty() || hold.lease_is_open;
        if is_open || hold.may_end_ms < u64::MAX {
            return DutyState::Unclear;
        }
        self.heard_from_us(connection, end_us)
    }

    /// Returns whether the current connection of a lane belongs to a front end.
    pub(super) fn is_front(&self, lane: usize) -> bool {
        self.lanes[lane].connections.last().is_some_and(|last| self.connections[*last].is_front)
    }

    /// Returns whether the session of a lane has ended, or may end at any time.
    pub(super) fn is_session_over(&self, lane: usize) -> bool {
        self.lanes[lane].session.and_then(|id| self.sessions.get(&id)).is_some_and(|session| {
            session.over_ms().is_some()
                || self.lanes[lane].session.is_some_and(|id| self.goodbye_ms(id) < u64::MAX)
        })
    }

    fn find_session_end(&self, id: SessionId) -> DutyState {
        let Some(session) = self.sessions.get(&id) else { return DutyState::Settled };
        let connections = self.connections_of(id);
        if session.over_ms().is_some() || self.goodbye_ms(id) < u64::MAX {
            return DutyState::Settled;
        }
        if connections.is_empty() {
            return DutyState::Unclear;
        }
        let latest = connections
            .iter()
            .map(|connection| self.heard_from_us(*connection, self.to_us(session.ceiling_ms())));
        let mut due_us = 0;
        for found in latest {
            match found {
                DutyState::DueAt(at_us) => due_us = due_us.max(at_us),
                DutyState::Unclear => return DutyState::Unclear,
                DutyState::Settled => {}
            }
        }
        DutyState::DueAt(due_us)
    }

    /// Converts an instant of the server's clock to microseconds of the run.
    pub(super) fn to_us(&self, at_ms: u64) -> u64 {
        at_ms.saturating_sub(self.settings.start_ms).saturating_mul(1000)
    }
}

#[cfg(test)]
mod tests {
    use crate::auditor::Auditor;
    use crate::auditor::scene::{ACQUIRE, asks, auditor, granted, id_of, rule, says, says_granted};
    use crate::operation::{Acquire, Operation};
    use waymaker_engine::Scope;
    use waymaker_protocol::{Event, Granted, Released, Response};

    const FREE: Acquire = Acquire { request_id: None, release_after_ms: None, ..ACQUIRE };

    fn auditor_without_log() -> Auditor {
        let mut auditor = auditor();
        auditor.settings.durability = None;
        auditor
    }

    /// Returns the rule that is broken if an acquire with a wait of 100 ms has no response `after_ms` after
    /// it was sent.
    fn unanswered_after(after_ms: u64) -> Option<&'static str> {
        let mut auditor = auditor_without_log();
        let start_ms = auditor.settings.start_ms;
        asks(&mut auditor, 0, Acquire { wait_ms: 100, ..FREE }, start_ms);
        auditor.arrived(0, 0, start_ms);
        auditor.look_at_duties(1000 * after_ms);
        rule(&auditor)
    }

    #[test]
    fn a_wait_is_answered_at_its_end_or_shortly_after() {
        assert_eq!(unanswered_after(190), None);
        assert_eq!(unanswered_after(260), Some("late-answer"));
    }

    /// Returns the rule that is broken if an acquire has no response for 600 ms, and the log makes no records
    /// durable after 150 ms. Another acquire, with this request id, came just before.
    fn unanswered_behind(request_id: u8) -> Option<&'static str> {
        let mut auditor = auditor();
        let start_ms = auditor.settings.start_ms;
        let first = Acquire { request_id: Some(request_id), scope: Scope::Local, ..FREE };
        auditor.asks(0, 1, Operation::Acquire(first), 0, start_ms);
        auditor.requests[0].is_answered = true;
        let again = Acquire { request_id: Some(7), ..first };
        auditor.asks(0, 2, Operation::Acquire(again), 1, start_ms + 1);
        auditor.arrived(0, 1, start_ms + 1);
        auditor.note_durable(start_ms + 149, 150_000);
        auditor.look_at_duties(600_000);
        rule(&auditor)
    }

    #[test]
    fn an_acquire_that_took_over_a_claim_waits_for_the_log_twice() {
        assert_eq!(unanswered_behind(7), None);
        assert_eq!(unanswered_behind(8), Some("late-answer"));
    }

    #[test]
    fn a_stall_postpones_the_end_of_a_wait() {
        let mut auditor = auditor_without_log();
        let start_ms = auditor.settings.start_ms;
        asks(&mut auditor, 0, Acquire { wait_ms: 100, ..FREE }, start_ms);
        auditor.arrived(0, 0, start_ms);
        auditor.note_stall(90_000, 300_000);
        auditor.look_at_duties(260_000);
        assert_eq!(rule(&auditor), None);
    }

    /// Returns the rule that is broken if a hold with a lease of 700 ms has ended. `hears` says whether its lane
    /// got the event.
    fn after_a_lease(hears: bool) -> Option<&'static str> {
        let mut auditor = auditor_without_log();
        let start_ms = auditor.settings.start_ms;
        auditor.connections[0].welcome_ms = Some(start_ms);
        asks(&mut auditor, 0, FREE, start_ms + 1);
        says_granted(&mut auditor, 0, granted(1, start_ms + 2));
        if hears {
            says(&mut auditor, 0, 0, &Response::Event(Event::Expired { id: id_of(1) }), start_ms + 703);
        }
        auditor.look_at_duties(1_000_000);
        rule(&auditor)
    }

    #[test]
    fn a_lane_gets_the_expiry_of_its_hold() {
        assert_eq!(after_a_lease(true), None);
        assert_eq!(after_a_lease(false), Some("late-expiry"));
    }

    #[test]
    fn a_lane_gets_the_release_of_its_hold_by_another_lane() {
        let mut auditor = auditor_without_log();
        let start_ms = auditor.settings.start_ms;
        auditor.connections[0].welcome_ms = Some(start_ms);
        asks(&mut auditor, 0, FREE, start_ms + 1);
        says_granted(&mut auditor, 0, Granted { remaining_ms: 700, ..granted(1, start_ms + 2) });
        auditor.asks(2, 7, Operation::Release { id: id_of(1), forged: false, own: false }, 0, start_ms + 5);
        says(&mut auditor, 2, 7, &Response::Released(Released { was_waiting: false }), start_ms + 6);
        auditor.look_at_duties(40_000);
        assert_eq!(rule(&auditor), None);
        auditor.look_at_duties(100_000);
        assert_eq!(rule(&auditor), Some("event"));
    }
}
