//! The client's side of one lane of a session, without any I/O, guards or channels.
//!
//! A [`Lane`] is a value that is told what happened and says what to do. It never reads a clock, opens a socket or sleeps. The
//! task in `connection.rs` does that for it, and the run itself in the simulator. `guarded_lane.rs` lies between: it makes the guards and
//! passes events on to them.
//!
//! ```text
//!  handles, guards --requests--> submit, release -+                    +--> out (bytes to send)
//!  socket ---------Frame-------> handle_frame ----+--> window, holds --+--> next_timeout
//!  timer -----------now--------> handle_timers ---+    timers, anchor  +--> events for guards, answers for callers
//!  new connection --Welcome----> handle_welcome --+                    +--> wants_connection, is_finished
//! ```
//!
//! A client has one such value for each of its connections. Each stands for one lane of the session that they share, which
//! is known to all of them through a [`SharedSession`].
//!
//! This file has the value and what happens to it from outside; how it reacts is in `requests`, `answers`, `grants`,
//! `leases`, `keep_alive`, `greeting`, `outage` and `reconcile`, on top of the parts that know nothing of each other: `window` (what
//! is sent), `holds` (what is held), `watches` (what is watched), `timers` (what is due). `event` has the events for guards.
//!
//! # What it keeps true
//!
//! 1. **No guard believes too long.** A deadline comes from `deadline.rs` and from nothing else, and moves forward only
//!    with an answer of the server about that very hold, or about the session for holds on the session's lease.
//! 2. **A rebound connection proves nothing about a hold.** While the connection was lost, a hold may have been
//!    released by somebody else, and the push that said so is gone. So after each new `WELCOME` every hold is asked
//!    for: by an extend where it renews itself, else by a status; those on the session's lease all at once, by a list of
//!    what the lane holds. Until the answer, a cap on the hold keeps the deadline of before.
//! 3. **A grant that nobody takes is given back.** The lane hands a grant over once. If no guard can be made of it, it is given
//!    back at once. If the caller has gone, the guard is dropped on the way, and its drop is a release like any other.
//! 4. **A hold has one owner.** A request id may find a hold that has a guard in this client, or a hold that is about to be
//!    released. The newest acquire that is granted the hold owns it. Older guards are superseded before the newer guard exists. From
//!    then on, the lane sends none of their requests. The server serves earlier releases before it confirms the grant.
//! 5. **Requests are repeated under their numbers** while the session lives, so the server can tell a repetition from
//!    a new request. In a new session they begin anew; an acquire then counts as not granted. Had it been, that hold
//!    would live on to the end of its lease, which is why the answer to a repeated grant is confirmed first.
//!
//! # An example of rule 5 and why grants are confirmed
//!
//! An acquire is sent, granted, and the connection breaks before the answer arrives. The client comes back, repeats
//! number 7 and gets the first answer: granted, 30 s, stamp of then. In the meantime the hold may have ended, since its
//! claim said `release_after` 1 s. So the grant becomes a `ConfirmJob`; only when the extend by id is answered does
//! the caller see a lock. If the answer is `not_found`, the acquire starts again as if nothing had been granted.

mod answers;
mod event;
mod grants;
mod greeting;
mod holds;
mod keep_alive;
mod leases;
mod outage;
mod reconcile;
mod request_timeout;
mod requests;
mod timers;
mod watches;
mod window;

use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol::{ErrorCode, Frame, Response, SessionRequest, Welcome};

use crate::claim::Wait;
use crate::clock::BootTime;
use crate::deadline::Anchor;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::reply::Reply;
use crate::shared_session::SharedSession;
use crate::spread::Layout;
pub(crate) use event::{Event, GuardId, GuardedHold};
pub(crate) use grants::RELEASE_AFTER_BELIEVED_MIN_MS;
use greeting::Greeting;
pub(crate) use greeting::Offer;
use holds::{Holds, Renewal};
use reconcile::Reconciliation;
use requests::arm_wait;
use timers::{TimerKey, Timers};
use watches::Watches;
use window::Window;

