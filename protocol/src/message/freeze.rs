//! An operator stops new grants below a prefix, and lets them go on.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::limits::{PATH_KEY_LEN_MAX, REASON_LEN_MAX};
use crate::message::opcode;

/// Opcode of the answer.
pub const FROZEN: u8 = opcode::FREEZE | opcode::ANSWER;
/// Flag of `FREEZE`: let grants go on.
pub const THAW: u16 = 1 << 0;
/// Flag of `FREEZE`: brings `reason`.
pub const REASON: u16 = 1 << 1;
/// Flag of `FROZEN`: it was not so before.
pub const CHANGED: u16 = 1 << 0;

/// Stops new grants of keys with a prefix, or lets them go on. What is held stays held and can be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Freeze<'a> {
    /// The first bytes of the keys, or the path key of an ancestor in a tree namespace; empty is everything.
    pub prefix: &'a [u8],
    /// Take back an earlier freeze of just this prefix.
    pub thaw: bool,
    /// Why, for the audit log; empty without a reason.
    pub reason: &'a [u8],
}

impl<'a> Freeze<'a> {
    /// The request in this frame.
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

/// The prefix is frozen, or no longer so, in every shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Frozen {
    /// It was not so before.
    pub changed: bool,
    /// How many prefixes of the namespace are frozen now.
    pub frozen_count: u16,
}

impl Frozen {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(CHANGED)?;
        let mut cursor = Cursor::new(frame);
        let frozen_count = cursor.u16("frozen_count")?;
        cursor.finish()?;
        Ok(Self { changed: flags & CHANGED != 0, frozen_count })
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, FROZEN, if self.changed { CHANGED } else { 0 }, number, |out| {
            out.extend_from_slice(&self.frozen_count.to_le_bytes());
        });
    }
}
