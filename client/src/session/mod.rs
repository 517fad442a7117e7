//! The client's side of a session, without any I/O.
//!
//! A [`Session`] is a value that is told what happened and says what to do. It never reads a clock, opens a socket or
//! sleeps; the task in `connection.rs` does that for it:
//!
//! ```text
//!  handles, guards --Command--> handle_command --+                    +--> out (bytes to send)
//!  socket ---------Frame------> handle_frame ----+--> window, holds --+--> next_timeout
//!  timer -----------now-------> handle_timers ---+    timers, anchor  +--> replies, losses, callbacks
//!  new connection --Welcome---> handle_welcome --+                    +--> wants_connection, is_finished
//! ```
//!
//! # What it keeps true
//!
//! 1. **No guard believes too long.** A deadline comes from `deadline.rs` and from nothing else, and moves forward only
//!    with an answer of the server about that very hold, or about the session for holds on the session's lease.
//! 2. **A rebound connection proves nothing about a hold.** While the connection was lost, a hold may have been
//!    released by somebody else, and the push that said so is gone. So after each new `WELCOME` every hold is asked
//!    for by id: an extend where it renews itself, a status where it does not. Until the answer, the deadline of before
//!    stands; for holds on the session's lease, whose deadline is shared, a cap on the hold keeps it.
//! 3. **A grant that nobody takes is given back.** The grant becomes a guard here, and the guard travels to the caller.
//!    If the caller has gone, the guard is dropped on the way, and its drop is a release like any other.
//! 4. **Requests are repeated under their numbers** while the session lives, so the server can tell a repetition from
//!    a new request. In a new session they begin anew; an acquire then counts as not granted. Had it been, that hold
//!    would live on to the end of its lease, which is why the answer to a repeated grant is confirmed first.
//!
//! # An example of rule 4 and why grants are confirmed
//!
//! An acquire is sent, granted, and the connection breaks before the answer arrives. The client comes back, repeats
//! number 7 and gets the first answer: granted, 30 s, stamp of then. In the meantime the hold may have ended, since its
//! claim said `release_after` 1 s. So the grant becomes a [`ConfirmJob`]; only when the extend by id is answered does
//! the caller see a lock. If the answer is `not_found`, the acquire starts again as if nothing had been granted.

mod holds;
mod timers;
mod window;

use std::sync::{Arc, Weak};
use std::time::Duration;

use waymaker_protocol::{
    DecodeError, ErrorCode, Event, Extended, Frame, Granted, LockId, Response, RevokeReason, SessionRequest,
    StatusAnswer, Welcome,
};

use crate::claim::{Lease, Wait};
use crate::client::Shared;
use crate::clock::BootTime;
use crate::deadline::{Anchor, LeaseReport, deadline, margin};
use crate::error::{Error, Result};
use crate::hold::{ConnectionTie, Hold, HoldLease, SharedInstant};
use crate::job::{AcquireJob, Command, ConfirmJob, Job, Reply, answer};
use crate::lock::Lock;
use crate::loss::{Loss, LossReason};
use holds::{Entry, Holds, PATIENCE_MAX, Renewal, patience, renew_at, retry_delay};
use timers::{TimerKey, Timers};
use window::{Pending, Sequence, Window};

/// A hold that outlives its connection by less than this is believed in as if it outlived it for ever: no keep-alive
/// could be frequent enough.
const RELEASE_AFTER_BELIEVED_MIN_MS: u32 = 1_000;

/// What a session is opened with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionOptions {
    /// The lease of the session in milliseconds; 0 is the server's default.
    pub(crate) lease_ms: u32,
    /// For how long callers are kept waiting for a connection that was lost.
    pub(crate) outage_max: Duration,
}

/// See the module.
pub(crate) struct Session {
    options: SessionOptions,
    /// Only guards and handles own this, so that the last of them to go ends the session.
    shared: Weak<Shared>,
    welcome: Welcome,
    /// The session ended on the server: the next connection begins a new one.
    gone: bool,
    anchor: Anchor,
    /// Until when holds on the session's lease may be believed in.
    deadline: Arc<SharedInstant>,
    deadline_timer: BootTime,
    /// When the last request that was answered on this connection was sent.
    alive: Arc<SharedInstant>,
    keep_alive: Renewal,
    /// When the last keep-alive that was answered was sent, or the hello.
    keep_alive_sent: BootTime,
    keep_alive_timer: BootTime,
    window: Window,
    holds: Holds,
    timers: Timers,
    connected: bool,
    last_received: BootTime,
    /// Nothing has come for so long that the connection must be taken for dead.
    in_doubt: bool,
    /// While not connected: when those who wait are told so. `None` once they were.
    outage_end: Option<BootTime>,
    outage_cause: Error,
    closing: Closing,
    /// Bytes to send on the present connection.
    pub(crate) out: Vec<u8>,
}

