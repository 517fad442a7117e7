//! Tests of a lane, with a controlled clock and without a socket.

mod answering;
mod closing;
mod granting;
mod greeting;
mod keeping_alive;
mod losing;
mod multi_key;
mod needing;
mod reconciling;
mod reconnecting;
mod renewing;
mod request_timeout;
mod sessions;
mod superseding;
mod taken_up;
mod unauthorized;
mod uncertainty;
mod waiting;
mod watching;

use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::{Mutex, Weak};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};
use tracing::Span;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{
    Capabilities, ErrorAnswer, ErrorDetail, Extended, Granted, Inspect, KeptAlive, Listed, ListedLock,
    LockId, LockState, Request, SessionId, StatusAnswer, next_frame,
};

use super::*;
use crate::clock::{Clock, Timer};
use crate::connection::guarded_lane::GuardedLane;
use crate::guards::Lock;
use crate::handle::{Command, Handle};
use crate::hold::Hold;
use crate::loss::LossReason;
use crate::one_or_more::OneOrMore;
use crate::request::claim::{Claim, Lease};
use crate::request::job::{AcquireJob, Ask};
use crate::uncertain::{Outcome, Uncertain};

/// Milliseconds by which the server's clock is behind the local clock.
const SKEW_MS: u64 = 5_000;

/// A clock that stands still until a test moves it.
#[derive(Default)]
pub(super) struct StoppedClock(pub(super) Mutex<BootTime>);

struct NoTimer;

impl Timer for NoTimer {
    fn arm(&mut self, _: BootTime) {}

    fn poll_fired(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Clock for StoppedClock {
    fn now(&self) -> BootTime {
        *self.0.lock().unwrap()
    }

    fn timer(&self) -> io::Result<Box<dyn Timer>> {
        Ok(Box::new(NoTimer))
    }
}

/// A connected lane with its clock, its handle, and the queue of commands from handles and guards.
struct Rig {
    lane: GuardedLane,
    session: Arc<Session>,
    clock: Arc<StoppedClock>,
    handle: Arc<Handle>,
    commands: mpsc::UnboundedReceiver<Command>,
}

pub(super) fn at(ms: u64) -> BootTime {
    BootTime::from_nanos(ms * 1_000_000)
}

fn welcome(stamp_ms: u64, resumed: bool) -> Welcome {
    Welcome {
        session_id: SessionId { place: 1, secret: 2 },
        lane: 3,
        session_lease_ms: 10_000,
        stamp_ms,
        lease_default_ms: 30_000,
        lease_min_ms: 10,
        lease_max_ms: 86_400_000,
        in_flight_max: 1024,
        resumed,
        ..Welcome::default()
    }
}

fn id(place: u64) -> LockId {
    LockId { place, secret: 7 }
}

fn own(is_own: bool) -> &'static str {
    if is_own { ", if it is its own" } else { "" }
}

fn not_found() -> Response<'static> {
    refusal(ErrorCode::NotFound)
}

fn refusal(code: ErrorCode) -> Response<'static> {
    Response::Error(ErrorAnswer { code, detail: ErrorDetail::Text { value: 0, field: b"", message: b"" } })
}

