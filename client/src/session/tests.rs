//! The rules of a session, with time handed in and no socket.

use std::io;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use tokio::sync::{mpsc, oneshot, watch};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{
    Contention, ErrorAnswer, ErrorDetail, Event, Extended, Granted, GrantedKey, GrantedKeys, Inspect,
    KeptAlive, Listed, ListedLock, LockId, LockState, Released, Request, RevokeReason, SessionId,
    StatusAnswer, Watching, next_frame,
};

use super::*;
use crate::claim::{Claim, Lease, Wanted, WantedKey};
use crate::clock::{Clock, Timer};
use crate::hold::{HoldLease, Key};
use crate::job::{AcquireJob, Ask};
use crate::lock::Lock;
use crate::loss::LossCallback;
use crate::uncertain::{Outcome, Uncertain};
use crate::watch::{KeyHolder, KeyState, WatchJob};

/// The server's clock runs so far behind the local one.
const SKEW_MS: u64 = 5_000;

/// A clock that stands still until it is moved.
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

/// A session, its clock, and the channel through which guards speak to it.
struct Rig {
    session: Session,
    common: Arc<SharedSession>,
    clock: Arc<StoppedClock>,
    shared: Arc<Shared>,
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

/// One page of holds, as places and keys.
fn listed(holds: &[(u64, &'static str)], next: u64) -> Response<'static> {
    let lock = |(place, key): &(u64, &'static str)| ListedLock {
        id: id(*place),
        key: key.as_bytes(),
        ..ListedLock::default()
    };
    Response::Listed(Listed { next, locks: holds.iter().map(lock).collect() })
}

impl Rig {
    /// Connected at 10 s of the local clock.
    fn new() -> Self {
        Self::offering(None)
    }

    /// Connected to a server with these capabilities.
    fn offering(capabilities: Option<Capabilities>) -> Self {
        let clock = Arc::new(StoppedClock(Mutex::new(at(10_000))));
        let (shared, commands) = Shared::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let common = Arc::new(SharedSession::default());
        common.enter(shared.commands()).unwrap();
        let options = SessionOptions {
            lease_ms: 0,
            outage_max: Duration::from_secs(5),
            request_timeout: Duration::from_secs(5),
        };
        let now = clock.now();
        let mut session = Session::new(options, Arc::clone(&common), Arc::downgrade(&shared), now);
        assert_eq!(session.request(), Some(SessionRequest::New { lease_ms: 0 }));
        session.handle_welcome(Welcome { capabilities, ..welcome(10_000 - SKEW_MS, false) }, now, now);
        Self { session, common, clock, shared, commands }
    }

    fn now(&self) -> BootTime {
        self.clock.now()
    }

    /// The server's clock now.
    fn stamp_ms(&self) -> u64 {
        self.now().as_nanos() / 1_000_000 - SKEW_MS
    }

    /// Lets time pass up to `ms`, firing every timer at its instant.
    fn advance_to(&mut self, ms: u64) {
        while self.session.next_timeout() <= at(ms) {
            let next = self.session.next_timeout().max(self.now());
            *self.clock.0.lock().unwrap() = next;
            self.session.handle_timers(next);
            assert!(self.session.next_timeout() > next, "a timer that fired is still due");
        }
        *self.clock.0.lock().unwrap() = at(ms);
    }

    /// The session hears what guards and handles have said.
    fn take_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.session.handle_command(command, self.clock.now());
        }
    }

    /// What is sent now, as number and request.
    fn sent(&mut self) -> Vec<(u32, String)> {
        self.take_commands();
        self.session.transmit(self.clock.now());
        let bytes = std::mem::take(&mut self.session.out);
        let mut rest = &bytes[..];
        let mut requests = Vec::new();
        while let Some(frame) = next_frame(rest, FRAME_LEN_MAX).unwrap() {
            let text = match Request::decode(frame).unwrap() {
                Request::Acquire(acquire) => {
                    format!("acquire {} wait {}", acquire.key.escape_ascii(), acquire.wait_ms)
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
        self.session.handle_frame(frame, self.clock.now())
    }

    fn acquire(&mut self, lease: Lease, wait: Wait) -> oneshot::Receiver<Result<Vec<Lock>>> {
        self.acquire_with(lease, wait, |_| {})
    }

    fn acquire_with(
        &mut self,
        lease: Lease,
        wait: Wait,
        change: impl FnOnce(&mut AcquireJob),
    ) -> oneshot::Receiver<Result<Vec<Lock>>> {
        let (reply, answer) = Reply::channel();
        let mut claim = Claim::key(b"k", false);
        claim.lease = lease;
        let token = self.shared.next_token();
        let mut job = AcquireJob {
            token,
            claim,
            wait,
            timer: BootTime::NEVER,
            renew: true,
            on_loss: None,
            on_queued: None,
            reply,
        };
        change(&mut job);
        self.submit(Job::Acquire(Box::new(job)));
        answer
    }

    fn submit(&mut self, job: Job) {
        self.session.handle_command(Command::Submit(job), self.clock.now());
    }

    /// A grant of `place` decided now.
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

    /// A lock of its own lease, as acquire number `number`.
    fn lock(&mut self, number: u32, place: u64, lease_ms: u32) -> Lock {
        let mut answer = self.acquire(Lease::Own { ms: lease_ms }, Wait::Try);
        self.sent();
        let granted = self.granted(place, lease_ms, false);
        self.receive(number, &granted);
        only(&mut answer)
    }

    fn lose_connection(&mut self) {
        self.session.handle_disconnected(Error::disconnected("cut"), self.clock.now());
    }

    fn come_back(&mut self, resumed: bool) {
        let now = self.now();
        self.session.handle_welcome(welcome(self.stamp_ms(), resumed), now, now);
    }
}

/// The guard of a claim on one key.
fn only(answer: &mut oneshot::Receiver<Result<Vec<Lock>>>) -> Lock {
    let mut locks = answer.try_recv().unwrap().unwrap();
    assert_eq!(locks.len(), 1);
    locks.remove(0)
}

const OWN: Lease = Lease::Own { ms: 3_000 };

#[test]
fn a_lock_is_renewed_each_time_a_third_of_its_lease_has_passed() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    rig.advance_to(10_999);
    rig.sends(&[]);
    rig.advance_to(11_000);
    rig.sends(&[(2, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    assert_eq!(lock.remaining(), Duration::from_millis(3_000 - 80));
    rig.advance_to(12_000);
    rig.sends(&[(3, "extend 9 by 3000")]);
}

/// Thousands of them would each be written, and wake the task, for itself.
#[test]
fn locks_granted_one_after_the_other_are_renewed_together() {
    let mut rig = Rig::new();
    let mut locks = Vec::new();
    for number in 1..=3 {
        locks.push(rig.lock(number, u64::from(number), 3_000));
        rig.advance_to(10_000 + u64::from(number));
    }
    rig.advance_to(10_999);
    rig.sends(&[]);
    rig.advance_to(11_000);
    rig.sends(&[(4, "extend 1 by 3000"), (5, "extend 2 by 3000"), (6, "extend 3 by 3000")]);
}

#[test]
fn a_lock_that_cannot_be_renewed_is_lost_at_its_local_deadline_without_any_network() {
    let mut rig = Rig::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut answer = rig.acquire_with(OWN, Wait::Try, |job| {
        let told = Arc::clone(&told);
        job.on_loss = Some(LossCallback::new(move |reason| told.lock().unwrap().push(reason)));
    });
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    rig.lose_connection();
    rig.advance_to(10_000 + 3_000 - 81);
    assert!(lock.is_held());
    rig.advance_to(10_000 + 3_000 - 80);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
    assert_eq!(*told.lock().unwrap(), [LossReason::LocalDeadline]);
}

#[test]
fn the_guard_says_lost_by_the_clock_alone_even_if_no_timer_has_fired() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    *rig.clock.0.lock().unwrap() = at(60_000);
    assert!(!lock.is_held());
    assert_eq!(lock.remaining(), Duration::ZERO);
}

#[test]
fn a_grant_that_waited_is_dated_by_the_last_keep_alive_and_not_by_its_own_request() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Forever);
    rig.sends(&[(1, "acquire k wait 4294967295")]);
    rig.advance_to(13_400);
    rig.sends(&[(2, "keep alive")]);
    rig.advance_to(14_000);
    // Decided at 13.6 s: the round trip began at 13.4 s.
    rig.receive(2, &Response::KeptAlive(KeptAlive { remaining_ms: 10_000, stamp_ms: 13_600 - SKEW_MS }));
    rig.advance_to(15_000);
    let granted = rig.granted(9, 3_000, true);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    // The keep-alive was sent at 13.4 s and decided at 13.6 s; those 200 ms may have been the way there.
    assert_eq!(lock.hold.deadline(), at(15_000 - 200 + 3_000 - 80));
}

#[test]
fn a_caller_that_gave_up_has_its_claim_cancelled_and_a_crossing_grant_released() {
    let mut rig = Rig::new();
    let answer = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    drop(answer);
    rig.session.handle_command(Command::Abandon { token: 0 }, at(10_000));
    rig.sends(&[(2, "cancel 1")]);
    let granted = rig.granted(9, 3_000, true);
    rig.receive(1, &granted);
    rig.sends(&[(3, "release 9")]);
}

#[test]
fn a_grant_whose_caller_went_unnoticed_is_released_by_its_guard() {
    let mut rig = Rig::new();
    drop(rig.acquire(OWN, Wait::Forever));
    rig.sent();
    let granted = rig.granted(9, 3_000, true);
    rig.receive(1, &granted);
    rig.sends(&[(2, "release 9")]);
    assert!(!rig.session.holds.any_alive(rig.now()), "the released hold is still renewed");
}

#[test]
fn an_acquire_given_up_before_it_was_sent_is_never_sent() {
    let mut rig = Rig::new();
    let _answer = rig.acquire(OWN, Wait::Forever);
    rig.session.handle_command(Command::Abandon { token: 0 }, at(10_000));
    rig.sends(&[]);
}

#[test]
fn unanswered_requests_are_repeated_under_their_numbers_with_what_is_left_of_their_wait() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    let mut waiting = rig.acquire(OWN, Wait::Until(at(14_000)));
    rig.sends(&[(2, "acquire k wait 4000")]);
    drop(lock);
    rig.sends(&[(3, "release 9")]);
    rig.advance_to(11_000);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(2, "acquire k wait 3000"), (3, "release 9"), (4, "holds")]);
    rig.receive(3, &Response::Released(Released::default()));
    rig.advance_to(11_500);
    let granted = rig.granted(10, 3_000, true);
    rig.receive(2, &granted);
    assert_eq!(only(&mut waiting).id(), id(10));
}

/// A copy of a request that came late was answered as the first time: refused.
#[test]
fn a_second_answer_to_a_request_is_no_end_of_the_connection_and_an_error_without_a_number_is() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Try);
    rig.sent();
    rig.receive(1, &refusal(ErrorCode::Frozen));
    assert_eq!(answer.try_recv().unwrap().unwrap_err().code(), Some(ErrorCode::Frozen));
    rig.receive(1, &refusal(ErrorCode::Frozen));
    assert!(rig.try_receive(0, &refusal(ErrorCode::Overloaded)).is_err());
}

