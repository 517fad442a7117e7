//! Event streams of `Lock` and `ReadLock`.

use super::lease::of_status;
use super::outcome::Outcome;
use super::parameters::Parameters;
use crate::driver::{Inlet, Reply, ReplyFuture, ReplyStream};
use crate::front::conversion::{now_ms, unix_ms};
use crate::front::lazy_inlet::LazyInlet;
use crate::front::v1;
use futures_core::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;
use waymaker_proto::waymaker::{LockEvent, LockEventType, LockRequest};
use waymaker_protocol as wire;
use waymaker_protocol::{Event, LockId, Response, TraceParent};

/// Shortest and longest interval between two heartbeats, in milliseconds.
const HEARTBEAT_MS: (u64, u64) = (250, 5_000);

/// Events of one attempt, in this order:
///
/// ```text
/// [Waiting] -> Acquired -> Heartbeat* -> (Expired | end)
/// [Waiting] -> Failed
/// ```
///
/// An error status ends the stream instead if the lane closes, or if another stream with the same request id takes up
/// the claim. The stream is woken only by worker events about its claim, by the answer to its status request, and by
/// its next due heartbeat. If the client does not read, heartbeats are skipped, and the next event describes the
/// current state. Dropping the stream while its claim waits cancels the claim. Dropping it after the grant does not
/// release the lock.
#[derive(Debug, Default)]
pub(in crate::front) struct LockStream {
    key: Box<str>,
    /// Worker events about the claim; `None` after the last event.
    followed: Option<ReplyStream>,
    /// Lane on which the stream sent its acquire. The stream also uses the lane for a status request, which it sends if
    /// the claim may be older than the stream.
    inlet: Option<Arc<Inlet>>,
    /// Id of the claim, once it is known.
    id: Option<LockId>,
    /// Status request whose answer the next event needs.
    looking_up: Option<Box<LookUp>>,
    held: Option<Box<HeldLock>>,
    /// The only item of a stream whose request failed at once.
    last: Option<Result<LockEvent, Status>>,
    /// Maximum wait that this request states, in milliseconds.
    wait_ms: u32,
    /// Whether an earlier attempt with the same request id may exist.
    may_repeat: bool,
}

/// Pending status request, and the grant whose event waits for its answer.
#[derive(Debug)]
struct LookUp {
    status: ReplyFuture,
    granted: Option<wire::Granted>,
}

#[derive(Debug)]
struct HeldLock {
    acquired_at: i64,
    lease_expires_at: i64,
    every: Duration,
    heartbeat: Pin<Box<Sleep>>,
}

impl LockStream {
    /// Requests the lock.
    pub(super) fn begin(
        inlet: &LazyInlet,
        request: &LockRequest,
        shared: bool,
        traceparent: Option<&TraceParent>,
    ) -> Result<Self, Outcome> {
        let Parameters { wait_ms, lease_ms, options } = Parameters::of_lock(request, traceparent)?;
        let key = request.key.as_bytes();
        let acquire = wire::Acquire {
            key,
            shared,
            terms: wire::AcquireTerms {
                lease_ms,
                wait_ms,
                session_lease: false,
                notify_queued: true,
                options,
            },
        };
        let inlet = inlet.get()?;
        let followed = inlet.follow(key, |number, out| acquire.encode(number, out));
        Ok(Self {
            key: request.key.as_str().into(),
            followed: Some(followed),
            inlet: Some(inlet),
            wait_ms,
            may_repeat: options.request_id.is_some(),
            ..Self::default()
        })
    }

    /// Creates a stream whose only event reports the failure `outcome`.
    pub(super) fn failed(key: String, outcome: &Outcome) -> Self {
        let mut stream = Self { key: key.into(), ..Self::default() };
        stream.last = Some(Ok(stream.failure(outcome)));
        stream
    }

    /// Converts a worker event. Returns `None` if the contract has no event for it, or if its event needs the answer to
    /// a status request first.
    fn hear(&mut self, reply: &Reply) -> Option<Result<LockEvent, Status>> {
        match reply.response() {
            Response::Event(Event::Queued { id, .. }) => {
                self.id = Some(id);
                // An older claim with this request id keeps its own deadline. Only a status request returns that
                // deadline.
                if self.may_repeat {
                    self.look_up(id, None);
                    return None;
                }
                let deadline_ms = now_ms() + u64::from(self.wait_ms);
                Some(Ok(self.waiting(unix_ms(deadline_ms))))
            }
            Response::Granted(granted) => {
                self.id = Some(granted.id);
                // The hold may be older than this request; only its status contains the time of the grant.
                if granted.repeated {
                    self.look_up(granted.id, Some(granted));
                    return None;
                }
                Some(Ok(self.acquired(&granted, unix_ms(granted.stamp_ms))))
            }
            // The contract has no event for a changed lease end; the next heartbeat contains the new end.
            Response::Event(Event::LeaseMoved { remaining_ms, stamp_ms, .. }) => {
                if let Some(held) = &mut self.held {
                    held.lease_expires_at = unix_ms(stamp_ms + u64::from(remaining_ms));
                }
                None
            }
            Response::Event(Event::Expired { .. }) => self.end(Some(Ok(self.expired()))),
            // The contract has no event for a hold that was released or revoked, so the stream just ends.
            Response::Event(Event::Revoked { .. }) => self.end(None),
            Response::Event(Event::TakenUp { .. }) => self.end(Some(Err(superseded()))),
            Response::Event(_) => None,
            refusal => {
                let outcome = Outcome::of(&refusal);
                let last =
                    if outcome.is_superseded() { Err(superseded()) } else { Ok(self.failure(&outcome)) };
                self.end(Some(last))
            }
        }
    }