/// Returns one page of the server's list of holds. `holds` has the `LockId::place` and the key of each hold; `next` is
/// the cursor of the next page.
fn listed(holds: &[(u64, &'static str)], next: u64) -> Response<'static> {
    let lock = |(place, key): &(u64, &'static str)| ListedLock {
        id: id(*place),
        key: key.as_bytes(),
        ..ListedLock::default()
    };
    Response::Listed(Listed { next, locks: holds.iter().map(lock).collect() })
}

impl Rig {
    /// Returns a lane that connected at 10 s of the local clock.
    fn new() -> Self {
        Self::offering(None)
    }

    /// Returns a lane that connected to a server with these capabilities.
    fn offering(capabilities: Option<Capabilities>) -> Self {
        let clock = Arc::new(StoppedClock(Mutex::new(at(10_000))));
        let (handle, commands) = Handle::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let session = Arc::new(Session::default());
        session.enter(handle.member()).unwrap();
        let options = SessionOptions {
            lease_ms: 0,
            outage_max: Duration::from_secs(5),
            request_timeout: Duration::from_secs(5),
        };
        let now = clock.now();
        let mut lane = GuardedLane::new(options, Arc::clone(&session), Arc::downgrade(&handle), now);
        assert_eq!(lane.request(), Some(SessionRequest::New { lease_ms: 0 }));
        lane.handle_welcome(Welcome { capabilities, ..welcome(10_000 - SKEW_MS, false) }, now, now);
        Self { lane, session, clock, handle, commands }
    }

    fn now(&self) -> BootTime {
        self.clock.now()
    }

    /// Returns the present time of the server's clock, in milliseconds.
    fn stamp_ms(&self) -> u64 {
        self.now().as_nanos() / 1_000_000 - SKEW_MS
    }

    /// Moves the clock to `ms`. Fires every timer that is due by then, at its instant.
    fn advance_to(&mut self, ms: u64) {
        while self.lane.next_timeout() <= at(ms) {
            let next = self.lane.next_timeout().max(self.now());
            *self.clock.0.lock().unwrap() = next;
            self.lane.handle_timers(next);
            assert!(self.lane.next_timeout() > next, "a timer that fired is still due");
        }
        *self.clock.0.lock().unwrap() = at(ms);
    }

    /// Passes the queued commands of guards and handles to the lane.
    fn take_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.lane.handle_command(command, self.clock.now());
        }
    }

    /// Returns the requests that the lane sends now, each with its number.
    fn sent(&mut self) -> Vec<(u32, String)> {
        self.take_commands();
        self.lane.transmit(self.clock.now());
        let bytes = std::mem::take(self.lane.out());
        let mut rest = &bytes[..];
        let mut requests = Vec::new();
        while let Some(frame) = next_frame(rest, FRAME_LEN_MAX).unwrap() {
            let text = match Request::decode(frame).unwrap() {
                Request::Acquire(acquire) => {
                    format!("acquire {} wait {}", acquire.key.escape_ascii(), acquire.terms.wait_ms)
                }
                Request::Pong(_) => "pong".to_owned(),
                Request::Release(release) => format!("release {}{}", release.id.place, own(release.own)),
                Request::Extend(extend) => {
                    format!("extend {} by {}{}", extend.id.place, extend.lease_ms, own(extend.own))
                }
                Request::Cancel(cancel) => format!("cancel {}", cancel.acquire_number),
                Request::Status(status) => format!("status {}", status.id.place),
                Request::Holds(_) => "holds".to_owned(),
                Request::KeepAlive(_) => "keep alive".to_owned(),
                Request::Goodbye(_) => "goodbye".to_owned(),
                other => format!("{other:?}"),
            };
            requests.push((frame.number(), text));
            rest = &rest[frame.len()..];
        }
        requests
    }

    fn sends(&mut self, expected: &[(u32, &str)]) {
        let sent = self.sent();
        let sent: Vec<_> = sent.iter().map(|(number, text)| (*number, text.as_str())).collect();
        assert_eq!(sent, expected);
    }

    fn receive(&mut self, number: u32, response: &Response<'_>) {
        self.try_receive(number, response).unwrap();
    }

    fn try_receive(&mut self, number: u32, response: &Response<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        response.encode(number, &mut bytes);
        let frame = next_frame(&bytes, FRAME_LEN_MAX).unwrap().unwrap();
        self.lane.handle_frame(frame, self.clock.now())
    }

    fn acquire(&mut self, lease: Lease, wait: Wait) -> Answer {
        self.acquire_with(lease, wait, |_| {})
    }

    fn acquire_with(&mut self, lease: Lease, wait: Wait, change: impl FnOnce(&mut AcquireJob)) -> Answer {
        let (reply, answer) = Reply::channel();
        let mut claim = Claim::key(b"k", false);
        claim.lease = lease;
        let token = self.handle.next_token();
        let mut job = AcquireJob {
            token,
            claim,
            wait,
            timer: BootTime::NEVER,
            renew: true,
            late_grant_count: 0,
            on_loss: None,
            on_queued: None,
            reply,
        };
        change(&mut job);
        self.submit(Job::Acquire(Box::new(job)));
        Answer { holds: answer, handle: Arc::downgrade(&self.handle) }
    }

    fn submit(&mut self, job: Job) {
        self.lane.handle_command(Command::Submit(job), self.clock.now());
    }

    /// Returns the server's grant, decided now, of the hold whose id has this `place`.
    fn granted(&self, place: u64, remaining_ms: u32, waited: bool) -> Response<'static> {
        let stamp_ms = self.stamp_ms();
        Response::Granted(Granted {
            id: id(place),
            fence: 1,
            remaining_ms,
            stamp_ms,
            waited,
            ..Granted::default()
        })
    }

    fn extended(&self, remaining_ms: u32) -> Response<'static> {
        Response::Extended(Extended { remaining_ms, stamp_ms: self.stamp_ms(), clamped: false })
    }

    fn kept_alive(&self) -> Response<'static> {
        Response::KeptAlive(KeptAlive { remaining_ms: 10_000, stamp_ms: self.stamp_ms() })
    }

    fn status(&self, remaining_ms: u32) -> Response<'static> {
        Response::Status(StatusAnswer {
            state: LockState::Held,
            shared: false,
            session_lease: true,
            fence: 1,
            remaining_ms,
            age_ms: 0,
            stamp_ms: self.stamp_ms(),
            priority: 0,
            waited_ms: 0,
            key: b"k",
        })
    }

    /// Acquires a lock with a lease of its own and returns its guard. The grant of the server, of the hold whose id has
    /// this `place`, answers the request `number`. So the acquire must be that request.
    fn lock(&mut self, number: u32, place: u64, lease_ms: u32) -> Lock {
        self.lock_with(Lease::Own { ms: lease_ms }, number, place, lease_ms, |_| {})
    }

    /// Acquires a lock and returns its guard. The server grants `remaining_ms` to the acquire, which must have the
    /// request number `number`.
    fn lock_with(
        &mut self,
        lease: Lease,
        number: u32,
        place: u64,
        remaining_ms: u32,
        change: impl FnOnce(&mut AcquireJob),
    ) -> Lock {
        let mut answer = self.acquire_with(lease, Wait::Try, change);
        self.sent();
        let granted = self.granted(place, remaining_ms, false);
        self.receive(number, &granted);
        only(&mut answer)
    }

    /// Returns a lane whose callers wait at most two seconds for a response.
    fn impatient() -> Self {
        let mut rig = Self::new();
        rig.lane.options.request_timeout = Duration::from_secs(2);
        rig
    }

    fn lose_connection(&mut self) {
        self.lane.handle_disconnected(Error::disconnected("cut"), self.clock.now());
    }

    fn ask(&mut self) -> oneshot::Receiver<Result<()>> {
        self.ask_or_change(false)
    }

    /// Queues a query for a caller. If `is_change` is true, the lane treats it like a request that changes something.
    fn ask_or_change(&mut self, is_change: bool) -> oneshot::Receiver<Result<()>> {
        let (reply, answer) = Reply::channel();
        let encode =
            |number: u32, out: &mut Vec<u8>| Request::Inspect(Inspect { key: b"k" }).encode(number, out);
        self.submit(Job::Ask(Box::new(Ask {
            need: None,
            is_change,
            encode,
            read: |_: Response<'_>| Some(()),
            reply,
        })));
        answer
    }

    fn release(&mut self, lock: &mut Lock) -> oneshot::Receiver<Result<bool>> {
        let (reply, answer) = Reply::channel();
        lock.armed = false;
        let hold = Arc::clone(&lock.hold);
        self.lane.handle_command(Command::Release { hold, reply }, self.clock.now());
        answer
    }

    fn come_back(&mut self, resumed: bool) {
        let now = self.now();
        self.lane.handle_welcome(welcome(self.stamp_ms(), resumed), now, now);
    }

    /// Connects again, to a server process that has restored the session of an earlier one.
    fn come_back_after_restart(&mut self) {
        let now = self.now();
        let welcome = Welcome { server_id: 7, ..welcome(self.stamp_ms(), true) };
        self.lane.handle_welcome(welcome, now, now);
    }
}

