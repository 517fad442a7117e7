//! The release of a claim by an operator.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::LockId;
use crate::limits::{OWNER_LEN_MAX, PATH_KEY_LEN_MAX, REASON_LEN_MAX};
use crate::message::opcode;

/// Opcode of the response to `FORCE_RELEASE`.
pub const FORCE_RELEASED: u8 = opcode::FORCE_RELEASE | opcode::ANSWER;
/// Flag of `FORCE_RELEASED`: the claim was still waiting.
pub const WAS_WAITING: u16 = 1 << 0;

/// Ends the claim with this id. A holder is sent the reason; the acquire of a waiting claim is answered with
/// `cancelled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ForceRelease<'a> {
    /// Id of the claim, from a list, an inspection or a grant.
    pub id: LockId,
    /// Reason for the holder and for the server's audit log; at most 256 bytes, may be empty.
    pub reason: &'a [u8],
}

impl<'a> ForceRelease<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let id = cursor.id("id", LockId::from_bytes)?;
        let reason = cursor.string("reason", REASON_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { id, reason })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::FORCE_RELEASE, 0, number, |out| {
            out.extend_from_slice(&self.id.to_bytes());
            put_string(out, self.reason);
        });
    }
}

/// Response to a forced release, which describes the ended claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ForceReleased<'a> {
    /// Fence of the claim; 0 if it was waiting.
    pub fence: u64,
    /// Key of the claim, name of its pool, or first path of its set. A path above 1,024 bytes is cut after the last
    /// segment that fits.
    pub key: &'a [u8],
    /// Owner of the claim.
    pub owner: &'a [u8],
    /// Whether the claim was still waiting. Its acquire is then answered with `cancelled`.
    pub was_waiting: bool,
}

impl<'a> ForceReleased<'a> {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(WAS_WAITING)?;
        let mut cursor = Cursor::new(frame);
        let released = Self {
            fence: cursor.u64("fence")?,
            key: cursor.string("key", PATH_KEY_LEN_MAX)?,
            owner: cursor.string("owner", OWNER_LEN_MAX)?,
            was_waiting: flags & WAS_WAITING != 0,
        };
        cursor.finish()?;
        Ok(released)
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, FORCE_RELEASED, if self.was_waiting { WAS_WAITING } else { 0 }, number, |out| {
            out.extend_from_slice(&self.fence.to_le_bytes());
            put_string(out, self.key);
            put_string(out, self.owner);
        });
    }
}
