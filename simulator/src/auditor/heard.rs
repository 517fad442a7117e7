//! Responses that real clients have read, and their consequences for guards.
//!
//! The server says more than a client reads, and later than the client acts. So these rules compare a guard with the responses that its
//! process has read, in their order. A guard believes no longer than the newest of them allows, and not at all behind the end of its hold;
//! the loss of a guard has the reason that they gave.

use super::Auditor;
use super::guards::GuardView;
use crate::operation::{MADE_UP_REQUEST_ID, Operation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use waymaker_client::LossReason;
use waymaker_protocol::{ErrorCode, Event, LockId, Response, RevokeReason};

/// The part of a response that concerns the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The request has its answer, or waits in its queue.
    Settled {
        number: u32,
    },
    /// The newest word on the own lease of a hold.
    Lease {
        id: LockId,
        stamp_ms: u64,
        end_ms: u64,
    },
    /// A word on the lease of the session.
    Session {
        end_ms: u64,
    },
    /// The hold is over, or another guard has it.
    Over {
        id: LockId,
        reason: LossReason,
    },
    /// A request was refused.
    Refused {
        code: ErrorCode,
    },
    SessionOver,
}

/// What one process has read.
#[derive(Debug, Default)]
struct Reader {
    /// By hold: the stamp of the newest word and the latest end by the words with that stamp.
    leases: BTreeMap<LockId, (u64, u64)>,
    /// When a word on the lease of a hold was last read.
    lease_read_us: BTreeMap<LockId, u64>,
    /// Latest end of the session, by lane.
    sessions: BTreeMap<usize, u64>,
    over: BTreeMap<LockId, Vec<LossReason>>,
    /// The last refusal with each code, by lane.
    refused: Vec<(usize, ErrorCode, u64)>,
    /// Requests of each lane that have no answer and do not wait in a queue.
    in_flight: BTreeMap<usize, BTreeSet<u32>>,
    /// A session of the process ended last then.
    session_over_us: Option<u64>,
}

/// What all real clients have read.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// By process.
    readers: BTreeMap<usize, Reader>,
    /// Unread news by connection, with the place of its last byte in the stream.
    unread: BTreeMap<usize, VecDeque<(u64, News)>>,
    read_counts: BTreeMap<usize, u64>,
}

impl Heard {
    fn reader(&mut self, process: usize) -> &mut Reader {
        self.readers.entry(process).or_default()
    }

    /// A crash may have brought back holds whose end was reported.
    pub(super) fn forget_ends(&mut self) {
        self.readers.values_mut().for_each(|reader| reader.over.clear());
    }
}

impl Reader {
    fn note(&mut self, lane: usize, news: News, now_us: u64) {
        match news {
            News::Settled { number } => {
                self.in_flight.entry(lane).or_default().remove(&number);
            }
            News::Lease { id, stamp_ms, end_ms } => {
                self.lease_read_us.insert(id, now_us);
                let known = self.leases.entry(id).or_default();
                *known = match stamp_ms.cmp(&known.0) {
                    std::cmp::Ordering::Less => *known,
                    std::cmp::Ordering::Equal => (stamp_ms, end_ms.max(known.1)),
                    std::cmp::Ordering::Greater => (stamp_ms, end_ms),
                };
            }
            News::Session { end_ms } => {
                let known = self.sessions.entry(lane).or_default();
                *known = end_ms.max(*known);
            }
            News::Over { id, reason } => self.over.entry(id).or_default().push(reason),
            News::Refused { code } => {
                self.refused.retain(|(other, known, _)| (*other, *known) != (lane, code));
                self.refused.push((lane, code, now_us));
            }
            News::SessionOver => self.session_over_us = Some(now_us),
        }
    }
}

