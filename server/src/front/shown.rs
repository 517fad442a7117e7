//! How answers of the worker are shown to clients: bytes without an encoding, instants of its clock, and JSON.

use crate::chars::truncate;
use crate::driver::Local;
use serde::Serialize;

/// Bytes as text. What is not UTF-8 in them is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Cuts a long text.
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

/// The time of day at an instant of the server's clock.
pub(super) fn unix_ms(stamp_ms: u64) -> i64 {
    Local::with(|local| local.node.unix_time.unix_ms(stamp_ms))
}

/// Now on the server's clock.
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
