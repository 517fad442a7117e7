//! The parts of responses that concern a real client. They wait until the client has read the response.

use super::Auditor;
use super::lease_words::{LeaseWord, Speaker};
use super::watchers::WatchNews;
use crate::operation::Operation;
use waymaker_client::LossReason;
use waymaker_protocol::{ErrorCode, Event, LockId, Response, RevokeReason};

/// Part of a response that concerns the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The request has its response, or waits in its queue.
    Settled {
        number: u32,
    },
    /// Report about the own lease of a hold.
    Lease {
        id: LockId,
        word: LeaseWord,
        /// Time at which the request was sent.
        sent_ms: u64,
    },
    /// The response to a request sent at `sent_ms` contains the time of its decision.
    Anchor {
        sent_ms: u64,
    },
    /// The lane got WELCOME. Before this, it repeats requests, some of which no connection has carried.
    Welcome,
    /// Whether the server granted less than the requested lease.
    Clamped {
        id: LockId,
        is_clamped: bool,
    },
    /// Response to an extend.
    Extended {
        id: LockId,
        remaining_ms: u32,
    },
    Released {
        id: LockId,
    },
    /// Position in a queue.
    Place {
        id: LockId,
        position: u32,
        ticket: u64,
    },
    /// The server refused a request about this hold.
    NotMoved {
        id: LockId,
    },
    Watch(WatchNews),
    /// Report about the lease of the session.
    Session {
        end_ms: u64,
    },
    /// The hold has ended, or another guard has it.
    Over {
        id: LockId,
        reason: LossReason,
        message: Box<str>,
    },
    /// The server refused a request.
    Refused {
        code: ErrorCode,
    },
    SessionOver,
}

