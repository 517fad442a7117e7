//! The cancellation of a waiting acquire by its number.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, header, put_frame};
use crate::limits::PATH_KEY_LEN_MAX;
use crate::message::opcode;

/// Opcode of the response to `CANCEL`.
pub const CANCELLED: u8 = opcode::CANCEL | opcode::ANSWER;
/// Flag of `CANCELLED`: the acquire was waiting; its response is now `cancelled`.
pub const WAS_WAITING: u16 = 1 << 0;
/// Offset of `key_length` in the frame, in bytes. The key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN + 4;

/// Cancels a waiting acquire of the same connection. Nothing is cancelled if the acquire does not wait. The grant may
/// cross the cancellation on the wire; the client must then still release the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cancel<'a> {
    /// Number of the acquire.
    pub acquire_number: u32,
    /// Key of the acquire. For several keys it is the smallest key, for permits the name of the pool, for a set of
    /// paths it is empty.
    pub key: &'a [u8],
}

impl<'a> Cancel<'a> {
    /// Parses the cancellation from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let acquire_number = cursor.u32("acquire_number")?;
        let key = cursor.string("key", PATH_KEY_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { acquire_number, key })
    }

    /// Appends the cancellation as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::CANCEL, 0, number, |out| {
            out.extend_from_slice(&self.acquire_number.to_le_bytes());
            put_string(out, self.key);
        });
    }
}

/// Response to a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cancelled {
    /// Whether the acquire was waiting; its response is then `cancelled`. If not, its own response tells its outcome.
    pub was_waiting: bool,
}

impl Cancelled {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(WAS_WAITING)?;
        Cursor::new(frame).finish()?;
        Ok(Self { was_waiting: flags & WAS_WAITING != 0 })
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(CANCELLED, if self.was_waiting { WAS_WAITING } else { 0 }, number, 0));
    }
}