#[test]
fn a_grant_of_before_the_outage_is_confirmed_before_the_caller_sees_it() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Try);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.lose_connection();
    rig.advance_to(10_500);
    rig.come_back(true);
    rig.sends(&[(1, "acquire k wait 0"), (2, "holds")]);
    rig.receive(1, &granted);
    assert!(answer.try_recv().is_err());
    rig.sends(&[(3, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    let lock = only(&mut answer);
    assert_eq!(lock.remaining(), Duration::from_millis(3_000 - 80));
}

#[test]
fn a_grant_that_died_in_the_outage_is_asked_for_again() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Try);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.lose_connection();
    rig.advance_to(10_500);
    rig.come_back(true);
    rig.sent();
    rig.receive(1, &granted);
    rig.sent();
    rig.receive(3, &not_found());
    rig.sends(&[(4, "acquire k wait 0")]);
    let granted = rig.granted(10, 3_000, false);
    rig.receive(4, &granted);
    assert_eq!(only(&mut answer).id(), id(10));
}

/// The answer to a repeated request may be as old as its first sending. Dating its stamp by the second sending would
/// put every later deadline too late.
#[test]
fn a_repeated_request_dates_its_answer_by_its_first_sending() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    rig.advance_to(20_000);
    rig.sent();
    let extended = rig.extended(30_000);
    rig.lose_connection();
    rig.advance_to(23_000);
    rig.come_back(true);
    let stamp = rig.session.anchor;
    let (number, _) = rig.sent().into_iter().find(|(_, text)| text == "extend 9 by 30000").unwrap();
    rig.receive(number, &extended);
    assert_eq!(rig.session.anchor, stamp);
    // 30 s from 20 s on, less 50 ms and a hundredth; but no more than before until it is asked for anew.
    let HoldLease::Own(own) = &lock.hold.lease else { panic!("its own lease") };
    assert_eq!(own.get(), at(20_000 + 30_000 - 350));
    assert_eq!(lock.hold.deadline(), at(10_000 + 30_000 - 350));
}

#[test]
fn after_an_outage_each_lock_keeps_its_old_deadline_until_the_server_has_answered_for_it() {
    let mut rig = Rig::new();
    let own = rig.lock(1, 9, 3_000);
    let mut answer = rig.acquire(Lease::Session, Wait::Try);
    rig.sent();
    let granted = rig.granted(8, 10_000, false);
    rig.receive(2, &granted);
    let on_session = only(&mut answer);
    let (own_before, session_before) = (own.hold.deadline(), on_session.hold.deadline());
    rig.lose_connection();
    rig.advance_to(12_000);
    rig.come_back(true);
    rig.sends(&[(3, "holds"), (4, "extend 9 by 3000")]);
    assert_eq!(own.hold.deadline(), own_before);
    assert_eq!(on_session.hold.deadline(), session_before);
    let extended = rig.extended(3_000);
    rig.receive(3, &listed(&[(8, "k"), (9, "k")], 0));
    rig.receive(4, &extended);
    assert_eq!(own.hold.deadline(), own_before.after(Duration::from_secs(2)));
    assert_eq!(on_session.hold.deadline(), session_before.after(Duration::from_secs(2)));
}

#[test]
fn a_lock_that_ends_with_its_connection_is_believed_in_no_longer_than_the_connection_is_known_to_live() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(Lease::Own { ms: 60_000 }, Wait::Try, |job| {
        job.claim.release_after_ms = Some(3_000);
    });
    rig.sent();
    let granted = rig.granted(9, 60_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    assert_eq!(lock.remaining(), Duration::from_millis(3_000 - 80));
    rig.advance_to(11_000);
    rig.sends(&[(2, "keep alive")]);
    let kept_alive = rig.kept_alive();
    rig.receive(2, &kept_alive);
    assert_eq!(lock.remaining(), Duration::from_millis(3_000 - 80));
    // The server may see the connection break at once, and the client only now.
    rig.advance_to(13_000);
    rig.lose_connection();
    rig.advance_to(13_900);
    rig.come_back(true);
    assert_eq!(lock.remaining(), Duration::from_millis(100 - 80));
    rig.sends(&[(3, "holds"), (4, "extend 9 by 60000")]);
    let extended = rig.extended(60_000);
    rig.receive(4, &extended);
    assert_eq!(lock.remaining(), Duration::from_millis(3_000 - 80));
}

#[test]
fn a_lock_that_ends_with_its_connection_is_lost_with_the_session() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, |job| job.claim.release_after_ms = Some(2_000));
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    rig.lose_connection();
    rig.come_back(false);
    assert_eq!(lock.loss_reason(), Some(LossReason::Revoked(RevokeReason::ConnectionLost)));
    rig.sends(&[]);
}

/// Its lease may be almost over, and what happened to it may have been told to somebody else.
#[test]
fn a_grant_found_by_its_request_id_is_renewed_before_the_caller_sees_it() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Try);
    rig.sent();
    let Response::Granted(granted) = rig.granted(9, 200, false) else { unreachable!() };
    rig.receive(1, &Response::Granted(Granted { repeated: true, ..granted }));
    assert!(answer.try_recv().is_err());
    rig.sends(&[(2, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    assert_eq!(only(&mut answer).remaining(), Duration::from_millis(3_000 - 80));
}

#[test]
fn a_lock_released_by_somebody_during_the_outage_is_found_lost() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(2, "holds"), (3, "extend 9 by 3000")]);
    rig.receive(3, &not_found());
    assert_eq!(lock.loss_reason(), Some(LossReason::Expired));
}

#[test]
fn a_session_that_is_gone_takes_its_locks_along_and_others_are_asked_for_by_id() {
    let mut rig = Rig::new();
    let own = rig.lock(1, 9, 30_000);
    let mut answer = rig.acquire(Lease::Session, Wait::Try);
    rig.sent();
    let granted = rig.granted(8, 10_000, false);
    rig.receive(2, &granted);
    let on_session = only(&mut answer);
    let _waiting = rig.acquire(OWN, Wait::Forever);
    rig.sends(&[(3, "acquire k wait 4294967295")]);
    rig.lose_connection();
    assert!(matches!(rig.session.request(), Some(SessionRequest::Resume { lane: 3, .. })));
    rig.session.handle_attempt_failed(Error::refused(ErrorCode::SessionGone, "", 0, ""));
    assert!(matches!(rig.session.request(), Some(SessionRequest::New { .. })));
    rig.come_back(false);
    assert_eq!(on_session.loss_reason(), Some(LossReason::SessionExpired));
    assert!(own.is_held());
    rig.sends(&[(1, "extend 9 by 30000"), (2, "acquire k wait 4294967295")]);
}

/// A server of version 1 knows no capabilities.
fn refused_flags() -> Error {
    Error::refused(ErrorCode::BadInput, "flags", 0, "flags: unknown bits 0x0004")
}

