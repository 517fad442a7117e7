//! Conversion between Unix milliseconds and RFC 3339 text, the form in which Clever's Go package `lock` writes times.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Parses a time to Unix milliseconds, rounded down.
pub(super) fn parse_ms(text: &str) -> Option<i64> {
    let instant = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(instant.unix_timestamp_nanos().div_euclid(1_000_000)).ok()
}

/// Formats a time in UTC. A time outside the years 0 to 9999 gets the nearest text in this range.
pub(super) fn text(unix_ms: i64) -> String {
    let nanos = i128::from(unix_ms) * 1_000_000;
    let instant = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok();
    let text = instant.and_then(|instant| instant.format(&Rfc3339).ok());
    text.unwrap_or_else(|| {
        if unix_ms < 0 { "0000-01-01T00:00:00Z" } else { "9999-12-31T23:59:59.999Z" }.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_any_zone_are_instants() {
        for (written, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-29T21:00:00.123456789Z", 1_795_986_000_123),
            ("2026-11-29T22:00:00.1+01:00", 1_795_986_000_100),
            ("1969-12-31T23:59:59.9999Z", -1),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            assert_eq!(parse_ms(written), Some(expected), "{written}");
        }
        for written in ["", "now", "2026-11-29", "2026-11-29T21:00:00", "2026-13-29T21:00:00Z", "1795986000"]
        {
            assert_eq!(parse_ms(written), None, "{written}");
        }
    }

    #[test]
    fn an_instant_is_written_as_it_is_read() {
        for unix_ms in [0, 1_795_986_000_120, -62_135_596_800_000, 253_402_300_799_999] {
            assert_eq!(parse_ms(&text(unix_ms)), Some(unix_ms), "{}", text(unix_ms));
        }
        assert_eq!(text(1_795_986_000_120), "2026-11-29T21:00:00.12Z");
        assert_eq!(parse_ms(&text(i64::MAX)), Some(253_402_300_799_999));
        assert!(parse_ms(&text(i64::MIN)).is_some());
    }
}
