//! The answer of a client to `PING`.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header};
use crate::message::opcode;

/// Shows a server that sent `PING` that the client is alive. The server does not answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pong;

impl Pong {
    /// Returns the message in this frame.
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
