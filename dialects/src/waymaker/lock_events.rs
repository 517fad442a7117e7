//! The events of one attempt, over any number of connections.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};
use tonic::codegen::BoxFuture;
use tonic::{Code, Status, Streaming};
use waymaker_client::internal::{Anchor, Backoff, LeaseReport, deadline};
use waymaker_client::{BootClock, BootTime, Clock};
use waymaker_proto::waymaker::{self as contract, Lease};

use super::claim::Claim;
use super::local_deadline::LocalDeadline;
use super::{Error, LockEvent, LockRequest, Waymaker};

/// The events of one attempt, in the order
///
/// ```text
/// Waiting* -> Acquired -> Heartbeat* -> (Expired | end)
/// Waiting* -> Failed
/// ```
///
/// An end without `Expired` means that a client unlocked the lock.
///
/// If the stream breaks, it is opened again with the same key and `request_id`: within `max_wait_period` while the claim waits,
/// and until the local deadline while the lock is held. If the lock is still held, no event shows the interruption. If it is
/// not, or if another lock was granted, the event is [`LockEvent::Expired`], and the client unlocks the other lock.
///
/// The stream is opened again, and the local deadline is checked, only during calls of [`next`](Self::next). Events never move
/// the local deadline. If the lease is extended by another call than [`extend`](Self::extend), `Expired` comes at the old
/// deadline.
///
/// A value that is dropped while its claim waits gives up the queue position. A value that is dropped while the lock is held
/// unlocks the lock, unless the request has a `request_id`: then the lock stays until its lease ends, and the next attempt
/// finds it by its `request_id`. [`forget`](Self::forget) never unlocks.
#[derive(Debug)]
#[must_use = "the request is sent only with the first `next`"]
pub struct LockEvents {
    client: Waymaker,
    request: contract::LockRequest,
    shared: bool,
    /// Whether this client chose the request id, so no earlier request has used it.
    is_new: bool,
    state: State,
    backoff: Backoff,
    /// Time of the first request, and end of the wait.
    began: Option<BootTime>,
    wait_ends: BootTime,
    /// Time of the request for the current stream, and maximum wait of that request.
    sent: BootTime,
    sent_wait_ms: u32,
    /// Id of the last queue position that the caller knows.
    waiting_id: String,
    /// Relation between the time of day of the server and the local clock.
    anchor: Option<Anchor>,
    hold: Option<Hold>,
    deadline: Arc<LocalDeadline>,
    /// Runtime that unlocks the lock if this is dropped while the lock is held. `None` if the drop leaves the lock alone.
    runtime: Option<Handle>,
}

/// A granted lock.
#[derive(Clone, Debug)]
struct Hold {
    id: String,
    fence_token: u64,
    lease_expires_at: i64,
    acquired_at: i64,
    /// Whether the caller got the event `Acquired`.
    is_told: bool,
}

/// State of the attempt.
enum State {
    /// The next step is a request.
    Asking,
    Opening(BoxFuture<Streaming<contract::LockEvent>, Status>),
    Open(Box<Streaming<contract::LockEvent>>),
    /// An extension determines the end of the lease; the stream waits.
    Confirming(BoxFuture<Lease, Error>, Box<Streaming<contract::LockEvent>>),
    Pausing(Pin<Box<Sleep>>),
    Over,
}

/// Result of waiting in a state.
enum Step {
    DeadlinePassed,
    Ask,
    Opened(Box<Streaming<contract::LockEvent>>),
    Heard(contract::LockEvent),
    Closed,
    Confirmed(Lease),
    Broken(Error),
}

/// Result of [`LockEvents::next`]: an event, a final error, or the end.
type StreamItem = Option<Result<LockEvent, Error>>;

