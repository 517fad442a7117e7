//! The times at which a command is stopped when its lock cannot be renewed.
//!
//! ```text
//!  grant                                  TERM         KILL  local deadline   lease end on the server
//!    |---- renewed every third ----...------|--- grace ---|-----|-----------------|
//!                                           |<-- notice ------->|    margin
//! ```
//!
//! The local deadline is earlier than the end of the lease on the server. KILL is sent a little before the deadline, and TERM one grace
//! before KILL. The grace is at most a third of the lease, since a lease that is renewed in time always has about two thirds left.

use std::time::Duration;

use waymaker_client::LossReason;

/// Time between KILL and the deadline, in which the processes end.
const RESERVE_MAX: Duration = Duration::from_millis(50);
/// Number of messages to the watchdog about a new deadline, per lease.
const LOOKS_PER_LEASE: u32 = 10;

/// The schedule of one grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    lease: Duration,
    grace: Duration,
    reserve: Duration,
}

impl Schedule {
    /// Creates the schedule for a lease. `grace` is the grace of the command line.
    pub(crate) fn new(lease: Duration, grace: Duration) -> Self {
        Self { lease, grace: grace.min(lease / 3), reserve: RESERVE_MAX.min(lease / 20) }
    }

    /// Returns whether TERM must be sent now.
    pub(crate) fn must_stop(&self, remaining: Duration) -> bool {
        remaining <= self.grace + self.reserve
    }

    /// Returns the time until the next check, which is never later than the time of TERM.
    pub(crate) fn look_again_in(&self, remaining: Duration) -> Duration {
        remaining.saturating_sub(self.grace + self.reserve).min(self.lease / LOOKS_PER_LEASE)
    }

    /// Returns the time between TERM and KILL. `remaining` is the time until the local deadline, or zero if the lock is lost.
    pub(crate) fn grace_after(&self, reason: LossReason, remaining: Duration) -> Duration {
        match reason {
            // An operator took the lock and may be waiting, but an aborted command does more harm than a short delay. The fence
            // protects the data meanwhile.
            LossReason::Revoked(_) => self.grace,
            // Another client may hold the lock from the deadline on.
            _ => remaining.saturating_sub(self.reserve).min(self.grace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_client::RevokeReason;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn kill_is_sent_before_the_deadline_and_term_one_grace_before_kill() {
        let schedule = Schedule::new(seconds(30), seconds(5));
        assert!(!schedule.must_stop(Duration::from_millis(5_051)));
        let left = Duration::from_millis(5_050);
        assert!(schedule.must_stop(left));
        assert_eq!(schedule.grace_after(LossReason::LocalDeadline, left), seconds(5));
    }

    #[test]
    fn a_short_lease_shortens_the_grace() {
        for lease in [Duration::from_millis(30), seconds(3)] {
            let schedule = Schedule::new(lease, seconds(5));
            // A lease that is renewed in time has about two thirds left. TERM must not be sent then.
            assert!(!schedule.must_stop(lease * 6 / 10));
            assert!(schedule.grace_after(LossReason::LocalDeadline, lease / 3) < lease / 3);
        }
    }

    #[test]
    fn the_next_check_is_never_after_the_time_of_term() {
        let schedule = Schedule::new(seconds(30), seconds(5));
        assert_eq!(schedule.look_again_in(seconds(30)), seconds(3));
        assert_eq!(schedule.look_again_in(seconds(6)), Duration::from_millis(950));
        assert_eq!(schedule.look_again_in(seconds(5)), Duration::ZERO);
    }

    #[test]
    fn after_the_deadline_only_a_revoked_lock_has_a_grace() {
        let schedule = Schedule::new(seconds(30), seconds(5));
        assert_eq!(schedule.grace_after(LossReason::Expired, Duration::ZERO), Duration::ZERO);
        let revoked = LossReason::Revoked(RevokeReason::ReleasedElsewhere);
        assert_eq!(schedule.grace_after(revoked, Duration::ZERO), seconds(5));
    }
}