/// What a session is opened with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionOptions {
    /// The lease of the session in milliseconds; 0 is the server's default.
    pub(crate) lease_ms: u32,
    /// For how long callers are kept waiting for a connection that was lost.
    pub(crate) outage_max: Duration,
    /// For how long callers wait for the answer to a request that has no wait of its own.
    pub(crate) request_timeout: Duration,
}

/// See the module.
pub(crate) struct Lane {
    options: SessionOptions,
    /// What the other connections of the client know of the session.
    common: Arc<SharedSession>,
    welcome: Welcome,
    /// There is no lane to take up: the session ended on the server, or there was none yet.
    gone: bool,
    /// What the attempt to connect that is under way asks for.
    requested: Option<SessionRequest>,
    greeting: Greeting,
    anchor: Anchor,
    deadline_timer: BootTime,
    keep_alive: Renewal,
    /// When the last keep-alive that was answered was sent, or the hello.
    keep_alive_sent: BootTime,
    keep_alive_timer: BootTime,
    /// Shortest grace of the holds when the keep-alive was scheduled.
    keep_alive_grace: Option<Duration>,
    /// Time that the timer of unanswered requests is set to.
    answer_timer: BootTime,
    window: Window,
    holds: Holds,
    /// Number of the newest guard.
    guard_number: u64,
    watches: Watches,
    reconciliation: Reconciliation,
    timers: Timers,
    connected: bool,
    last_received: BootTime,
    /// Why the connection must be taken for dead, if it must.
    doubt: Option<&'static str>,
    /// While not connected: when those who wait are told so. `None` once they were.
    outage_end: Option<BootTime>,
    outage_cause: Error,
    /// If true, the server has refused the credentials in this outage.
    is_unauthorized: bool,
    closing: Closing,
    /// This connection is no longer one of the session's.
    left: bool,
    /// Bytes to send on the present connection.
    pub(crate) out: Vec<u8>,
}

/// How far the end of the client has come.
enum Closing {
    Open,
    /// Everything is released and cancelled first; then comes the goodbye, if no other connection uses the session.
    Draining {
        replies: Vec<Reply<()>>,
        goodbye_sent: bool,
    },
    Finished,
}

impl Lane {
    /// Without a connection yet. It wants one, and callers wait for it as in an outage that has just begun.
    pub(crate) fn new(options: SessionOptions, common: Arc<SharedSession>, now: BootTime) -> Self {
        let mut session = Self {
            options,
            common,
            welcome: Welcome::default(),
            gone: true,
            requested: None,
            greeting: Greeting::default(),
            anchor: Anchor { sent: now, stamp_ms: 0 },
            deadline_timer: BootTime::NEVER,
            keep_alive: Renewal::Off,
            keep_alive_sent: now,
            keep_alive_timer: BootTime::NEVER,
            keep_alive_grace: None,
            answer_timer: BootTime::NEVER,
            window: Window::new(0),
            holds: Holds::new(now),
            guard_number: 0,
            watches: Watches::default(),
            reconciliation: Reconciliation::default(),
            timers: Timers::default(),
            connected: false,
            last_received: now,
            doubt: None,
            outage_end: None,
            outage_cause: Error::disconnected("the client has not connected yet"),
            is_unauthorized: false,
            closing: Closing::Open,
            left: false,
            out: Vec::new(),
        };
        session.begin_outage(now);
        session
    }

    /// How the server last said to divide its keys.
    pub(crate) fn layout(&self) -> Layout {
        Layout { worker_count: self.welcome.worker_count, shard_count: self.welcome.shard_count }
    }

    /// What to ask for when a connection is opened. `None` while another connection opens the session.
    pub(crate) fn request(&mut self) -> Option<SessionRequest> {
        let lane = (!self.gone).then_some((self.welcome.session_id, self.welcome.lane));
        self.requested = self.common.request(lane, self.options.lease_ms);
        self.requested
    }

    /// The first instant at which [`Lane::handle_timers`] has something to do.
    pub(crate) fn next_timeout(&self) -> BootTime {
        self.timers.next().min(self.outage_end.unwrap_or(BootTime::NEVER))
    }

