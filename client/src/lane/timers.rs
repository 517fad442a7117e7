//! All timers of a lane except the end of an outage, in one ordered set. So one timer of the system serves any number
//! of locks.

use std::collections::BTreeSet;

use waymaker_protocol::LockId;

use crate::clock::BootTime;

/// Purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    /// Renewal or local deadline of this hold, or the time at which its unanswered renewal casts doubt on the
    /// connection.
    Hold(LockId),
    /// Time limit for the response to the acquire with this token.
    Wait(u64),
    /// Earliest time limit of all unanswered requests other than acquires, sent or not, and of calls of `close`.
    Answer,
    /// Next keep-alive, or the time at which an unanswered keep-alive casts doubt on the connection.
    KeepAlive,
    /// Local deadline of the session.
    Session,
}

/// An ordered set of timers. The owner of a timer stores the instant to which it is set, and passes this instant to
/// move or clear the timer.
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

    /// Returns the earliest instant in the set; [`BootTime::NEVER`] if the set is empty.
    pub(super) fn next(&self) -> BootTime {
        self.set.first().map_or(BootTime::NEVER, |(at, _)| *at)
    }

    /// Removes and returns the earliest timer, if it is due.
    pub(super) fn pop_due(&mut self, now: BootTime) -> Option<TimerKey> {
        (self.next() <= now).then(|| self.set.pop_first()).flatten().map(|(_, key)| key)
    }
}
