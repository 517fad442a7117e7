//! Stopping and resuming new grants below a prefix, for operators.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::limits::{PATH_KEY_LEN_MAX, REASON_LEN_MAX};
use crate::message::opcode;

/// Opcode of the response to `FREEZE`.
pub const FROZEN: u8 = opcode::FREEZE | opcode::ANSWER;
/// Flag of `FREEZE`: resume grants.
pub const THAW: u16 = 1 << 0;
/// Flag of `FREEZE`: adds `reason`.
pub const REASON: u16 = 1 << 1;
/// Flag of `FROZEN`: the request changed the state of the prefix.
pub const CHANGED: u16 = 1 << 0;

/// Stops or resumes new grants of keys with a prefix. Existing holds stay and can be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Freeze<'a> {
    /// First bytes of the keys. The empty prefix matches all keys. A tree namespace accepts only the empty prefix.
    pub prefix: &'a [u8],
    /// Whether to end an earlier freeze of exactly this prefix.
    pub thaw: bool,
    /// Reason for the audit log; may be empty.
    pub reason: &'a [u8],
}

impl<'a> Freeze<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(THAW | REASON)?;
        let mut cursor = Cursor::new(frame);
        let prefix = cursor.string("prefix", PATH_KEY_LEN_MAX)?;
        let reason = if flags & REASON != 0 { cursor.string("reason", REASON_LEN_MAX)? } else { b"" };
        cursor.finish()?;
        Ok(Self { prefix, thaw: flags & THAW != 0, reason })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let thaw = if self.thaw { THAW } else { 0 };
        let reason = if self.reason.is_empty() { 0 } else { REASON };
        put_frame(out, opcode::FREEZE, thaw | reason, number, |out| {
            put_string(out, self.prefix);
            if reason != 0 {
                put_string(out, self.reason);
            }
        });
    }
}

/// Response to a freeze or thaw. The change is in effect in every shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Frozen {
    /// Whether the request changed the state of the prefix.
    pub changed: bool,
    /// Number of frozen prefixes in the namespace.
    pub frozen_count: u16,
}

impl Frozen {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(CHANGED)?;
        let mut cursor = Cursor::new(frame);
        let frozen_count = cursor.u16("frozen_count")?;
        cursor.finish()?;
        Ok(Self { changed: flags & CHANGED != 0, frozen_count })
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, FROZEN, if self.changed { CHANGED } else { 0 }, number, |out| {
            out.extend_from_slice(&self.frozen_count.to_le_bytes());
        });
    }
}
