//! The client's state machine for one lane of a session, without I/O, guards or channels.
//!
//! A [`Lane`] receives inputs and decides what to do next. It never reads a clock, opens a socket or sleeps. The task
//! in `connection` does this for it; in simulations, the simulator does. `connection::guarded_lane` sits between the
//! task and the lane: it makes the state of guards and passes the lane's events to the guards.
//!
//! ```text
//!  handles, guards --requests--> submit, release -+                    +--> out (bytes to send)
//!  socket ---------Frame-------> handle_frame ----+--> window, holds --+--> next_timeout
//!  timer -----------now--------> handle_timers ---+    timers, anchor  +--> events for guards, answers for callers
//!  new connection --Welcome----> handle_welcome --+                    +--> wants_connection, is_finished
//! ```
//!
//! A client has one lane for each of its connections. All lanes of a client share one session, through a
//! [`Session`].
//!
//! This file defines the lane and its inputs. The reactions are in `requests`, `answers`, `grants`, `leases`,
//! `keep_alive`, `greeting`, `outage` and `reconcile`. They build on parts that are independent of each other:
//! `window` (requests that are sent or queued), `holds`, `watches` and `timers`. `event` defines the events for
//! guards.
//!
//! # Invariants
//!
//! 1. **No guard outlives its lease.** The deadline of a lease comes from `deadline.rs` alone. It moves forward only
//!    with a response or an event about that very hold, or with a response about the session for holds on the session's
//!    lease. A hold with a `release_after` also has a deadline that each response with a stamp on its connection moves.
//! 2. **A resumed connection proves nothing about a hold.** During an outage, another client may release a hold, and
//!    the event that reports the release is lost. So the lane checks every hold after each new `WELCOME`. It checks
//!    holds on the session's lease together, with a list of the lane's holds. It checks a hold that it renews with an
//!    extend, and other holds with a status request. Until the response arrives, each hold keeps its deadline from
//!    before the outage (the cap).
//! 3. **A grant that no caller accepts is released.** The lane hands a grant over once. If no guard can be made of it,
//!    the lane releases it at once. If the caller has dropped its future, the holds are released as by a dropped guard.
//! 4. **A hold has one owner.** A request id may find a hold that has a guard in this client, or a hold that is about
//!    to be released. The newest acquire that is granted the hold owns it. Older guards are superseded before the newer
//!    guard exists. From then on, the lane accepts no request of theirs and drops their unsent releases. The server
//!    serves releases that were sent earlier before it confirms the grant.
//! 5. **Requests are repeated under their numbers** while the session lives, so the server can tell a repetition from a
//!    new request. In a new session, numbers start again, and the lane sends an unanswered acquire as a new one. If the
//!    old acquire was granted after all, its hold stays until its lease expires. The response to a repeated request may
//!    be old, so the lane asks the server to confirm a grant that was decided before the connection began. Only then
//!    does the caller get it.
//!
//! # An example of rule 5 and why grants are confirmed
//!
//! The server grants an acquire, and the connection breaks before the response arrives. The client reconnects, repeats
//! request 7 and gets the first response again: granted, 30 s, with the stamp of that time. During the outage the hold
//! may have ended, because its claim has a `release_after` of 1 s. So the grant becomes a `ConfirmJob`, which sends an
//! extend with the id of the hold. The caller gets the lock only after the response to this extend. If that response is
//! `not_found`, the lane sends the acquire again as if it had never been granted.

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

use crate::clock::BootTime;
use crate::deadline::Anchor;
use crate::error::{Error, Result};
use crate::request::claim::Wait;
use crate::request::job::Job;
use crate::request::reply::Reply;
use crate::session::Session;
pub(crate) use event::{Event, GuardedHold};
pub(crate) use grants::RELEASE_AFTER_BELIEVED_MIN_MS;
use greeting::Greeting;
pub(crate) use greeting::Offer;
use holds::{Holds, Renewal};
use reconcile::Reconciliation;
use requests::arm_wait;
use timers::{TimerKey, Timers};
use watches::Watches;
use window::Window;

/// Options for opening a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionOptions {
    /// Lease of the session in milliseconds; 0 selects the server's default.
    pub(crate) lease_ms: u32,
    /// Longest time for which callers wait for a new connection during an outage.
    pub(crate) outage_max: Duration,
    /// Longest time for which callers wait for the response to a request that has no wait of its own.
    pub(crate) request_timeout: Duration,
}

