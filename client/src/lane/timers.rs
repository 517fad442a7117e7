//! All instants a session waits for, in one order, so that one timer serves any number of locks.

use std::collections::BTreeSet;

use waymaker_protocol::LockId;

use crate::clock::BootTime;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    /// A renewal or the local deadline of this hold.
    Hold(LockId),
    /// The end of the wait of the acquire with this token.
    Wait(u64),
    /// The first instant at which the wait of a caller for an answer ends.
    Answer,
    /// The next keep-alive, or the end of patience with the last.
    KeepAlive,
    /// The local deadline of the session.
    Session,
}

/// An ordered set. Whoever sets a timer remembers its instant, and says it again to move or clear it.
#[derive(Debug, Default)]
pub(super) struct Timers {
    set: BTreeSet<(BootTime, TimerKey)>,
}

impl Timers {
    /// Moves a timer from `old` to `new`; [`BootTime::NEVER`] stands for no timer.
    pub(super) fn replace(&mut self, key: TimerKey, old: BootTime, new: BootTime) {
        if old == new {
            return;
        }
        if old != BootTime::NEVER {
            self.set.remove(&(old, key));
        }
        if new != BootTime::NEVER {
            self.set.insert((new, key));
        }
    }

    /// The first instant.
    pub(super) fn next(&self) -> BootTime {
        self.set.first().map_or(BootTime::NEVER, |(at, _)| *at)
    }

    /// Takes out the first timer that is due.
    pub(super) fn pop_due(&mut self, now: BootTime) -> Option<TimerKey> {
        (self.next() <= now).then(|| self.set.pop_first()).flatten().map(|(_, key)| key)
    }
}
