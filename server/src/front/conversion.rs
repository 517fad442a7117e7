//! Conversion of worker answers for clients: byte strings to text, server clock to Unix time, and values to JSON.

use crate::chars::truncate;
use crate::driver::Local;
use serde::Serialize;

/// Converts bytes to text. Invalid UTF-8 is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Truncates a text of more than `chars_max` characters to this number, and then appends an ellipsis. Leaves other
/// texts as they are.
pub(super) fn cut(mut text: String, chars_max: usize) -> String {
    if truncate(&mut text, chars_max) {
        text.push('…');
    }
    text
}

/// Returns a value as JSON.
pub(super) fn json_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("writing to a string cannot fail")
}

/// Converts a time of the server's clock to Unix milliseconds.
pub(super) fn unix_ms(stamp_ms: u64) -> i64 {
    Local::with(|local| local.node.unix_time.unix_ms(stamp_ms))
}

/// Returns the current time of the server's clock.
pub(super) fn now_ms() -> u64 {
    Local::with(|local| local.now().now.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let exact = "ü".repeat(10);
        assert_eq!(cut(exact.clone(), 10), exact);
        assert_eq!(cut(format!("{exact}x"), 10), format!("{exact}…"));
    }
}
