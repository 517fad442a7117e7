//! Checks of arguments before a request is sent, and conversions of durations.

use std::time::Duration;

use waymaker_protocol::ErrorCode;
use waymaker_protocol::limits::KEY_LEN_MAX;

use crate::error::Error;

/// Rejects 0.
pub(crate) fn check_positive(field: &'static str, value: u64) -> Result<(), Error> {
    match value {
        0 => Err(Error::refused(ErrorCode::BadInput, field, 1, "must not be 0")),
        _ => Ok(()),
    }
}

/// Converts a duration to whole milliseconds, rounded up so that a positive duration never becomes 0. The result is at
/// most `u32::MAX`.
pub(crate) fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

/// Converts a lease to milliseconds as [`milliseconds`] does. Rejects 0, which would silently select the server's
/// default.
pub(crate) fn lease_milliseconds(lease: Duration) -> Result<u32, Error> {
    match milliseconds(lease) {
        0 => Err(Error::refused(
            ErrorCode::BadInput,
            "lease",
            0,
            "the lease is zero; it must be at least 1 ms",
        )),
        ms => Ok(ms),
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    check_len("key", key, 1, KEY_LEN_MAX)
}

/// Rejects bytes whose length is below `min` or above `max`. `min` is 0 or 1.
pub(crate) fn check_len(field: &'static str, bytes: &[u8], min: usize, max: usize) -> Result<(), Error> {
    let problem = match bytes.len() {
        len if len < min => "must not be empty".to_owned(),
        len if len > max => format!("{len} bytes; the maximum is {max}"),
        _ => return Ok(()),
    };
    Err(Error::refused(ErrorCode::BadInput, field, max as u64, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_up_to_whole_milliseconds() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_micros(1_001)), 2);
        assert_eq!(milliseconds(Duration::MAX), u32::MAX);
    }
}
