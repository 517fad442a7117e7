//! Renew the lease of a hold.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::LockId;
use crate::message::opcode;
use crate::message::release::{KEY_FLAG, OWN, claim_flags, optional_key, put_optional_key};

/// Opcode of the answer.
pub const EXTENDED: u8 = opcode::EXTEND | opcode::ANSWER;
/// Flag of `EXTENDED`: the lease asked for was above the cap.
pub const CLAMPED: u16 = 1 << 0;

/// Sets the end of the lease to now + `lease_ms`. It may also shorten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Extend<'a> {
    /// From the grant.
    pub id: LockId,
    /// The new length, counted from now; 0 is the server's default.
    pub lease_ms: u32,
    /// If set, the claim must be one of this key.
    pub key: Option<&'a [u8]>,
    /// Whether the claim must be this lane's, as in [`Release`](crate::Release).
    pub own: bool,
}

impl<'a> Extend<'a> {
    /// The renewal in this frame.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(KEY_FLAG | OWN)?;
        let mut cursor = Cursor::new(frame);
        let id = cursor.id("id", LockId::from_bytes)?;
        let lease_ms = cursor.u32("lease_ms")?;
        let key = optional_key(flags, &mut cursor)?;
        cursor.finish()?;
        Ok(Self { id, lease_ms, key, own: flags & OWN != 0 })
    }

    /// Appends the renewal as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::EXTEND, claim_flags(self.key, self.own), number, |out| {
            out.extend_from_slice(&self.id.to_bytes());
            out.extend_from_slice(&self.lease_ms.to_le_bytes());
            put_optional_key(out, self.key);
        });
    }
}

/// The lease was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Extended {
    /// What was left of the lease at `stamp_ms`.
    pub remaining_ms: u32,
    /// The server's boot-time clock when this was decided.
    pub stamp_ms: u64,
    /// The lease asked for was above the cap.
    pub clamped: bool,
}

impl Extended {
    /// The answer in this frame.
    #[inline]
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(CLAMPED)?;
        let mut cursor = Cursor::new(frame);
        let extended = Self {
            remaining_ms: cursor.u32("remaining_ms")?,
            stamp_ms: cursor.u64("stamp_ms")?,
            clamped: flags & CLAMPED != 0,
        };
        cursor.finish()?;
        Ok(extended)
    }

    /// Appends the answer as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, EXTENDED, if self.clamped { CLAMPED } else { 0 }, number, |out| {
            out.extend_from_slice(&self.remaining_ms.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
        });
    }
}
