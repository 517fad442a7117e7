//! Rules about the responses that real clients have read, and about their consequences for guards.
//!
//! A client reads fewer frames than the server sends, and reads them later. So these rules compare a guard with the responses
//! that its process has read, in their order. The local deadline of a guard is no later than the newest of them allows, and a
//! guard does not report a hold whose end its process has read. A lost guard has the reason that the responses gave.

use super::Auditor;
use super::guards::GuardView;
use super::lease_words::{LeaseWord, LeaseWords};
use super::news::News;
use super::watchers::ProcessWatches;
use crate::form::Form;
use crate::operation::{MADE_UP_REQUEST_ID, Operation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use waymaker_client::LossReason;
use waymaker_protocol::{ErrorCode, LockId, RevokeReason};

/// Loss reason of a hold that ends with its connection, if the session has ended.
pub(super) const SESSION_LOST: LossReason = LossReason::Revoked(RevokeReason::ConnectionLost);

/// Loss reason of a hold that was released by its id.
const RELEASED_BY_ID: LossReason = LossReason::Revoked(RevokeReason::ReleasedElsewhere);

/// Responses that one process has read.
#[derive(Debug, Default)]
struct Reader {
    leases: LeaseWords,
    /// Time of the newest WELCOME of each lane.
    welcome_ms: BTreeMap<usize, u64>,
    /// Time of the newest request whose response contains the time of its decision, by lane.
    anchors: BTreeMap<usize, u64>,
    /// Time of the newest refusal of a request about each hold.
    not_moved_us: BTreeMap<LockId, u64>,
    clamped: BTreeMap<LockId, bool>,
    /// Remaining leases in responses to extends.
    extended: BTreeSet<(LockId, u32)>,
    /// Holds that the process has released.
    released: BTreeSet<LockId>,
    /// Released holds that a crash may have brought back.
    may_be_back: BTreeSet<LockId>,
    places: BTreeSet<(LockId, u32, u64)>,
    pub(super) watched: ProcessWatches,
    /// Time at which a lease of each hold was last read.
    lease_read_us: BTreeMap<LockId, u64>,
    /// Latest end of the session, by lane.
    sessions: BTreeMap<usize, u64>,
    over: BTreeMap<LockId, Vec<(LossReason, Box<str>)>>,
    /// Newest refusal with each code, by lane.
    refused: Vec<(usize, ErrorCode, u64)>,
    /// Requests of each lane that have no response and do not wait in a queue.
    in_flight: BTreeMap<usize, BTreeSet<u32>>,
    /// Time at which a session of the process last ended.
    session_over_us: Option<u64>,
}

/// Responses that all real clients have read.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// Readers by process.
    readers: BTreeMap<usize, Reader>,
    /// Unread news by connection, each with the stream offset of its last byte.
    pub(super) unread: BTreeMap<usize, VecDeque<(u64, News)>>,
    read_counts: BTreeMap<usize, u64>,
}

impl Readers {
    fn reader(&mut self, process: usize) -> &mut Reader {
        self.readers.entry(process).or_default()
    }

    /// Returns the watches that the server has for a process.
    pub(super) fn watched_by(&self, process: usize) -> Option<&ProcessWatches> {
        self.readers.get(&process).map(|reader| &reader.watched)
    }

    /// Records that a crash may have brought back holds whose end was reported.
    pub(super) fn forget_ends(&mut self) {
        for reader in self.readers.values_mut() {
            reader.over.clear();
            reader.may_be_back.extend(&reader.released);
        }
    }
}

