//! Parsers of option values. Each error names the value and the limit.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use waymaker_client::LockId;

use crate::text;

/// Longest key, pool name and bucket name in bytes.
const KEY_LEN_MAX: usize = 1_024;
/// What is wrong with an empty key.
pub(crate) const EMPTY: &str = "it is empty; the minimum is 1 byte";
/// Shortest lease that a server grants.
const LEASE_MIN: Duration = Duration::from_millis(10);
/// Longest lease that a server grants.
const LEASE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Returns the parser of a key, or of the name of a pool or a bucket.
pub(crate) fn key() -> impl TypedValueParser<Value = OsString> {
    prefix().try_map(|key| if key.is_empty() { Err(EMPTY.to_owned()) } else { Ok(key) })
}

/// Returns the parser of the first bytes of keys, which may be empty.
pub(crate) fn prefix() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|prefix: OsString| match text::bytes(&prefix).len() {
        len if len > KEY_LEN_MAX => Err(format!(
            "it is {} bytes long; the maximum is {}",
            text::grouped(len),
            text::grouped(KEY_LEN_MAX)
        )),
        _ => Ok(prefix),
    })
}

/// Parses a time.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    time_of(text, "0s")
}

/// Parses a time limit, which is at least a millisecond.
pub(crate) fn limit(text: &str) -> Result<Duration, String> {
    match time_of(text, "1ms")? {
        limit if limit < Duration::from_millis(1) => Err(too_short(limit, "1ms")),
        limit => Ok(limit),
    }
}

/// Parses a time. `minimum` is for the error about a negative time.
fn time_of(text: &str, minimum: &str) -> Result<Duration, String> {
    if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit())) {
        return Err(format!("it is negative; the minimum is {minimum}"));
    }
    humantime::parse_duration(text).map_err(|_| {
        "a time is a number and a unit, such as 500ms, 30s, 5m or 1h30m; the units are ms, s, m, h and d"
            .to_owned()
    })
}

fn too_short(time: Duration, minimum: &str) -> String {
    format!("{} is shorter than the minimum of {minimum}", humantime::format_duration(time))
}

/// Parses a lease. The server would shorten a longer lease.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    match time_of(text, "10ms")? {
        lease if lease > LEASE_MAX => Err("it is too long; the maximum is 24h".to_owned()),
        lease if lease < LEASE_MIN => Err(too_short(lease, "10ms")),
        lease => Ok(lease),
    }
}

/// Parses the reason of an operator.
pub(crate) fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("a reason cannot be empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// Parses the id of a lock.
pub(crate) fn lock_id(text: &str) -> Result<LockId, String> {
    text.parse().map_err(|_| {
        "an id has 32 hexadecimal digits; `waymaker-ctl locks list` and `waymaker-ctl locks inspect KEY` show the ids"
            .to_owned()
    })
}

/// Parses a number of permits or tokens, from 1.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| "it is not a whole number of at least 1".to_owned())
}

/// Parses a number of tokens, from 1 to 4,294,967,295.
pub(crate) fn tokens(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| "it is not a whole number from 1 to 4,294,967,295".to_owned())
}

/// Parses the fence of a grant.
pub(crate) fn fence(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a fence is a whole number; CMD finds it in WAYMAKER_FENCE".to_owned())
}

/// Parses a priority.
pub(crate) fn priority(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "it is not a whole number from 0 to 4,294,967,295".to_owned())
}

/// Parses the capacity that a pool gets.
pub(crate) fn capacity(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("the minimum is 1; `waymaker-ctl pools remove POOL` removes a pool".to_owned()),
        Ok(capacity) => Ok(capacity),
        Err(_) => Err("it is not a whole number of at least 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_have_a_minimum_and_a_maximum() {
        assert_eq!(lease("24h"), Ok(LEASE_MAX));
        assert_eq!(lease("10ms"), Ok(LEASE_MIN));
        assert!(lease("24h1ms").unwrap_err().contains("the maximum is 24h"));
        assert_eq!(lease("5ms").unwrap_err(), "5ms is shorter than the minimum of 10ms");
        assert_eq!(lease("0s").unwrap_err(), "0s is shorter than the minimum of 10ms");
        assert_eq!(lease("-1s").unwrap_err(), "it is negative; the minimum is 10ms");
        assert_eq!(time("-1s").unwrap_err(), "it is negative; the minimum is 0s");
        assert_eq!(limit("0s").unwrap_err(), "0s is shorter than the minimum of 1ms");
        assert!(lease("soon").unwrap_err().contains("such as 500ms"));
    }

    #[test]
    fn a_capacity_of_zero_names_the_command_that_removes_a_pool() {
        assert_eq!(capacity("3"), Ok(3));
        assert!(capacity("0").unwrap_err().contains("pools remove"));
        assert!(capacity("six").unwrap_err().contains("whole number"));
    }
}