impl LockEvents {
    pub(super) fn new(client: Waymaker, LockRequest(mut request): LockRequest, shared: bool) -> Self {
        let is_new = request.request_id.is_empty();
        if is_new {
            request.request_id = format!("{:032x}", rand::random::<u128>());
        }
        Self {
            client,
            request,
            shared,
            is_new,
            state: State::Asking,
            backoff: Backoff::default(),
            began: None,
            wait_ends: BootTime::NEVER,
            sent: BootTime::NEVER,
            sent_wait_ms: 0,
            waiting_id: String::new(),
            anchor: None,
            hold: None,
            deadline: Arc::new(LocalDeadline::never()),
            runtime: None,
        }
    }

    /// Drops the stream without unlocking. A held lock stays until its lease ends, or until a client unlocks it by its id.
    pub fn forget(mut self) {
        self.disown();
    }

    /// Leaves the unlock to the caller.
    pub(super) fn disown(&mut self) {
        self.runtime = None;
    }

    /// Returns the next event; `None` after the last one. The future may be dropped and the call repeated without losing an
    /// event.
    ///
    /// # Errors
    /// [`Error::Superseded`] if another stream replaced this stream, and [`Error::Transport`] if the server could not be
    /// reached during the whole wait. No event follows an error.
    pub async fn next(&mut self) -> Option<Result<LockEvent, Error>> {
        loop {
            if matches!(self.state, State::Over) {
                return None;
            }
            let step = tokio::select! {
                biased;
                () = self.deadline.passed() => Step::DeadlinePassed,
                step = self.state.step() => step,
            };
            if let Some(told) = self.take(step) {
                return told;
            }
        }
    }