#[test]
fn an_older_server_is_asked_for_the_same_again_with_the_hello_of_version_1() {
    let mut rig = Rig::new();
    rig.lose_connection();
    let resume = rig.session.request();
    assert!(matches!(resume, Some(SessionRequest::Resume { lane: 3, .. })));
    assert_eq!((rig.session.offer(0).version_max, rig.session.offer(0).capabilities.is_some()), (2, true));
    assert!(rig.session.handle_hello_refused(0, &refused_flags()));
    assert_eq!(rig.session.request(), resume);
    assert_eq!(rig.session.offer(0), Offer { version_max: 1, capabilities: None });
    assert!(!rig.session.handle_hello_refused(0, &refused_flags()), "there is no third HELLO");
    // The refusal is remembered to the end of the outage, also if an attempt fails for another reason.
    rig.session.handle_attempt_failed(Error::refused(ErrorCode::Shutdown, "", 0, ""));
    assert_eq!(rig.session.offer(0).version_max, 1);
    assert!(rig.session.request().is_some());
    rig.come_back(true);
    rig.lose_connection();
    assert_eq!(rig.session.offer(0).version_max, 2);
}

#[test]
fn a_session_that_an_older_server_did_not_open_may_be_opened_by_another_connection() {
    let mut rig = Rig::new();
    let id = rig.common.state().id.expect("it is open");
    rig.common.gone(id);
    rig.lose_connection();
    rig.session.handle_command(Command::SessionGone { id }, rig.now());
    assert!(matches!(rig.session.request(), Some(SessionRequest::New { .. })));
    assert_eq!(rig.common.request(None, 0), None, "this connection opens it");
    assert!(rig.session.handle_hello_refused(0, &refused_flags()));
    assert!(matches!(rig.common.request(None, 0), Some(SessionRequest::New { .. })));
}

#[test]
fn other_refusals_of_hello_are_not_taken_for_an_older_server() {
    let mut rig = Rig::new();
    rig.lose_connection();
    assert!(rig.session.request().is_some());
    let refusals = [
        Error::refused(ErrorCode::BadInput, "version", 3, "the client speaks versions 1 to 2"),
        Error::refused(ErrorCode::Unauthorized, "flags", 0, ""),
        Error::refused(ErrorCode::SessionGone, "session_id", 0, ""),
        Error::disconnected("flags"),
    ];
    for refusal in refusals {
        assert!(!rig.session.handle_hello_refused(0, &refusal), "{refusal}");
    }
    assert_eq!(rig.session.offer(0).version_max, 2);
}

#[test]
fn one_keep_alive_moves_every_lock_on_the_session() {
    let mut rig = Rig::new();
    let mut locks = Vec::new();
    for number in 1..=50 {
        let mut answer = rig.acquire(Lease::Session, Wait::Try);
        rig.sent();
        let granted = rig.granted(u64::from(number), 10_000, false);
        rig.receive(number, &granted);
        locks.push(only(&mut answer));
    }
    rig.advance_to(13_400);
    rig.sends(&[(51, "keep alive")]);
    let kept_alive = rig.kept_alive();
    rig.receive(51, &kept_alive);
    for lock in &locks {
        assert!(lock.remaining() > Duration::from_millis(9_700), "{lock:?}");
    }
    rig.lose_connection();
    rig.advance_to(23_400);
    assert!(locks.iter().all(|lock| lock.loss_reason() == Some(LossReason::LocalDeadline)));
}

#[test]
fn a_silent_server_is_doubted_after_a_third_of_the_session_lease() {
    let mut rig = Rig::new();
    rig.advance_to(13_400);
    rig.sends(&[(1, "keep alive")]);
    rig.advance_to(16_600);
    assert!(rig.session.doubt().is_none());
    rig.advance_to(16_700);
    assert!(rig.session.doubt().is_some());
}

#[test]
fn a_shortened_lease_is_believed_in_no_longer_than_the_server_may_keep_it() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    rig.submit(Job::Extend { id: id(9), lease_ms: 1_000, is_own: false, reply: Reply::Nobody });
    // The answer may take long; the server may have shortened it at once.
    assert_eq!(lock.remaining(), Duration::from_millis(1_000 - 60));
    rig.sends(&[(2, "extend 9 by 1000")]);
    let extended = rig.extended(1_000);
    rig.receive(2, &extended);
    rig.advance_to(10_400);
    rig.sends(&[(3, "extend 9 by 1000")]);
}

/// The answer to the extend would make the guard believe in a lease that the renewal behind it has shortened.
#[test]
fn no_renewal_of_the_old_length_is_sent_behind_an_extend() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 300);
    let extend = Job::Extend { id: id(9), lease_ms: 30_000, is_own: false, reply: Reply::Nobody };
    rig.submit(extend);
    rig.sends(&[(2, "extend 9 by 30000")]);
    rig.advance_to(10_150);
    rig.sends(&[]);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(2, "extend 9 by 30000"), (3, "holds"), (4, "status 9")]);
    let (extended, status) = (rig.extended(30_000), rig.status(30_000));
    rig.receive(2, &extended);
    rig.receive(4, &status);
    assert_eq!(lock.remaining(), Duration::from_millis(30_000 - 350));
    rig.advance_to(20_150);
    rig.sends(&[(5, "keep alive"), (6, "extend 9 by 30000")]);
}

/// The renewal was served first and its answer says 30 s, but the extend behind it is served by now too.
#[test]
fn the_answer_to_an_earlier_renewal_does_not_undo_a_shortening() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    rig.advance_to(20_000);
    rig.sends(&[(2, "keep alive"), (3, "extend 9 by 30000")]);
    rig.submit(Job::Extend { id: id(9), lease_ms: 1_000, is_own: false, reply: Reply::Nobody });
    rig.sends(&[(4, "extend 9 by 1000")]);
    let extended = rig.extended(30_000);
    rig.receive(3, &extended);
    assert_eq!(lock.remaining(), Duration::from_millis(1_000 - 60));
    rig.receive(4, &refusal(ErrorCode::Overloaded));
    rig.advance_to(20_001);
    rig.sends(&[(5, "extend 9 by 30000")]);
    let extended = rig.extended(30_000);
    rig.receive(5, &extended);
    assert_eq!(lock.remaining(), Duration::from_millis(30_000 - 350));
}

#[test]
fn closing_without_a_connection_is_done_at_once_if_nothing_is_held() {
    let mut rig = Rig::new();
    rig.lose_connection();
    rig.session.handle_command(Command::Close { reply: Reply::Nobody }, at(10_000));
    assert!(rig.session.is_finished());
}

#[test]
fn a_lease_below_the_minimum_is_refused_and_leaves_the_lock_as_it_was() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    let (reply, mut answer) = Reply::channel();
    rig.submit(Job::Extend { id: id(9), lease_ms: 9, is_own: false, reply });
    assert_eq!(answer.try_recv().unwrap().unwrap_err().code(), Some(ErrorCode::BadInput));
    assert_eq!(lock.remaining(), Duration::from_millis(30_000 - 350));
}

#[test]
fn a_lease_that_somebody_else_shortened_is_believed_in_no_longer() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 30_000);
    let Response::Extended(Extended { remaining_ms, stamp_ms, .. }) = rig.extended(1_000) else {
        unreachable!()
    };
    rig.receive(0, &Response::Event(Event::LeaseMoved { id: id(9), remaining_ms, stamp_ms }));
    assert_eq!(lock.remaining(), Duration::from_millis(1_000 - 60));
}

#[test]
fn events_of_the_server_end_the_lock_with_their_reason() {
    for (event, reason) in [
        (Event::Expired { id: id(9) }, LossReason::Expired),
        (
            Event::Revoked { id: id(9), reason: RevokeReason::ReleasedElsewhere, message: b"" },
            LossReason::Revoked(RevokeReason::ReleasedElsewhere),
        ),
    ] {
        let mut rig = Rig::new();
        let lock = rig.lock(1, 9, 3_000);
        rig.receive(0, &Response::Event(event));
        assert_eq!(lock.loss_reason(), Some(reason));
    }
}

#[test]
fn the_end_of_the_session_ends_its_locks_and_the_connection() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(Lease::Session, Wait::Try);
    rig.sent();
    let granted = rig.granted(8, 10_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    assert!(rig.try_receive(0, &Response::Event(Event::SessionExpired)).is_err());
    assert_eq!(lock.loss_reason(), Some(LossReason::SessionExpired));
    assert!(matches!(rig.session.request(), Some(SessionRequest::New { .. })));
}

#[test]
fn a_wait_that_ran_out_while_the_request_was_repeated_is_a_timeout_and_not_busy() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Until(at(10_500)));
    rig.sent();
    let busy = ErrorAnswer { code: ErrorCode::Busy, detail: ErrorDetail::Contention(Contention::default()) };
    rig.receive(1, &Response::Error(busy));
    assert!(matches!(answer.try_recv().unwrap(), Err(Error::Timeout(_))));
}

/// What the caller was told to be uncertain.
fn uncertain<T: std::fmt::Debug>(answer: &mut oneshot::Receiver<Result<T>>) -> Uncertain {
    match answer.try_recv().unwrap() {
        Err(Error::Uncertain(uncertain)) => uncertain,
        other => panic!("{other:?}"),
    }
}

