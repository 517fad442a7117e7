//! End the session, with everything that hangs on it.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header};
use crate::message::opcode;

/// Opcode of the answer.
pub const FAREWELL: u8 = opcode::GOODBYE | opcode::ANSWER;

/// Ends the session now: its waiters leave, holds on its lease are released. Without a session it only closes the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Goodbye;

/// The session is over; the server closes the connection behind this frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Farewell;

impl Goodbye {
    /// The request in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        Cursor::new(frame).finish()?;
        Ok(Self)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(opcode::GOODBYE, 0, number, 0));
    }
}

impl Farewell {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        Cursor::new(frame).finish()?;
        Ok(Self)
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(FAREWELL, 0, number, 0));
    }
}
