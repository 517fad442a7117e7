//! The client's reply to `PING`.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header};
use crate::message::opcode;

/// Shows the server, after a `PING`, that the client is alive. The server sends no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pong;

impl Pong {
    /// Parses the message from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        Cursor::new(frame).finish()?;
        Ok(Self)
    }

    /// Appends the message as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(opcode::PONG, 0, number, 0));
    }
}
