//! Latest end of each hold, not counting stalls of workers.

use super::Auditor;
use super::holds::Hold;
use waymaker_protocol::LockId;

impl Auditor {
    /// Returns the latest end of a hold, not counting stalls of workers. `None` if it is unknown.
    pub(super) fn ceiling_ms(&self, hold: &Hold) -> Option<u64> {
        // A restart postpones the ends of leases.
        if self.restarts.happened_since(hold.said_ms) {
            let ends = [self.lease_ceiling_ms(hold), self.restart_ceiling_ms(hold)];
            return hold.over_ms.or_else(|| ends.into_iter().flatten().min());
        }
        let ends = [
            hold.over_ms,
            self.lease_ceiling_ms(hold),
            self.session_ceiling_ms(hold),
            self.lane_ceiling_ms(hold),
        ];
        ends.into_iter().flatten().min()
    }

    /// Returns whether a hold had certainly ended before `at_ms`.
    pub(super) fn surely_over_before(&self, hold: &Hold, at_ms: u64) -> bool {
        self.ceiling_ms(hold).is_some_and(|end_ms| end_ms < at_ms && self.over_by_ms(end_ms, at_ms) < at_ms)
    }

    /// Returns the time by which a hold with this latest end has ended, as seen at `at_ms`. If the server was
    /// down at that end, the hold ends when the server starts.
    pub(super) fn over_by_ms(&self, end_ms: u64, at_ms: u64) -> u64 {
        let started_ms = self.restarts.started_ms.filter(|started_ms| *started_ms <= at_ms);
        self.latest_ms(end_ms.max(started_ms.unwrap_or(0)))
    }

    /// Like `ceiling_ms`, for a hold given by its id.
    pub(super) fn ceiling_of(&self, id: LockId) -> Option<u64> {
        self.holds.get(&id).and_then(|hold| self.ceiling_ms(hold))
    }

    /// Returns the end of the own lease of a hold, if that is certain.
    fn lease_ceiling_ms(&self, hold: &Hold) -> Option<u64> {
        let is_certain = hold.session.is_none()
            && hold.may_move.is_empty()
            && !hold.lease_is_open
            && !hold.may_have_moved
            && !hold.was_repeated;
        is_certain.then_some(hold.lease_end_ms.max(hold.late_ms))
    }

    /// Returns the end of the session of a hold, if the hold depends on the lease of this session.
    fn session_ceiling_ms(&self, hold: &Hold) -> Option<u64> {
        let session = self.sessions.get(&hold.session?).filter(|_| !hold.may_have_moved)?;
        Some(session.over_ms().unwrap_or(u64::MAX).min(session.ceiling_ms()))
    }

    /// Returns the end of a hold with `release_after` that was granted before the last start of the server. The
    /// start counts as the loss of the connection. `None` if the session may have resumed the hold's lane since.
    fn restart_ceiling_ms(&self, hold: &Hold) -> Option<u64> {
        let (_, release_after_ms) = self.lost_with(hold)?;
        let started_ms = self.restarts.started_ms.filter(|started_ms| hold.said_ms < *started_ms)?;
        Some(started_ms + 1 + release_after_ms)
    }

    /// Returns the end of a hold by the loss of its connection. The loss counts from when the server learned
    /// of it.
    fn lane_ceiling_ms(&self, hold: &Hold) -> Option<u64> {
        let (connection, release_after_ms) = self.lost_with(hold)?;
        let done_ms = self.settings.server_ms(self.connections[connection].done_us?);
        Some(done_ms + 1 + release_after_ms)
    }

    /// Returns the lost connection with which a hold ends, and the time from the loss to the end. `None` if
    /// the session has resumed its lane since.
    fn lost_with(&self, hold: &Hold) -> Option<(usize, u64)> {
        let release_after_ms = hold.release_after_ms.filter(|_| !hold.may_have_moved)?;
        let lane = &self.lanes[hold.lane];
        let loss = lane.losses.last().filter(|loss| loss.back_ms.is_none())?;
        let last = *lane.connections.last().filter(|last| **last == loss.connection)?;
        let was_there = self.connections[last].welcome_ms.is_some_and(|at_ms| at_ms <= hold.said_ms);
        was_there.then(|| (last, u64::from(release_after_ms)))
    }
}
