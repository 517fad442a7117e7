//! The check whether a fence is still the newest of its key.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, put_frame};
use crate::limits::PATH_KEY_LEN_MAX;
use crate::message::opcode;

/// Opcode of the response to `VERIFY`.
pub const VERIFIED: u8 = opcode::VERIFY | opcode::ANSWER;
/// Flags of `VERIFIED`.
pub mod flag {
    /// The fence in the request is the newest of the key: no later grant exists. In a tree namespace, all paths share
    /// one counter of fences, so later grants of other paths do not make a fence invalid. There the flag is also set
    /// while a set of paths is held with this fence and overlaps the path in the request.
    pub const NEWEST: u16 = 1 << 0;
    /// The grant is the newest and is still held.
    pub const HELD: u16 = 1 << 1;
}
/// Offset of the length of the key in the frame, in bytes. The key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN + 8;

/// Checks whether a grant is the newest of its key, and whether it is still held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Verify<'a> {
    /// Fence of the grant.
    pub fence: u64,
    /// Key, or path key in a tree namespace.
    pub key: &'a [u8],
}

impl<'a> Verify<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let fence = cursor.u64("fence")?;
        let key = cursor.string("key", PATH_KEY_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { fence, key })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::VERIFY, 0, number, |out| {
            out.extend_from_slice(&self.fence.to_le_bytes());
            put_string(out, self.key);
        });
    }
}

/// Response to a check of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Verified {
    /// Whether the fence of the request is the newest one of the key. In a tree namespace, a fence also counts as the
    /// newest while the set of paths with this fence holds a path that overlaps the requested path.
    pub newest: bool,
    /// Whether the grant is the newest and is still held.
    pub held: bool,
    /// Newest fence of the key, or of the tree namespace; every later grant has a higher one. The server does not keep
    /// a counter for every unused key. For a key without a counter, this is the floor of its shard: the next fence of
    /// the key will be above it.
    pub newest_fence: u64,
    /// Server's boot-time clock when this state was read, in milliseconds.
    pub stamp_ms: u64,
}

impl Verified {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.newest { flag::NEWEST } else { 0 } | if self.held { flag::HELD } else { 0 };
        put_frame(out, VERIFIED, flags, number, |out| {
            out.extend_from_slice(&self.newest_fence.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
        });
    }
}
