//! Reasons why the message in a frame cannot be decoded.

/// A malformed frame. Each variant names the wrong part of the frame, so that the author of the sending program can
/// find the defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body ends inside a field, or before it.
    #[error("{field}: the frame ends at byte {have}, but the field at offset {offset} needs {need} bytes")]
    Truncated {
        /// Name of the truncated field.
        field: &'static str,
        /// Offset of the field in bytes; for a string whose length was read, the offset of its bytes. Counts from the
        /// start of the frame, or of the bytes that `Cursor::over` got.
        offset: usize,
        /// Number of bytes that the field needs from that offset on.
        need: usize,
        /// Length in bytes of the frame, or of the bytes that `Cursor::over` got.
        have: usize,
    },
    /// A field, a list of keys, or one segment of a path is longer than its limit.
    #[error("{field}: {actual} bytes; the maximum is {limit}")]
    TooLong {
        /// Name of the field.
        field: &'static str,
        /// Length in bytes. Measuring may stop above the limit, so the real length may be larger.
        actual: usize,
        /// Maximum length in bytes.
        limit: usize,
    },
    /// A list or a path has more items than its limit.
    #[error("{field}: {count} items; the maximum is {limit}")]
    TooMany {
        /// Name of the field. For a list, the field that contains the number of its items; for a path, the field that
        /// contains the path.
        field: &'static str,
        /// Number of items. Counting may stop at the first item above the limit.
        count: usize,
        /// Maximum number of items.
        limit: usize,
    },
    /// A field is not a path key: its last segment is truncated.
    #[error("{field}: not a path key: the segment at byte {offset} ends after the key")]
    BadPath {
        /// Name of the field.
        field: &'static str,
        /// Offset of the truncated segment in the path key, in bytes.
        offset: usize,
    },
    /// A field or a list is empty that must not be empty.
    #[error("{field}: must not be empty")]
    Empty {
        /// Name of the field.
        field: &'static str,
    },
    /// A field has a value that the protocol does not allow, such as 0 for a number that must be positive.
    #[error("{field}: {value} is not a valid value")]
    BadValue {
        /// Name of the field.
        field: &'static str,
        /// Value of the field; 0 for a malformed `traceparent`, which is not one number.
        value: u64,
    },
    /// The frame has flags that its message does not define.
    #[error("flags: unknown bits {bits:#06x}")]
    UnknownFlags {
        /// Unknown flag bits.
        bits: u16,
    },
    /// The opcode is unknown in this direction.
    #[error("opcode: unknown opcode {opcode:#04x}")]
    UnknownOpcode {
        /// Opcode of the frame.
        opcode: u8,
    },
    /// The first frame of a connection is no `HELLO`, or its body does not begin with the magic of this protocol.
    #[error("magic: the peer does not speak the Waymaker binary protocol")]
    BadMagic,
    /// Bytes follow the last field.
    #[error("body: {count} extra bytes after the last field")]
    TrailingBytes {
        /// Number of extra bytes.
        count: usize,
    },
}

impl DecodeError {
    /// Returns the name of the wrong field, or of the wrong part of the frame (`flags`, `opcode`, `magic` or `body`).
    pub fn field(&self) -> &'static str {
        match self {
            Self::Truncated { field, .. }
            | Self::TooLong { field, .. }
            | Self::TooMany { field, .. }
            | Self::BadPath { field, .. }
            | Self::Empty { field }
            | Self::BadValue { field, .. } => field,
            Self::UnknownFlags { .. } => "flags",
            Self::UnknownOpcode { .. } => "opcode",
            Self::BadMagic => "magic",
            Self::TrailingBytes { .. } => "body",
        }
    }

    /// Returns the limit that the message exceeds, or 0 if the error is not about a limit.
    pub fn limit(&self) -> u64 {
        match self {
            Self::TooLong { limit, .. } | Self::TooMany { limit, .. } => *limit as u64,
            _ => 0,
        }
    }
}
