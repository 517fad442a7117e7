//! The release of a hold or a waiting claim.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header, put_frame};
use crate::id::LockId;
use crate::limits::KEY_LEN_MAX;
use crate::message::opcode;

/// Opcode of the response to `RELEASE`.
pub const RELEASED: u8 = opcode::RELEASE | opcode::ANSWER;
/// Flag of `RELEASE`, `EXTEND` and `STATUS`: the frame has the field `key`, the key that the claim must belong to.
pub const KEY_FLAG: u16 = 1 << 0;
/// Flag of `RELEASE` and `EXTEND`: act only on a claim of the lane of this connection.
pub const OWN: u16 = 1 << 1;
/// Flag of `RELEASED`: the claim was still waiting.
pub const WAS_WAITING: u16 = 1 << 0;

/// Ends the hold or the waiting claim with this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Release<'a> {
    /// Id from the grant or from `QUEUED`.
    pub id: LockId,
    /// Key that the claim must belong to. `None` skips this check.
    pub key: Option<&'a [u8]>,
    /// Whether the claim must belong to the lane of this connection. If it belongs to another lane, the server refuses
    /// the release with `cancelled`, or with `not_found` if the client may not know of the claim. Only servers with the
    /// capability `OWN_CLAIM` accept this flag.
    pub own: bool,
}

impl<'a> Release<'a> {
    /// Parses the release from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(KEY_FLAG | OWN)?;
        let mut cursor = Cursor::new(frame);
        let id = cursor.id("id", LockId::from_bytes)?;
        let key = optional_key(flags, &mut cursor)?;
        cursor.finish()?;
        Ok(Self { id, key, own: flags & OWN != 0 })
    }

    /// Appends the release as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::RELEASE, claim_flags(self.key, self.own), number, |out| {
            out.extend_from_slice(&self.id.to_bytes());
            put_optional_key(out, self.key);
        });
    }
}

#[inline]
pub(crate) fn optional_key<'a>(flags: u16, cursor: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, DecodeError> {
    (flags & KEY_FLAG != 0).then(|| cursor.non_empty_string("key", KEY_LEN_MAX)).transpose()
}

#[inline]
pub(crate) fn key_flag(key: Option<&[u8]>) -> u16 {
    if key.is_some() { KEY_FLAG } else { 0 }
}

#[inline]
pub(crate) fn claim_flags(key: Option<&[u8]>, own: bool) -> u16 {
    key_flag(key) | if own { OWN } else { 0 }
}

#[inline]
pub(crate) fn put_optional_key(out: &mut Vec<u8>, key: Option<&[u8]>) {
    if let Some(key) = key {
        put_string(out, key);
    }
}

/// Response to a release: the claim has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Released {
    /// Whether the claim was still waiting. Its acquire is then answered with `cancelled`.
    pub was_waiting: bool,
}

impl Released {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    #[inline]
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(WAS_WAITING)?;
        Cursor::new(frame).finish()?;
        Ok(Self { was_waiting: flags & WAS_WAITING != 0 })
    }

    /// Appends the response as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(RELEASED, if self.was_waiting { WAS_WAITING } else { 0 }, number, 0));
    }
}