    /// Moves the end of the lease to `lease_timeout` from now on, which may also shorten it. The future does not borrow
    /// this, so it can be awaited beside [`next`](Self::next).
    ///
    /// # Errors
    /// [`Error::NotHeld`] before `Acquired`, [`Error::NotFound`] after the end of the lease or the local deadline.
    pub fn extend(
        &self,
        lease_timeout: Duration,
    ) -> impl Future<Output = Result<Lease, Error>> + Send + 'static + use<> {
        let hold = self.hold.as_ref().filter(|hold| hold.is_told).map(|hold| hold.id.clone());
        let (client, key, deadline) =
            (self.client.clone(), self.key().to_owned(), Arc::clone(&self.deadline));
        async move {
            let id = hold.ok_or_else(|| Error::NotHeld("the lock is not acquired yet".to_owned()))?;
            deadline.extend(&client, &key, &id, lease_timeout).await
        }
    }

    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.request.key
    }

    /// Returns the `request_id` of this attempt; a random one if the request had none.
    pub fn request_id(&self) -> &str {
        &self.request.request_id
    }

    /// Returns the claim with this id, which is unlocked when it is dropped. If the caller has named the `request_id`, it is not: another
    /// client may have taken the claim over by that, and the id stays the same.
    pub(super) fn claim(&self, id: String) -> Claim {
        let claim = Claim::new(&self.client, self.key(), id);
        if self.is_new { claim } else { claim.disarmed() }
    }

    pub(super) fn client(&self) -> &Waymaker {
        &self.client
    }

    pub(super) fn deadline(&self) -> &Arc<LocalDeadline> {
        &self.deadline
    }

    fn take(&mut self, step: Step) -> Option<StreamItem> {
        match step {
            Step::DeadlinePassed => self.expire(true, "the local deadline passed"),
            Step::Ask => {
                self.ask();
                None
            }
            Step::Opened(stream) => {
                self.state = State::Open(stream);
                None
            }
            Step::Heard(event) => LockEvent::of(event).and_then(|event| self.hear(event)),
            Step::Closed if self.hold.is_some() => self.end(None),
            Step::Closed => self.broken(Status::unknown("the stream ended without an outcome").into()),
            Step::Confirmed(lease) => self.confirmed(&lease),
            Step::Broken(error) => self.broken(error),
        }
    }

    fn ask(&mut self) {
        let now = BootClock.now();
        let mut request = self.request.clone();
        if self.began.is_none() {
            // With a request id of the caller, the next attempt may have found the lock before it was unlocked.
            self.runtime = Handle::try_current().ok().filter(|_| self.is_new);
            self.began = Some(now);
            self.wait_ends = now.after(Duration::from_millis(request.max_wait_period.into()));
        } else {
            // The server finds a held lock at once. If the lock has ended, do not wait for a new one.
            let left = if self.hold.is_some() { Duration::ZERO } else { self.wait_ends.since(now) };
            request.max_wait_period = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        }
        (self.sent, self.sent_wait_ms) = (now, request.max_wait_period);
        let (client, shared) = (self.client.clone(), self.shared);
        self.state = State::Opening(Box::pin(async move {
            client.unlocks.wait(&request.key).await;
            let mut service = client.service;
            let answer = if shared { service.read_lock(request).await } else { service.lock(request).await };
            answer.map(tonic::Response::into_inner)
        }));
    }

    fn hear(&mut self, event: LockEvent) -> Option<StreamItem> {
        match (event, &self.hold) {
            (LockEvent::Waiting { .. }, Some(_)) => {
                self.expire(false, "expired: the server no longer knows the lock")
            }
            (LockEvent::Waiting { id, waiting_expires_at }, None) => {
                self.backoff = Backoff::default();
                self.anchor = Some(Anchor {
                    sent: self.sent,
                    stamp_ms: unsigned(waiting_expires_at).saturating_sub(self.sent_wait_ms.into()),
                });
                let is_news = self.waiting_id != id;
                self.waiting_id.clone_from(&id);
                is_news.then(|| Some(Ok(LockEvent::Waiting { id, waiting_expires_at })))
            }
            (LockEvent::Acquired { id, fence_token, .. }, Some(hold))
                if (&id, fence_token) == (&hold.id, hold.fence_token) =>
            {
                tracing::debug!(key = self.request.key, id, "the lock is still held");
                self.backoff = Backoff::default();
                if !hold.is_told {
                    let hold = hold.clone();
                    self.confirm(&hold);
                }
                None
            }
            (LockEvent::Acquired { id, .. }, Some(_)) => {
                self.claim(id).give_back();
                self.expire(false, "expired: the server no longer knows the lock")
            }
            (LockEvent::Acquired { id, lease_expires_at, acquired_at, fence_token }, None) => {
                self.backoff = Backoff::default();
                let hold = Hold { id, fence_token, lease_expires_at, acquired_at, is_told: false };
                self.acquired(hold)
            }
            (heartbeat @ LockEvent::Heartbeat { .. }, _) => Some(Some(Ok(heartbeat))),
            (LockEvent::Failed { error, .. }, Some(_)) if error.is_passing() => self.broken(error),
            (LockEvent::Failed { error, .. }, Some(_)) => self.expire(false, &format!("expired: {error}")),
            (event @ (LockEvent::Failed { .. } | LockEvent::Expired { .. }), _) => self.end(Some(Ok(event))),
        }
    }

    /// Determines the local deadline, and returns the event `Acquired` once it is known.
    fn acquired(&mut self, hold: Hold) -> Option<StreamItem> {
        let stamp_ms = unsigned(hold.acquired_at);
        let remaining = hold.lease();
        let anchor = match self.anchor {
            Some(anchor) if self.is_new => anchor,
            // This is the first request with this id, so the lock was not granted before the request was sent.
            None if self.is_new && self.began == Some(self.sent) => Anchor { sent: self.sent, stamp_ms },
            _ => {
                self.confirm(&hold);
                self.hold = Some(hold);
                return None;
            }
        };
        let report = LeaseReport { stamp_ms, remaining, lease: remaining };
        self.deadline.lower(deadline(anchor, report, BootClock.now()));
        self.tell(hold)
    }

    /// Extends the lease to its whole length. The send time of this call gives a safe deadline.
    fn confirm(&mut self, hold: &Hold) {
        let State::Open(stream) = std::mem::replace(&mut self.state, State::Asking) else { return };
        let (client, key, deadline) =
            (self.client.clone(), self.key().to_owned(), Arc::clone(&self.deadline));
        let (id, lease) = (hold.id.clone(), hold.lease());
        let extended = async move { deadline.extend(&client, &key, &id, lease).await };
        self.state = State::Confirming(Box::pin(extended), stream);
    }

    fn confirmed(&mut self, lease: &Lease) -> Option<StreamItem> {
        if let State::Confirming(_, stream) = std::mem::replace(&mut self.state, State::Asking) {
            self.state = State::Open(stream);
        }
        let hold = self.hold.take()?;
        self.tell(Hold { lease_expires_at: lease.lease_expires_at, ..hold })
    }

    fn tell(&mut self, hold: Hold) -> Option<StreamItem> {
        let Hold { id, fence_token, lease_expires_at, acquired_at, .. } = hold.clone();
        self.hold = Some(Hold { is_told: true, ..hold });
        Some(Some(Ok(LockEvent::Acquired { id, lease_expires_at, acquired_at, fence_token })))
    }

    /// Handles a stream that broke or could not be opened.
    fn broken(&mut self, error: Error) -> Option<StreamItem> {
        if matches!(&error, Error::Transport(status) if status.code() == Code::Aborted) {
            return self.end(Some(Err(Error::Superseded)));
        }
        let may_wait = self.backoff.is_fresh() || BootClock.now() < self.wait_ends;
        match &self.hold {
            // Try again until the local deadline, after any error.
            Some(hold) if hold.is_told => {}
            Some(_) if error.is_passing() => {}
            None if error.is_passing() && may_wait => {}
            _ => return self.end(Some(Err(error))),
        }
        let pause = self.backoff.next(BootClock.now());
        tracing::debug!(key = self.request.key, %error, ?pause, "the stream broke; sending the request again");
        self.state = State::Pausing(Box::pin(sleep(pause)));
        None
    }

    fn expire(&mut self, local: bool, message: &str) -> Option<StreamItem> {
        let (id, lease_expires_at) =
            self.hold.as_ref().map(|hold| (hold.id.clone(), hold.lease_expires_at)).unwrap_or_default();
        self.end(Some(Ok(LockEvent::Expired { id, lease_expires_at, local, message: message.to_owned() })))
    }

    fn end(&mut self, last: StreamItem) -> Option<StreamItem> {
        self.state = State::Over;
        self.deadline.lower(BootClock.now());
        Some(last)
    }
}

