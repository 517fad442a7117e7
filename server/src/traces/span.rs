//! Spans of acquires.

use crate::chars::truncate;
use crate::limits::SPAN_KEY_CHARS_MAX;
use crate::metrics::AcquireResult;
use waymaker_engine::Nanos;
use waymaker_protocol::{NamespaceKind, PathKey, Readable, TraceParent};

/// Ended span. Its instants are readings of the workers' clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcquireSpan {
    pub(crate) parent: TraceParent,
    pub(crate) namespace: Box<[u8]>,
    pub(crate) kind: NamespaceKind,
    pub(crate) front_end: &'static str,
    /// First bytes of the key, of the path with slashes between its segments, or of the first of several keys. The
    /// exporting thread converts them to text.
    pub(crate) key: Box<[u8]>,
    /// Time at which the worker had read the request.
    pub(crate) begun: Nanos,
    /// Time at which the claim entered a queue. `None` if it entered none, or if its acquire was answered in the same
    /// step.
    pub(crate) queued: Option<Nanos>,
    /// Time of the response.
    pub(crate) ended: Nanos,
    pub(crate) result: AcquireResult,
    /// Fence of the grant; of a multi-key claim, the first fence of the response.
    pub(crate) fence: Option<u64>,
    /// Reason why the claim was not granted.
    pub(crate) error: Option<SpanError>,
}

#[cfg(test)]
impl AcquireSpan {
    /// Returns the span of a granted acquire that waited from 200 ns to 700 ns.
    pub(super) fn sample() -> Self {
        Self {
            parent: TraceParent::new([1; 16], [2; 8], 1).unwrap(),
            namespace: Box::from(*b"orders"),
            kind: NamespaceKind::Flat,
            front_end: "binary",
            key: Box::from(*b"k"),
            begun: Nanos::new(100),
            queued: Some(Nanos::new(200)),
            ended: Nanos::new(700),
            result: AcquireResult::Granted,
            fence: Some(7),
            error: None,
        }
    }
}

/// Reason of a refusal: the error code of the wire or a more precise one.
type SpanError = &'static str;

impl AcquireSpan {
    /// Returns the part of a key that a span may show.
    pub(crate) fn start_of(kind: NamespaceKind, key: &[u8]) -> Box<[u8]> {
        let path = (kind == NamespaceKind::Tree).then(|| PathKey::new(key).ok()).flatten();
        let Some(path) = path else { return key[..key.len().min(SHOWN_LEN_MAX)].into() };
        let mut start = Vec::with_capacity(SHOWN_LEN_MAX);
        for (place, segment) in path.segments().enumerate() {
            if place > 0 {
                start.push(b'/');
            }
            let room = SHOWN_LEN_MAX.saturating_sub(start.len());
            start.extend_from_slice(&segment[..segment.len().min(room)]);
            if start.len() >= SHOWN_LEN_MAX {
                break;
            }
        }
        start.into()
    }

    /// Returns the key as text of at most `SPAN_KEY_CHARS_MAX` characters. Bytes that are not readable text are
    /// escaped.
    pub(super) fn key_text(&self) -> String {
        let mut text = Readable(&self.key).to_string();
        truncate(&mut text, SPAN_KEY_CHARS_MAX);
        text
    }
}

/// Maximum number of key bytes to keep. A character has at most 4 bytes.
const SHOWN_LEN_MAX: usize = 4 * SPAN_KEY_CHARS_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(kind: NamespaceKind, key: &[u8]) -> String {
        let key = AcquireSpan::start_of(kind, key);
        AcquireSpan { key, ..AcquireSpan::sample() }.key_text()
    }

    #[test]
    fn a_key_is_shown_readably_and_cut() {
        assert_eq!(shown(NamespaceKind::Flat, b"orders/17"), "orders/17");
        let long = "é".repeat(SPAN_KEY_CHARS_MAX + 1);
        assert_eq!(shown(NamespaceKind::Flat, long.as_bytes()), "é".repeat(SPAN_KEY_CHARS_MAX));
        let widest = "\u{10348}".repeat(SPAN_KEY_CHARS_MAX + 1);
        assert_eq!(shown(NamespaceKind::Flat, widest.as_bytes()), "\u{10348}".repeat(SPAN_KEY_CHARS_MAX));
        let mut path = Vec::new();
        PathKey::append(["users", "42"], &mut path).unwrap();
        assert_eq!(shown(NamespaceKind::Tree, &path), "users/42");
        path.clear();
        PathKey::append(["", "a", &"é".repeat(200), "b"], &mut path).unwrap();
        assert_eq!(shown(NamespaceKind::Tree, &path), format!("/a/{}", "é".repeat(SPAN_KEY_CHARS_MAX - 3)));
    }
}
