//! Give up an acquire that may still wait, by its number.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, header, put_frame};
use crate::limits::PATH_KEY_LEN_MAX;
use crate::message::opcode;

/// Opcode of the answer.
pub const CANCELLED: u8 = opcode::CANCEL | opcode::ANSWER;
/// Flag of `CANCELLED`: the acquire was waiting and is now answered `cancelled`.
pub const WAS_WAITING: u16 = 1 << 0;
/// Where `key_length` stands in the frame; the key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN + 4;

/// Takes back an acquire of the same connection. Without effect where it was answered already: whoever cancels must
/// still release a grant that crosses the cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cancel<'a> {
    /// The number of the acquire.
    pub acquire_number: u32,
    /// The key of the acquire: of several keys the smallest, of permits the name of the pool, of a set of paths empty.
    pub key: &'a [u8],
}

impl<'a> Cancel<'a> {
    /// The cancellation in this frame.
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

/// The cancellation was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cancelled {
    /// The acquire was waiting and is now answered `cancelled`. If not, its own answer says what became of it.
    pub was_waiting: bool,
}

impl Cancelled {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(WAS_WAITING)?;
        Cursor::new(frame).finish()?;
        Ok(Self { was_waiting: flags & WAS_WAITING != 0 })
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(CANCELLED, if self.was_waiting { WAS_WAITING } else { 0 }, number, 0));
    }
}
