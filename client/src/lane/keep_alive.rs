//! Keep-alives of the session, and detection of a lost session or connection.

use std::time::Duration;

use waymaker_protocol::{RevokeReason, SessionId};

use super::Lane;
use super::holds::{PATIENCE_MAX, Renewal, patience};
use super::timers::TimerKey;
use crate::clock::BootTime;
use crate::deadline::{LeaseReport, deadline};
use crate::loss::LossReason;
use crate::request::job::Job;

impl Lane {
    pub(super) fn session_lease(&self) -> Duration {
        Duration::from_millis(u64::from(self.welcome.session_lease_ms))
    }

    pub(super) fn welcome_report(&self) -> LeaseReport {
        self.session_report(self.welcome.stamp_ms, self.session_lease())
    }

    /// Returns the report of the session's lease, of which `remaining` was left at `stamp_ms`. Cuts `remaining` to the
    /// whole length of the lease.
    pub(super) fn session_report(&self, stamp_ms: u64, remaining: Duration) -> LeaseReport {
        let lease = self.session_lease();
        LeaseReport { stamp_ms, remaining: remaining.min(lease), lease }
    }

    /// Moves the local deadline of the session forward, never back. Also sets its timer and informs the shared session.
    /// The session's lease is never shortened, so an earlier result only comes from a slower round trip.
    pub(super) fn move_deadline(&mut self, report: LeaseReport, now: BootTime) {
        let deadline = deadline(self.anchor, report, now).max(self.holds.session_deadline);
        self.holds.session_deadline = deadline;
        self.set_deadline_timer(deadline);
        self.session.kept(self.welcome.session_id, deadline);
    }

    fn set_deadline_timer(&mut self, at: BootTime) {
        self.timers.replace(TimerKey::Session, self.deadline_timer, at);
        self.deadline_timer = at;
    }

    /// Handles the timer of the session's local deadline: the holds on the session's lease are lost if their deadline
    /// has passed.
    pub(super) fn session_due(&mut self, now: BootTime) {
        self.deadline_timer = BootTime::NEVER;
        for id in self.holds.ids_on_session() {
            if self.holds.is_over(id, now) {
                self.holds.lose(id, LossReason::LocalDeadline, &mut self.timers);
            }
        }
        // The session is lost only if the deadline that all connections share has passed too: another connection may
        // have renewed the session later.
        let look_again = self.session.look(now);
        self.set_deadline_timer(look_again);
    }

    /// Schedules the next keep-alive. `sent` is the instant from which the interval counts.
    pub(super) fn schedule_keep_alive(&mut self, sent: BootTime) {
        // Send a keep-alive at least once in `PATIENCE_MAX`. If no frame arrives after it, the lane considers the
        // connection dead. Its response also gives a new anchor: the pair of send time and server stamp from which the
        // lane computes deadlines.
        self.keep_alive_grace = self.holds.grace_min();
        let grace = self.keep_alive_grace.map_or(PATIENCE_MAX, |grace| grace / 3);
        let interval = (self.session_lease() / 3).min(PATIENCE_MAX).min(grace);
        self.keep_alive_sent = sent;
        self.set_keep_alive(Renewal::Due(sent.after(interval)));
    }

    pub(super) fn set_keep_alive(&mut self, keep_alive: Renewal) {
        let at = match keep_alive {
            Renewal::Off => BootTime::NEVER,
            Renewal::Due(at) | Renewal::Sent { doubt: at, .. } => at,
        };
        self.keep_alive = keep_alive;
        self.timers.replace(TimerKey::KeepAlive, self.keep_alive_timer, at);
        self.keep_alive_timer = at;
    }

    /// Handles the timer of the keep-alive: sends it, or checks whether the server still sends frames.
    pub(super) fn keep_alive_due(&mut self, now: BootTime) {
        self.keep_alive_timer = BootTime::NEVER;
        let doubt = now.after(patience(self.session_lease()));
        match self.keep_alive {
            Renewal::Off => {}
            Renewal::Due(_) => {
                self.window.push_front(Job::KeepAlive);
                self.set_keep_alive(Renewal::Sent { since: now, doubt });
            }
            Renewal::Sent { since, .. } => {
                self.doubt_if_silent(since);
                // If the server has sent any frame since `since`, the connection counts as alive, although this
                // keep-alive has no response yet. The server may still fall silent, so check for new frames again
                // later.
                self.set_keep_alive(Renewal::Sent { since: now, doubt });
            }
        }
    }

    /// Marks the connection as dead if no frame has arrived since `since`.
    pub(super) fn doubt_if_silent(&mut self, since: BootTime) {
        if self.last_received < since {
            self.doubt = Some("the server stopped responding");
        }
    }

    /// Ends this session for the lane, because a connection of the client has reported its end. Does nothing if the
    /// lane has another session or has already ended this one. Reports the loss to the guards that depend on the
    /// session. Marks the connection as dead, so that the driver closes it.
    pub(crate) fn told_gone(&mut self, id: SessionId) {
        if !self.gone && self.welcome.session_id == id {
            self.session_gone();
            if self.connected {
                self.doubt = Some("the session expired");
            }
        }
    }

    /// Notes the end of the session on the server. Guards are lost if their hold is on the session's lease, has a
    /// request id (another acquire may take it up), or has a `release_after` of at least one second.
    pub(super) fn session_gone(&mut self) {
        self.gone = true;
        for id in self.holds.ids_on_session() {
            self.holds.lose(id, LossReason::SessionExpired, &mut self.timers);
        }
        // Another client may take up holds with a request id, and the lane of an ended session gets no event about it.
        // So their guards must not count as held any more.
        for id in self.holds.ids_that_may_be_taken_up() {
            self.holds.lose(id, LossReason::SessionExpired, &mut self.timers);
        }
        self.holds.drop_overdue_that_may_be_taken_up();
        // For holds with a `release_after`, the connection is lost with the session, and a new lane cannot resume it.
        // So the server ends these holds after their `release_after`.
        for id in self.holds.ids_tied_to_connection() {
            let reason = LossReason::Revoked(RevokeReason::ConnectionLost);
            self.holds.lose(id, reason, &mut self.timers);
        }
    }
}