impl Reader {
    fn note(&mut self, lane: usize, news: News, now_us: u64) {
        match news {
            News::Settled { number } => {
                self.in_flight.entry(lane).or_default().remove(&number);
            }
            News::Lease { id, word, sent_ms } => {
                self.lease_read_us.insert(id, now_us);
                let is_first = self.anchors.get(&lane).is_none_or(|anchor_ms| *anchor_ms < sent_ms);
                self.leases.note(lane, id, word, sent_ms, is_first);
            }
            News::Anchor { sent_ms } => {
                let newest = self.anchors.entry(lane).or_default();
                *newest = sent_ms.max(*newest);
            }
            News::Clamped { id, is_clamped } => {
                self.clamped.insert(id, is_clamped);
            }
            News::Extended { id, remaining_ms } => {
                self.extended.insert((id, remaining_ms));
            }
            News::Released { id } => {
                self.released.insert(id);
                self.may_be_back.remove(&id);
            }
            News::Place { id, position, ticket } => {
                self.places.insert((id, position, ticket));
            }
            News::NotMoved { id } => {
                self.leases.forget_floor(id);
                self.not_moved_us.insert(id, now_us);
            }
            News::Watch(news) => self.watched.note(lane, news),
            News::Session { end_ms } => {
                let known = self.sessions.entry(lane).or_default();
                *known = end_ms.max(*known);
            }
            News::Over { id, reason, message } => self.over.entry(id).or_default().push((reason, message)),
            News::Refused { code } => {
                self.refused.retain(|(other, known, _)| (*other, *known) != (lane, code));
                self.refused.push((lane, code, now_us));
            }
            News::Welcome => {}
            News::SessionOver => self.session_over_us = Some(now_us),
        }
    }
}

impl Auditor {
    /// Records that a real client has read `count` more bytes of a connection.
    pub(crate) fn note_heard(&mut self, connection: usize, count: usize, now_us: u64) {
        let lane = self.connections[connection].lane;
        let process = self.lanes[lane].process;
        let read = self.readers.read_counts.entry(connection).or_default();
        *read += count as u64;
        let read = *read;
        while let Some(unread) = self.readers.unread.get_mut(&connection)
            && let Some((_, mut news)) = unread.pop_front_if(|(end, _)| *end <= read)
        {
            if news == News::Welcome {
                let now_ms = self.settings.server_ms(now_us);
                self.readers.reader(process).welcome_ms.insert(lane, now_ms);
                news = News::Anchor { sent_ms: now_ms + 1 };
            }
            if let News::Lease { id, word, .. } = &mut news {
                let extends = |operation| matches!(operation, Operation::Extend { id: of, .. } if of == *id);
                word.is_fresh &= !self.unanswered(process, lane).any(extends);
            }
            self.readers.reader(process).note(lane, news, now_us);
        }
    }

    /// Records that a real client sends HELLO. After WELCOME it repeats unanswered requests, but not all
    /// kinds of them.
    pub(super) fn note_greeting(&mut self, lane: usize) {
        let process = self.lanes[lane].process;
        let reader = self.readers.reader(process);
        reader.in_flight.remove(&lane);
        reader.anchors.remove(&lane);
        reader.watched.forget(lane);
    }

    /// Returns the operations of this lane that have no response and do not wait in a queue, as far as its
    /// process knows.
    pub(super) fn unanswered(&self, process: usize, lane: usize) -> impl Iterator<Item = Operation> {
        let numbers = self.readers.readers.get(&process).and_then(|reader| reader.in_flight.get(&lane));
        let requests = &self.lanes[lane].requests;
        numbers
            .into_iter()
            .flatten()
            .filter_map(|number| Some(self.requests[*requests.get(number)?].operation))
    }

    /// Returns whether this lane can surely send one more request at once. While requests from before the
    /// connection are unanswered, the lane may have used later numbers that no connection has carried.
    pub(super) fn has_room(&self, process: usize, lane: usize) -> bool {
        let Some(plan) = &self.settings.processes else { return true };
        let Some(reader) = self.readers.readers.get(&process) else { return true };
        let Some(numbers) = reader.in_flight.get(&lane) else { return true };
        let Some(first) = numbers.first() else { return true };
        let requests = &self.lanes[lane].requests;
        let first_sent_ms = requests.get(first).map_or(0, |request| self.requests[*request].first_sent_ms);
        if reader.welcome_ms.get(&lane).is_some_and(|welcome_ms| first_sent_ms <= *welcome_ms) {
            return false;
        }
        let newest = requests.range(..u32::MAX / 2).next_back().map_or(0, |(number, _)| *number);
        let max = plan.in_flight_max.max(2);
        numbers.len() < max as usize && newest + 1 < first + max
    }

    /// Returns whether the server has refused a request of this lane on its current connection because the
    /// server is stopping.
    pub(super) fn has_read_of_stop(&self, process: usize, lane: usize) -> bool {
        let Some(reader) = self.readers.readers.get(&process) else { return false };
        let welcome_ms = reader.welcome_ms.get(&lane).copied().unwrap_or(0);
        reader.refused.iter().any(|(of, code, at_us)| {
            *of == lane && *code == ErrorCode::Shutdown && self.settings.server_ms(*at_us) >= welcome_ms
        })
    }