/// The outcome, if it is known by now.
fn outcome(uncertain: &Uncertain) -> Option<Outcome> {
    match pin!(uncertain.resolve()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

#[test]
fn whoever_was_left_uncertain_can_learn_how_it_ended() {
    let mut rig = Rig::new();
    let mut granted = rig.acquire(OWN, Wait::Forever);
    let mut refused = rig.acquire(OWN, Wait::Forever);
    let (reply, mut released) = Reply::channel();
    rig.submit(Job::Release {
        id: id(9),
        key: None,
        by_guard: false,
        take_up_number: None,
        is_own: false,
        reply,
    });
    rig.sent();
    rig.lose_connection();
    rig.advance_to(15_000);
    let [granted, refused] = [&mut granted, &mut refused].map(uncertain);
    let released = uncertain(&mut released);
    // Somebody wants to know, so the server is asked.
    assert!(rig.session.wants_connection(rig.now()));
    rig.come_back(true);
    rig.sent();
    assert_eq!([&granted, &refused, &released].map(outcome), [None; 3]);
    rig.receive(1, &Response::Released(Released { was_waiting: false }));
    assert_eq!(outcome(&released), Some(Outcome::Done));
    let grant = rig.granted(8, 10_000, false);
    rig.receive(2, &grant);
    // Confirmed first, since it may have ended meanwhile; then it is given back.
    let confirm = rig.sent().last().unwrap().0;
    let stamp_ms = rig.stamp_ms();
    rig.receive(confirm, &Response::Extended(Extended { remaining_ms: 10_000, stamp_ms, clamped: false }));
    assert_eq!(rig.sent().last().unwrap().1, "release 8");
    assert_eq!(outcome(&granted), Some(Outcome::NotDone));
    rig.receive(3, &refusal(ErrorCode::Cancelled));
    assert_eq!(outcome(&refused), Some(Outcome::NotDone));
}

#[test]
fn what_was_asked_of_a_session_that_is_gone_stays_unknown() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    rig.lose_connection();
    rig.advance_to(15_000);
    let uncertain = uncertain(&mut answer);
    rig.come_back(false);
    assert_eq!(outcome(&uncertain), Some(Outcome::Unknown));
}

#[test]
fn callers_learn_of_an_outage_when_their_patience_or_their_wait_is_over() {
    let mut rig = Rig::new();
    let mut short = rig.acquire(OWN, Wait::Until(at(11_000)));
    let mut long = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    rig.lose_connection();
    let mut late = rig.acquire(OWN, Wait::Forever);
    rig.advance_to(11_000);
    assert!(matches!(short.try_recv().unwrap(), Err(Error::Uncertain(_))));
    rig.advance_to(14_999);
    assert!(long.try_recv().is_err() && late.try_recv().is_err());
    rig.advance_to(15_000);
    assert!(matches!(long.try_recv().unwrap(), Err(Error::Uncertain(_))));
    assert!(late.try_recv().unwrap().is_err());
    assert!(!rig.session.wants_connection(rig.now()));
    // Should the connection come back all the same, what may have been granted is taken back.
    rig.come_back(true);
    let sent = rig.sent();
    let texts: Vec<_> = sent.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["acquire k wait 0", "acquire k wait 4294967295", "cancel 1", "cancel 2", "holds"]);
}

#[test]
fn a_lock_keeps_the_client_trying_until_its_local_deadline() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 60_000);
    rig.lose_connection();
    rig.advance_to(60_000);
    assert!(rig.session.wants_connection(rig.now()));
    rig.advance_to(70_000);
    assert!(!rig.session.wants_connection(rig.now()));
    drop(lock);
}

#[test]
fn closing_cancels_what_waits_releases_what_is_held_and_then_says_goodbye() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    let mut waiting = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    let (reply, mut closed) = Reply::channel();
    rig.session.handle_command(Command::Close { reply }, at(10_000));
    rig.sends(&[(3, "cancel 2"), (4, "release 9")]);
    assert_eq!(lock.loss_reason(), Some(LossReason::ClientClosed));
    assert!(matches!(waiting.try_recv().unwrap(), Err(Error::Closed)));
    // A grant that crosses is given back before the goodbye.
    let granted = rig.granted(10, 3_000, true);
    rig.receive(2, &granted);
    rig.receive(3, &Response::Cancelled(waymaker_protocol::Cancelled::default()));
    rig.receive(4, &Response::Released(Released::default()));
    rig.sends(&[(5, "release 10")]);
    rig.receive(5, &Response::Released(Released::default()));
    rig.sends(&[(6, "goodbye")]);
    rig.receive(6, &Response::Farewell(waymaker_protocol::Farewell));
    assert!(rig.session.is_finished());
    closed.try_recv().unwrap().unwrap();
}

#[test]
fn a_client_without_handles_says_goodbye() {
    let mut rig = Rig::new();
    rig.session.handle_deserted();
    rig.sends(&[(1, "goodbye")]);
}

#[test]
fn a_forgotten_lock_is_neither_renewed_nor_released() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    assert_eq!(lock.forget(), id(9));
    rig.sends(&[]);
    rig.advance_to(13_000);
    rig.sends(&[]);
}

#[test]
fn a_lock_that_is_not_to_be_renewed_ends_with_its_lease() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, |job| job.renew = false);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    rig.advance_to(13_000);
    rig.sends(&[]);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
}

#[test]
fn an_answer_later_than_its_lease_is_confirmed_and_then_given_up() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Try);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    *rig.clock.0.lock().unwrap() = at(13_000);
    rig.receive(1, &granted);
    rig.sends(&[(2, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    *rig.clock.0.lock().unwrap() = at(16_000);
    rig.receive(2, &extended);
    assert!(matches!(answer.try_recv().unwrap(), Err(Error::Lost(LossReason::LocalDeadline))));
    rig.sends(&[(3, "release 9")]);
}

#[test]
fn a_renewal_that_the_server_cannot_serve_now_is_tried_again_soon() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    rig.advance_to(11_000);
    rig.sent();
    rig.receive(2, &refusal(ErrorCode::Overloaded));
    assert!(lock.is_held());
    rig.advance_to(11_300);
    rig.sends(&[(3, "extend 9 by 3000")]);
}

#[test]
fn an_error_without_a_request_ends_the_connection() {
    let mut rig = Rig::new();
    let error = rig.try_receive(0, &refusal(ErrorCode::Overloaded)).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Overloaded));
}

#[test]
fn releasing_by_id_what_this_client_guards_ends_the_guard() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    rig.submit(Job::Release {
        id: id(9),
        key: Some(Key::from(&b"k"[..])),
        by_guard: false,
        take_up_number: None,
        is_own: false,
        reply: Reply::Nobody,
    });
    rig.sent();
    rig.receive(2, &Response::Released(Released::default()));
    assert_eq!(lock.loss_reason(), Some(LossReason::Revoked(RevokeReason::ReleasedElsewhere)));
}

#[test]
fn guards_learn_that_nobody_renews_any_more_when_the_task_goes() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    drop(rig.session);
    assert_eq!(lock.loss_reason(), Some(LossReason::ClientClosed));
}

/// What an earlier client forgot, or a grant that went to nobody, would block others for as long as the session lives.
#[test]
fn what_is_listed_after_an_outage_and_nobody_knows_is_released() {
    let mut rig = Rig::new();
    let _lock = rig.lock(1, 9, 30_000);
    let forgotten = rig.lock(2, 8, 30_000).forget();
    let _waiting = rig.acquire(OWN, Wait::Forever);
    rig.sent();
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(3, "acquire k wait 4294967295"), (4, "holds"), (5, "extend 9 by 30000")]);
    rig.receive(4, &listed(&[(9, "k"), (forgotten.place, "k"), (7, "stranger")], 77));
    rig.sends(&[(6, "holds")]);
    // The last may be what the acquire that is on its way became.
    rig.receive(6, &listed(&[(6, "stranger"), (5, "k")], 0));
    rig.sends(&[(7, "release 7"), (8, "release 6")]);
}

#[test]
fn a_lock_on_the_session_that_is_not_listed_is_asked_for_and_lost_if_it_is_not_found() {
    let mut rig = Rig::new();
    let mut locks = Vec::new();
    for number in 1..=3 {
        let mut answer = rig.acquire(Lease::Session, Wait::Try);
        rig.sent();
        let granted = rig.granted(u64::from(number), 10_000, false);
        rig.receive(number, &granted);
        locks.push(only(&mut answer));
    }
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(4, "holds")]);
    rig.receive(4, &listed(&[(2, "k")], 0));
    rig.sends(&[(5, "status 1"), (6, "status 3")]);
    let status = rig.status(10_000);
    rig.receive(5, &status);
    rig.receive(6, &not_found());
    assert_eq!(locks.iter().map(Lock::is_held).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn a_list_that_a_lost_connection_cut_short_is_begun_again() {
    let mut rig = Rig::new();
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(1, "holds")]);
    rig.receive(1, &listed(&[(7, "k")], 5));
    rig.sends(&[(2, "holds")]);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(3, "holds")]);
    rig.receive(3, &listed(&[], 0));
    rig.sends(&[]);
}

const KEYS: [&str; 2] = ["a", "b"];

