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
//! This file has the value and what happens to it from outside; how it reacts is in `requests`, `answers`, `grants`,
//! `leases`, `keep_alive` and `outage`, on top of the parts that know nothing of each other: `window` (what is sent),
//! `holds` (what is held), `timers` (what is due).
//!
//! # What it keeps true
//!
//! 1. **No guard believes too long.** A deadline comes from `deadline.rs` and from nothing else, and moves forward only
//!    with an answer of the server about that very hold, or about the session for holds on the session's lease.
//! 2. **A rebound connection proves nothing about a hold.** While the connection was lost, a hold may have been
//!    released by somebody else, and the push that said so is gone. So after each new `WELCOME` every hold is asked
//!    for by id: an extend where it renews itself, a status where it does not. Until the answer, a cap on the hold keeps
//!    the deadline of before.
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
//! claim said `release_after` 1 s. So the grant becomes a `ConfirmJob`; only when the extend by id is answered does
//! the caller see a lock. If the answer is `not_found`, the acquire starts again as if nothing had been granted.

mod answers;
mod grants;
mod holds;
mod keep_alive;
mod leases;
mod outage;
mod requests;
mod timers;
mod window;

use std::sync::{Arc, Weak};
use std::time::Duration;

use waymaker_protocol::{ErrorCode, Frame, Response, SessionRequest, Welcome};

use crate::claim::Wait;
use crate::client::Shared;
use crate::clock::BootTime;
use crate::deadline::Anchor;
use crate::error::{Error, Result};
use crate::hold::SharedInstant;
use crate::job::{AcquireJob, Command, Job, Reply};
use crate::loss::LossReason;
use holds::{Holds, Renewal};
use timers::{TimerKey, Timers};
use window::Window;

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
            Response::Event(event) => self.handle_event(frame.number(), event, now),
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
}

impl Drop for Session {
    /// Nobody renews from here on, so no guard may believe in its lock any more.
    fn drop(&mut self) {
        for id in self.holds.ids() {
            self.holds.lose(id, LossReason::ClientClosed, &mut self.timers);
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
