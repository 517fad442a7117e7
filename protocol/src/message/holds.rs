//! The holds of one lane, page by page. The response is `LISTED`.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::message::opcode;

/// Requests one page of the holds of this connection's lane. On a resumed lane these include the holds of the lost
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Holds {
    /// Position of the page: 0 for the first page, then `next` of the previous page.
    pub cursor: u64,
    /// Maximum number of holds in the page; 0 is as many as fit.
    pub count_max: u16,
}

impl Holds {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let holds = Self { cursor: cursor.u64("cursor")?, count_max: cursor.u16("count_max")? };
        cursor.finish()?;
        Ok(holds)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::HOLDS, 0, number, |out| {
            out.extend_from_slice(&self.cursor.to_le_bytes());
            out.extend_from_slice(&self.count_max.to_le_bytes());
        });
    }
}
