//! What a stream of `Lock` or `ReadLock` says.

use super::lease::of_status;
use super::outcome::Outcome;
use super::parameters::Parameters;
use crate::driver::{Asked, Followed, Inlet, Reply};
use crate::front::lazy_inlet::LazyInlet;
use crate::front::shown::{now_ms, unix_ms};
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

/// Shortest and longest pause between two heartbeats.
const HEARTBEAT_MS: (u64, u64) = (250, 5_000);

/// The events of one attempt, in the order
///
/// ```text
/// [Waiting] -> Acquired -> Heartbeat* -> (Expired | end)
/// [Waiting] -> Failed
/// ```
///
/// Nothing runs for it while nothing happens: it is polled when the worker said something about its claim, and when its
/// next heartbeat is due. One that is not read says no heartbeats, and the next that is read says how things are then.
/// Dropped while it waits it takes the waiter with it; dropped later it leaves the lock alone.
#[derive(Debug, Default)]
pub(in crate::front) struct LockStream {
    key: Box<str>,
    /// What the worker says of the claim; `None` once there is nothing more to say.
    followed: Option<Followed>,
    /// Where to ask about a claim that was there before this stream, and the lane of all of them.
    inlet: Option<Arc<Inlet>>,
    /// The claim, once it has an id.
    id: Option<LockId>,
    /// Something that has to be known before the next event can be said.
    looking_up: Option<Box<LookUp>>,
    held: Option<Box<Held>>,
    /// The stream ends with it.
    last: Option<Result<LockEvent, Status>>,
    /// Until when to wait, as far as this request says.
    wait_ms: u32,
    /// There may have been an attempt with its request id before.
    may_repeat: bool,
}

/// A question about the claim, and the event that waits for its answer.
#[derive(Debug)]
struct LookUp {
    status: Asked,
    granted: Option<wire::Granted>,
}

#[derive(Debug)]
struct Held {
    acquired_at: i64,
    lease_expires_at: i64,
    every: Duration,
    heartbeat: Pin<Box<Sleep>>,
}

impl LockStream {
    /// Asks for the lock.
    pub(super) fn begin(
        inlet: &LazyInlet,
        request: &LockRequest,
        shared: bool,
        traceparent: Option<&TraceParent>,
    ) -> Result<Self, Outcome> {
        let Parameters { wait_ms, lease_ms, options } = Parameters::of_lock(request, traceparent)?;
        let key = request.key.as_bytes();
        let acquire = wire::Acquire {
            lease_ms,
            wait_ms,
            key,
            shared,
            session_lease: false,
            notify_queued: true,
            options,
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

    /// A stream that says nothing but that.
    pub(super) fn failed(key: String, outcome: &Outcome) -> Self {
        let mut stream = Self { key: key.into(), ..Self::default() };
        stream.last = Some(Ok(stream.failure(outcome)));
        stream
    }

    /// What the worker said, as an event. `None`: it is not worth one, or not yet.
    fn hear(&mut self, reply: &Reply) -> Option<Result<LockEvent, Status>> {
        match reply.response() {
            Response::Event(Event::Queued { id, .. }) => {
                self.id = Some(id);
                if self.may_repeat {
                    self.look_up(id, None);
                    return None;
                }
                let deadline_ms = now_ms() + u64::from(self.wait_ms);
                Some(Ok(self.waiting(unix_ms(deadline_ms))))
            }
            Response::Granted(granted) => {
                self.id = Some(granted.id);
                if granted.repeated {
                    self.look_up(granted.id, Some(granted));
                    return None;
                }
                Some(Ok(self.acquired(&granted, unix_ms(granted.stamp_ms))))
            }
            Response::Event(Event::LeaseMoved { remaining_ms, stamp_ms, .. }) => {
                if let Some(held) = &mut self.held {
                    held.lease_expires_at = unix_ms(stamp_ms + u64::from(remaining_ms));
                }
                None
            }
            Response::Event(Event::Expired { .. }) => self.end(Some(Ok(self.expired()))),
            // Released: the contract has no event for it.
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

    /// The event that waited to know more of its claim. Where that is over meanwhile, it says what it can.
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

    /// Nothing follows but this.
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
        self.held =
            Some(Box::new(Held { acquired_at, lease_expires_at, every, heartbeat: Box::pin(sleep(every)) }));
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
            match followed.poll_told(context) {
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
        held.heartbeat.as_mut().reset(Instant::now() + held.every);
        Poll::Ready(self.heartbeat())
    }
}