/// How far the end of the client has come.
enum Closing {
    Open,
    /// Everything is released and cancelled first; then comes the goodbye.
    Draining {
        replies: Vec<Reply<()>>,
        goodbye_sent: bool,
    },
    Finished,
}

impl Session {
    /// The session that this welcome opened. `sent` is when the hello was sent.
    pub(crate) fn new(
        options: SessionOptions,
        shared: Weak<Shared>,
        welcome: Welcome,
        sent: BootTime,
        now: BootTime,
    ) -> Self {
        let anchor = Anchor { sent, stamp_ms: welcome.stamp_ms };
        let mut session = Self {
            options,
            shared,
            welcome,
            gone: false,
            anchor,
            deadline: Arc::new(SharedInstant::new(BootTime::default())),
            deadline_timer: BootTime::NEVER,
            alive: Arc::new(SharedInstant::new(sent)),
            keep_alive: Renewal::Off,
            keep_alive_sent: sent,
            keep_alive_timer: BootTime::NEVER,
            window: Window::new(welcome.in_flight_max),
            holds: Holds::default(),
            timers: Timers::default(),
            connected: true,
            last_received: now,
            in_doubt: false,
            outage_end: None,
            outage_cause: Error::Closed,
            closing: Closing::Open,
            out: Vec::new(),
        };
        session.move_deadline(session.welcome_report(), now);
        session.schedule_keep_alive(sent);
        session
    }

    /// What to ask for when a connection is opened.
    pub(crate) fn request(&self) -> SessionRequest {
        if self.gone {
            SessionRequest::New { lease_ms: self.options.lease_ms }
        } else {
            SessionRequest::Resume { id: self.welcome.session_id, lane: self.welcome.lane }
        }
    }

    /// The first instant at which [`Session::handle_timers`] has something to do.
    pub(crate) fn next_timeout(&self) -> BootTime {
        self.timers.next().min(self.outage_end.unwrap_or(BootTime::NEVER))
    }