    /// Why the connection must be taken for dead, if it must.
    pub(crate) fn doubt(&self) -> Option<&'static str> {
        self.doubt
    }

    /// There is nothing left to do, ever.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.closing, Closing::Finished)
    }

    /// Returns whether every request has its answer.
    pub(crate) fn is_idle(&self) -> bool {
        self.window.is_empty()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Returns whether a connection is worth having: for a while after it was lost always, then only while a hold may still
    /// be believed in, a key is watched, somebody waits for an answer, or other connections keep a session that may have a hold without
    /// a guard. Once the server has refused the credentials, only callers and holds that end by themselves are reasons, so the attempts end.
    pub(crate) fn wants_connection(&self, now: BootTime) -> bool {
        if self.is_unauthorized {
            return self.window.is_awaited() || self.holds.any_expires(now);
        }
        let needed = self.window.is_awaited() || self.holds.any_alive(now) || !self.watches.is_empty();
        self.outage_end.is_some() || needed || self.window.may_leave_hold() && self.is_kept_by_others(now)
    }

    /// Returns whether another connection has renewed the session since this one could, so that the session does not end soon.
    fn is_kept_by_others(&self, now: BootTime) -> bool {
        let deadline = self.common.deadline();
        !self.gone && now < deadline && self.holds.session_deadline < deadline
    }

    /// Takes out the oldest event for guards.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.holds.events.pop_front()
    }

    /// Returns the local deadline of the session's lease.
    pub(crate) fn session_deadline(&self) -> BootTime {
        self.holds.session_deadline
    }

    /// Returns the send time of the last answered request of this connection. Guards must see it after the events.
    pub(crate) fn alive(&self) -> BootTime {
        self.holds.alive
    }

    /// All handles and guards are gone: nobody can ask for anything any more.
    pub(crate) fn handle_deserted(&mut self) {
        self.close(Reply::Nobody);
    }

    /// Returns whether [`Lane::transmit`] has anything to do.
    pub(crate) fn wants_to_transmit(&self) -> bool {
        self.window.has_unsent() || !matches!(self.closing, Closing::Open)
    }

    /// Appends to `out` what may be sent now.
    pub(crate) fn transmit(&mut self, now: BootTime) {
        self.window.transmit(now, &mut self.out);
        if matches!(self.closing, Closing::Draining { goodbye_sent: false, .. }) && self.window.is_empty() {
            self.say_goodbye(now);
        }
    }

    /// Nothing is left to be done but to go.
    fn say_goodbye(&mut self, now: BootTime) {
        if !self.leave() {
            // Others still use the session.
            return self.finish();
        }
        if let Closing::Draining { goodbye_sent, .. } = &mut self.closing {
            *goodbye_sent = true;
        }
        self.window.push(Job::Goodbye);
        self.window.transmit(now, &mut self.out);
    }

    /// One frame arrived.
    ///
    /// # Errors
    ///
    /// The connection is of no use any more.
    pub(crate) fn handle_frame(&mut self, frame: Frame<'_>, now: BootTime) -> Result<()> {
        self.last_received = now;
        self.handle_response(frame, now)?;
        self.settle_strangers();
        Ok(())
    }

    fn handle_response(&mut self, frame: Frame<'_>, now: BootTime) -> Result<()> {
        match Response::decode(frame)? {
            Response::Event(event) => self.handle_event(frame.number(), event, now),
            response => match self.window.take(frame.number()) {
                Some((sequence, pending)) => self.handle_answer(sequence, pending, response, now),
                None => match response {
                    // About the connection as a whole, as when it broke a limit.
                    Response::Error(error) if frame.number() == 0 => Err(error.into()),
                    // What was answered before came once more.
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
                TimerKey::Wait(token) => self.wait_over(token, now),
                TimerKey::Answer => self.answer_due(now),
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
        self.doubt = None;
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
            if let Job::Acquire(job) = &mut pending.job
                && let Wait::Until(at) = job.wait
            {
                arm_wait(job, at, &mut self.timers);
            }
        }
    }

    /// Returns the version and the capabilities for a HELLO to the server at this endpoint.
    pub(crate) fn offer(&self, endpoint: usize) -> Offer {
        self.greeting.offer(endpoint)
    }

    /// Notes that the server at this endpoint refused HELLO. Returns whether to connect to it again at once, with the HELLO that
    /// [`Lane::request`] and [`Lane::offer`] describe then.
    pub(crate) fn handle_hello_refused(&mut self, endpoint: usize, error: &Error) -> bool {
        let Error::Refused { code: ErrorCode::BadInput, field, .. } = error else { return false };
        let is_older = self.greeting.handle_refused(endpoint, field);
        if is_older {
            self.withdraw_request();
        }
        is_older
    }

    /// Callers that come from here on wait for a connection as long as those at the beginning of an outage.
    pub(crate) fn begin_outage(&mut self, now: BootTime) {
        self.greeting.begin_outage();
        self.is_unauthorized = false;
        self.outage_end = Some(now.after(self.options.outage_max));
    }

    /// What was asked for was not looked at, and is asked for again.
    pub(crate) fn withdraw_request(&mut self) -> Option<SessionRequest> {
        let requested = self.requested.take();
        if let Some(SessionRequest::New { .. }) = requested {
            self.common.not_opened();
        }
        requested
    }

    /// An attempt to connect failed. True if the next one asks for something else and need not wait.
    pub(crate) fn handle_attempt_failed(&mut self, error: Error) -> bool {
        let requested = self.withdraw_request();
        if let Some(SessionRequest::Resume { id, .. } | SessionRequest::Join { id }) = requested
            && error.code() == Some(ErrorCode::SessionGone)
        {
            self.common.gone(id);
            self.session_gone();
            return true;
        }
        // The next attempt would be refused as well, so nobody should wait for it.
        if matches!(error.code(), Some(ErrorCode::BadInput | ErrorCode::Unauthorized)) {
            self.outage_end = None;
        }
        self.is_unauthorized |= error.code() == Some(ErrorCode::Unauthorized);
        self.outage_cause = error;
        if self.outage_end.is_none() {
            self.tell_outage();
        }
        if self.is_unauthorized {
            self.end_watches();
        }
        false
    }

    /// A new connection was opened. `sent` is when its hello was sent.
    pub(crate) fn handle_welcome(&mut self, welcome: Welcome, sent: BootTime, now: BootTime) {
        let resumed = !self.gone && welcome.resumed && welcome.session_id == self.welcome.session_id;
        if !resumed {
            self.session_gone();
        }
        if welcome.server_id != self.welcome.server_id {
            self.holds.forget_stamps();
        }
        self.requested = None;
        self.welcome = welcome;
        self.gone = false;
        self.connected = true;
        self.last_received = now;
        self.common.opened(welcome.session_id, self.session_lease());
        self.common.served_by(welcome.version, welcome.capabilities);
        self.window.offered = welcome.capabilities.unwrap_or_default();
        // Stamps of another server, or of before a restart, are not to be compared with those to come.
        self.anchor = Anchor { sent, stamp_ms: welcome.stamp_ms };
        self.outage_end = None;
        self.window.retain_unsent(|job| {
            !matches!(
                job,
                Job::Cancel { .. }
                    | Job::Renew { .. }
                    | Job::Check { .. }
                    | Job::Holds { .. }
                    | Job::KeepAlive
            )
        });
        self.ask_again_for_unconfirmed();
        let watches = self.take_unanswered_watches();
        self.holds.cap_all(&mut self.timers);
        if resumed {
            self.holds.alive = sent;
            self.window.repeat(now, &mut self.out);
            self.cancel_abandoned();
        } else {
            self.holds.session_deadline = BootTime::default();
            self.holds.alive = sent;
            self.holds.events.push_back(Event::SessionBegan);
            self.begin_anew();
        }
        self.move_deadline(self.welcome_report(), now);
        self.schedule_keep_alive(sent);
        self.ask_for_all(resumed, now);
        self.watch_again(watches);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !self.left {
            self.common.leave();
        }
    }
}

#[cfg(test)]
mod tests;
