//! Points in time as RFC 3339 text.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

/// The last second of the year 9999, the last year of RFC 3339.
const SECONDS_MAX: u64 = 253_402_300_799;

/// A point in time: whole seconds since 1970-01-01T00:00:00Z, up to the end of the year 9999.
///
/// Its text is in UTC, such as `2026-11-27T17:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

/// The text is not an RFC 3339 time in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a time has the form 2026-11-27T17:00:00Z")]
pub struct TimestampError;

impl Timestamp {
    /// Returns the point in time with this number of seconds since 1970, at most the end of the year 9999.
    pub fn from_unix_seconds(seconds: u64) -> Self {
        Self(seconds.min(SECONDS_MAX))
    }

    /// Returns the seconds since 1970.
    pub fn unix_seconds(self) -> u64 {
        self.0
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let time = humantime::parse_rfc3339(text).map_err(|_| TimestampError)?;
        let seconds = time.duration_since(UNIX_EPOCH).map_err(|_| TimestampError)?.as_secs();
        Ok(Self::from_unix_seconds(seconds))
    }
}

impl Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = UNIX_EPOCH + Duration::from_secs(self.0);
        Display::fmt(&humantime::format_rfc3339_seconds(time), formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_it_is_read() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_795_798_800, "2026-11-27T17:00:00Z"),
            (SECONDS_MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp::from_unix_seconds(seconds).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp(seconds)));
        }
        assert_eq!(Timestamp::from_unix_seconds(u64::MAX), Timestamp(SECONDS_MAX));
    }

    #[test]
    fn a_time_that_is_not_in_utc_is_rejected() {
        for text in
            ["", "2026-11-27", "2026-11-27T17:00:00", "2026-11-27T17:00:00+01:00", "1969-12-31T23:59:59Z"]
        {
            assert_eq!(text.parse::<Timestamp>(), Err(TimestampError), "{text}");
        }
    }
}
