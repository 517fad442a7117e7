//! The acquire of one key, and its grant.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, header, put_frame};
use crate::id::LockId;
use crate::limits::KEY_LEN_MAX;
use crate::message::acquire_terms::{AcquireOptions, AcquireTerms, flag, with_terms};
use crate::message::opcode;

/// Flags of `GRANTED`.
pub mod granted_flag {
    /// The requested lease was above the server's maximum and was shortened.
    pub const CLAMPED: u16 = 1 << 0;
    /// The claim had to wait for other claims, for the end of a freeze, or for the server to add a very large set of
    /// paths to the tree of the namespace.
    pub const WAITED: u16 = 1 << 1;
    /// The request id names a claim that was already held. The server returns this hold and does not renew its lease.
    pub const REPEATED: u16 = 1 << 2;
    /// The hold lasts as long as the session.
    pub const SESSION_LEASE: u16 = 1 << 3;
    /// All flags of `GRANTED`.
    pub const ALL: u16 = CLAMPED | WAITED | REPEATED | SESSION_LEASE;
}

/// Opcode of the response to `ACQUIRE`, `ACQUIRE_SET` and `ACQUIRE_PERMITS`.
pub const GRANTED: u8 = opcode::ACQUIRE | opcode::ANSWER;
/// Offset of `key_length` in the frame, in bytes. The key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN + 8;

/// Requests one hold on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Acquire<'a> {
    /// Key, 1 to 1024 bytes long.
    pub key: &'a [u8],
    /// Whether the lock is shared with other readers.
    pub shared: bool,
    /// Terms of the acquire.
    pub terms: AcquireTerms<'a>,
}

with_terms!(Acquire);

impl<'a> Acquire<'a> {
    /// Parses the acquire from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(flag::ALL)?;
        let mut cursor = Cursor::new(frame);
        let lengths = AcquireTerms::decode_lengths(&mut cursor)?;
        let key = cursor.non_empty_string("key", KEY_LEN_MAX)?;
        let shared = flags & flag::SHARED != 0;
        let with = |options| Self { key, shared, terms: AcquireTerms::new(flags, lengths, options) };
        if flags & flag::OPTIONAL == 0 {
            // Return here if the acquire has no optional fields, so that this common case does not copy
            // `AcquireOptions`.
            cursor.finish()?;
            return Ok(with(AcquireOptions::default()));
        }
        let options = AcquireOptions::decode(flags, &mut cursor)?;
        cursor.finish()?;
        Ok(with(options))
    }

    /// Appends the acquire as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = self.terms.flags() | if self.shared { flag::SHARED } else { 0 };
        put_frame(out, opcode::ACQUIRE, flags, number, |out| {
            self.terms.encode_lengths(out);
            put_string(out, self.key);
            if flags & flag::OPTIONAL != 0 {
                self.terms.options.encode(out);
            }
        });
    }
}

/// Grant of one hold: the response to `ACQUIRE`, `ACQUIRE_SET` and `ACQUIRE_PERMITS`, immediately or after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Granted {
    /// Id of the hold, needed to release and renew it. Any client that knows it, and that the access rules permit, may
    /// release the hold.
    pub id: LockId,
    /// Fencing token, higher than those of all earlier grants of the key, pool or tree namespace. The scope decides
    /// which failures of the server the fence counter survives. The holder sends the token to each other system that it
    /// writes to. That system must refuse tokens below the highest that it has seen.
    pub fence: u64,
    /// Remaining lease at `stamp_ms`, in milliseconds; with `session_lease`, that of the session. `u32::MAX` without an
    /// end.
    pub remaining_ms: u32,
    /// Time when the server determined the content of this message, in milliseconds of its boot-time clock.
    pub stamp_ms: u64,
    /// Whether the requested lease was above the server's maximum and was shortened.
    pub clamped: bool,
    /// Whether the claim had to wait for other claims, for the end of a freeze, or for the server to add a very large
    /// set of paths to the tree of the namespace.
    pub waited: bool,
    /// Whether the request id names a claim that was already held. The server then returns this hold and does not renew
    /// its lease.
    pub repeated: bool,
    /// Whether the hold lasts as long as the session.
    pub session_lease: bool,
}

impl Granted {
    /// Length of the frame in bytes.
    pub const FRAME_LEN: usize = HEADER_LEN + 36;

    /// Parses the grant from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    #[inline]
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(granted_flag::ALL)?;
        let mut cursor = Cursor::new(frame);
        let granted = Self {
            id: cursor.id("id", LockId::from_bytes)?,
            fence: cursor.u64("fence")?,
            remaining_ms: cursor.u32("remaining_ms")?,
            stamp_ms: cursor.u64("stamp_ms")?,
            clamped: flags & granted_flag::CLAMPED != 0,
            waited: flags & granted_flag::WAITED != 0,
            repeated: flags & granted_flag::REPEATED != 0,
            session_lease: flags & granted_flag::SESSION_LEASE != 0,
        };
        cursor.finish()?;
        Ok(granted)
    }

    /// Appends the grant as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.clamped { granted_flag::CLAMPED } else { 0 }
            | if self.waited { granted_flag::WAITED } else { 0 }
            | if self.repeated { granted_flag::REPEATED } else { 0 }
            | if self.session_lease { granted_flag::SESSION_LEASE } else { 0 };
        let mut frame = [0; Self::FRAME_LEN];
        frame[..12].copy_from_slice(&header(GRANTED, flags, number, Self::FRAME_LEN - HEADER_LEN));
        frame[12..28].copy_from_slice(&self.id.to_bytes());
        frame[28..36].copy_from_slice(&self.fence.to_le_bytes());
        frame[36..40].copy_from_slice(&self.remaining_ms.to_le_bytes());
        frame[40..48].copy_from_slice(&self.stamp_ms.to_le_bytes());
        out.extend_from_slice(&frame);
    }
}