/// State of one lane; see the module documentation.
pub(crate) struct Lane {
    options: SessionOptions,
    /// State of the session that all connections of the client share.
    session: Arc<Session>,
    /// Newest welcome of the server; the default before the first.
    welcome: Welcome,
    /// Whether there is no lane to resume: the session ended on the server, or none was opened yet.
    gone: bool,
    /// Session request of the current attempt to connect.
    requested: Option<SessionRequest>,
    greeting: Greeting,
    anchor: Anchor,
    /// Time that the timer of the session's local deadline is set to.
    deadline_timer: BootTime,
    keep_alive: Renewal,
    /// Instant from which the interval to the next keep-alive counts: the send time of the last answered keep-alive or
    /// of the HELLO, or the time of a refusal.
    keep_alive_sent: BootTime,
    /// Time that the timer of the keep-alive is set to.
    keep_alive_timer: BootTime,
    /// Shortest [`holds::Entry::grace`] of all holds when the keep-alive was scheduled; `None` if no hold has one. A
    /// grace is the time for which a hold counts as held after the connection was last known to be alive. So the lane
    /// sends at least three keep-alives in the shortest grace.
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
    /// Time at which the newest frame was read.
    last_received: BootTime,
    /// Why the connection counts as dead; `None` while it is trusted.
    doubt: Option<&'static str>,
    /// While disconnected: the time at which waiting callers get an error. `None` after that time and while connected.
    outage_end: Option<BootTime>,
    /// Why there is no connection, for the errors of waiting callers.
    outage_cause: Error,
    /// Whether the server has refused the credentials in this outage.
    is_unauthorized: bool,
    closing: Closing,
    /// Whether this lane has left the session.
    left: bool,
    /// Bytes to send on the current connection.
    pub(crate) out: Vec<u8>,
}

/// Progress of the lane's shutdown.
enum Closing {
    Open,
    /// The lane first releases all holds and cancels all acquires. It then sends the goodbye, the request that ends the
    /// session, unless other connections use the session.
    Draining {
        replies: Vec<Reply<()>>,
        goodbye_sent: bool,
    },
    Finished,
}

impl Lane {
    /// Creates a lane without a connection. [`Lane::wants_connection`] is true. Callers wait for the first connection
    /// for at most `SessionOptions::outage_max`, as after the loss of a connection, and then get an error.
    pub(crate) fn new(options: SessionOptions, session: Arc<Session>, now: BootTime) -> Self {
        let mut lane = Self {
            options,
            session,
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
        lane.begin_outage(now);
        lane
    }

    /// Returns the newest welcome of the server.
    pub(crate) fn welcome(&self) -> Welcome {
        self.welcome
    }

    /// Returns what the HELLO of a new connection requests: a new session, to join the client's session with a new
    /// lane, or to resume this lane. `None` while another connection of the client opens the session.
    pub(crate) fn request(&mut self) -> Option<SessionRequest> {
        let lane = (!self.gone).then_some((self.welcome.session_id, self.welcome.lane));
        self.requested = self.session.request(lane, self.options.lease_ms);
        self.requested
    }

    /// Returns the first instant at which [`Lane::handle_timers`] has something to do.
    pub(crate) fn next_timeout(&self) -> BootTime {
        self.timers.next().min(self.outage_end.unwrap_or(BootTime::NEVER))
    }

    /// Returns why the connection counts as dead, so that the driver must close it. `None` while it is trusted.
    pub(crate) fn doubt(&self) -> Option<&'static str> {
        self.doubt
    }

