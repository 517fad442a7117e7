//! Why a body could not be decoded.

use crate::error_code::ErrorCode;
use crate::message::error::{ErrorAnswer, ErrorDetail};

/// A malformed body. Each case names the field, so that whoever wrote the other side knows where to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body ends inside a field. `offset` counts from the start of the frame.
    #[error("{field}: the frame ends at byte {have}, but the field at offset {offset} needs {need} bytes")]
    Truncated {
        /// The field that is cut.
        field: &'static str,
        /// Where the field begins.
        offset: usize,
        /// How long the field is.
        need: usize,
        /// How long the frame is.
        have: usize,
    },
    /// A field is longer than its limit.
    #[error("{field}: {actual} bytes; the maximum is {limit}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        actual: usize,
        /// The most it may have.
        limit: usize,
    },
    /// A list or a path has more parts than its limit.
    #[error("{field}: {count} items; the maximum is {limit}")]
    TooMany {
        /// The field that counts them, or the path.
        field: &'static str,
        /// How many there are.
        count: usize,
        /// The most there may be.
        limit: usize,
    },
    /// A field is no path key: its last segment is cut.
    #[error("{field}: not a path key: the segment at byte {offset} ends after the key")]
    BadPath {
        /// The field.
        field: &'static str,
        /// Where in the path key the segment begins.
        offset: usize,
    },
    /// A field that must not be empty is.
    #[error("{field}: must not be empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A field holds a value that has no meaning.
    #[error("{field}: {value} is not a valid value")]
    BadValue {
        /// The field.
        field: &'static str,
        /// What stands there.
        value: u64,
    },
    /// Flags are set that this message does not have.
    #[error("flags: unknown bits {bits:#06x}")]
    UnknownFlags {
        /// The unknown ones.
        bits: u16,
    },
    /// There is no such opcode in this direction.
    #[error("opcode: unknown opcode {opcode:#04x}")]
    UnknownOpcode {
        /// What stands there.
        opcode: u8,
    },
    /// The first bytes are not those of this protocol.
    #[error("magic: the peer does not speak the Waymaker binary protocol")]
    BadMagic,
    /// Bytes follow the last field.
    #[error("body: {count} extra bytes after the last field")]
    TrailingBytes {
        /// How many.
        count: usize,
    },
}

impl DecodeError {
    /// The field that is wrong.
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

    /// The limit that was passed, or 0 where there is none.
    pub fn limit(&self) -> u64 {
        match self {
            Self::TooLong { limit, .. } | Self::TooMany { limit, .. } => *limit as u64,
            _ => 0,
        }
    }

    /// What the peer is told; `message` is this error printed.
    pub fn answer<'a>(&self, message: &'a str) -> ErrorAnswer<'a> {
        ErrorAnswer {
            code: ErrorCode::BadInput,
            detail: ErrorDetail::Text {
                value: self.limit(),
                field: self.field().as_bytes(),
                message: message.as_bytes(),
            },
        }
    }
}
