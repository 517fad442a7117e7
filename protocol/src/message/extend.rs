//! The renewal of a hold's lease.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::LockId;
use crate::message::opcode;
use crate::message::release::{KEY_FLAG, OWN, claim_flags, optional_key, put_optional_key};

/// Opcode of the response to `EXTEND`.
pub const EXTENDED: u8 = opcode::EXTEND | opcode::ANSWER;
/// Flag of `EXTENDED`: the requested lease was above the server's maximum and was shortened.
pub const CLAMPED: u16 = 1 << 0;

/// Sets the end of the lease of a hold to the current time plus `lease_ms`. The new end may be earlier than the old
/// one. If the claim waits for permits of a pool, sets the length of the lease that begins with the grant. If the claim
/// waits for anything else, the server responds with `not_held`. It responds with `bad_input` for a registration, and
/// for a hold on a session lease or without a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Extend<'a> {
    /// Id from the grant.
    pub id: LockId,
    /// New length of the lease from now, in milliseconds; 0 is the server's default.
    pub lease_ms: u32,
    /// Key that the claim must belong to. `None` skips this check.
    pub key: Option<&'a [u8]>,
    /// Whether the claim must belong to the lane of this connection. If it belongs to another lane, the server refuses
    /// the request with `cancelled`.
    pub own: bool,
}

impl<'a> Extend<'a> {
    /// Parses the renewal from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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

/// Response to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Extended {
    /// Remaining lease at `stamp_ms`, in milliseconds. For a waiting claim, the length of the lease that begins with
    /// the grant.
    pub remaining_ms: u32,
    /// Time when the server determined the content of this message, in milliseconds of its boot-time clock.
    pub stamp_ms: u64,
    /// Whether the requested lease was above the server's maximum and was shortened.
    pub clamped: bool,
}

impl Extended {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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

    /// Appends the response as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, EXTENDED, if self.clamped { CLAMPED } else { 0 }, number, |out| {
            out.extend_from_slice(&self.remaining_ms.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
        });
    }
}
