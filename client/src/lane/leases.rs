//! Renewal, checks and expiry of holds.

use std::time::Duration;

use waymaker_protocol::{ErrorCode, Extended, LockId, StatusAnswer};

use super::Lane;
use super::answers::lost_by;
use super::event::Event;
use super::holds::{LeaseEnd, Renewal, ReportedBy, patience, retry_delay};
use crate::clock::BootTime;
use crate::deadline::LeaseReport;
use crate::loss::LossReason;
use crate::request::job::Job;

impl Lane {
    /// Applies the response to an extend, or the event that another client has moved the lease. `carried` says that the
    /// server may have made the change before this connection was resumed. The report then does not prove that the hold
    /// still exists, so the hold keeps its cap (the deadline from before the outage).
    pub(super) fn extended(
        &mut self,
        id: LockId,
        by: ReportedBy,
        extended: Extended,
        carried: bool,
        now: BootTime,
    ) {
        let remaining = Duration::from_millis(u64::from(extended.remaining_ms));
        let report = LeaseReport { stamp_ms: extended.stamp_ms, remaining, lease: remaining };
        let is_capped = carried || self.may_be_elsewhere(id);
        let Some(entry) = self.holds.get_mut(id) else { return };
        if !is_capped {
            entry.uncap();
        }
        if entry.lease_reported(self.anchor, by, report, now) {
            let (guard, lease_ms) = (entry.guard, extended.remaining_ms);
            self.holds.events.push_back(Event::LeaseLength { guard, lease_ms });
        }
        self.holds.rearm(id, &mut self.timers);
    }

    /// Notes that an extend of a caller is no longer pending. After the last pending extend of the hold,
    /// `extends_bound` no longer limits its local deadline.
    pub(super) fn extend_answered(&mut self, id: LockId) {
        if let Some(entry) = self.holds.get_mut(id) {
            // Saturate, because the number of pending extends may be 0 here. The lane may have sent the extend before
            // the hold was granted to it and got its entry.
            entry.extends_pending = entry.extends_pending.saturating_sub(1);
            if entry.extends_pending == 0 {
                entry.extends_bound = BootTime::NEVER;
            }
            self.holds.rearm(id, &mut self.timers);
        }
    }

    /// Notes that a caller's extend was dropped before it was sent. The extend then counts as answered. If the renewal
    /// of the hold is marked as sent, makes it due at once: the lane may have left it out because of the extend.
    pub(super) fn extend_dropped(&mut self, id: LockId) {
        if let Some(entry) = self.holds.get_mut(id)
            && entry.renew_ms.is_some()
            && matches!(entry.renewal, Renewal::Sent { .. })
        {
            entry.renewal = Renewal::Due(BootTime::default());
        }
        self.extend_answered(id);
    }

    /// Called if the outcome of a caller's extend is unknown. The server may have shortened the lease. So lowers the
    /// hold's deadline to `extends_bound`, the earliest deadline that the pending extends can cause, if that is
    /// earlier. The next report of the lease replaces it.
    pub(super) fn extend_unknown(&mut self, id: LockId) {
        if let Some(entry) = self.holds.get_mut(id)
            && let LeaseEnd::Own(own) = entry.lease_end
        {
            entry.lease_end = LeaseEnd::Own(own.min(entry.extends_bound));
        }
    }

    /// Removes the cap of this hold (the upper bound that the outage put on its local deadline), because the server has
    /// listed the hold on the current connection.
    pub(super) fn uncap(&mut self, id: LockId) {
        if let Some(entry) = self.holds.get_mut(id) {
            entry.uncap();
            self.holds.rearm(id, &mut self.timers);
        }
    }

