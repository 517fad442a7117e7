//! Time limits of the server that the steps of a test have to meet.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::time::{Duration, Instant};

/// Attempts before a test gives up.
const ATTEMPTS_MAX: u32 = 8;

/// A time limit of the server for the steps of a test, such as a lease.
#[derive(Debug)]
pub(crate) struct Deadline {
    length: Duration,
    /// When the request was sent that started the limit; `None` while no step has to be in time.
    sent: Cell<Option<Instant>>,
    was_missed: Cell<bool>,
}

/// Asserts that a time limit of the server, which began after `begin`, has not ended early. The clock of the server counts whole
/// milliseconds, so it may end one millisecond early.
#[track_caller]
pub(crate) fn assert_not_early(begin: Instant, length: Duration) {
    let elapsed = begin.elapsed();
    assert!(elapsed + Duration::from_millis(1) >= length, "{length:?} ended after {elapsed:?}");
}

/// Runs a test whose steps have to finish within a lease, first with a lease of `lease_ms`. If `attempt` fails although its steps
/// were in time, the test fails. If the steps took longer than the lease, the failure does not show a fault of the server:
/// `attempt` runs again with twice the lease. `attempt` calls [`Deadline::begins`] and [`Deadline::is_over`] around the steps.
pub(crate) fn with_short_lease(lease_ms: u32, attempt: impl Fn(&Deadline)) {
    let leases = (0..ATTEMPTS_MAX).map(|number| Duration::from_millis(u64::from(lease_ms << number)));
    attempt_each(leases, attempt);
}

/// Runs a test whose steps have to finish within a fixed limit, like [`with_short_lease`], with the same limit each time.
pub(crate) fn within(limit: Duration, attempt: impl Fn(&Deadline)) {
    attempt_each((0..ATTEMPTS_MAX).map(|_| limit), attempt);
}

/// Runs a test again each time that it calls [`give_up`].
pub(crate) fn again_if_given_up(attempt: impl Fn()) {
    within(Duration::MAX, |_| attempt());
}

/// Ends an attempt because a program other than the server was too slow.
pub(crate) fn give_up(reason: &'static str) -> ! {
    panic_any(GivenUp(reason))
}

/// The panic of [`give_up`], with the reason.
struct GivenUp(&'static str);

fn attempt_each(lengths: impl Iterator<Item = Duration>, attempt: impl Fn(&Deadline)) {
    for length in lengths {
        let deadline = Deadline { length, sent: Cell::new(None), was_missed: Cell::new(false) };
        let Err(failure) = catch_unwind(AssertUnwindSafe(|| attempt(&deadline))) else { return };
        deadline.is_over();
        if let Some(GivenUp(reason)) = failure.downcast_ref() {
            println!("{reason}: the test runs again");
        } else if deadline.was_missed.get() {
            println!("the steps of this test took longer than {length:?}: it runs again");
        } else {
            resume_unwind(failure);
        }
    }
    panic!("the test was not fast enough in any of {ATTEMPTS_MAX} attempts");
}

impl Deadline {
    pub(crate) fn ms(&self) -> u32 {
        self.length.as_millis() as u32
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    /// Starts the limit. Call this before the request that starts it in the server.
    pub(crate) fn begins(&self) {
        self.sent.set(Some(Instant::now()));
    }

    /// Starts the limit again. Call this with the instant before a renewal was sent, after its answer has arrived.
    pub(crate) fn renewed(&self, sent: Instant) {
        self.is_over();
        self.sent.set(Some(sent));
    }

    /// Ends the limit. Call this after the last step that has to be in time.
    pub(crate) fn is_over(&self) {
        if self.sent.take().is_some_and(|sent| sent.elapsed() >= self.length) {
            self.was_missed.set(true);
        }
    }
}

/// Asserts that `remaining_ms` is what remained of a lease of `lease_ms` at some moment between `sent` and now.
#[track_caller]
pub(crate) fn assert_remaining(remaining_ms: i64, lease_ms: i64, sent: Instant) {
    // The server rounds both its clock and the lease to milliseconds.
    let passed_ms = sent.elapsed().as_millis() as i64 + 2;
    let expected = lease_ms - passed_ms..=lease_ms;
    assert!(expected.contains(&remaining_ms), "{remaining_ms} ms are left, not {expected:?}");
}

mod tests {
    use super::{assert_remaining, with_short_lease, within};
    use std::cell::{Cell, RefCell};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};

    #[test]
    fn a_failure_of_late_steps_is_retried_with_a_longer_lease() {
        let leases_ms = RefCell::new(Vec::new());
        with_short_lease(1, |lease| {
            leases_ms.borrow_mut().push(lease.ms());
            lease.begins();
            if lease.ms() == 1 {
                std::thread::sleep(lease.length());
                panic!("the lease has ended");
            }
        });
        assert_eq!(leases_ms.into_inner(), [1, 2]);
    }

    #[test]
    fn a_failure_of_timely_steps_counts() {
        let attempts = Cell::new(0);
        let failed = catch_unwind(AssertUnwindSafe(|| {
            within(Duration::from_secs(600), |limit| {
                attempts.set(attempts.get() + 1);
                limit.begins();
                limit.renewed(Instant::now());
                panic!("the server did something wrong");
            });
        }));
        assert!(failed.is_err());
        assert_eq!(attempts.get(), 1);
    }

    #[test]
    fn a_failure_after_the_steps_counts() {
        // A lease that even a tester that stands still does not miss between its two ends.
        let failed = catch_unwind(AssertUnwindSafe(|| {
            with_short_lease(200, |lease| {
                lease.begins();
                lease.is_over();
                std::thread::sleep(2 * lease.length());
                panic!("the server did something wrong");
            });
        }));
        let message = failed.expect_err("it failed");
        assert_eq!(message.downcast_ref(), Some(&"the server did something wrong"));
    }

    #[test]
    fn the_remaining_lease_excludes_the_time_that_has_passed() {
        let sent = Instant::now();
        assert_remaining(1_000_000, 1_000_000, sent);
        for wrong_ms in [1_000_001, 0] {
            assert!(catch_unwind(|| assert_remaining(wrong_ms, 1_000_000, sent)).is_err(), "{wrong_ms}");
        }
    }
}
