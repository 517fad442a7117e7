//! The event that the server waits for from a client, and the length of the wait.

use crate::limits::PINGS_MISSED_MAX;
use waymaker_engine::Time;

/// Event that the server waits for from a client.
///
/// Each connection has one expectation. A read after which no bytes are unserved sets `Nothing`. The periodic
/// housekeeping, and nothing else, replaces `Nothing` by `SignOfLife`. If the next housekeeping still finds
/// `SignOfLife`, the client has sent nothing since then. So no read has to store its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Expectation {
    /// No event. The next housekeeping (a periodic check of all connections) replaces this by `SignOfLife`, if the
    /// client has announced that it answers `PING`. Other clients may be silent for any time.
    #[default]
    Nothing,
    /// `HELLO`, or the rest of a frame that has arrived in part. Also set while whole requests wait to be served. The
    /// value is the time at which the server began to wait.
    Frame(Time),
    /// Any bytes.
    SignOfLife {
        /// Time at which housekeeping began to wait for bytes of the client, or at which the last interval between two
        /// `PING`s ended since then.
        since: Time,
        /// Number of intervals between `PING`s that have ended in this silence: the number of `PING`s sent, and one
        /// more after the last of them got no answer in time.
        pings: u8,
    },
}

/// Action of housekeeping on the silence of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// No action: the silence is not long enough.
    Short,
    /// Send a `PING`.
    Ping,
    /// Close the connection.
    TooLong,
}

impl Expectation {
    /// Waits for the rest of a frame from now on, unless the server already waits for it or for `HELLO`.
    pub(crate) fn frame(self, now: Time) -> Self {
        match self {
            Self::Frame(_) => self,
            _ => Self::Frame(now),
        }
    }

    /// Returns how long the server has waited for `HELLO` or the rest of a frame, in milliseconds.
    pub(crate) fn frame_ms(self, now: Time) -> u64 {
        match self {
            Self::Frame(since) => now.ms_since(since),
            _ => 0,
        }
    }

    /// Excludes the last `stood_still_ms`, in which the server did not run, from the wait for `HELLO` or the rest of a
    /// frame. The start of the wait moves forward by this time, at most to `now`, because the client is not at fault.
    pub(crate) fn excuse(&mut self, stood_still_ms: u64, now: Time) {
        if let Self::Frame(since) = self {
            *since = since.after_ms(stood_still_ms).min(now);
        }
    }

    /// Notes that the server does not read the connection. A silence can begin only when the server reads it again.
    pub(crate) fn note_not_read(&mut self) {
        if let Self::SignOfLife { .. } = self {
            *self = Self::Nothing;
        }
    }

    /// Checks how long a client that answers `PING` has sent nothing, and begins to wait for bytes if the server
    /// expected `Nothing`. Returns `Ping` after each `ping_ms` of silence. Returns `TooLong` if `PINGS_MISSED_MAX`
    /// pings in a row got no answer, and otherwise `Short`.
    pub(crate) fn look(&mut self, ping_ms: u64, now: Time) -> Silence {
        match self {
            Self::Frame(_) => Silence::Short,
            Self::Nothing => {
                *self = Self::SignOfLife { since: now, pings: 0 };
                Silence::Short
            }
            Self::SignOfLife { pings, .. } if *pings > PINGS_MISSED_MAX => Silence::TooLong,
            Self::SignOfLife { since, .. } if now.ms_since(*since) < ping_ms => Silence::Short,
            Self::SignOfLife { since, pings } => {
                *since = now;
                *pings += 1;
                // If the process was stopped, the answer to the last `PING` may be unread. So the connection is read
                // once more before the next check closes it.
                if *pings > PINGS_MISSED_MAX { Silence::Short } else { Silence::Ping }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PING_MS;

    const LOOK_MS: u64 = 500;

    /// Calls `look` once every `LOOK_MS` for `millis` milliseconds from `start` on. Returns each result other than
    /// `Short`, with its time since `start` in milliseconds.
    fn look_for(expectation: &mut Expectation, start: Time, millis: u64) -> Vec<(u64, Silence)> {
        let looks = (0..=millis).step_by(LOOK_MS as usize);
        let done = looks.map(|ms| (ms, expectation.look(PING_MS, start.after_ms(ms))));
        done.filter(|(_, silence)| *silence != Silence::Short).collect()
    }

    #[test]
    fn a_silent_client_is_pinged_three_times_and_then_closed() {
        let mut expectation = Expectation::Nothing;
        let done = look_for(&mut expectation, Time::from_millis(7), 4 * PING_MS + LOOK_MS);
        let expected = [
            (PING_MS, Silence::Ping),
            (2 * PING_MS, Silence::Ping),
            (3 * PING_MS, Silence::Ping),
            (4 * PING_MS + LOOK_MS, Silence::TooLong),
        ];
        assert_eq!(done, expected);
    }

    #[test]
    fn an_active_client_is_never_pinged() {
        let (mut expectation, mut now) = (Expectation::Nothing, Time::from_millis(7));
        for _ in 0..10 {
            assert_eq!(look_for(&mut expectation, now, PING_MS - LOOK_MS), []);
            now = now.after_ms(PING_MS);
            expectation = Expectation::Nothing;
        }
    }

    /// The clock of the server jumps. An answer may have been in the socket all the time.
    #[test]
    fn a_suspended_server_reads_a_connection_before_it_closes_it() {
        for pings in 0..=PINGS_MISSED_MAX {
            let mut expectation = Expectation::SignOfLife { since: Time::from_millis(7), pings };
            assert_ne!(
                expectation.look(PING_MS, Time::from_millis(1 << 40)),
                Silence::TooLong,
                "after {pings} pings"
            );
        }
    }

    #[test]
    fn the_time_limit_of_a_frame_starts_with_its_first_byte() {
        let (begin, later) = (Time::from_millis(7), Time::from_millis(1_007));
        let silent = Expectation::SignOfLife { since: Time::from_millis(1), pings: 2 };
        let mut expectation = silent.frame(begin).frame(later);
        assert_eq!((expectation, expectation.frame_ms(later)), (Expectation::Frame(begin), 1_000));
        assert_eq!(
            expectation.look(PING_MS, Time::from_millis(1 << 40)),
            Silence::Short,
            "it has another limit"
        );
    }
}
