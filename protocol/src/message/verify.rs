//! Is a fence still the newest?

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, put_frame};
use crate::limits::PATH_KEY_LEN_MAX;
use crate::message::opcode;

/// Opcode of the answer.
pub const VERIFIED: u8 = opcode::VERIFY | opcode::ANSWER;
/// Flags of the answer.
pub mod flag {
    /// There was no later grant of the key.
    pub const NEWEST: u16 = 1 << 0;
    /// And that grant is still held.
    pub const HELD: u16 = 1 << 1;
}
/// Where the length of the key stands in the frame; the key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN + 8;

/// Asks whether a grant is the newest of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Verify<'a> {
    /// The fence of the grant.
    pub fence: u64,
    /// A key, or a path key in a tree namespace.
    pub key: &'a [u8],
}

impl<'a> Verify<'a> {
    /// The question in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let fence = cursor.u64("fence")?;
        let key = cursor.string("key", PATH_KEY_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { fence, key })
    }

    /// Appends the question as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::VERIFY, 0, number, |out| {
            out.extend_from_slice(&self.fence.to_le_bytes());
            put_string(out, self.key);
        });
    }
}

/// What became of the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Verified {
    /// There was no later grant of the key.
    pub newest: bool,
    /// It is the newest and still held.
    pub held: bool,
    /// The newest fence of the key.
    pub newest_fence: u64,
    /// The server's boot-time clock when this was read.
    pub stamp_ms: u64,
}

impl Verified {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(flag::NEWEST | flag::HELD)?;
        let mut cursor = Cursor::new(frame);
        let verified = Self {
            newest: flags & flag::NEWEST != 0,
            held: flags & flag::HELD != 0,
            newest_fence: cursor.u64("newest")?,
            stamp_ms: cursor.u64("stamp_ms")?,
        };
        cursor.finish()?;
        Ok(verified)
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.newest { flag::NEWEST } else { 0 } | if self.held { flag::HELD } else { 0 };
        put_frame(out, VERIFIED, flags, number, |out| {
            out.extend_from_slice(&self.newest_fence.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
        });
    }
}