impl Auditor {
    /// The server says a response whose last byte has this place in the stream.
    pub(super) fn note_unread(&mut self, connection: usize, end: u64, number: u32, response: &Response<'_>) {
        let lane = self.connections[connection].lane;
        let mut news = Vec::new();
        let request = self.lanes[lane].asked.get(&number).copied();
        let operation = request.map(|request| self.requests[request].operation);
        if !matches!(response, Response::Event(_)) {
            news.push(News::Settled { number });
        }
        let lease = |id, stamp_ms: u64, remaining_ms: u32| News::Lease {
            id,
            stamp_ms,
            end_ms: if remaining_ms == u32::MAX { u64::MAX } else { stamp_ms + u64::from(remaining_ms) },
        };
        let grant = |id, stamp_ms, remaining_ms, session_lease| match session_lease {
            true => News::Session { end_ms: stamp_ms + u64::from(remaining_ms) },
            false => lease(id, stamp_ms, remaining_ms),
        };
        // A guard that has the hold already is superseded.
        let again =
            |id, repeated: bool| repeated.then_some(News::Over { id, reason: LossReason::Superseded });
        match response {
            Response::Welcome(welcome) => {
                let end_ms = welcome.stamp_ms + u64::from(welcome.session_lease_ms);
                news.push(News::Session { end_ms });
                news.extend((!welcome.resumed).then_some(News::SessionOver));
            }
            Response::KeptAlive(kept) => {
                news.push(News::Session { end_ms: kept.stamp_ms + u64::from(kept.remaining_ms) });
            }
            Response::Granted(granted) => {
                let (id, stamp_ms) = (granted.id, granted.stamp_ms);
                news.extend(again(id, granted.repeated));
                news.push(grant(id, stamp_ms, granted.remaining_ms, granted.session_lease));
            }
            Response::GrantedKeys(granted) => {
                for key in &granted.keys {
                    news.extend(again(key.id, granted.repeated));
                    news.push(grant(key.id, granted.stamp_ms, key.remaining_ms, granted.session_lease));
                }
            }
            Response::Extended(extended) => {
                if let Some(Operation::Extend { id, .. }) = operation {
                    news.push(lease(id, extended.stamp_ms, extended.remaining_ms));
                }
            }
            Response::Status(status) => {
                if let Some(Operation::Status { id }) = operation {
                    news.push(grant(id, status.stamp_ms, status.remaining_ms, status.session_lease));
                    // It may be how a client learns that another lane has the hold.
                    news.push(News::Over { id, reason: LossReason::Superseded });
                }
            }
            Response::Event(event) => match *event {
                Event::Queued { .. } => news.push(News::Settled { number }),
                Event::Expired { id } => news.push(News::Over { id, reason: LossReason::Expired }),
                Event::Revoked { id, reason, .. } => {
                    news.push(News::Over { id, reason: LossReason::Revoked(reason) });
                }
                Event::LeaseMoved { id, remaining_ms, stamp_ms } => {
                    news.push(lease(id, stamp_ms, remaining_ms));
                }
                Event::TakenUp { id } => news.push(News::Over { id, reason: LossReason::Superseded }),
                Event::SessionExpired => news.push(News::SessionOver),
                _ => {}
            },
            Response::Error(error) => {
                news.push(News::Refused { code: error.code });
                if error.code == ErrorCode::SessionGone {
                    news.push(News::SessionOver);
                }
                if let Some(
                    Operation::Extend { id, .. } | Operation::Status { id } | Operation::Release { id, .. },
                ) = operation
                {
                    news.extend(reason_of(error.code).map(|reason| News::Over { id, reason }));
                }
            }
            _ => {}
        }
        if !news.is_empty() {
            let unread = self.heard.unread.entry(connection).or_default();
            unread.extend(news.into_iter().map(|news| (end, news)));
        }
    }

    /// A real client has read `count` more bytes of a connection.
    pub(crate) fn note_heard(&mut self, connection: usize, count: usize, now_us: u64) {
        let lane = self.connections[connection].lane;
        let process = self.lanes[lane].process;
        let read = self.heard.read_counts.entry(connection).or_default();
        *read += count as u64;
        let read = *read;
        while let Some(unread) = self.heard.unread.get_mut(&connection)
            && let Some((_, news)) = unread.pop_front_if(|(end, _)| *end <= read)
        {
            self.heard.reader(process).note(lane, news, now_us);
        }
    }

    /// A real client greets the server. Once it is welcome it repeats requests without an answer, but not all kinds of requests.
    pub(super) fn note_greeting(&mut self, lane: usize) {
        let process = self.lanes[lane].process;
        self.heard.reader(process).in_flight.remove(&lane);
    }

    /// A real client sends a request, perhaps again. It never has more unanswered requests than the server allows, and no number runs
    /// ahead of an unanswered one by more.
    pub(super) fn judge_window(&mut self, connection: usize, number: u32, is_new: bool) {
        let lane = self.connections[connection].lane;
        let Some(max) = self.settings.processes.as_ref().map(|plan| plan.in_flight_max.max(2)) else {
            return;
        };
        let process = self.lanes[lane].process;
        let in_flight = self.heard.reader(process).in_flight.entry(lane).or_default();
        in_flight.insert(number);
        let (count, first) = (in_flight.len(), in_flight.first().copied().unwrap_or(number));
        if is_new && (count > max as usize || number.saturating_sub(first) >= max) {
            self.accuse("window", || {
                format!(
                    "lane {lane} sends {number} with {count} unanswered since {first}, the limit is {max}"
                )
            });
        }
    }