impl Drop for LockEvents {
    fn drop(&mut self) {
        let is_over = matches!(self.state, State::Over);
        if let (Some(hold), Some(runtime), false) = (self.hold.take(), self.runtime.take(), is_over) {
            let _runtime = runtime.enter();
            Claim::new(&self.client, self.key(), hold.id).give_back();
        }
    }
}

impl Hold {
    /// Returns the length of the lease at the grant.
    fn lease(&self) -> Duration {
        Duration::from_millis(unsigned(self.lease_expires_at).saturating_sub(unsigned(self.acquired_at)))
    }
}

impl State {
    /// Waits for the next step. The future may be dropped and the call repeated: the state stays.
    async fn step(&mut self) -> Step {
        match self {
            Self::Asking => Step::Ask,
            Self::Opening(opening) => match opening.await {
                Ok(stream) => Step::Opened(Box::new(stream)),
                Err(status) => Step::Broken(status.into()),
            },
            Self::Open(stream) => match stream.message().await {
                Ok(Some(event)) => Step::Heard(event),
                Ok(None) => Step::Closed,
                Err(status) => Step::Broken(status.into()),
            },
            Self::Confirming(confirming, _) => confirming.await.map_or_else(Step::Broken, Step::Confirmed),
            Self::Pausing(pause) => {
                pause.as_mut().await;
                Step::Ask
            }
            Self::Over => std::future::pending().await,
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Asking => "Asking",
            Self::Opening(_) => "Opening",
            Self::Open(_) => "Open",
            Self::Confirming(..) => "Confirming",
            Self::Pausing(_) => "Pausing",
            Self::Over => "Over",
        })
    }
}

/// Converts a time; times before 1970 become 0.
fn unsigned(unix_ms: i64) -> u64 {
    u64::try_from(unix_ms).unwrap_or(0)
}