impl Auditor {
    /// Records a response that the server sends; `end` is the stream offset of its last byte.
    pub(super) fn note_unread(&mut self, connection: usize, end: u64, number: u32, response: &Response<'_>) {
        let lane = self.connections[connection].lane;
        let mut news = Vec::new();
        let request = self.lanes[lane].requests.get(&number).copied();
        let operation = request.map(|request| self.requests[request].operation);
        if !matches!(response, Response::Event(_)) {
            news.push(News::Settled { number });
        }
        let sent_ms = request.map_or(0, |request| self.requests[request].first_sent_ms);
        let is_first_sending = request.is_some_and(|request| self.requests[request].sent_count == 1);
        let asked_ms = match operation {
            Some(Operation::Acquire(acquire)) => self.settings.given_lease_ms(acquire.lease_ms),
            _ => 0,
        };
        let lease = |id, stamp_ms: u64, remaining_ms: u32, by: Speaker, is_fresh: bool| News::Lease {
            id,
            word: LeaseWord {
                stamp_ms,
                end_ms: if remaining_ms == u32::MAX { u64::MAX } else { stamp_ms + u64::from(remaining_ms) },
                remaining_ms,
                lease_ms: asked_ms,
                by,
                is_fresh: is_fresh && is_first_sending,
            },
            sent_ms,
        };
        let grant = |id, stamp_ms, remaining_ms, session_lease, by, is_fresh| match session_lease {
            true => News::Session { end_ms: stamp_ms + u64::from(remaining_ms) },
            false => lease(id, stamp_ms, remaining_ms, by, is_fresh),
        };
        let over = |id, reason| News::Over { id, reason, message: Box::default() };
        // A guard that already has the hold is superseded.
        let again = |id, repeated: bool| repeated.then(|| over(id, LossReason::Superseded));
        match response {
            Response::Welcome(welcome) => {
                let end_ms = welcome.stamp_ms + u64::from(welcome.session_lease_ms);
                news.push(News::Session { end_ms });
                news.extend((!welcome.resumed).then_some(News::SessionOver));
                news.push(News::Welcome);
            }
            Response::KeptAlive(kept) => {
                news.push(News::Anchor { sent_ms });
                news.push(News::Session { end_ms: kept.stamp_ms + u64::from(kept.remaining_ms) });
            }
            Response::Granted(granted) => {
                let (id, stamp_ms) = (granted.id, granted.stamp_ms);
                news.extend(again(id, granted.repeated));
                let is_fresh = !granted.waited && !granted.repeated;
                news.push(News::Clamped { id, is_clamped: granted.clamped });
                let (remaining_ms, session_lease) = (granted.remaining_ms, granted.session_lease);
                news.push(grant(id, stamp_ms, remaining_ms, session_lease, Speaker::Grant, is_fresh));
                news.extend(is_fresh.then_some(News::Anchor { sent_ms }));
            }
            Response::GrantedKeys(granted) => {
                let is_fresh = !granted.waited && !granted.repeated;
                for key in &granted.keys {
                    let (id, remaining_ms) = (key.id, key.remaining_ms);
                    news.extend(again(id, granted.repeated));
                    news.push(News::Clamped { id, is_clamped: granted.clamped });
                    let (stamp_ms, session_lease) = (granted.stamp_ms, granted.session_lease);
                    news.push(grant(id, stamp_ms, remaining_ms, session_lease, Speaker::Grant, is_fresh));
                }
                news.extend(is_fresh.then_some(News::Anchor { sent_ms }));
            }
            Response::Extended(extended) => {
                if let Some(Operation::Extend { id, .. }) = operation {
                    let by = Speaker::Answer(number);
                    news.push(lease(id, extended.stamp_ms, extended.remaining_ms, by, true));
                    news.push(News::Extended { id, remaining_ms: extended.remaining_ms });
                }
                news.push(News::Anchor { sent_ms });
            }
            Response::Released(_) => {
                if let Some(Operation::Release { id, .. }) = operation {
                    news.push(News::Released { id });
                }
            }
            Response::Status(status) => {
                if let Some(Operation::Status { id }) = operation {
                    let (stamp_ms, remaining_ms) = (status.stamp_ms, status.remaining_ms);
                    let by = Speaker::Status(number);
                    news.push(grant(id, stamp_ms, remaining_ms, status.session_lease, by, false));
                    // This response may tell a client that another lane has the hold.
                    news.push(over(id, LossReason::Superseded));
                }
                news.push(News::Anchor { sent_ms });
            }
            Response::Event(event) => match *event {
                Event::Queued { id, position, ticket } => {
                    news.push(News::Settled { number });
                    news.push(News::Place { id, position, ticket });
                }
                Event::Expired { id } => news.push(over(id, LossReason::Expired)),
                Event::Revoked { id, reason, message } => {
                    let message = String::from_utf8_lossy(message).into();
                    news.push(News::Over { id, reason: LossReason::Revoked(reason), message });
                }
                Event::LeaseMoved { id, remaining_ms, stamp_ms } => {
                    news.push(lease(id, stamp_ms, remaining_ms, Speaker::Event, false));
                }
                Event::TakenUp { id } => news.push(over(id, LossReason::Superseded)),
                Event::SessionExpired => news.push(News::SessionOver),
                _ => {}
            },
            Response::Error(error) => {
                news.push(News::Refused { code: error.code });
                if error.code == ErrorCode::SessionGone {
                    news.push(News::SessionOver);
                }
                if let Some(Operation::Extend { id, .. } | Operation::Status { id }) = operation {
                    news.extend(reason_of(error.code).map(|reason| over(id, reason)));
                    news.push(News::NotMoved { id });
                }
            }
            _ => {}
        }
        news.extend(WatchNews::of(number, operation, response).map(News::Watch));
        if !news.is_empty() {
            let unread = self.readers.unread.entry(connection).or_default();
            unread.extend(news.into_iter().map(|news| (end, news)));
        }
    }
}

/// Returns the reason for the loss of a hold that this refusal gives.
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