    /// Returns whether a lane of this kind has read a refusal with this code since then.
    pub(crate) fn has_heard_refusal(&self, process: usize, codes: &[ErrorCode], since_us: u64) -> bool {
        let Some(reader) = self.heard.readers.get(&process) else { return false };
        reader.refused.iter().any(|(_, code, at_us)| codes.contains(code) && *at_us >= since_us)
    }

    /// Returns whether a session of this process has ended since then, as far as the process knows.
    pub(crate) fn has_heard_session_end(&self, process: usize, since_us: u64) -> bool {
        let ended_us = self.heard.readers.get(&process).and_then(|reader| reader.session_over_us);
        ended_us.is_some_and(|ended_us| ended_us >= since_us)
    }

    /// Judges a guard that says that it holds by the responses that its process has read.
    pub(super) fn judge_by_heard(&mut self, process: usize, view: &GuardView) {
        let reader = self.heard.reader(process);
        let is_end = |reason: &LossReason| matches!(reason, LossReason::Expired | LossReason::Revoked(_));
        let end = reader.over.get(&view.id).and_then(|reasons| reasons.iter().copied().find(is_end));
        let end_ms = if view.is_on_session {
            reader.sessions.get(&view.lane).copied().unwrap_or(0)
        } else {
            reader.leases.get(&view.id).map_or(0, |(_, end_ms)| *end_ms)
        };
        if let Some(reason) = end {
            self.accuse("guard", || {
                format!(
                    "process {process} was told that {} is over, and its guard holds on: {reason:?}",
                    view.id
                )
            });
        }
        if end_ms != u64::MAX && view.until_us > self.end_us(end_ms) {
            self.accuse("last-word", || {
                format!("a guard of process {process} believes in {view:?}, the last word is {end_ms}")
            });
        }
    }

    /// Judges the reason that a guard gives for its loss. `believed_us` is the local deadline that it had before.
    pub(crate) fn judge_loss(
        &mut self,
        process: usize,
        id: LockId,
        reason: LossReason,
        believed_us: u64,
        now_us: u64,
    ) {
        let reader = self.heard.reader(process);
        let is_told = reader.over.get(&id).is_some_and(|reasons| reasons.contains(&reason));
        let is_fair = match reason {
            // A new word may have moved the deadline back.
            LossReason::LocalDeadline => {
                believed_us <= now_us || reader.lease_read_us.get(&id).is_some_and(|at_us| *at_us == now_us)
            }
            LossReason::SessionExpired => is_told || reader.session_over_us.is_some(),
            LossReason::Revoked(RevokeReason::ConnectionLost) => is_told || reader.session_over_us.is_some(),
            LossReason::Released => false,
            _ => is_told,
        };
        if !is_fair {
            self.accuse("loss-reason", || {
                format!("a guard of process {process} in {id} was lost at {now_us} by {reason:?}, it had until {believed_us}")
            });
        }
    }

    /// A real client releases a hold. A guard that was forgotten lets its hold live, unless another acquire may have found the hold.
    pub(super) fn judge_release_of_forgotten(&mut self, lane: usize, id: LockId) {
        let Some(hold) = self.holds.get(&id) else { return };
        let is_shared_id = hold.request_id.is_some_and(|number| number < MADE_UP_REQUEST_ID);
        if self.guards.is_real(lane) && self.guards.is_forgotten(id, self.restarts.count) && !is_shared_id {
            self.accuse("forgotten", || format!("lane {lane} releases {id}, which its guard left alone"));
        }
    }
}