    /// Returns the newest lease of a hold that this process has read.
    pub(super) fn lease_word(&self, process: usize, id: LockId) -> Option<LeaseWord> {
        self.readers.readers.get(&process)?.leases.newest(id)
    }

    /// Returns the earliest local deadline that the guard of this hold may have.
    pub(super) fn belief_floor_ms(&self, process: usize, id: LockId) -> Option<u64> {
        self.readers.readers.get(&process)?.leases.floor_ms(id)
    }

    /// Returns when this process last read a refusal of a request about this hold.
    pub(super) fn not_moved_us(&self, process: usize, id: LockId) -> u64 {
        let reader = self.readers.readers.get(&process);
        reader.and_then(|reader| reader.not_moved_us.get(&id)).copied().unwrap_or(0)
    }

    /// Records that a caller of a process moves the end of a lease.
    pub(crate) fn note_extend_of(&mut self, process: usize, id: LockId, now_us: u64) {
        let now_ms = self.settings.server_ms(now_us);
        self.note_extend_call(id);
        self.readers.reader(process).leases.note_extend_call(id, now_ms);
    }

    /// Rule `told`: a caller gets a queue position and a ticket that the server sent.
    pub(crate) fn judge_place(&mut self, process: usize, id: LockId, position: u32, ticket: u64) {
        if !self.readers.reader(process).places.contains(&(id, position, ticket)) {
            self.accuse("told", || {
                format!(
                    "process {process} reports that {id} waits at position {position} with ticket {ticket}, which no QUEUED event contains"
                )
            });
        }
    }