    /// Returns whether the lane has shut down.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.closing, Closing::Finished)
    }

    /// Returns whether every request was sent and has its response.
    pub(crate) fn is_idle(&self) -> bool {
        self.window.is_empty()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Returns whether the client should connect.
    ///
    /// Returns true as long as callers wait for the end of the outage. After that, returns true if a guard still counts
    /// as held, a key is watched, or a caller waits for a response or may query an outcome. Also returns true if other
    /// connections keep the session alive and this lane may have left a hold in it.
    ///
    /// After the server has refused the credentials, returns true only for waiting callers and for guards that have a
    /// local deadline. The client then stops connecting as soon as these are gone.
    pub(crate) fn wants_connection(&self, now: BootTime) -> bool {
        if self.is_unauthorized {
            return self.window.is_awaited() || self.holds.any_expires(now);
        }
        let needed = self.window.is_awaited() || self.holds.any_alive(now) || !self.watches.is_empty();
        self.outage_end.is_some() || needed || self.window.may_leave_hold() && self.is_kept_by_others(now)
    }

    /// Returns whether another connection has renewed the session since this connection last did, so that the session
    /// does not end soon.
    fn is_kept_by_others(&self, now: BootTime) -> bool {
        let deadline = self.session.deadline();
        !self.gone && now < deadline && self.holds.session_deadline < deadline
    }

    /// Removes and returns the oldest event for guards.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.holds.events.pop_front()
    }

    /// Returns the local deadline of the session's lease.
    pub(crate) fn session_deadline(&self) -> BootTime {
        self.holds.session_deadline
    }

    /// Returns the send time of the newest request whose response had the server's stamp, or of the HELLO: the
    /// connection was still alive at that time. The driver must publish this time to guards only after it has handled
    /// all events.
    pub(crate) fn alive(&self) -> BootTime {
        self.holds.alive
    }

    /// Closes the lane: all handles and guards are gone, so no further request can arrive.
    pub(crate) fn handle_deserted(&mut self) {
        self.close(Reply::Nobody);
    }

    /// Returns whether [`Lane::transmit`] has anything to do.
    pub(crate) fn wants_to_transmit(&self) -> bool {
        self.window.has_unsent() || !matches!(self.closing, Closing::Open)
    }

    /// Appends the requests that may be sent now to `out`. When a closing lane has no request left, leaves the session.
    pub(crate) fn transmit(&mut self, now: BootTime) {
        self.window.transmit(now, &mut self.out);
        if matches!(self.closing, Closing::Draining { goodbye_sent: false, .. }) && self.window.is_empty() {
            self.say_goodbye(now);
        }
    }

    /// Leaves the session, and sends the goodbye if this was the last lane of the session.
    fn say_goodbye(&mut self, now: BootTime) {
        if !self.leave() {
            // Other connections still use the session.
            return self.finish();
        }
        if let Closing::Draining { goodbye_sent, .. } = &mut self.closing {
            *goodbye_sent = true;
        }
        self.window.push(Job::Goodbye);
        self.window.transmit(now, &mut self.out);
    }

    /// Handles one frame from the server.
    ///
    /// # Errors
    ///
    /// Any error means that the connection cannot be used any more.
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
                    // An error without a request number concerns the whole connection, for example a limit that the
                    // client exceeded. So it ends the connection.
                    Response::Error(error) if frame.number() == 0 => Err(error.into()),
                    // Ignore the response: the server repeated an earlier one, or the lane no longer waits for it.
                    _ => Ok(()),
                },
            },
        }
    }

    /// Handles all timers that are due at `now`.
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

    /// Handles the loss of the connection.
    pub(crate) fn handle_disconnected(&mut self, cause: Error, now: BootTime) {
        if matches!(&self.closing, Closing::Draining { goodbye_sent: true, .. }) {
            // The goodbye was sent, and the server closes the connection after its farewell. So finish: if the goodbye
            // was lost, the session ends when its lease expires.
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

    /// Notes that the server at this endpoint refused HELLO. Returns whether to connect to it again at once, with the
    /// older HELLO that [`Lane::request`] and [`Lane::offer`] return from now on.
    pub(crate) fn handle_hello_refused(&mut self, endpoint: usize, error: &Error) -> bool {
        let Error::Refused { code: ErrorCode::BadInput, field, .. } = error else { return false };
        let is_older = self.greeting.handle_refused(endpoint, field);
        if is_older {
            self.withdraw_request();
        }
        is_older
    }

    /// Starts the time during which callers wait for a connection. Also called when a caller sends a request after that
    /// time has passed.
    pub(crate) fn begin_outage(&mut self, now: BootTime) {
        self.greeting.begin_outage();
        self.is_unauthorized = false;
        self.outage_end = Some(now.after(self.options.outage_max));
    }

    /// Withdraws the session request of a failed attempt, and returns it. If it asked for a new session, any connection
    /// of the client may ask for one now.
    pub(crate) fn withdraw_request(&mut self) -> Option<SessionRequest> {
        let requested = self.requested.take();
        if let Some(SessionRequest::New { .. }) = requested {
            self.session.not_opened();
        }
        requested
    }

    /// Handles a failed attempt to connect. Returns true if the session has ended: the next attempt asks for another
    /// session and need not wait.
    pub(crate) fn handle_attempt_failed(&mut self, error: Error) -> bool {
        let requested = self.withdraw_request();
        if let Some(SessionRequest::Resume { id, .. } | SessionRequest::Join { id }) = requested
            && error.code() == Some(ErrorCode::SessionGone)
        {
            self.session.gone(id);
            self.session_gone();
            return true;
        }
        // After a refusal with `bad_input` or `unauthorized`, the server would refuse the next attempt too, so do not
        // let callers wait for it.
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

    /// Handles a new connection, whose HELLO was sent at `sent`.
    pub(crate) fn handle_welcome(&mut self, welcome: Welcome, sent: BootTime, now: BootTime) {
        let resumed = !self.gone && welcome.resumed && welcome.session_id == self.welcome.session_id;
        if !resumed {
            self.session_gone();
        }
        let is_other_process = welcome.server_id != self.welcome.server_id;
        if is_other_process {
            self.holds.forget_stamps();
        }
        self.requested = None;
        self.welcome = welcome;
        self.gone = false;
        self.connected = true;
        self.last_received = now;
        self.session.opened(welcome.session_id, self.session_lease());
        self.session.served_by(welcome.version, welcome.capabilities);
        self.window.offered = welcome.capabilities.unwrap_or_default();
        // Always replace the anchor, the round trip (send time and server stamp) from which stamps are converted to
        // local times. Stamps of another server, or from before a restart, cannot be compared with later stamps.
        self.anchor = Anchor { sent, stamp_ms: welcome.stamp_ms };
        self.outage_end = None;
        // Drop the unsent jobs that refer to the old connection. The calls below queue those that are still needed.
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
        // Cap the holds before the session's deadline and `alive` move. Otherwise the move would extend the local
        // deadlines of holds that the server has not confirmed.
        self.holds.cap_all(&mut self.timers);
        if resumed {
            self.holds.alive = sent;
            self.window.repeat(is_other_process, now, &mut self.out);
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
            self.session.leave();
        }
    }
}

#[cfg(test)]
mod tests;