/// The reason for the loss of a hold that this refusal gives.
fn reason_of(code: ErrorCode) -> Option<LossReason> {
    match code {
        ErrorCode::NotFound | ErrorCode::Expired | ErrorCode::NotHeld | ErrorCode::NotOwner => {
            Some(LossReason::Expired)
        }
        ErrorCode::Revoked => Some(LossReason::Revoked(RevokeReason::Other(0))),
        ErrorCode::SessionGone => Some(LossReason::SessionExpired),
        ErrorCode::Cancelled => Some(LossReason::Superseded),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auditor::scene::{ACQUIRE, asks, auditor, granted, id_of, rule, says, says_granted};
    use crate::operation::Acquire;

    const PROCESS: usize = 7;
    const CONNECTION: usize = 3;
    /// More bytes than are ever said.
    const ALL: usize = 1 << 40;

    /// Returns an auditor that has heard of a hold of a real client, granted at 100 ms for 700 ms.
    fn granted_hold() -> Auditor {
        let mut auditor = auditor();
        auditor.settings.start_ms = 0;
        let lane = auditor.new_lane_of_process(3, PROCESS);
        auditor.open(lane, false);
        asks(&mut auditor, CONNECTION, Acquire { request_id: None, release_after_ms: None, ..ACQUIRE }, 100);
        says_granted(&mut auditor, CONNECTION, granted(1, 100));
        auditor
    }

    fn believes(auditor: &mut Auditor, until_ms: u64, now_ms: u64) {
        let view = GuardView { id: id_of(1), until_us: until_ms * 1000, lane: 3, is_on_session: false };
        auditor.note_guards(PROCESS, &[view], now_ms * 1000);
    }

    #[test]
    fn a_guard_never_believes_longer_than_the_newest_word_that_was_read() {
        let mut auditor = granted_hold();
        auditor.note_heard(CONNECTION, ALL, 100_000);
        believes(&mut auditor, 800, 110);
        assert_eq!(auditor.violation(), None);
        let moved = Event::LeaseMoved { id: id_of(1), remaining_ms: 100, stamp_ms: 150 };
        says(&mut auditor, CONNECTION, 0, &Response::Event(moved), 150);
        believes(&mut auditor, 800, 155);
        assert_eq!(auditor.violation(), None, "it was not read yet");
        auditor.note_heard(CONNECTION, 1, 160_000);
        believes(&mut auditor, 800, 160);
        assert_eq!(rule(&auditor), Some("last-word"));
    }

    #[test]
    fn a_guard_does_not_outlive_the_word_that_its_hold_is_over() {
        let mut auditor = granted_hold();
        auditor.note_heard(CONNECTION, ALL, 100_000);
        let revoked = Event::Revoked { id: id_of(1), reason: RevokeReason::ReleasedElsewhere, message: b"" };
        auditor.asks(0, 9, Operation::Release { id: id_of(1), forged: false, own: false }, 0, 120);
        says(&mut auditor, CONNECTION, 0, &Response::Event(revoked), 150);
        believes(&mut auditor, 790, 155);
        assert_eq!(auditor.violation(), None, "it was not read yet");
        auditor.note_heard(CONNECTION, 1, 160_000);
        believes(&mut auditor, 790, 160);
        assert_eq!(rule(&auditor), Some("guard"));
    }

    #[test]
    fn the_reason_of_a_loss_is_the_one_that_was_read() {
        let lost = |reason, now_us| {
            let mut auditor = granted_hold();
            says(&mut auditor, CONNECTION, 0, &Response::Event(Event::Expired { id: id_of(1) }), 800);
            auditor.note_heard(CONNECTION, ALL, 801_000);
            auditor.judge_loss(PROCESS, id_of(1), reason, 790_000, now_us);
            rule(&auditor)
        };
        assert_eq!(lost(LossReason::Expired, 810_000), None);
        assert_eq!(lost(LossReason::Superseded, 810_000), Some("loss-reason"));
        assert_eq!(lost(LossReason::SessionExpired, 810_000), Some("loss-reason"));
        assert_eq!(lost(LossReason::LocalDeadline, 790_000), None);
        assert_eq!(lost(LossReason::LocalDeadline, 789_999), Some("loss-reason"));
    }

    #[test]
    fn no_lane_sends_more_requests_than_may_be_unanswered() {
        let mut auditor = granted_hold();
        let plan = (0..).find_map(|seed| {
            let mut settings = auditor.settings.clone();
            crate::real_client::Plan::add(seed, &mut settings);
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
    fn a_hold_that_its_guard_forgot_is_not_released() {
        let mut auditor = granted_hold();
        auditor.note_forgotten(id_of(1), true);
        auditor.asks(0, 9, Operation::Release { id: id_of(1), forged: false, own: false }, 0, 120);
        assert_eq!(auditor.violation(), None, "others may release it");
        auditor.asks(CONNECTION, 2, Operation::Release { id: id_of(1), forged: false, own: false }, 0, 130);
        assert_eq!(rule(&auditor), Some("forgotten"));
    }
}