impl Rig {
    fn acquire_keys(&mut self) -> oneshot::Receiver<Result<Vec<Lock>>> {
        self.acquire_with(OWN, Wait::Forever, |job| {
            let keys = KEYS.map(|key| WantedKey { key: key.as_bytes().into(), shared: false });
            job.claim.wanted = Wanted::Keys(keys.into());
        })
    }

    /// A grant of both keys, with places 8 and 9, decided now.
    fn granted_keys(&self) -> Response<'static> {
        let key = |(place, key): (u64, &'static str)| GrantedKey {
            id: id(place),
            fence: place,
            remaining_ms: 3_000,
            shared: false,
            key: key.as_bytes(),
        };
        let keys = [8, 9].into_iter().zip(KEYS).map(key).collect();
        Response::GrantedKeys(GrantedKeys { stamp_ms: self.stamp_ms(), keys, ..GrantedKeys::default() })
    }
}

#[test]
fn several_keys_become_locks_that_are_renewed_lost_and_released_one_by_one() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_keys();
    rig.sent();
    let granted = rig.granted_keys();
    rig.receive(1, &granted);
    let mut locks = answer.try_recv().unwrap().unwrap();
    assert_eq!(
        locks.iter().map(|lock| (lock.key(), lock.fence())).collect::<Vec<_>>(),
        [(&b"a"[..], 8), (b"b", 9)]
    );
    rig.advance_to(11_000);
    rig.sends(&[(2, "extend 8 by 3000"), (3, "extend 9 by 3000")]);
    rig.receive(0, &Response::Event(Event::Expired { id: id(8) }));
    assert!(!locks[0].is_held() && locks[1].is_held());
    drop(locks.pop());
    rig.sends(&[(4, "release 9")]);
}

/// Half of the keys are worth nothing.
#[test]
fn of_several_keys_that_died_in_part_in_an_outage_the_rest_is_released_and_all_are_asked_for_again() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_keys();
    rig.sent();
    let granted = rig.granted_keys();
    rig.lose_connection();
    rig.come_back(true);
    rig.sent();
    rig.receive(1, &granted);
    rig.sends(&[(3, "extend 8 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    rig.sends(&[(4, "extend 9 by 3000")]);
    rig.receive(4, &not_found());
    assert!(answer.try_recv().is_err());
    let sent = rig.sent();
    assert_eq!(sent[0].1, "release 8");
    assert!(sent[1].1.starts_with("AcquireKeys"), "{sent:?}");
    rig.advance_to(10_001);
    let granted = rig.granted_keys();
    rig.receive(sent[1].0, &granted);
    assert_eq!(answer.try_recv().unwrap().unwrap().len(), 2);
}

#[test]
fn a_callback_for_several_keys_is_called_once() {
    let mut rig = Rig::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (reply, mut answer) = Reply::channel();
    let mut claim = Claim::key(b"a", false);
    claim.wanted = Wanted::Keys(vec![WantedKey { key: Key::from(&b"a"[..]), shared: false }]);
    let on_loss = {
        let told = Arc::clone(&told);
        LossCallback::new(move |reason| told.lock().unwrap().push(reason))
    };
    let token = rig.shared.next_token();
    let wait = Wait::Try;
    rig.submit(Job::Acquire(Box::new(AcquireJob {
        token,
        claim,
        wait,
        timer: BootTime::NEVER,
        renew: false,
        on_loss: Some(on_loss),
        on_queued: None,
        reply,
    })));
    rig.sent();
    let granted = rig.granted_keys();
    rig.receive(1, &granted);
    let locks = answer.try_recv().unwrap().unwrap();
    rig.receive(0, &Response::Event(Event::Expired { id: id(9) }));
    rig.advance_to(20_000);
    assert!(locks.iter().all(|lock| !lock.is_held()));
    assert_eq!(*told.lock().unwrap(), [LossReason::Expired]);
}

#[test]
fn a_hold_without_a_lease_is_believed_in_as_long_as_its_connection_is_known_to_live() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(Lease::Without, Wait::Try, |job| {
        job.claim.release_after_ms = Some(5_000);
    });
    rig.sent();
    let granted = rig.granted(9, u32::MAX, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    assert_eq!(lock.remaining(), Duration::from_millis(5_000 - 100));
    for number in 2..20 {
        rig.advance_to(10_000 + 1_650 * u64::from(number - 1));
        rig.sends(&[(number, "keep alive")]);
        let kept_alive = rig.kept_alive();
        rig.receive(number, &kept_alive);
        assert!(lock.is_held());
    }
    rig.lose_connection();
    rig.advance_to(60_000);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
}

#[test]
fn what_an_operator_wrote_reaches_the_guard() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    let reason = RevokeReason::Forced;
    rig.receive(0, &Response::Event(Event::Revoked { id: id(9), reason, message: b"it hung" }));
    assert_eq!(lock.loss_reason(), Some(LossReason::Revoked(reason)));
    assert_eq!(lock.loss_message(), "it hung");
}

/// A second connection of the same client that found out first.
#[test]
fn a_session_that_is_over_for_another_connection_is_over_for_this_one() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(Lease::Session, Wait::Try);
    rig.sent();
    let granted = rig.granted(8, 10_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    rig.common.gone(SessionId { place: 1, secret: 2 });
    rig.sent();
    assert_eq!(lock.loss_reason(), Some(LossReason::SessionExpired));
    assert_eq!(rig.session.doubt(), Some("the session ended"));
    rig.lose_connection();
    let other = SessionId { place: 4, secret: 4 };
    rig.common.opened(other, Duration::from_secs(10));
    assert_eq!(rig.session.request(), Some(SessionRequest::Join { id: other }));
}

#[test]
fn only_the_last_connection_of_a_client_says_goodbye() {
    let mut rig = Rig::new();
    rig.common.enter(rig.shared.commands()).unwrap();
    rig.session.handle_command(Command::Close { reply: Reply::Nobody }, at(10_000));
    rig.sends(&[]);
    assert!(rig.session.is_finished());
    assert!(rig.common.leave(), "this was the last one");
}

impl Rig {
    fn watch(&mut self) -> (watch::Receiver<Option<KeyState>>, oneshot::Receiver<Result<()>>) {
        let (states, receiver) = watch::channel(None);
        let (reply, answer) = Reply::channel();
        let (token, key) = (7, Key::from(&b"k"[..]));
        self.submit(Job::Watch(WatchJob { token, key, states: Some(states), reply }));
        (receiver, answer)
    }

    fn watching(&self, fence: u64, holder_count: u32) -> Response<'static> {
        Response::Watching(Watching { fence, stamp_ms: self.stamp_ms(), holder_count, waiter_count: 0 })
    }
}

const WATCH: &str = "Watch(Watch { key: [107] })";

#[test]
fn a_watch_tells_the_present_state_and_then_each_change() {
    let mut rig = Rig::new();
    let (mut states, mut answer) = rig.watch();
    rig.sends(&[(1, WATCH)]);
    let watching = rig.watching(3, 1);
    rig.receive(1, &watching);
    answer.try_recv().unwrap().unwrap();
    assert_eq!(*states.borrow_and_update(), Some(KeyState::Held { fence: 3, holder: None }));
    rig.receive(1, &Response::Event(Event::KeyFreed { fence: 3 }));
    rig.receive(1, &Response::Event(Event::KeyHeld { fence: 4, shared: true, owner: b"x" }));
    // The newest wins.
    let holder = KeyHolder { shared: true, owner: b"x".to_vec() };
    assert_eq!(*states.borrow_and_update(), Some(KeyState::Held { fence: 4, holder: Some(holder) }));
    rig.receive(9, &Response::Event(Event::KeyFreed { fence: 4 }));
    assert!(!states.has_changed().unwrap(), "that was another watch");
    rig.session.handle_command(Command::Unwatch { token: 7 }, at(10_000));
    rig.sends(&[(2, "Unwatch(Unwatch { watch_number: 1, key: [107] })")]);
    assert!(states.has_changed().is_err());
}

#[test]
fn a_watch_begins_again_on_the_next_connection_and_tells_only_what_has_changed() {
    let mut rig = Rig::new();
    let (mut states, _answer) = rig.watch();
    rig.sent();
    rig.lose_connection();
    rig.advance_to(10_100);
    rig.come_back(true);
    // Not under its old number: what the server would repeat is no watch.
    rig.sends(&[(2, "holds"), (3, WATCH)]);
    let watching = rig.watching(3, 0);
    rig.receive(3, &watching);
    assert_eq!(*states.borrow_and_update(), Some(KeyState::Free { fence: 3 }));
    for (resumed, number, fence, changed) in [(true, 5, 3, false), (false, 1, 4, true)] {
        rig.lose_connection();
        assert!(rig.session.wants_connection(at(99_000)));
        rig.come_back(resumed);
        assert_eq!(rig.sent().last().unwrap(), &(number, WATCH.to_owned()));
        let watching = rig.watching(fence, 0);
        rig.receive(number, &watching);
        assert_eq!(states.has_changed().unwrap(), changed);
    }
}