/// Answer to an acquire, as its caller gets it.
struct Answer {
    holds: oneshot::Receiver<Result<OneOrMore<Arc<Hold>>>>,
    /// Handle for the guards of granted holds. It is weak, because a strong handle would keep the connection open as
    /// long as the `Answer` lives.
    handle: Weak<Handle>,
}

impl Answer {
    /// Returns the guards of the granted holds, or the error; [`TryRecvError`] without an answer.
    fn try_recv(&mut self) -> std::result::Result<Result<Vec<Lock>>, TryRecvError> {
        let lock = |hold: &Arc<Hold>| {
            let handle = self.handle.upgrade().expect("the lane has a handle");
            Lock::new(Arc::clone(hold), handle, Span::none())
        };
        Ok(self.holds.try_recv()?.map(|holds| holds.iter().map(lock).collect()))
    }
}

impl Deref for Answer {
    type Target = oneshot::Receiver<Result<OneOrMore<Arc<Hold>>>>;

    fn deref(&self) -> &Self::Target {
        &self.holds
    }
}

impl DerefMut for Answer {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.holds
    }
}

/// Returns the guard that the caller of an acquire of one key gets.
fn only(answer: &mut Answer) -> Lock {
    let mut locks = answer.try_recv().unwrap().unwrap();
    assert_eq!(locks.len(), 1);
    locks.remove(0)
}

