//! Conversion between rows of DynamoDB tables and registrations.
//!
//! A row that a client of this protocol wrote is stored unchanged. For a registration of another protocol, the server
//! builds a row from its key, its owner and its times.

use super::attribute::{self, Item, string};
use super::instant;
use serde_json::{Value, json};
use waymaker_engine::limits::LAZY_FORGET_MS;
use waymaker_protocol::Entry;

/// Type name of the registrations whose value is a row.
pub(super) const TYPE_NAME: &[u8] = b"dynamodb-row";

/// Returns the row of a registration as JSON. `now_ms` is the Unix time at which the registration was read.
pub(super) fn row_of(registration: &Entry<'_>, now_ms: i64) -> String {
    written(registration).unwrap_or_else(|| made(registration, now_ms))
}

/// Returns the stored row, if the registration has the type name of rows and its value is a row with the same key and
/// owner.
fn written(registration: &Entry<'_>) -> Option<String> {
    if registration.type_name != TYPE_NAME {
        return None;
    }
    // A client of another protocol may use the same type name for a value that is no row. So check the value.
    let row = std::str::from_utf8(registration.value).ok()?;
    let item: Item = serde_json::from_str(row).ok()?;
    let is = |name: &str, expected: &[u8]| {
        item.get(name).and_then(string).is_some_and(|text| text.as_bytes() == expected)
    };
    let is_row = is("key", registration.key)
        && is("owner", registration.owner)
        && item.values().all(|value| attribute::check(value).is_ok());
    is_row.then(|| row.to_owned())
}

fn made(registration: &Entry<'_>, now_ms: i64) -> String {
    let leased_until_ms = now_ms.saturating_add(registration.remaining_ms);
    let text = |bytes: &[u8]| json!({ "S": String::from_utf8_lossy(bytes) });
    let time = |unix_ms| -> Value { json!({ "S": instant::text(unix_ms) }) };
    json!({
        "key": text(registration.key),
        "owner": text(registration.owner),
        "leasedUntil": time(leased_until_ms),
        "createdAt": time(now_ms.saturating_sub_unsigned(registration.age_ms)),
        "ttl": time(leased_until_ms.saturating_add(LAZY_FORGET_MS)),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_795_986_000_000;

    fn read(registration: &Entry<'_>) -> Value {
        serde_json::from_str(&row_of(registration, NOW_MS)).expect("JSON")
    }

    #[test]
    fn a_row_stays_as_it_was_written() {
        let row =
            r#"{"key":{"S":"k"},"leasedUntil":{"S":"2026-11-29T22:05:00.10+01:00"},"owner":{"S":"me"}}"#;
        let registration = Entry {
            key: b"k",
            owner: b"me",
            value: row.as_bytes(),
            type_name: TYPE_NAME,
            remaining_ms: 1,
            ..Entry::default()
        };
        assert_eq!(row_of(&registration, NOW_MS), row);
    }

    #[test]
    fn an_entry_without_a_row_becomes_one() {
        let registration =
            Entry { key: b"k", owner: b"me", remaining_ms: 60_000, age_ms: 500, ..Entry::default() };
        let expected = json!({
            "key": {"S": "k"}, "owner": {"S": "me"}, "leasedUntil": {"S": "2026-11-29T21:01:00Z"},
            "createdAt": {"S": "2026-11-29T20:59:59.5Z"}, "ttl": {"S": "2026-12-01T21:01:00Z"},
        });
        assert_eq!(read(&registration), expected);
        for value in [
            "",
            "[]",
            "{}",
            r#"{"key":{"S":"other"},"owner":{"S":"me"}}"#,
            r#"{"key":{"S":"k"},"owner":{"S":"other"}}"#,
            r#"{"key":{"S":"k"},"owner":{"S":"me"},"note":7}"#,
        ] {
            let registration = Entry { value: value.as_bytes(), type_name: TYPE_NAME, ..registration };
            assert_eq!(read(&registration), expected, "{value}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_no_row() {
        let row = r#"{"key":{"S":"k"},"leasedUntil":{"S":"2026-11-29T21:05:00Z"},"owner":{"S":"me"}}"#;
        let registration =
            Entry { key: b"k", owner: b"me", value: row.as_bytes(), type_name: b"other", ..Entry::default() };
        assert_eq!(read(&registration)["leasedUntil"], json!({"S": "2026-11-29T21:00:00Z"}));
    }

    #[test]
    fn any_entry_becomes_a_row() {
        for extreme in [i64::MIN, i64::MAX] {
            let registration = Entry {
                key: b"\xff",
                owner: b"\xff",
                remaining_ms: extreme,
                age_ms: u64::MAX,
                ..Entry::default()
            };
            assert_eq!(read(&registration)["key"], json!({"S": "\u{fffd}"}));
        }
    }
}