#[test]
fn a_watch_whose_events_were_dropped_begins_anew() {
    let mut rig = Rig::new();
    let (states, _answer) = rig.watch();
    rig.sent();
    let watching = rig.watching(3, 0);
    rig.receive(1, &watching);
    rig.receive(1, &Response::Event(Event::Overrun));
    rig.sends(&[(2, "Unwatch(Unwatch { watch_number: 1, key: [107] })"), (3, WATCH)]);
    let watching = rig.watching(8, 1);
    rig.receive(3, &watching);
    assert_eq!(*states.borrow(), Some(KeyState::Held { fence: 8, holder: None }));
}

#[test]
fn a_watch_given_up_before_it_began_is_ended_when_it_begins() {
    let mut rig = Rig::new();
    let _watch = rig.watch();
    rig.sent();
    rig.session.handle_command(Command::Unwatch { token: 7 }, at(10_000));
    rig.sends(&[]);
    let watching = rig.watching(3, 0);
    rig.receive(1, &watching);
    rig.sends(&[(2, "Unwatch(Unwatch { watch_number: 1, key: [107] })")]);
}

/// Its holds have other ids than the claim had while it waited, so only its request id finds them under a new number.
#[test]
fn a_claim_on_several_keys_has_a_request_id_that_outlives_its_number() {
    let mut rig = Rig::new();
    let _answer = rig.acquire_keys();
    let (_, first) = rig.sent().remove(0);
    assert!(first.contains("request_id: Some("), "{first}");
    rig.lose_connection();
    rig.come_back(false);
    let (number, again) = rig.sent().remove(0);
    assert_eq!((number, &again), (1, &first));
    let _other = rig.acquire_keys();
    assert_ne!(rig.sent().remove(0).1, first);
}

/// Names the logical acquire of which all attempts are.
fn named(job: &mut AcquireJob) {
    job.claim.request_id = Some(b"r".as_slice().into());
}

impl Rig {
    /// The grant of `place` once more, to another acquire with its request id.
    fn granted_again(&self, place: u64, remaining_ms: u32) -> Response<'static> {
        let stamp_ms = self.stamp_ms();
        let granted = Granted { id: id(place), fence: 1, remaining_ms, stamp_ms, ..Granted::default() };
        Response::Granted(Granted { repeated: true, ..granted })
    }

    /// Tells the acquire of this number that another one has its hold.
    fn taken_up(&mut self, number: u32, place: u64) {
        self.receive(number, &Response::Event(Event::TakenUp { id: id(place) }));
    }

    /// A lock that another acquire may take up, as acquire number `number`.
    fn named_lock(&mut self, number: u32, place: u64) -> Lock {
        let mut answer = self.acquire_with(OWN, Wait::Try, named);
        self.sent();
        let granted = self.granted(place, 3_000, false);
        self.receive(number, &granted);
        only(&mut answer)
    }
}

