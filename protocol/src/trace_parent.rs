//! The trace context of a request: the header `traceparent` of the W3C recommendation Trace Context.

use std::fmt;
use std::str::FromStr;

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;

/// Flag bit: the caller records its trace.
const SAMPLED: u8 = 1 << 0;
/// Length of the text form of version 00 in bytes.
const TEXT_LEN: usize = 55;

/// The caller's span. If the server records spans for the request, they become its children.
///
/// The text form is the header `traceparent`: `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`. On the wire it
/// has [`TraceParent::LEN`] bytes. Neither id is all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    bytes: TraceParentBytes,
}

/// A trace context on the wire: trace id, span id, flags. Messages hold a reference to these bytes: most messages have
/// no trace context, and an absent reference costs less space.
pub type TraceParentBytes = [u8; TraceParent::LEN];

/// Reasons why a text or bytes are not a trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceParentError {
    /// The text does not have the form of the header `traceparent`.
    #[error(
        "a trace context has the form 00-TRACE_ID-SPAN_ID-FLAGS with 32, 16 and 2 lower-case hexadecimal digits"
    )]
    Form,
    /// The version is ff, which the recommendation forbids.
    #[error("a trace context must not have the version ff")]
    Version,
    /// The trace id or the span id is all zeros.
    #[error("the {0} id of a trace context must not be all zeros")]
    Zero(&'static str),
}

impl TraceParent {
    /// Length on the wire in bytes: trace id, span id, flags.
    pub const LEN: usize = 25;

    /// Returns the trace context with these ids and flags.
    ///
    /// # Errors
    /// Returns [`TraceParentError::Zero`] if an id is all zeros.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> Result<Self, TraceParentError> {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&trace_id);
        bytes[16..24].copy_from_slice(&span_id);
        bytes[24] = flags;
        Self::from_bytes(&bytes)
    }

    /// Returns the trace context with these bytes.
    ///
    /// # Errors
    /// Returns [`TraceParentError::Zero`] if an id is all zeros.
    pub fn from_bytes(bytes: &TraceParentBytes) -> Result<Self, TraceParentError> {
        let parent = Self { bytes: *bytes };
        if parent.trace_id() == [0; 16] {
            return Err(TraceParentError::Zero("trace"));
        }
        if parent.span_id() == [0; 8] {
            return Err(TraceParentError::Zero("span"));
        }
        Ok(parent)
    }

    /// Returns the bytes on the wire.
    pub const fn as_bytes(&self) -> &TraceParentBytes {
        &self.bytes
    }

    /// Returns the trace id.
    pub fn trace_id(&self) -> [u8; 16] {
        std::array::from_fn(|index| self.bytes[index])
    }

    /// Returns the id of the caller's span.
    pub fn span_id(&self) -> [u8; 8] {
        std::array::from_fn(|index| self.bytes[16 + index])
    }

    /// Returns the flags. Only bit 0 has a meaning here; see [`TraceParent::is_sampled`].
    pub const fn flags(&self) -> u8 {
        self.bytes[24]
    }

    /// Returns whether the caller records the trace, so that child spans are worth exporting.
    pub const fn is_sampled(&self) -> bool {
        self.flags() & SAMPLED != 0
    }

    /// Reads and checks the field `traceparent` of a message.
    #[cold]
    pub(crate) fn decode<'a>(cursor: &mut Cursor<'a>) -> Result<&'a TraceParentBytes, DecodeError> {
        const FIELD: &str = "traceparent";
        let bad_value = DecodeError::BadValue { field: FIELD, value: 0 };
        let bytes = cursor.slice(FIELD, Self::LEN)?.first_chunk().ok_or(bad_value)?;
        Self::from_bytes(bytes).map(|_| bytes).map_err(|_| bad_value)
    }
}

impl FromStr for TraceParent {
    type Err = TraceParentError;

    /// Parses the text form. Ignores the additional parts that a version above 00 may have, as the recommendation
    /// requires.
    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let bytes = text.as_bytes();
        let Some((head, rest)) = bytes.split_at_checked(TEXT_LEN) else { return Err(TraceParentError::Form) };
        let has_dashes = [2, 35, 52].iter().all(|&offset| head[offset] == b'-');
        let version = hex::<1>(&head[..2])?[0];
        if version == 0xff {
            return Err(TraceParentError::Version);
        }
        let may_follow = version > 0 && rest.first() == Some(&b'-');
        if !has_dashes || !(rest.is_empty() || may_follow) {
            return Err(TraceParentError::Form);
        }
        Self::new(hex(&head[3..35])?, hex(&head[36..52])?, hex::<1>(&head[53..])?[0])
    }
}

/// Parses `2 * N` lower-case hexadecimal digits.
fn hex<const N: usize>(digits: &[u8]) -> Result<[u8; N], TraceParentError> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(TraceParentError::Form),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Ok(bytes)
}

impl fmt::Display for TraceParent {
    /// Writes the text form of version 00.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace_id, span_id) = (u128::from_be_bytes(self.trace_id()), u64::from_be_bytes(self.span_id()));
        write!(formatter, "00-{trace_id:032x}-{span_id:016x}-{:02x}", self.flags())
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TraceParent({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_text_form_is_read_and_written() {
        let parent: TraceParent = TEXT.parse().unwrap();
        assert_eq!(parent.to_string(), TEXT);
        assert_eq!(parent.trace_id()[..2], [0x0a, 0xf7]);
        assert_eq!(parent.span_id()[6..], [0x33, 0x31]);
        assert!(parent.is_sampled());
        let other_flags: TraceParent = TEXT.replace("-01", "-fe").parse().unwrap();
        assert!(!other_flags.is_sampled());
        assert_eq!(other_flags.flags(), 0xfe);
    }

    #[test]
    fn a_higher_version_is_read_as_far_as_it_is_known() {
        let expected = TEXT.parse();
        for text in [TEXT.replacen("00", "01", 1), format!("{}-more", TEXT.replacen("00", "fe", 1))] {
            assert_eq!(text.parse::<TraceParent>(), expected, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_trace_context_is_refused() {
        let zero_trace = TEXT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32));
        let zero_span = TEXT.replace("b7ad6b7169203331", &"0".repeat(16));
        for (text, error) in [
            (String::new(), TraceParentError::Form),
            (TEXT[..54].to_owned(), TraceParentError::Form),
            (TEXT.to_uppercase(), TraceParentError::Form),
            (TEXT.replace("af7", "aF7"), TraceParentError::Form),
            (TEXT.replace('-', "_"), TraceParentError::Form),
            (TEXT.replace("b7ad", "b7ag"), TraceParentError::Form),
            (TEXT.replace("b7ad", "é7d"), TraceParentError::Form),
            (format!(" {TEXT}"), TraceParentError::Form),
            (format!("{TEXT}-more"), TraceParentError::Form),
            (format!("{}more", TEXT.replacen("00", "01", 1)), TraceParentError::Form),
            (TEXT.replacen("00", "ff", 1), TraceParentError::Version),
            (zero_trace, TraceParentError::Zero("trace")),
            (zero_span, TraceParentError::Zero("span")),
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(error), "{text}");
        }
    }
}
