//! When to stop a command whose lock cannot be kept.
//!
//! ```text
//!  grant                                  TERM         KILL  local deadline   lease end on the server
//!    |---- renewed every third ----...------|--- grace ---|-----|-----------------|
//!                                           |<-- notice ------->|    margin
//! ```
//!
//! The local deadline already lies before the end of the lease on the server. KILL lies a little before the deadline,
//! and TERM a grace before KILL. The grace is at most a third of the lease: a lease that is renewed in time always has
//! about two thirds left.

use std::time::Duration;

use waymaker_client::LossReason;

/// Between KILL and the deadline, for the processes to be gone.
const RESERVE_MAX: Duration = Duration::from_millis(50);
/// How often in a lease the watchdog is told the new deadline.
const LOOKS_PER_LEASE: u32 = 10;

/// Fixed when the lock was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    lease: Duration,
    grace: Duration,
    reserve: Duration,
}

impl Schedule {
    /// `lease` is what a fresh grant or renewal gives, `grace` what the user would like.
    pub(crate) fn new(lease: Duration, grace: Duration) -> Self {
        Self { lease, grace: grace.min(lease / 3), reserve: RESERVE_MAX.min(lease / 20) }
    }

    /// With so much left it is time for TERM.
    pub(crate) fn must_stop(&self, remaining: Duration) -> bool {
        remaining <= self.grace + self.reserve
    }

    /// When to look at the remaining time again: at the latest when it would be time for TERM.
    pub(crate) fn look_again_in(&self, remaining: Duration) -> Duration {
        remaining.saturating_sub(self.grace + self.reserve).min(self.lease / LOOKS_PER_LEASE)
    }

    /// How long the command has between TERM and KILL. `remaining` is until the local deadline; zero once lost.
    pub(crate) fn grace_after(&self, reason: LossReason, remaining: Duration) -> Duration {
        match reason {
            // Somebody decided so and may wait for it, but a command that is cut short does more harm than a moment's
            // delay; the fence covers it.
            LossReason::Revoked(_) => self.grace,
            // Somebody else may hold it from the deadline on.
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
    fn kill_falls_before_the_deadline_and_term_a_grace_before_it() {
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
            // A lease that is renewed in time has about two thirds left, and must not be mistaken for one that is not.
            assert!(!schedule.must_stop(lease * 6 / 10));
            assert!(schedule.grace_after(LossReason::LocalDeadline, lease / 3) < lease / 3);
        }
    }

    #[test]
    fn the_next_look_is_never_after_the_time_for_term() {
        let schedule = Schedule::new(seconds(30), seconds(5));
        assert_eq!(schedule.look_again_in(seconds(30)), seconds(3));
        assert_eq!(schedule.look_again_in(seconds(6)), Duration::from_millis(950));
        assert_eq!(schedule.look_again_in(seconds(5)), Duration::ZERO);
    }

    #[test]
    fn past_the_deadline_there_is_no_grace_unless_somebody_took_the_lock_by_hand() {
        let schedule = Schedule::new(seconds(30), seconds(5));
        assert_eq!(schedule.grace_after(LossReason::Expired, Duration::ZERO), Duration::ZERO);
        let revoked = LossReason::Revoked(RevokeReason::ReleasedElsewhere);
        assert_eq!(schedule.grace_after(revoked, Duration::ZERO), seconds(5));
    }
}
