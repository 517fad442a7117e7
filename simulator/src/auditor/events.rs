//! Rules about events that clients get without a request: about their waits and about their holds.

use super::Auditor;
use super::duties::Word;
use crate::operation::{FORCED, Operation};
use waymaker_protocol::{Event, LockId, RevokeReason};

impl Auditor {
    /// Rule `event`: a connection gets events about a hold only after the response that grants the hold. A
    /// request that was repeated on another connection may be answered after the events.
    pub(super) fn judge_order_of_events(&mut self, request: usize, id: LockId) {
        let (lane, number) = (self.requests[request].lane, self.requests[request].number);
        let is_first = self.lanes[lane].granted.insert(id);
        let last = self.lanes[lane].connections.last().map(|last| &self.connections[*last]);
        let heard_before = last.is_some_and(|last| !last.is_front && last.heard_of.contains(&id));
        if self.requests[request].sent_count == 1 && is_first && heard_before {
            self.accuse("event", || {
                format!(
                    "lane {lane} got an event about {id} before the response to request {number} granted it"
                )
            });
        }
    }

    /// Rules `event`, `answers` and `lost-lease` for one event.
    pub(super) fn hear_event(&mut self, connection: usize, number: u32, event: &Event, now_ms: u64) {
        let lane = self.connections[connection].lane;
        let word = match *event {
            Event::Revoked { id, .. } => Some(Word::Revoked(id)),
            Event::LeaseMoved { id, remaining_ms, .. } => Some(Word::LeaseMoved(id, remaining_ms)),
            Event::TakenUp { id } => Some(Word::TakenUp(number, id)),
            Event::SessionExpired => Some(Word::SessionExpired),
            _ => None,
        };
        let is_first = word.is_none_or(|word| self.connections[connection].heard.insert(word));
        if *event == Event::SessionExpired && !is_first {
            self.accuse("event", || format!("connection {connection} got SESSION_EXPIRED twice"));
        }
        if let Event::Expired { id } | Event::Revoked { id, .. } | Event::LeaseMoved { id, .. } = *event {
            self.connections[connection].heard_of.insert(id);
        }
        if let Event::Expired { id } | Event::Revoked { id, .. } = *event
            && !self.connections[connection].told_over.insert(id)
        {
            self.accuse("event", || {
                format!("lane {lane} got a second event about the end of {id}: {event:?}")
            });
        }
        if let Event::Expired { id } | Event::Revoked { id, .. } = *event
            && !self.holds.contains_key(&id)
        {
            self.ended_unheard.entry(id).or_insert(now_ms);
        }
        match *event {
            Event::Queued { id, ticket, position } => {
                let Some(request) = self.lanes[lane].requests.get(&number).copied() else {
                    return self
                        .accuse("answers", || {
                            format!(
                                "lane {lane}: the event belongs to request {number}, which was never sent: {event:?}"
                            )
                        });
                };
                let record = &mut self.requests[request];
                let acquire = record.operation;
                let notify = matches!(record.operation, Operation::Acquire(acquire) if acquire.notify_queued);
                if !notify || record.is_answered {
                    self.accuse("answers", || {
                        format!(
                            "lane {lane}: request {number} is answered or did not ask for this event: {event:?}"
                        )
                    });
                } else {
                    record.queued = Some((id, ticket, now_ms));
                    self.waiters.insert(id, request);
                    if let Operation::Acquire(acquire) = acquire {
                        self.judge_position(request, &acquire, position, now_ms);
                        self.judge_limits(request, &acquire, true, now_ms);
                    }
                }
            }
            Event::Expired { id } => {
                self.note_expired(id, now_ms);
                let floor_ms = self.floor_ms(id);
                if now_ms < floor_ms {
                    self.accuse("lost-lease", || {
                        format!(
                            "the server reports the expiry of {id} at {now_ms} ms, but the hold lasts to {floor_ms} ms"
                        )
                    });
                }
                self.note_over(id, now_ms);
            }
            Event::Revoked { id, reason, message } => {
                let floor_ms = self.floor_ms(id);
                let Some(hold) = self.holds.get(&id) else { return };
                let is_fair = match reason {
                    RevokeReason::ConnectionLost => hold.release_after_ms.is_some() && now_ms >= floor_ms,
                    RevokeReason::ReleasedElsewhere => hold.may_end_ms <= now_ms,
                    RevokeReason::Forced => self.is_forced(id) && message == FORCED,
                    RevokeReason::Other(_) => false,
                };
                if !is_fair {
                    self.accuse("lost-lease", || {
                        format!(
                            "the server sent {event:?} at {now_ms} ms without a known reason; the hold lasts to {floor_ms} ms"
                        )
                    });
                }
                self.note_over(id, now_ms);
            }
            Event::LeaseMoved { id, remaining_ms, stamp_ms } => {
                let moved_ms = self.connections[connection].moved_ms.entry(id).or_default();
                *moved_ms = stamp_ms.max(*moved_ms);
                self.note_lease(id, stamp_ms, remaining_ms);
            }
            Event::KeyHeld { .. } | Event::KeyFreed { .. } | Event::Overrun => {}
            Event::TakenUp { .. } if self.guards.is_real(lane) => {}
            Event::TakenUp { id } => self.judge_taken_up(lane, number, id),
            Event::Ping => {
                self.accuse("answers", || {
                    format!("lane {lane} got {event:?}, which its client never requests")
                });
            }
            Event::SessionExpired => {
                self.connections[connection].is_session_gone = true;
                if let Some(session) = self.lanes[lane].session {
                    self.note_session_over(session, now_ms);
                }
            }
        }
    }
}
