//! The live holds of one connection, page by page. Answered with `LISTED`.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::message::opcode;

/// Asks for one page of the holds that the connection has, or its place in the session: what it held before it was lost
/// and still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Holds {
    /// 0 for the first page, then what the page before said.
    pub cursor: u64,
    /// Most holds in the page; 0 is as many as fit.
    pub count_max: u16,
}

impl Holds {
    /// The question in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let holds = Self { cursor: cursor.u64("cursor")?, count_max: cursor.u16("count_max")? };
        cursor.finish()?;
        Ok(holds)
    }

    /// Appends the question as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::HOLDS, 0, number, |out| {
            out.extend_from_slice(&self.cursor.to_le_bytes());
            out.extend_from_slice(&self.count_max.to_le_bytes());
        });
    }
}