    /// Rule `told`: the caller of an extend gets a remaining time that the server sent.
    pub(crate) fn judge_extended(&mut self, process: usize, id: LockId, remaining: Duration) {
        let remaining_ms = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX);
        let is_told = u32::try_from(remaining_ms)
            .is_ok_and(|remaining_ms| self.readers.reader(process).extended.contains(&(id, remaining_ms)));
        if !is_told {
            self.accuse("told", || {
                format!(
                    "process {process} reports that {id} lasts for {remaining_ms} ms, which no response to an extend contains"
                )
            });
        }
    }

    /// Rule `told`: a guard shows the fence, mode, lease and clamping that the server sent.
    pub(super) fn judge_guard_shown(&mut self, process: usize, view: &GuardView) {
        let reader = self.readers.reader(process);
        let is_clamped = reader.clamped.get(&view.id).copied();
        let lengths = reader.leases.lengths(view.id);
        let is_length = reader.leases.may_show(view.id, view.lease_ms.unwrap_or(u32::MAX));
        let Some(hold) = self.holds.get(&view.id) else { return };
        let is_right = hold.fence == view.fence
            && (hold.shared == view.is_shared || matches!(hold.form, Form::Paths(_)))
            && (view.is_on_session || hold.request_id.is_some() || is_length)
            && is_clamped.is_none_or(|is_clamped| is_clamped == view.is_clamped);
        if !is_right {
            let hold = format!("{hold:?}");
            self.accuse("told", || {
                format!(
                    "process {process} shows {view:?}, but the server sent clamped {is_clamped:?} and the newest leases {lengths:?} ms for {hold}"
                )
            });
        }
    }

    /// Rule `window`: a real client never has more unanswered requests than the server allows, and no number
    /// runs ahead of an unanswered one by more than that.
    pub(super) fn judge_window(&mut self, connection: usize, number: u32, is_new: bool) {
        let lane = self.connections[connection].lane;
        let max = self.settings.processes.as_ref().map_or(u32::MAX, |plan| plan.in_flight_max.max(2));
        let process = self.lanes[lane].process;
        let in_flight = self.readers.reader(process).in_flight.entry(lane).or_default();
        in_flight.insert(number);
        let (count, first) = (in_flight.len(), in_flight.first().copied().unwrap_or(number));
        if is_new && (count > max as usize || number.saturating_sub(first) >= max) {
            self.accuse("window", || {
                format!(
                    "lane {lane} sends request {number} as one of {count} unanswered requests, the oldest being {first}; the limit is {max}"
                )
            });
        }
    }

    /// Records that a real client asks for the status of a hold, or for another lease.
    pub(super) fn note_asked_behind(&mut self, lane: usize, number: u32, id: LockId) {
        self.readers.reader(self.lanes[lane].process).leases.note_asked(lane, number, id);
    }

    /// Returns whether a lane of this process has read a refusal with one of these codes since `since_us`.
    pub(crate) fn has_heard_refusal(&self, process: usize, codes: &[ErrorCode], since_us: u64) -> bool {
        let Some(reader) = self.readers.readers.get(&process) else { return false };
        reader.refused.iter().any(|(_, code, at_us)| codes.contains(code) && *at_us >= since_us)
    }

    /// Returns whether this process has read any refusal since `since_us`.
    pub(super) fn has_heard_any_refusal(&self, process: usize, since_us: u64) -> bool {
        let Some(reader) = self.readers.readers.get(&process) else { return false };
        reader.refused.iter().any(|(_, _, at_us)| *at_us >= since_us)
    }

    /// Returns whether a session of this process has ended since `since_us`, as far as the process knows.
    pub(crate) fn has_heard_session_end(&self, process: usize, since_us: u64) -> bool {
        let ended_us = self.readers.readers.get(&process).and_then(|reader| reader.session_over_us);
        ended_us.is_some_and(|ended_us| ended_us >= since_us)
    }

    /// Rules `guard` and `last-word`: a guard reports that it holds its lock. Then no response that its process
    /// has read ended the hold, and the guard's deadline is not after the end of the newest lease that it read.
    pub(super) fn judge_by_heard(&mut self, process: usize, view: &GuardView) {
        let reader = self.readers.reader(process);
        let is_end = |reason: &LossReason| matches!(reason, LossReason::Expired | LossReason::Revoked(_));
        let end = (reader.over.get(&view.id))
            .and_then(|reasons| reasons.iter().map(|(reason, _)| *reason).find(is_end));
        let end_ms = if view.is_on_session {
            reader.sessions.get(&view.lane).copied().unwrap_or(0)
        } else {
            reader.leases.newest(view.id).map_or(0, |word| word.end_ms)
        };
        let is_released = reader.released.contains(&view.id)
            && !reader.may_be_back.contains(&view.id)
            && self.guards.is_released_by_id(view.id);
        let end = end.or_else(|| is_released.then_some(RELEASED_BY_ID));
        if let Some(reason) = end {
            self.accuse("guard", || {
                format!(
                    "process {process} has read that {} has ended, but its guard still reports that it holds: {reason:?}",
                    view.id
                )
            });
        }
        if end_ms != u64::MAX && view.until_us > self.end_us(end_ms) {
            self.accuse("last-word", || {
                format!(
                    "a guard of process {process} has the state {view:?}, but the newest lease that the process has read ends at {end_ms} ms"
                )
            });
        }
    }

    /// Rule `loss-reason`: a guard is lost for the reason that its process has read. `believed_us` is its
    /// local deadline before the loss.
    pub(crate) fn judge_loss(
        &mut self,
        process: usize,
        id: LockId,
        (reason, message): (LossReason, &str),
        believed_us: u64,
        now_us: u64,
    ) {
        let reader = self.readers.reader(process);
        let reported = reader.over.get(&id).into_iter().flatten().filter(|(reported, _)| *reported == reason);
        let messages: Vec<&str> = reported.map(|(_, message)| &**message).collect();
        let is_told = !messages.is_empty();
        let is_released = reason == RELEASED_BY_ID && reader.released.contains(&id);
        if !(messages.contains(&message)
            || message.is_empty() && (!is_told || is_released || reason == SESSION_LOST))
        {
            let messages = format!("{messages:?}");
            return self.accuse("loss-reason", || {
                format!(
                    "process {process} lost its guard of {id} by {reason:?} with the message {message:?}; the server sent {messages}"
                )
            });
        }
        let reader = self.readers.reader(process);
        let is_fair = match reason {
            // A new lease may have moved the deadline back.
            LossReason::LocalDeadline => {
                believed_us <= now_us || reader.lease_read_us.get(&id).is_some_and(|at_us| *at_us == now_us)
            }
            LossReason::SessionExpired => is_told || reader.session_over_us.is_some(),
            RELEASED_BY_ID => is_told || is_released,
            SESSION_LOST => is_told || reader.session_over_us.is_some(),
            LossReason::Released => false,
            _ => is_told,
        };
        if !is_fair {
            self.accuse("loss-reason", || {
                format!(
                    "process {process} lost its guard of {id} at {now_us} us by {reason:?}, which no response explains; its local deadline was {believed_us} us"
                )
            });
        }
    }

    /// Rule `forgotten`: a client does not release a hold whose guard the program left without a release. The
    /// exceptions are that another acquire may have found the hold, or that a caller has released it by its
    /// id.
    pub(super) fn judge_release_of_forgotten(&mut self, lane: usize, id: LockId) {
        let Some(hold) = self.holds.get(&id) else { return };
        let is_shared_id = hold.request_id.is_some_and(|number| number < MADE_UP_REQUEST_ID);
        let may_release = is_shared_id || self.guards.is_released_by_id(id);
        if self.guards.is_real(lane) && self.guards.is_forgotten(id, self.restarts.count) && !may_release {
            self.accuse("forgotten", || {
                format!(
                    "lane {lane} releases {id}, but the program left the guard of this hold without a release"
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auditor::scene::{
        ALL, CONNECTION, PROCESS, granted_to_process, guard_view, id_of, rule, says,
    };
    use waymaker_protocol::{Event, Extended, Response};

    fn believes(auditor: &mut Auditor, until_ms: u64, now_ms: u64) {
        auditor.note_guards(PROCESS, &[guard_view(until_ms)], now_ms * 1000);
    }

    #[test]
    fn no_deadline_is_later_than_the_newest_lease_that_was_read() {
        let mut auditor = granted_to_process();
        auditor.note_heard(CONNECTION, ALL, 100_000);
        believes(&mut auditor, 800, 110);
        assert_eq!(auditor.violation(), None);
        let extend = Operation::Extend { id: id_of(1), lease_ms: 100, own: false };
        auditor.asks(0, 9, extend, 0, 120);
        let moved = Event::LeaseMoved { id: id_of(1), remaining_ms: 100, stamp_ms: 150 };
        says(&mut auditor, CONNECTION, 0, &Response::Event(moved), 150);
        believes(&mut auditor, 800, 155);
        assert_eq!(auditor.violation(), None, "the event is not read yet");
        auditor.note_heard(CONNECTION, 1, 160_000);
        believes(&mut auditor, 800, 160);
        assert_eq!(rule(&auditor), Some("last-word"));
    }

    /// Another client shortens a lease to 100 ms. In the same millisecond the process extends it to 500 ms,
    /// before or after it has read the event.
    fn extended_beside_another(is_behind: bool) -> Auditor {
        let mut auditor = granted_to_process();
        auditor.note_heard(CONNECTION, ALL, 100_000);
        auditor.asks(0, 9, Operation::Extend { id: id_of(1), lease_ms: 100, own: false }, 0, 150);
        let extend = Operation::Extend { id: id_of(1), lease_ms: 500, own: false };
        if !is_behind {
            auditor.asks(CONNECTION, 2, extend, 0, 150);
        }
        let moved = Event::LeaseMoved { id: id_of(1), remaining_ms: 100, stamp_ms: 150 };
        says(&mut auditor, CONNECTION, 0, &Response::Event(moved), 150);
        auditor.note_heard(CONNECTION, ALL, 150_000);
        if is_behind {
            auditor.asks(CONNECTION, 2, extend, 0, 150);
        }
        let extended = Extended { remaining_ms: 500, stamp_ms: 150, clamped: false };
        says(&mut auditor, CONNECTION, 2, &Response::Extended(extended), 150);
        auditor.note_heard(CONNECTION, ALL, 150_100);
        auditor
    }

    #[test]
    fn the_shorter_lease_of_an_event_and_a_response_of_one_millisecond_counts() {
        let mut auditor = extended_beside_another(false);
        auditor.note_guards(PROCESS, &[GuardView { lease_ms: Some(500), ..guard_view(240) }], 151_000);
        assert_eq!(auditor.violation(), None);
        auditor.note_guards(PROCESS, &[GuardView { lease_ms: Some(500), ..guard_view(600) }], 151_000);
        assert_eq!(rule(&auditor), Some("last-word"));
    }

    #[test]
    fn a_response_counts_if_its_request_was_sent_after_the_event() {
        let mut auditor = extended_beside_another(true);
        auditor.note_guards(PROCESS, &[GuardView { lease_ms: Some(500), ..guard_view(600) }], 151_000);
        assert_eq!(auditor.violation(), None);
    }

    #[test]
    fn a_guard_ends_when_the_end_of_its_hold_is_read() {
        let mut auditor = granted_to_process();
        auditor.note_heard(CONNECTION, ALL, 100_000);
        let revoked = Event::Revoked { id: id_of(1), reason: RevokeReason::ReleasedElsewhere, message: b"" };
        auditor.asks(0, 9, Operation::Release { id: id_of(1), forged: false, own: false }, 0, 120);
        says(&mut auditor, CONNECTION, 0, &Response::Event(revoked), 150);
        believes(&mut auditor, 790, 155);
        assert_eq!(auditor.violation(), None, "the event is not read yet");
        auditor.note_heard(CONNECTION, 1, 160_000);
        believes(&mut auditor, 790, 160);
        assert_eq!(rule(&auditor), Some("guard"));
    }

    #[test]
    fn a_loss_has_the_reason_that_was_read() {
        let lost = |reason, now_us| {
            let mut auditor = granted_to_process();
            says(&mut auditor, CONNECTION, 0, &Response::Event(Event::Expired { id: id_of(1) }), 800);
            auditor.note_heard(CONNECTION, ALL, 801_000);
            auditor.judge_loss(PROCESS, id_of(1), (reason, ""), 790_000, now_us);
            rule(&auditor)
        };
        assert_eq!(lost(LossReason::Expired, 810_000), None);
        assert_eq!(lost(LossReason::Superseded, 810_000), Some("loss-reason"));
        assert_eq!(lost(LossReason::SessionExpired, 810_000), Some("loss-reason"));
        assert_eq!(lost(LossReason::LocalDeadline, 790_000), None);
        assert_eq!(lost(LossReason::LocalDeadline, 789_999), Some("loss-reason"));
    }

    #[test]
    fn no_lane_exceeds_its_window_of_unanswered_requests() {
        let mut auditor = granted_to_process();
        let plan = (0..).find_map(|seed| {
            let mut settings = auditor.settings.clone();
            settings.add_processes(seed);
            settings.processes.filter(|plan| plan.in_flight_max == 4)
        });
        auditor.settings.processes = plan;
        for number in 2..=5 {
            auditor.asks(CONNECTION, number, Operation::KeepAlive, 0, number.into());
        }
        auditor.violation = None;
        auditor.asks(CONNECTION, 6, Operation::Status { id: id_of(1) }, 0, 50);
        assert_eq!(rule(&auditor), Some("window"));
    }

    #[test]
    fn a_released_hold_may_be_restored_after_a_crash() {
        for (crashes, expected) in [(false, Some("guard")), (true, None)] {
            let mut auditor = granted_to_process();
            auditor.note_heard(CONNECTION, ALL, 101_000);
            auditor.note_release_by_id(id_of(1));
            auditor.readers.reader(PROCESS).note(3, News::Released { id: id_of(1) }, 102_000);
            if crashes {
                auditor.readers.forget_ends();
            }
            auditor.judge_by_heard(PROCESS, &guard_view(800));
            assert_eq!(rule(&auditor), expected, "the server crashes: {crashes}");
        }
    }

    #[test]
    fn a_hold_of_a_forgotten_guard_is_not_released() {
        let mut auditor = granted_to_process();
        auditor.note_forgotten(id_of(1), true);
        auditor.asks(0, 9, Operation::Release { id: id_of(1), forged: false, own: false }, 0, 120);
        assert_eq!(auditor.violation(), None, "others may release it");
        let mut by_id = granted_to_process();
        by_id.note_release_by_id(id_of(1));
        by_id.note_forgotten(id_of(1), true);
        by_id.asks(CONNECTION, 2, Operation::Release { id: id_of(1), forged: false, own: false }, 0, 130);
        assert_eq!(by_id.violation(), None, "a caller released it by its id");
        auditor.asks(CONNECTION, 2, Operation::Release { id: id_of(1), forged: false, own: false }, 0, 130);
        assert_eq!(rule(&auditor), Some("forgotten"));
    }
}
