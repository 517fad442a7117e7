//! How what the worker says is shown to clients: bytes without an encoding, and instants of its clock.

use crate::driver::Local;

/// Bytes as text. What is not UTF-8 in them is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The time of day at an instant of the server's clock.
pub(super) fn unix_ms(stamp_ms: u64) -> i64 {
    Local::with(|local| local.node.unix_time.unix_ms(stamp_ms))
}

/// Now on the server's clock.
pub(super) fn now_ms() -> u64 {
    Local::with(|local| local.now().now.as_millis())
}