    /// The connection must be taken for dead.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// There is nothing left to do, ever.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.closing, Closing::Finished)
    }

    /// Whether a connection is worth having: for a while after it was lost always, then only while a hold may still
    /// be believed in or somebody waits for an answer.
    pub(crate) fn wants_connection(&self, now: BootTime) -> bool {
        self.outage_end.is_some() || self.window.is_awaited() || self.holds.any_alive(now)
    }

    // What happens outside.

    /// A handle or a guard wants something.
    pub(crate) fn handle_command(&mut self, command: Command, now: BootTime) {
        match command {
            Command::Submit(job) => self.submit(job, now),
            Command::Abandon { token } => self.abandon(token),
            Command::Forget { id } => drop(self.holds.remove(id, &mut self.timers)),
            Command::Close { reply } => self.close(reply),
        }
    }

    /// All handles and guards are gone: nobody can ask for anything any more.
    pub(crate) fn handle_deserted(&mut self) {
        self.close(None);
    }

    /// Appends to `out` what may be sent now.
    pub(crate) fn transmit(&mut self, now: BootTime) {
        self.window.transmit(now, &mut self.out);
        if let Closing::Draining { goodbye_sent, .. } = &mut self.closing
            && !*goodbye_sent
            && self.window.is_empty()
        {
            *goodbye_sent = true;
            self.window.push(Job::Goodbye);
            self.window.transmit(now, &mut self.out);
        }
    }

    /// One frame arrived.
    ///
    /// # Errors
    ///
    /// The connection is of no use any more.
    pub(crate) fn handle_frame(&mut self, frame: Frame<'_>, now: BootTime) -> Result<()> {
        self.last_received = now;
        match Response::decode(frame)? {
            Response::Event(event) => self.handle_event(frame.number(), event),
            response => match self.window.take(frame.number()) {
                Some((sequence, pending)) => self.handle_answer(sequence, pending, response, now),
                None => match response {
                    // About the connection as a whole, as when it broke a limit.
                    Response::Error(error) => Err(error.into()),
                    _ => Ok(()),
                },
            },
        }
    }

    /// Time has passed.
    pub(crate) fn handle_timers(&mut self, now: BootTime) {
        while let Some(key) = self.timers.pop_due(now) {
            match key {
                TimerKey::Hold(id) => self.hold_due(id, now),
                TimerKey::Wait(token) => self.wait_over(token),
                TimerKey::KeepAlive => self.keep_alive_due(now),
                TimerKey::Session => self.session_due(now),
            }
        }
        if self.outage_end.is_some_and(|end| end <= now) {
            self.outage_end = None;
            self.tell_outage();
        }
    }

    /// The connection is gone.
    pub(crate) fn handle_disconnected(&mut self, cause: Error, now: BootTime) {
        if matches!(&self.closing, Closing::Draining { goodbye_sent: true, .. }) {
            // The server closes behind its farewell, and a session whose goodbye was lost ends by its lease.
            return self.finish();
        }
        self.connected = false;
        self.in_doubt = false;
        self.out = Vec::new();
        self.outage_cause = cause;
        self.begin_outage(now);
        self.set_keep_alive(Renewal::Off);
        for id in self.holds.ids() {
            if let Some(entry) = self.holds.get_mut(id) {
                entry.renewal = Renewal::Off;
            }
            self.holds.rearm(id, &mut self.timers);
        }
        for (_, pending) in self.window.pending_mut() {
            if let Job::Acquire(AcquireJob { token, wait: Wait::Until(at), .. }) = &pending.job {
                self.timers.replace(TimerKey::Wait(*token), BootTime::NEVER, *at);
            }
        }
    }

    /// Callers that come from here on wait for a connection as long as those at the beginning of an outage.
    pub(crate) fn begin_outage(&mut self, now: BootTime) {
        self.outage_end = Some(now.after(self.options.outage_max));
    }

    /// An attempt to connect failed. True if the next one asks for something else and need not wait.
    pub(crate) fn handle_attempt_failed(&mut self, error: Error) -> bool {
        if error.code() == Some(ErrorCode::SessionGone) && !self.gone {
            self.session_gone();
            return true;
        }
        self.outage_cause = error;
        if self.outage_end.is_none() {
            self.tell_outage();
        }
        false
    }

    /// A new connection was opened. `sent` is when its hello was sent.
    pub(crate) fn handle_welcome(&mut self, welcome: Welcome, sent: BootTime, now: BootTime) {
        let resumed = !self.gone && welcome.resumed && welcome.session_id == self.welcome.session_id;
        if !resumed {
            self.session_gone();
        }
        self.welcome = welcome;
        self.gone = false;
        self.connected = true;
        self.last_received = now;
        // Stamps of another server, or of before a restart, are not to be compared with those to come.
        self.anchor = Anchor { sent, stamp_ms: welcome.stamp_ms };
        self.outage_end = None;
        self.window.retain_unsent(|job| {
            !matches!(job, Job::Cancel { .. } | Job::Renew { .. } | Job::Verify { .. } | Job::KeepAlive)
        });
        if resumed {
            self.holds.cap_all(&mut self.timers);
            self.alive.set(sent);
            self.window.repeat(now, &mut self.out);
            self.cancel_abandoned();
        } else {
            self.holds.cap_all(&mut self.timers);
            self.deadline = Arc::new(SharedInstant::new(BootTime::default()));
            self.alive = Arc::new(SharedInstant::new(sent));
            self.begin_anew();
        }
        self.move_deadline(self.welcome_report(), now);
        self.schedule_keep_alive(sent);
        for id in self.holds.ids() {
            self.ask_for(id, now);
        }
    }

    // Requests of callers.

    fn submit(&mut self, mut job: Job, now: BootTime) {
        match &job {
            Job::Release { id, by_guard: true, .. } => drop(self.holds.remove(*id, &mut self.timers)),
            _ if !matches!(self.closing, Closing::Open) => return job.give_up(Error::Closed),
            Job::Extend { id, lease_ms, .. } => {
                if *lease_ms < self.welcome.lease_min_ms {
                    let min = self.welcome.lease_min_ms;
                    let message = format!("{lease_ms} ms, the shortest is {min} ms");
                    let min = u64::from(min);
                    return job.give_up(Error::refused(ErrorCode::BadInput, "lease_ms", min, message));
                }
                self.shorten(*id, *lease_ms, now);
            }
            Job::Acquire(AcquireJob { token, wait: Wait::Until(at), .. })
                // Should it never be sent, its caller must learn so in time.
                if (!self.connected || !self.window.has_room_for_acquire()) => {
                    self.timers.replace(TimerKey::Wait(*token), BootTime::NEVER, *at);
                }
            _ => {}
        }
        self.window.push(job);
    }

    /// The server may shorten the lease before its answer arrives here, but not before the request was sent.
    fn shorten(&mut self, id: LockId, lease_ms: u32, now: BootTime) {
        let lease = Duration::from_millis(u64::from(lease_ms));
        if let Some(entry) = self.holds.get_mut(id)
            && let HoldLease::Own(own) = &entry.hold.lease
        {
            let stamp_ms = 0;
            let report = LeaseReport { stamp_ms, remaining: lease, lease };
            own.set(own.get().min(deadline(Anchor { sent: now, stamp_ms }, report, now)));
            self.holds.rearm(id, &mut self.timers);
        }
    }

    fn abandon(&mut self, token: u64) {
        if self.window.take_unsent_acquire(token).is_some() {
            return;
        }
        if let Some((acquire_number, job)) = self.window.sent_acquire(token) {
            job.reply = None;
            let key = job.claim.key.clone();
            self.window.push(Job::Cancel { acquire_number, key });
        }
    }

    fn close(&mut self, reply: Reply<()>) {
        match &mut self.closing {
            Closing::Open => {}
            Closing::Draining { replies, .. } => return replies.push(reply),
            Closing::Finished => return answer(reply, Ok(())),
        }
        self.closing = Closing::Draining { replies: vec![reply], goodbye_sent: false };
        for mut job in self.window.take_unsent_acquires().into_iter().map(Job::Acquire) {
            job.give_up(Error::Closed);
        }
        for (_, pending) in self.window.pending_mut() {
            if let Job::Acquire(_) = pending.job {
                pending.job.give_up(Error::Closed);
            }
        }
        self.cancel_abandoned();
        for id in self.holds.ids() {
            self.holds.lose(id, LossReason::ClientClosed, &mut self.timers);
            self.release_unasked(id);
        }
    }

    fn finish(&mut self) {
        if let Closing::Draining { replies, .. } = std::mem::replace(&mut self.closing, Closing::Finished) {
            for reply in replies {
                answer(reply, Ok(()));
            }
        }
    }

    /// Gives back what nobody holds.
    fn release_unasked(&mut self, id: LockId) {
        self.window.push(Job::Release { id, key: None, by_guard: true, reply: None });
    }

    // Answers.

    fn handle_event(&mut self, number: u32, event: Event) -> Result<()> {
        match event {
            Event::Queued { .. } => self.window.queued(number),
            Event::Expired { id } => self.holds.lose(id, LossReason::Expired, &mut self.timers),
            Event::Revoked { id, reason } => {
                self.holds.lose(id, LossReason::Revoked(reason), &mut self.timers);
            }
            Event::SessionExpired => {
                self.session_gone();
                return Err(Error::disconnected("the session ended"));
            }
        }
        Ok(())
    }

    fn handle_answer(
        &mut self,
        sequence: Sequence,
        pending: Pending,
        response: Response<'_>,
        now: BootTime,
    ) -> Result<()> {
        self.move_anchor(pending.sent, &response);
        if let Response::Error(error) = &response
            && error.code == ErrorCode::SessionGone
        {
            // Nothing was done; the new session asks again.
            self.window.put_back(sequence, pending);
            self.session_gone();
            return Err(Error::disconnected("the session ended"));
        }
        let carried = pending.carried;
        match (pending.job, response) {
            (Job::Acquire(job), Response::Granted(granted)) => self.granted(job, granted, carried, now),
            (Job::Acquire(job), Response::Error(error)) => {
                answer(job.reply, Err(refused(job.wait, error.into())));
            }
            (Job::Confirm(job), Response::Extended(Extended { remaining_ms, stamp_ms, .. }))
            | (Job::Confirm(job), Response::Status(StatusAnswer { remaining_ms, stamp_ms, .. })) => {
                let granted = Granted { remaining_ms, stamp_ms, ..job.granted };
                self.deliver(job.acquire, granted, now);
            }
            (Job::Confirm(job), Response::Error(error)) => match lost_by(error.code) {
                Some(_) => self.window.push(Job::Acquire(job.acquire)),
                None => {
                    self.release_unasked(job.granted.id);
                    answer(job.acquire.reply, Err(error.into()));
                }
            },
            (Job::Cancel { .. }, Response::Cancelled(_) | Response::Error(_)) => {}
            (Job::Release { id, by_guard, reply, .. }, Response::Released(_)) => {
                if !by_guard {
                    let reason = LossReason::Revoked(RevokeReason::ReleasedElsewhere);
                    self.holds.lose(id, reason, &mut self.timers);
                }
                answer(reply, Ok(()));
            }
            (Job::Release { reply, .. }, Response::Error(error)) => answer(reply, Err(error.into())),
            (Job::Extend { id, lease_ms, reply }, Response::Extended(extended)) => {
                if let Some(entry) = self.holds.get_mut(id)
                    && entry.renew_ms.is_some()
                {
                    entry.renew_ms = Some(lease_ms);
                }
                self.extended(id, extended, carried, now);
                answer(reply, Ok(Duration::from_millis(u64::from(extended.remaining_ms))));
            }
            (Job::Extend { id, reply, .. }, Response::Error(error)) => {
                self.not_extended(id, error.code, BootTime::default(), now);
                answer(reply, Err(error.into()));
            }
            (Job::Renew { id, .. }, Response::Extended(extended)) => {
                self.extended(id, extended, carried, now);
            }
            (Job::Renew { id, .. }, Response::Error(error)) => {
                let lease = self.holds.get_mut(id).map_or(Duration::ZERO, |entry| entry.lease);
                self.not_extended(id, error.code, now.after(retry_delay(lease)), now);
            }
            (Job::Verify { id }, Response::Status(status)) => self.verified(id, status, carried, now),
            (Job::Verify { id }, Response::Error(error)) => {
                if let Some(reason) = lost_by(error.code) {
                    self.holds.lose(id, reason, &mut self.timers);
                }
            }
            (Job::Status { reply, .. }, Response::Status(status)) => answer(reply, Ok(status.into())),
            (Job::Status { reply, .. }, Response::Error(error)) => answer(reply, Err(error.into())),
            (Job::Inspect { reply, .. }, Response::Inspected(inspected)) => {
                answer(reply, Ok(inspected.into()));
            }
            (Job::Inspect { reply, .. }, Response::Error(error)) => answer(reply, Err(error.into())),
            (Job::List { reply, .. }, Response::Listed(listed)) => answer(reply, Ok(listed.into())),
            (Job::List { reply, .. }, Response::Error(error)) => answer(reply, Err(error.into())),
            (Job::KeepAlive, Response::KeptAlive(kept)) => {
                let remaining = Duration::from_millis(u64::from(kept.remaining_ms));
                self.move_deadline(self.session_report(kept.stamp_ms, remaining), now);
                self.schedule_keep_alive(pending.sent);
            }
            // A server that cannot serve it now may serve the next.
            (Job::KeepAlive, Response::Error(_)) => self.schedule_keep_alive(now),
            (Job::Goodbye, Response::Farewell(_) | Response::Error(_)) => self.finish(),
            (mut job, _) => {
                let error = Error::Protocol(DecodeError::BadValue { field: "opcode", value: 0 });
                job.give_up(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes the round trip of this answer as the new anchor, if it says when it was decided.
    fn move_anchor(&mut self, sent: BootTime, response: &Response<'_>) {
        let stamp_ms = match response {
            Response::KeptAlive(kept) => kept.stamp_ms,
            Response::Extended(extended) => extended.stamp_ms,
            Response::Status(status) => status.stamp_ms,
            Response::Inspected(inspected) => inspected.stamp_ms,
            // One that waited was sent long before. One that names an older claim may bear an older stamp.
            Response::Granted(granted) if !granted.waited && !granted.repeated => granted.stamp_ms,
            _ => return,
        };
        // The newest, so that clocks have had the least time to drift apart. A repetition counts from when it was sent
        // first, since the answer may be as old as that.
        if self.anchor.sent <= sent {
            self.anchor = Anchor { sent, stamp_ms };
            self.alive.set(sent);
        }
    }

    fn granted(&mut self, job: AcquireJob, granted: Granted, carried: bool, now: BootTime) {
        // One that a request id has found again may have been lost meanwhile, and its events gone elsewhere.
        let decided_before = granted.repeated || carried && granted.stamp_ms <= self.welcome.stamp_ms;
        let over = self.place(&job, granted, now).0 <= now;
        if decided_before || over {
            self.window.push_front(Job::Confirm(Box::new(ConfirmJob { granted, acquire: job })));
        } else {
            self.deliver(job, granted, now);
        }
    }

    /// The local deadline of a grant, and what it was worked out from.
    fn place(&mut self, job: &AcquireJob, granted: Granted, now: BootTime) -> (BootTime, LeaseReport) {
        let remaining = Duration::from_millis(u64::from(granted.remaining_ms));
        match job.claim.lease {
            Lease::Own { ms } => {
                let asked_ms = if ms == 0 { self.welcome.lease_default_ms } else { ms };
                let asked = Duration::from_millis(u64::from(asked_ms.min(self.welcome.lease_max_ms)));
                // A claim found again by its request id has less left than its lease.
                let report =
                    LeaseReport { stamp_ms: granted.stamp_ms, remaining, lease: asked.max(remaining) };
                (deadline(self.anchor, report, now), report)
            }
            Lease::Session => {
                let report = self.session_report(granted.stamp_ms, remaining);
                self.move_deadline(report, now);
                (self.deadline.get(), report)
            }
        }
    }

    /// Makes the guard and hands it over.
    fn deliver(&mut self, job: AcquireJob, granted: Granted, now: BootTime) {
        let (deadline, report) = self.place(&job, granted, now);
        let shared = match self.closing {
            Closing::Open => self.shared.upgrade(),
            _ => None,
        };
        let (Some(shared), Some(reply)) = (shared, job.reply) else {
            return self.release_unasked(granted.id);
        };
        if deadline <= now {
            // The round trip takes longer than the lease lasts.
            self.release_unasked(granted.id);
            return answer(Some(reply), Err(Error::Lost(LossReason::LocalDeadline)));
        }
        let renew_ms = match job.claim.lease {
            Lease::Own { ms } if job.renew => Some(ms),
            _ => None,
        };
        let lease = match job.claim.lease {
            Lease::Own { .. } => HoldLease::Own(SharedInstant::new(deadline)),
            Lease::Session => HoldLease::Session(Arc::clone(&self.deadline)),
        };
        let release_after_ms = job.claim.release_after_ms.filter(|ms| *ms >= RELEASE_AFTER_BELIEVED_MIN_MS);
        let tie = release_after_ms.map(|ms| {
            let grace = Duration::from_millis(u64::from(ms));
            ConnectionTie { alive: Arc::clone(&self.alive), grace: grace.saturating_sub(margin(grace)) }
        });
        let hold = Arc::new(Hold {
            key: job.claim.key,
            id: granted.id,
            fence: granted.fence,
            shared: job.claim.shared,
            clamped: granted.clamped,
            lease,
            tie,
            cap: SharedInstant::new(BootTime::NEVER),
            loss: Loss::default(),
        });
        let mut entry = Entry::new(Arc::clone(&hold), report.lease, granted.stamp_ms);
        entry.on_loss = job.on_loss;
        entry.renew_ms = renew_ms;
        if renew_ms.is_some() {
            entry.renewal = Renewal::Due(renew_at(deadline, report));
        }
        self.holds.insert(entry, &mut self.timers);
        if let Renewal::Due(_) = self.keep_alive {
            self.schedule_keep_alive(self.keep_alive_sent);
        }
        // If the caller has gone in the meantime, this drops the guard, and the guard sends its release.
        answer(Some(reply), Ok(Lock { hold, shared, armed: true }));
    }

    // Leases.

    /// `carried` tells that the answer may have been decided before the connection was bound anew.
    fn extended(&mut self, id: LockId, extended: Extended, carried: bool, now: BootTime) {
        let remaining = Duration::from_millis(u64::from(extended.remaining_ms));
        let report = LeaseReport { stamp_ms: extended.stamp_ms, remaining, lease: remaining };
        if !carried {
            self.uncap(id);
        }
        self.lease_reported(id, report, now);
    }

    /// The server has answered for this hold on the present connection.
    fn uncap(&mut self, id: LockId) {
        if let Some(entry) = self.holds.get_mut(id) {
            entry.hold.cap.set(BootTime::NEVER);
            self.holds.rearm(id, &mut self.timers);
        }
    }

    fn lease_reported(&mut self, id: LockId, report: LeaseReport, now: BootTime) {
        let Some(entry) = self.holds.get_mut(id) else { return };
        let HoldLease::Own(own) = &entry.hold.lease else { return };
        if report.stamp_ms < entry.stamp_ms {
            return;
        }
        let deadline = deadline(self.anchor, report, now);
        own.set(deadline);
        entry.stamp_ms = report.stamp_ms;
        entry.lease = report.lease;
        if entry.renew_ms.is_some() {
            entry.renewal = Renewal::Due(renew_at(deadline, report));
        }
        self.holds.rearm(id, &mut self.timers);
    }

    /// An extend was refused: the hold is lost, or to be renewed at `retry`.
    fn not_extended(&mut self, id: LockId, code: ErrorCode, retry: BootTime, now: BootTime) {
        if let Some(reason) = lost_by(code) {
            return self.holds.lose(id, reason, &mut self.timers);
        }
        if let Some(entry) = self.holds.get_mut(id)
            && entry.renew_ms.is_some()
        {
            entry.renewal = Renewal::Due(retry.max(now));
            self.holds.rearm(id, &mut self.timers);
        }
    }

    fn verified(&mut self, id: LockId, status: StatusAnswer<'_>, carried: bool, now: BootTime) {
        if !carried {
            self.uncap(id);
        }
        let Some(entry) = self.holds.get_mut(id) else { return };
        let remaining = Duration::from_millis(u64::from(status.remaining_ms));
        let report = LeaseReport { stamp_ms: status.stamp_ms, remaining, lease: entry.lease.max(remaining) };
        self.lease_reported(id, report, now);
    }

    /// Asks the server whether a hold still lives, after the connection was bound anew.
    fn ask_for(&mut self, id: LockId, now: BootTime) {
        let Some(entry) = self.holds.get_mut(id) else { return };
        match entry.renew_ms {
            Some(lease_ms) => {
                entry.renewal = Renewal::Sent { since: now, doubt: now.after(patience(entry.lease)) };
                self.window.push(Job::Renew { id, lease_ms });
            }
            None => self.window.push(Job::Verify { id }),
        }
        self.holds.rearm(id, &mut self.timers);
    }

    fn hold_due(&mut self, id: LockId, now: BootTime) {
        let last_received = self.last_received;
        let Some(entry) = self.holds.timer_fired(id) else { return };
        if entry.hold.deadline() <= now {
            return self.holds.lose(id, LossReason::LocalDeadline, &mut self.timers);
        }
        let doubt = now.after(patience(entry.lease));
        match (entry.renewal, entry.renew_ms) {
            (Renewal::Due(at), Some(lease_ms)) if at <= now => {
                entry.renewal = Renewal::Sent { since: now, doubt };
                self.window.push(Job::Renew { id, lease_ms });
            }
            (Renewal::Sent { since, doubt: at }, _) if at <= now => {
                self.in_doubt |= last_received < since;
                entry.renewal = Renewal::Sent { since, doubt };
            }
            _ => {}
        }
        self.holds.rearm(id, &mut self.timers);
    }

    // The session itself.

    fn session_lease(&self) -> Duration {
        Duration::from_millis(u64::from(self.welcome.session_lease_ms))
    }

    fn welcome_report(&self) -> LeaseReport {
        self.session_report(self.welcome.stamp_ms, self.session_lease())
    }

    fn session_report(&self, stamp_ms: u64, remaining: Duration) -> LeaseReport {
        let lease = self.session_lease();
        LeaseReport { stamp_ms, remaining: remaining.min(lease), lease }
    }

    /// Moves the deadline of the session forward. Never back: the session's lease is never shortened, so an earlier
    /// result only comes from a slower round trip.
    fn move_deadline(&mut self, report: LeaseReport, now: BootTime) {
        let deadline = deadline(self.anchor, report, now).max(self.deadline.get());
        self.deadline.set(deadline);
        self.timers.replace(TimerKey::Session, self.deadline_timer, deadline);
        self.deadline_timer = deadline;
    }

    fn session_due(&mut self, now: BootTime) {
        self.deadline_timer = BootTime::NEVER;
        for id in self.holds.ids_on_session() {
            if self.holds.get_mut(id).is_some_and(|entry| entry.hold.deadline() <= now) {
                self.holds.lose(id, LossReason::LocalDeadline, &mut self.timers);
            }
        }
    }

    fn schedule_keep_alive(&mut self, sent: BootTime) {
        // At least as often as silence is put up with: it is also what finds out that a connection is dead, and what
        // keeps the anchor young.
        let grace = self.holds.grace_min().map_or(PATIENCE_MAX, |grace| grace / 3);
        let interval = (self.session_lease() / 3).min(PATIENCE_MAX).min(grace);
        self.keep_alive_sent = sent;
        self.set_keep_alive(Renewal::Due(sent.after(interval)));
    }

    fn set_keep_alive(&mut self, keep_alive: Renewal) {
        let at = match keep_alive {
            Renewal::Off => BootTime::NEVER,
            Renewal::Due(at) | Renewal::Sent { doubt: at, .. } => at,
        };
        self.keep_alive = keep_alive;
        self.timers.replace(TimerKey::KeepAlive, self.keep_alive_timer, at);
        self.keep_alive_timer = at;
    }

    fn keep_alive_due(&mut self, now: BootTime) {
        self.keep_alive_timer = BootTime::NEVER;
        let doubt = now.after(patience(self.session_lease()));
        match self.keep_alive {
            Renewal::Off => {}
            Renewal::Due(_) => {
                self.window.push_front(Job::KeepAlive);
                self.set_keep_alive(Renewal::Sent { since: now, doubt });
            }
            Renewal::Sent { since, .. } => {
                self.in_doubt |= self.last_received < since;
                self.set_keep_alive(Renewal::Sent { since, doubt });
            }
        }
    }

    /// The session ended on the server, and with it the holds on its lease and those that wait for its lane.
    fn session_gone(&mut self) {
        self.gone = true;
        for id in self.holds.ids_on_session() {
            self.holds.lose(id, LossReason::SessionExpired, &mut self.timers);
        }
        // Nothing stops their timers any more.
        for id in self.holds.ids_tied_to_connection() {
            let reason = LossReason::Revoked(RevokeReason::ConnectionLost);
            self.holds.lose(id, reason, &mut self.timers);
        }
    }

    // Outages.

    /// Whoever gave up an acquire gave up its repetition too.
    fn cancel_abandoned(&mut self) {
        let abandoned: Vec<_> = (self.window.pending_mut())
            .filter_map(|(number, pending)| match &pending.job {
                Job::Acquire(job) if job.reply.is_none() => Some((number, job.claim.key.clone())),
                _ => None,
            })
            .collect();
        for (acquire_number, key) in abandoned {
            self.window.push(Job::Cancel { acquire_number, key });
        }
    }

    /// Carries over into a new session what still makes sense there.
    fn begin_anew(&mut self) {
        if let Closing::Draining { goodbye_sent, .. } = &mut self.closing {
            *goodbye_sent = false;
        }
        for job in self.window.restart(self.welcome.in_flight_max) {
            let abandoned = matches!(&job, Job::Acquire(job) if job.reply.is_none());
            // Holds are asked for again anyway, and the old numbers mean nothing now.
            let stale = matches!(
                job,
                Job::Cancel { .. } | Job::Renew { .. } | Job::Verify { .. } | Job::KeepAlive | Job::Goodbye
            );
            if !abandoned && !stale {
                self.window.push(job);
            }
        }
    }

    /// An acquire should have been answered by now.
    fn wait_over(&mut self, token: u64) {
        if let Some(job) = self.window.take_unsent_acquire(token) {
            let error = if self.connected {
                let message = "too many acquires of this client wait already";
                Error::refused(ErrorCode::Overloaded, "in_flight_max", 0, message)
            } else {
                self.outage_cause.clone()
            };
            answer(job.reply, Err(error));
        } else if !self.connected {
            let error = self.unknown_outcome();
            if let Some((_, job)) = self.window.sent_acquire(token) {
                answer(job.reply.take(), Err(error));
            }
        }
    }

    /// Tells all who wait that the connection does not come back in time. What was sent is still repeated should it
    /// come back later, so that no grant is left behind.
    fn tell_outage(&mut self) {
        let error = self.unknown_outcome();
        for (_, pending) in self.window.pending_mut() {
            pending.job.give_up(error.clone());
        }
        for mut job in self.window.take_unsent_acquires().into_iter().map(Job::Acquire) {
            job.give_up(self.outage_cause.clone());
        }
        for job in self.window.unsent_mut() {
            job.give_up(self.outage_cause.clone());
        }
        self.window.retain_unsent(Job::matters_unawaited);
        if let Closing::Draining { .. } = self.closing {
            self.finish();
        }
    }

    fn unknown_outcome(&self) -> Error {
        match &self.outage_cause {
            error @ Error::Disconnected { .. } => error.clone(),
            error => Error::disconnected(error.to_string()),
        }
    }
}

impl Drop for Session {
    /// Nobody renews from here on, so no guard may believe in its lock any more.
    fn drop(&mut self) {
        for id in self.holds.ids() {
            self.holds.lose(id, LossReason::ClientClosed, &mut self.timers);
        }
    }
}

/// An acquire that was to wait, and was repeated when its wait was over, went out as a try.
fn refused(wait: Wait, error: Error) -> Error {
    match (wait, error) {
        (Wait::Until(_), Error::Busy(contention)) => Error::Timeout(contention),
        (_, error) => error,
    }
}

/// What this refusal says about a hold, if it says that it is over.
fn lost_by(code: ErrorCode) -> Option<LossReason> {
    match code {
        ErrorCode::NotFound | ErrorCode::Expired | ErrorCode::NotHeld | ErrorCode::NotOwner => {
            Some(LossReason::Expired)
        }
        ErrorCode::Revoked => Some(LossReason::Revoked(RevokeReason::Other(0))),
        ErrorCode::SessionGone => Some(LossReason::SessionExpired),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
