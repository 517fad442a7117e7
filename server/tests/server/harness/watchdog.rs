//! The one limit that turns a hang into a failure.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// How long a test waits for an event before it counts as a hang. No verdict depends on it: a slow machine stays far below.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

/// How long a test sleeps between two looks at a condition that no event announces.
const POLL: Duration = Duration::from_millis(1);

/// Looks again and again until `is_so` returns true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// Looks again and again until `look` returns something, and returns that.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut watchdog = Watchdog::start();
    loop {
        if let Some(found) = look() {
            return found;
        }
        watchdog.look_again(|| what.to_owned());
        std::thread::sleep(POLL);
    }
}

/// Whether a read or write of a socket with a timeout just found nothing to do. After a process stood still the kernel ends such
/// a call early, and says that it was interrupted.
pub(crate) fn is_nothing_yet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The watchdog of one loop.
#[derive(Debug)]
pub(crate) struct Watchdog {
    begun: Instant,
    is_last_look: bool,
}

impl Watchdog {
    pub(crate) fn start() -> Self {
        Self { begun: Instant::now(), is_last_look: false }
    }

    /// Fails once the time is over. The loop looks once more after that, so a test that stood still itself fails only if
    /// the event is really missing.
    #[track_caller]
    pub(crate) fn look_again(&mut self, missing: impl FnOnce() -> String) {
        assert!(!self.is_last_look, "missing after {WATCHDOG:?}: {}", missing());
        self.is_last_look = self.begun.elapsed() >= WATCHDOG;
    }
}