    fn look_up(&mut self, id: LockId, granted: Option<wire::Granted>) {
        if let Some(inlet) = &self.inlet {
            let key = Some(self.key.as_bytes());
            let status = inlet.ask(|number, out| wire::Status { id, key }.encode(number, out));
            self.looking_up = Some(Box::new(LookUp { status, granted }));
        }
    }

    /// Creates the event that waited for the response to a status request. If the claim has ended in the meantime, the
    /// response has no status. The times in the event then come only from the grant or, for a waiter, from the wait
    /// limit of the request.
    fn looked_up(&mut self, status: Option<&Reply>, granted: Option<wire::Granted>) -> LockEvent {
        let id = self.id.unwrap_or_default();
        let found = match status.map(Reply::response) {
            Some(Response::Status(status)) => Some((of_status(&status, id, &self.key), status)),
            _ => None,
        };
        match granted {
            Some(granted) => {
                let acquired_ms = found
                    .map_or(granted.stamp_ms, |(_, status)| status.stamp_ms.saturating_sub(status.age_ms));
                self.acquired(&granted, unix_ms(acquired_ms))
            }
            None => {
                let deadline_ms = now_ms() + u64::from(self.wait_ms);
                let ends_at = found.map(|(lease, _)| lease.waiting_expires_at).filter(|at| *at != 0);
                self.waiting(ends_at.unwrap_or_else(|| unix_ms(deadline_ms)))
            }
        }
    }

    /// Ends the stream after this last item.
    fn end(&mut self, last: Option<Result<LockEvent, Status>>) -> Option<Result<LockEvent, Status>> {
        self.followed = None;
        self.held = None;
        last
    }

    fn event(&self, event_type: LockEventType, success: bool) -> LockEvent {
        LockEvent {
            success,
            event_type: event_type.into(),
            id: self.id.map(|id| id.to_string()).unwrap_or_default(),
            key: self.key.to_string(),
            ..LockEvent::default()
        }
    }

    fn waiting(&self, waiting_expires_at: i64) -> LockEvent {
        LockEvent { waiting_expires_at, ..self.event(LockEventType::Waiting, true) }
    }

    fn acquired(&mut self, granted: &wire::Granted, acquired_at: i64) -> LockEvent {
        let lease_expires_at = unix_ms(granted.stamp_ms + u64::from(granted.remaining_ms));
        let every = (u64::from(granted.remaining_ms) / 3).clamp(HEARTBEAT_MS.0, HEARTBEAT_MS.1);
        let every = Duration::from_millis(every);
        self.held = Some(Box::new(HeldLock {
            acquired_at,
            lease_expires_at,
            every,
            heartbeat: Box::pin(sleep(every)),
        }));
        let event = self.event(LockEventType::Acquired, true);
        LockEvent { lease_expires_at, acquired_at, fence_token: granted.fence, ..event }
    }

    fn heartbeat(&self) -> LockEvent {
        self.of_held(LockEventType::Heartbeat, true)
    }

    fn expired(&self) -> LockEvent {
        let message = "expired: the lease ended".to_owned();
        LockEvent { message, ..self.of_held(LockEventType::Expired, false) }
    }

    fn of_held(&self, event_type: LockEventType, success: bool) -> LockEvent {
        let (lease_expires_at, acquired_at) =
            self.held.as_ref().map_or((0, 0), |held| (held.lease_expires_at, held.acquired_at));
        LockEvent { lease_expires_at, acquired_at, ..self.event(event_type, success) }
    }

    fn failure(&self, outcome: &Outcome) -> LockEvent {
        LockEvent { message: outcome.event_message(), ..self.event(LockEventType::Failed, false) }
    }
}

fn superseded() -> Status {
    Status::aborted("another stream with the same request_id replaced this stream")
}

impl Stream for LockStream {
    type Item = Result<LockEvent, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let own = self.get_mut();
        loop {
            if let Some(look_up) = &mut own.looking_up {
                let status = ready!(Pin::new(&mut look_up.status).poll(context)).ok();
                let granted = look_up.granted.take();
                own.looking_up = None;
                return Poll::Ready(Some(Ok(own.looked_up(status.as_ref(), granted))));
            }
            let Some(followed) = &mut own.followed else { return Poll::Ready(own.last.take()) };
            match followed.poll_reply(context) {
                Poll::Ready(Ok(reply)) => {
                    let said = own.hear(&reply);
                    if said.is_some() {
                        return Poll::Ready(said);
                    }
                }
                Poll::Ready(Err(closed)) => {
                    let status = match closed.denial {
                        Some(_) => v1::closed(closed),
                        None => Status::unavailable("the server is stopping"),
                    };
                    return Poll::Ready(own.end(Some(Err(status))));
                }
                Poll::Pending => return own.poll_heartbeat(context).map(|event| Some(Ok(event))),
            }
        }
    }
}

impl LockStream {
    fn poll_heartbeat(&mut self, context: &mut Context<'_>) -> Poll<LockEvent> {
        let Some(held) = &mut self.held else { return Poll::Pending };
        ready!(held.heartbeat.as_mut().poll(context));
        // Schedule the next heartbeat from now, not from the time that was due. So a stream that missed heartbeats
        // sends only one.
        held.heartbeat.as_mut().reset(Instant::now() + held.every);
        Poll::Ready(self.heartbeat())
    }
}