const OWN: Lease = Lease::Own { ms: 3_000 };

/// Returns the error of a caller that got [`Error::Uncertain`].
fn uncertain<T: std::fmt::Debug>(answer: &mut oneshot::Receiver<Result<T>>) -> Uncertain {
    match answer.try_recv().unwrap() {
        Err(Error::Uncertain(uncertain)) => uncertain,
        other => panic!("{other:?}"),
    }
}

/// Returns the outcome, if it is known.
fn outcome(uncertain: &Uncertain) -> Option<Outcome> {
    match pin!(uncertain.resolve()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// Sets the request id, so that other acquires with it may take up the hold.
fn named(job: &mut AcquireJob) {
    job.claim.request_id = Some(b"r".as_slice().into());
}

impl Rig {
    /// Returns a grant whose `LockId::place` is `place`, with the flag `repeated`: the acquire's request id has found
    /// an existing hold.
    fn granted_again(&self, place: u64, remaining_ms: u32) -> Response<'static> {
        let stamp_ms = self.stamp_ms();
        let granted = Granted { id: id(place), fence: 1, remaining_ms, stamp_ms, ..Granted::default() };
        Response::Granted(Granted { repeated: true, ..granted })
    }

    fn extend(&mut self, place: u64) -> oneshot::Receiver<Result<Duration>> {
        let (reply, answer) = Reply::channel();
        self.submit(Job::Extend { id: id(place), lease_ms: 60_000, is_own: false, reply });
        answer
    }

    /// Acquires a lock with a request id and returns its guard. The acquire must have the request number `number`.
    /// Another acquire may take up the hold.
    fn named_lock(&mut self, number: u32, place: u64) -> Lock {
        self.lock_with(OWN, number, place, 3_000, named)
    }
}