#[test]
fn a_grant_that_was_given_up_and_found_again_is_not_released_behind_its_new_owner() {
    let mut rig = Rig::new();
    drop(rig.acquire_with(OWN, Wait::Forever, named));
    rig.sent();
    rig.session.handle_command(Command::Abandon { token: 0 }, rig.now());
    let mut answer = rig.acquire_with(OWN, Wait::Forever, named);
    rig.sends(&[(2, "cancel 1"), (3, "acquire k wait 4294967295")]);
    // Granted before the cancellation arrived, and found by the second attempt before it was released.
    let (granted, again) = (rig.granted(9, 3_000, false), rig.granted_again(9, 3_000));
    rig.receive(1, &granted);
    rig.receive(3, &again);
    rig.sends(&[(4, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(4, &extended);
    let lock = only(&mut answer);
    rig.sends(&[]);
    assert!(lock.is_held());
    drop(lock);
    rig.sends(&[(5, "release 9")]);
}

#[test]
fn a_release_that_was_sent_is_served_before_the_grant_of_the_next_attempt_is_confirmed() {
    let mut rig = Rig::new();
    let lock = rig.named_lock(1, 9);
    let mut answer = rig.acquire_with(OWN, Wait::Forever, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    drop(lock);
    rig.sends(&[(3, "release 9")]);
    rig.receive(2, &again);
    rig.sends(&[(4, "extend 9 by 3000")]);
    rig.receive(3, &Response::Released(Released::default()));
    rig.receive(4, &not_found());
    rig.sends(&[(5, "acquire k wait 4294967295")]);
    let granted = rig.granted(10, 3_000, true);
    rig.receive(5, &granted);
    assert_eq!(only(&mut answer).id(), id(10));
}

#[test]
fn a_newer_guard_of_a_hold_supersedes_the_older_one_before_it_comes_to_be() {
    let mut rig = Rig::new();
    let older = rig.named_lock(1, 9);
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(2, &again);
    assert_eq!(older.loss_reason(), Some(LossReason::Superseded));
    rig.sends(&[(3, "extend 9 by 3000")]);
    // No request of the older guard is sent, also while the newer one is being confirmed.
    let (reply, mut extended) = Reply::channel();
    let extend = Command::Extend { hold: Arc::clone(&older.hold), lease_ms: 20, reply };
    rig.session.handle_command(extend, rig.now());
    assert!(matches!(extended.try_recv(), Ok(Err(Error::Lost(LossReason::Superseded)))));
    drop(older);
    rig.sends(&[]);
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    let newer = only(&mut answer);
    assert!(newer.is_held());
    drop(newer);
    rig.sends(&[(4, "release 9")]);
}

/// The older guard may have been lost at its local deadline, while the server still kept the hold.
#[test]
fn a_guard_that_was_lost_at_its_deadline_does_not_release_what_a_newer_one_has() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, |job| {
        named(job);
        job.renew = false;
    });
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    let older = only(&mut answer);
    rig.advance_to(12_990);
    assert_eq!(older.loss_reason(), Some(LossReason::LocalDeadline));
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 10);
    rig.receive(2, &again);
    drop(older);
    rig.sends(&[(3, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    assert!(only(&mut answer).is_held());
}

#[test]
fn a_superseded_guard_that_is_dropped_late_leaves_the_newer_one_its_hold() {
    let mut rig = Rig::new();
    let older = rig.named_lock(1, 9);
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(2, &again);
    rig.sends(&[(3, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    let newer = only(&mut answer);
    drop(older);
    rig.sends(&[]);
    assert!(newer.is_held());
    drop(newer);
    rig.sends(&[(4, "release 9")]);
}

#[test]
fn a_hold_that_is_granted_twice_has_one_owner_although_no_grant_is_marked_as_repeated() {
    let mut rig = Rig::new();
    let older = rig.lock(1, 9, 3_000);
    let newer = rig.lock(2, 9, 3_000);
    assert_eq!(older.loss_reason(), Some(LossReason::Superseded));
    drop(older);
    rig.sends(&[]);
    assert!(newer.is_held());
}

#[test]
fn of_two_guards_of_a_hold_that_is_overdue_only_the_owner_releases_it() {
    let mut rig = Rig::new();
    let older = rig.named_lock(1, 9);
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(2, &again);
    rig.sent();
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    let newer = only(&mut answer);
    rig.lose_connection();
    rig.advance_to(13_000);
    assert_eq!(newer.loss_reason(), Some(LossReason::LocalDeadline));
    rig.come_back(true);
    let first = rig.sent();
    drop(older);
    assert!(!rig.sent().iter().any(|(_, text)| text == "release 9"), "after {first:?}");
    drop(newer);
    assert!(rig.sent().iter().all(|(_, text)| text == "release 9"));
}

#[test]
fn a_lock_that_was_lost_at_its_local_deadline_is_released_when_its_guard_goes() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, |job| job.renew = false);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    rig.advance_to(12_990);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
    drop(lock);
    rig.sends(&[(2, "release 9")]);
}

#[test]
fn a_guard_learns_that_another_client_took_up_its_hold_and_gives_nothing_back() {
    let mut rig = Rig::new();
    let lock = rig.named_lock(1, 9);
    rig.taken_up(7, 9);
    assert!(lock.is_held(), "that was another acquire");
    rig.taken_up(1, 9);
    assert_eq!(lock.loss_reason(), Some(LossReason::Superseded));
    drop(lock);
    rig.sends(&[]);
}

/// What a session sends to a server with these capabilities when a guard extends, renews and releases.
fn sent_for_a_guard(offered: Option<Capabilities>, change: impl FnOnce(&mut AcquireJob)) -> Vec<String> {
    let mut rig = Rig::offering(offered);
    let mut answer = rig.acquire_with(OWN, Wait::Try, change);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    rig.advance_to(11_000);
    let mut sent = rig.sent();
    let (reply, _answer) = Reply::channel();
    rig.session
        .handle_command(Command::Extend { hold: Arc::clone(&lock.hold), lease_ms: 5_000, reply }, rig.now());
    drop(lock);
    sent.extend(rig.sent());
    sent.into_iter().map(|(_, text)| text).collect()
}

/// Another client may take the hold up before the server has read such a request.
#[test]
fn requests_about_a_hold_that_may_be_taken_up_are_for_its_own_lane_alone() {
    let plain = ["extend 9 by 3000", "extend 9 by 5000", "release 9"];
    let own = plain.map(|text| format!("{text}, if it is its own"));
    assert_eq!(sent_for_a_guard(Some(Capabilities::OWN_CLAIM), named), own);
    // The hold stays after its session, and then the lane is another one.
    assert_eq!(sent_for_a_guard(Some(Capabilities::OWN_CLAIM), |_| ()), plain);
    // An older server refuses the flag.
    assert_eq!(sent_for_a_guard(Some(Capabilities::NONE), named), plain);
    assert_eq!(sent_for_a_guard(None, named), plain);
}

/// No guard of this client has it, and one of another client may have taken it up.
#[test]
fn what_no_guard_has_is_released_only_if_it_is_its_own() {
    let mut rig = Rig::offering(Some(Capabilities::OWN_CLAIM));
    let mut abandoned = 0;
    let _answer = rig.acquire_with(OWN, Wait::Try, |job| {
        named(job);
        abandoned = job.token;
    });
    rig.sent();
    rig.session.handle_command(Command::Abandon { token: abandoned }, rig.now());
    rig.sends(&[(2, "cancel 1")]);
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    rig.sends(&[(3, "release 9, if it is its own")]);
    let _guard = rig.named_lock(4, 8);
    rig.session.handle_command(Command::Close { reply: Reply::Nobody }, rig.now());
    rig.sends(&[(5, "release 8, if it is its own")]);
}

#[test]
fn requests_of_a_session_after_an_outage_are_for_its_own_lane_alone() {
    let mut rig = Rig::offering(Some(Capabilities::OWN_CLAIM));
    let _guard = rig.named_lock(1, 9);
    rig.lose_connection();
    let (now, again) = (rig.now(), welcome(rig.stamp_ms(), true));
    rig.session.handle_welcome(Welcome { capabilities: Some(Capabilities::OWN_CLAIM), ..again }, now, now);
    rig.sends(&[(2, "holds"), (3, "extend 9 by 3000, if it is its own")]);
    rig.receive(2, &listed(&[(9, "k"), (7, "stranger")], 0));
    rig.sends(&[(4, "release 7, if it is its own")]);
}

/// Its lane has ended with the session, so no later lane may release it.
#[test]
fn a_release_that_was_not_answered_ends_with_its_session_if_another_client_may_have_the_hold() {
    for is_sent in [false, true] {
        let mut rig = Rig::new();
        let lock = rig.named_lock(1, 9);
        if !is_sent {
            rig.lose_connection();
        }
        drop(lock);
        rig.take_commands();
        if is_sent {
            rig.sends(&[(2, "release 9")]);
            rig.lose_connection();
        }
        rig.come_back(false);
        rig.sends(&[]);
    }
}

#[test]
fn a_renewal_that_is_refused_because_another_client_took_up_the_hold_supersedes_the_guard() {
    let mut rig = Rig::offering(Some(Capabilities::OWN_CLAIM));
    let lock = rig.named_lock(1, 9);
    rig.advance_to(11_000);
    rig.sends(&[(2, "extend 9 by 3000, if it is its own")]);
    rig.receive(2, &refusal(ErrorCode::Cancelled));
    assert_eq!(lock.loss_reason(), Some(LossReason::Superseded));
    drop(lock);
    rig.sends(&[]);
}

/// The event about it may come later, once the log has it.
#[test]
fn a_confirmation_that_is_refused_because_another_client_took_up_the_hold_takes_nothing_back() {
    let mut rig = Rig::offering(Some(Capabilities::OWN_CLAIM));
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(1, &again);
    rig.sends(&[(2, "extend 9 by 3000, if it is its own")]);
    rig.receive(2, &refusal(ErrorCode::Cancelled));
    assert!(matches!(answer.try_recv(), Ok(Err(Error::Lost(LossReason::Superseded)))));
    rig.sends(&[]);
}

#[test]
fn a_ping_is_answered_at_once() {
    let mut rig = Rig::new();
    rig.sent();
    rig.receive(0, &Response::Event(Event::Ping));
    rig.sends(&[(0, "pong")]);
    assert!(rig.session.doubt().is_none());
}

#[test]
fn a_release_that_was_not_sent_is_dropped_if_another_client_took_up_the_hold() {
    let mut rig = Rig::new();
    let lock = rig.named_lock(1, 9);
    let (reply, mut answer) = Reply::channel();
    rig.session.handle_command(Command::Release { hold: Arc::clone(&lock.hold), reply }, rig.now());
    rig.taken_up(1, 9);
    rig.sends(&[]);
    assert!(matches!(answer.try_recv(), Ok(Err(Error::Lost(LossReason::Superseded)))));
}

#[test]
fn a_grant_that_another_client_took_up_while_it_was_confirmed_is_delivered_to_nobody() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(1, &again);
    rig.sends(&[(2, "extend 9 by 3000")]);
    rig.taken_up(1, 9);
    assert!(matches!(answer.try_recv(), Ok(Err(Error::Lost(LossReason::Superseded)))));
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    rig.sends(&[]);
}

/// Another caller moves the end of the lease by the id of the hold, and the server may have confirmed the grant before that.
#[test]
fn a_grant_whose_lease_moved_while_it_was_confirmed_is_confirmed_again() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(1, &again);
    rig.sends(&[(2, "extend 9 by 3000")]);
    let _extended = rig.extend(9);
    rig.sends(&[(3, "extend 9 by 60000")]);
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    assert!(answer.try_recv().is_err(), "the lease may be another one by now");
    rig.sends(&[(4, "extend 9 by 3000")]);
    let extended = rig.extended(60_000);
    rig.receive(3, &extended);
    let extended = rig.extended(3_000);
    rig.receive(4, &extended);
    assert!(only(&mut answer).is_held());
}

/// The event was lost with the connection. The hold lives, but not in this lane.
#[test]
fn a_hold_that_was_taken_up_during_an_outage_is_superseded_once_the_lane_was_listed() {
    for (listed_holds, reason) in [(&[][..], Some(LossReason::Superseded)), (&[(9, "k")][..], None)] {
        let mut rig = Rig::new();
        let lock = rig.named_lock(1, 9);
        rig.lose_connection();
        rig.advance_to(10_500);
        rig.come_back(true);
        rig.sends(&[(2, "holds"), (3, "extend 9 by 3000")]);
        let extended = rig.extended(3_000);
        rig.receive(3, &extended);
        assert!(lock.remaining() < Duration::from_millis(2_500), "the renewal says nothing about who has it");
        rig.receive(2, &listed(listed_holds, 0));
        if reason.is_some() {
            rig.sends(&[(4, "status 9")]);
            let status = rig.status(3_000);
            rig.receive(4, &status);
        }
        assert_eq!(lock.loss_reason(), reason);
        assert!(reason.is_some() || lock.remaining() > Duration::from_millis(2_500));
    }
}

#[test]
fn what_another_client_may_have_taken_up_is_lost_with_the_session_and_not_released() {
    let mut rig = Rig::new();
    let (lock, released) = (rig.named_lock(1, 9), rig.named_lock(2, 10));
    rig.lose_connection();
    drop(released);
    rig.come_back(false);
    assert_eq!(lock.loss_reason(), Some(LossReason::SessionExpired));
    drop(lock);
    rig.sends(&[]);
}

/// The server may still keep the hold, and another client may have it by now.
#[test]
fn what_was_lost_at_its_local_deadline_before_its_session_ended_is_not_released() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, |job| {
        named(job);
        job.renew = false;
    });
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.receive(1, &granted);
    let lock = only(&mut answer);
    rig.advance_to(12_990);
    assert_eq!(lock.loss_reason(), Some(LossReason::LocalDeadline));
    rig.lose_connection();
    rig.come_back(false);
    drop(lock);
    rig.sends(&[]);
}

/// The release ended with its session and may never have been served. An acquire with the request id of the hold then finds the hold.
#[test]
fn a_hold_that_an_earlier_session_was_about_to_give_back_can_be_granted_again() {
    let mut rig = Rig::new();
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(1, "holds")]);
    rig.receive(1, &listed(&[(9, "k")], 0));
    rig.sends(&[(2, "release 9")]);
    rig.lose_connection();
    rig.come_back(false);
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sends(&[(1, "acquire k wait 0")]);
    let again = rig.granted_again(9, 3_000);
    rig.receive(1, &again);
    rig.sends(&[(2, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(2, &extended);
    assert!(only(&mut answer).is_held());
}

#[test]
fn a_grant_of_before_an_outage_that_another_client_may_have_taken_up_is_asked_for_again() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Try, named);
    rig.sent();
    let granted = rig.granted(9, 3_000, false);
    rig.lose_connection();
    rig.come_back(true);
    rig.sends(&[(1, "acquire k wait 0"), (2, "holds")]);
    rig.receive(1, &granted);
    rig.receive(2, &listed(&[(9, "k")], 0));
    rig.sends(&[(3, "acquire k wait 0")]);
    let again = rig.granted_again(9, 3_000);
    rig.receive(3, &again);
    rig.sends(&[(4, "extend 9 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(4, &extended);
    assert!(only(&mut answer).is_held());
}

#[test]
fn whoever_waits_for_the_loss_of_a_released_lock_learns_that_it_was_released() {
    let mut rig = Rig::new();
    let lock = rig.lock(1, 9, 3_000);
    let mut lost = pin!(lock.lost());
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(lost.as_mut().poll(&mut context), Poll::Pending);
    drop(lock);
    rig.sends(&[(2, "release 9")]);
    assert_eq!(lost.as_mut().poll(&mut context), Poll::Ready(LossReason::Released));
}

#[test]
fn an_acquire_that_a_silent_server_does_not_answer_ends_soon_after_its_wait_and_is_taken_back() {
    for (wait, ends) in [(Wait::Until(at(10_500)), 11_000), (Wait::Try, 15_000)] {
        let mut rig = Rig::new();
        let mut answer = rig.acquire(OWN, wait);
        assert_eq!(rig.sent().len(), 1);
        rig.advance_to(ends - 1);
        assert!(answer.try_recv().is_err());
        rig.advance_to(ends);
        uncertain(&mut answer);
        assert!(rig.sent().iter().any(|(_, text)| text == "cancel 1"));
        let granted = rig.granted(9, 3_000, true);
        rig.receive(1, &granted);
        assert!(rig.sent().iter().any(|(_, text)| text == "release 9"));
    }
}

#[test]
fn a_grant_that_a_silent_server_does_not_confirm_ends_with_the_wait_too() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_with(OWN, Wait::Until(at(10_500)), named);
    rig.sent();
    let again = rig.granted_again(9, 3_000);
    rig.receive(1, &again);
    rig.sends(&[(2, "extend 9 by 3000")]);
    rig.advance_to(11_000);
    uncertain(&mut answer);
}

#[test]
fn an_acquire_that_was_answered_leaves_no_timer() {
    let mut rig = Rig::new();
    let next = rig.session.next_timeout();
    for (number, wait) in [(1, Wait::Until(at(10_100))), (2, Wait::Try)] {
        let mut answer = rig.acquire(OWN, wait);
        rig.sent();
        rig.receive(number, &refusal(ErrorCode::Frozen));
        assert!(answer.try_recv().unwrap().is_err());
        assert_eq!(rig.session.next_timeout(), next);
    }
    for (number, wait) in [(3, Wait::Until(at(10_100))), (5, Wait::Try)] {
        let mut answer = rig.acquire(OWN, wait);
        rig.sent();
        let granted = rig.granted(9, 3_000, false);
        rig.receive(number, &granted);
        drop(only(&mut answer));
        rig.sent();
        assert_eq!(rig.session.next_timeout(), next);
    }
}

#[test]
fn an_acquire_that_is_asked_for_again_is_not_waited_for_any_longer() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire(OWN, Wait::Until(at(10_500)));
    rig.sent();
    rig.advance_to(10_900);
    let detail = ErrorDetail::Contention(Contention::default());
    rig.receive(1, &Response::Error(ErrorAnswer { code: ErrorCode::Timeout, detail }));
    rig.sends(&[(2, "acquire k wait 0")]);
    rig.advance_to(10_999);
    assert!(answer.try_recv().is_err());
    rig.advance_to(11_000);
    uncertain(&mut answer);
}

#[test]
fn the_answer_to_an_acquire_that_was_sent_late_is_waited_for_beyond_its_wait() {
    let mut rig = Rig::new();
    rig.lose_connection();
    let mut answer = rig.acquire(OWN, Wait::Until(at(10_500)));
    rig.advance_to(10_100);
    rig.come_back(true);
    assert!(rig.sent().iter().any(|(_, text)| text == "acquire k wait 400"));
    rig.advance_to(10_999);
    assert!(answer.try_recv().is_err());
    rig.advance_to(11_000);
    uncertain(&mut answer);
}

impl Rig {
    /// Its callers wait two seconds for an answer.
    fn impatient() -> Self {
        let mut rig = Self::new();
        rig.session.options.request_timeout = Duration::from_secs(2);
        rig
    }

    fn ask(&mut self) -> oneshot::Receiver<Result<()>> {
        let (reply, answer) = Reply::channel();
        let encode =
            |number: u32, out: &mut Vec<u8>| Request::Inspect(Inspect { key: b"k" }).encode(number, out);
        self.submit(Job::Ask(Box::new(Ask { encode, read: |_: Response<'_>| Some(()), reply })));
        answer
    }

    fn extend(&mut self, place: u64) -> oneshot::Receiver<Result<Duration>> {
        let (reply, answer) = Reply::channel();
        self.submit(Job::Extend { id: id(place), lease_ms: 60_000, is_own: false, reply });
        answer
    }

    fn release(&mut self, lock: &mut Lock) -> oneshot::Receiver<Result<bool>> {
        let (reply, answer) = Reply::channel();
        lock.armed = false;
        let hold = Arc::clone(&lock.hold);
        self.session.handle_command(Command::Release { hold, reply }, self.clock.now());
        answer
    }

    fn close(&mut self) -> oneshot::Receiver<Result<()>> {
        let (reply, answer) = Reply::channel();
        self.session.handle_command(Command::Close { reply }, self.clock.now());
        answer
    }
}

#[test]
fn a_request_that_a_silent_server_does_not_answer_ends_with_the_request_timeout() {
    let mut rig = Rig::impatient();
    let mut lock = rig.lock(1, 9, 30_000);
    let mut extend = rig.extend(9);
    let mut release = rig.release(&mut lock);
    rig.sends(&[(2, "extend 9 by 60000"), (3, "release 9")]);
    rig.advance_to(11_000);
    let mut ask = rig.ask();
    rig.sent();
    rig.advance_to(11_999);
    assert!(extend.try_recv().is_err() && release.try_recv().is_err());
    rig.advance_to(12_000);
    uncertain(&mut extend);
    let release = uncertain(&mut release);
    assert!(ask.try_recv().is_err());
    rig.receive(3, &Response::Released(Released::default()));
    assert_eq!(outcome(&release), Some(Outcome::Done));
    rig.advance_to(12_999);
    assert!(ask.try_recv().is_err());
    rig.advance_to(13_000);
    uncertain(&mut ask);
}

#[test]
fn a_connection_that_comes_and_goes_keeps_no_caller_longer_than_the_request_timeout() {
    let mut rig = Rig::impatient();
    let mut ask = rig.ask();
    rig.sent();
    for second in 11..=12 {
        assert!(ask.try_recv().is_err());
        rig.lose_connection();
        rig.advance_to(second * 1_000);
        rig.come_back(true);
        rig.sent();
    }
    uncertain(&mut ask);
}

#[test]
fn a_request_that_is_never_sent_is_unavailable_after_the_request_timeout() {
    let mut rig = Rig::impatient();
    let mut lock = rig.lock(1, 9, 30_000);
    rig.lose_connection();
    rig.advance_to(11_000);
    let mut ask = rig.ask();
    let mut release = rig.release(&mut lock);
    rig.advance_to(13_000);
    for error in [ask.try_recv().unwrap().unwrap_err(), release.try_recv().unwrap().unwrap_err()] {
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
    }
    rig.come_back(true);
    // The release is still sent: another client may be waiting for the key.
    rig.sends(&[(2, "release 9"), (3, "holds")]);
}

#[test]
fn closing_waits_for_a_silent_server_no_longer_than_the_request_timeout() {
    let mut rig = Rig::impatient();
    let _lock = rig.lock(1, 9, 30_000);
    let mut close = rig.close();
    rig.sends(&[(2, "release 9")]);
    rig.advance_to(11_999);
    assert!(close.try_recv().is_err());
    rig.advance_to(12_000);
    assert!(close.try_recv().unwrap().is_ok());
    rig.receive(2, &Response::Released(Released::default()));
    rig.sends(&[(3, "goodbye")]);
}

#[test]
fn requests_that_are_answered_in_time_leave_one_timer_at_most() {
    let mut rig = Rig::impatient();
    for number in 1..=3 {
        let mut ask = rig.ask();
        rig.sent();
        rig.receive(number, &rig.kept_alive());
        assert!(ask.try_recv().unwrap().is_ok());
    }
    assert_eq!(rig.session.answer_timer, at(12_000));
    rig.advance_to(12_000);
    assert_eq!(rig.session.answer_timer, BootTime::NEVER);
}

#[test]
fn an_extend_that_was_never_sent_does_not_stop_the_renewals() {
    for mut rig in [Rig::new(), Rig::impatient()] {
        let _lock = rig.lock(1, 9, 30_000);
        rig.lose_connection();
        let mut extend = rig.extend(9);
        rig.advance_to(15_000);
        assert!(matches!(extend.try_recv().unwrap(), Err(Error::Unavailable(_))));
        rig.come_back(true);
        rig.sends(&[(2, "holds"), (3, "extend 9 by 30000")]);
    }
}

/// A session that ended may have served it, and the next one has not been asked yet.
#[test]
fn a_request_of_an_earlier_session_is_not_said_to_be_unsent() {
    for mut rig in [Rig::new(), Rig::impatient()] {
        let (mut ask, mut acquire) = (rig.ask(), rig.acquire(OWN, Wait::Forever));
        rig.sent();
        rig.lose_connection();
        rig.come_back(false);
        rig.lose_connection();
        rig.advance_to(15_000);
        uncertain(&mut ask);
        uncertain(&mut acquire);
    }
}
