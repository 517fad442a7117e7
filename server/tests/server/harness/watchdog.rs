//! The one limit that turns a hang into a failure.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// How long a test waits for an event before the event counts as missing. It is far longer than any event takes on a busy
/// machine, and no other verdict depends on it.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

/// Time between two looks at a condition that no event announces.
const POLL: Duration = Duration::from_millis(1);

/// Polls `is_so` until it returns true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// Polls `look` until it returns a value, and returns that.
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

/// Returns whether a read or write of a socket with a timeout ended without any bytes. If the process was stopped meanwhile, the
/// kernel ends such a call as interrupted.
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

    /// Fails if the time is over. The loop gets one more look after that, so a test that was stopped itself fails only if the event
    /// is really missing.
    #[track_caller]
    pub(crate) fn look_again(&mut self, missing: impl FnOnce() -> String) {
        assert!(!self.is_last_look, "missing after {WATCHDOG:?}: {}", missing());
        self.is_last_look = self.begun.elapsed() >= WATCHDOG;
    }
}