    /// Applies the refusal of an extend. If the code means that the hold has ended or was taken up (see `lost_by`),
    /// reports the loss to its guard. Otherwise, schedules the next renewal of a hold that renews itself: at `retry`,
    /// or at `now` if `retry` has passed.
    pub(super) fn not_extended(&mut self, id: LockId, code: ErrorCode, retry: BootTime, now: BootTime) {
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

    /// Handles the response to the lane's status request for a hold. If another lane has the hold, and the server
    /// decided the response after this connection was resumed, its guard is superseded. Otherwise applies the reported
    /// lease, unless a newer report is known. `carried` says that the response may be older than this connection.
    pub(super) fn checked(
        &mut self,
        id: LockId,
        by: ReportedBy,
        status: StatusAnswer<'_>,
        carried: bool,
        now: BootTime,
    ) {
        let is_capped = carried || self.reconciliation.is_unlisted(id);
        if !carried && self.is_elsewhere(id) {
            return self.holds.lose(id, LossReason::Superseded, &mut self.timers);
        }
        let Some(entry) = self.holds.get_mut(id) else { return };
        if !is_capped {
            entry.uncap();
        }
        let remaining = Duration::from_millis(u64::from(status.remaining_ms));
        let report = LeaseReport { stamp_ms: status.stamp_ms, remaining, lease: entry.lease.max(remaining) };
        entry.lease_reported(self.anchor, by, report, now);
        self.holds.rearm(id, &mut self.timers);
    }

    /// Applies the refusal of a status request for a hold. If the code means that the hold has ended or was taken up
    /// (see `lost_by`), reports the loss to its guard. Otherwise, schedules another status request or renewal after a
    /// short delay, unless one is already scheduled.
    pub(super) fn not_checked(&mut self, id: LockId, code: ErrorCode, now: BootTime) {
        if let Some(reason) = lost_by(code) {
            return self.holds.lose(id, reason, &mut self.timers);
        }
        let retry = self.retry_at(id, now);
        if let Some(entry) = self.holds.get_mut(id)
            && entry.renewal == Renewal::Off
        {
            entry.renewal = Renewal::Due(retry);
            self.holds.rearm(id, &mut self.timers);
        }
    }

    /// Returns the time to repeat a renewal or check of a hold that the server could not serve.
    pub(super) fn retry_at(&mut self, id: LockId, now: BootTime) -> BootTime {
        let lease = self.holds.get_mut(id).map_or(Duration::ZERO, |entry| entry.lease);
        now.after(retry_delay(lease))
    }

    /// Asks the server after a new welcome whether a hold still lives: with a renewal, or with a status request.
    pub(super) fn ask_for(&mut self, id: LockId, now: BootTime) {
        let Some(entry) = self.holds.get_mut(id) else { return };
        match entry.renew_ms {
            Some(lease_ms) if entry.extends_pending == 0 => {
                entry.renewal = Renewal::Sent { since: now, doubt: now.after(patience(entry.lease)) };
                let is_own = entry.may_be_taken_up();
                self.window.push(Job::Renew { id, lease_ms, is_own });
            }
            // Ask for the status only, if the hold does not renew itself or an extend of a caller is pending. The
            // server would serve a renewal after that extend, and undo it.
            _ => self.window.push(Job::Check { id }),
        }
        self.holds.rearm(id, &mut self.timers);
    }

    /// Handles the timer of a hold. After its local deadline, the hold is lost. If its renewal is due, sends an extend,
    /// or a status request for a hold that does not renew itself. If a renewal has had no response for some time
    /// (`patience`), marks the connection as dead if no frame has arrived since.
    pub(super) fn hold_due(&mut self, id: LockId, now: BootTime) {
        if self.holds.timer_fired(id).is_some() && self.holds.is_over(id, now) {
            return self.holds.lose(id, LossReason::LocalDeadline, &mut self.timers);
        }
        let Some(entry) = self.holds.get_mut(id) else { return };
        let doubt = now.after(patience(entry.lease));
        let mut unanswered_since = None;
        match (entry.renewal, entry.renew_ms) {
            (Renewal::Due(at), Some(lease_ms)) if at <= now => {
                entry.renewal = Renewal::Sent { since: now, doubt };
                // Send no renewal while an extend of a caller is pending: the extend also renews the hold, perhaps for
                // longer.
                if entry.extends_pending == 0 {
                    let is_own = entry.may_be_taken_up();
                    self.window.push(Job::Renew { id, lease_ms, is_own });
                }
            }
            (Renewal::Due(at), None) if at <= now => {
                entry.renewal = Renewal::Off;
                self.window.push(Job::Check { id });
            }
            (Renewal::Sent { since, doubt: at }, _) if at <= now => {
                entry.renewal = Renewal::Sent { since: now, doubt };
                unanswered_since = Some(since);
            }
            _ => {}
        }
        self.holds.rearm(id, &mut self.timers);
        if let Some(since) = unanswered_since {
            self.doubt_if_silent(since);
        }
    }
}
