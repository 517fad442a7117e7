//! The end of a session by its client.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header};
use crate::message::opcode;

/// Opcode of the response to `GOODBYE`.
pub const FAREWELL: u8 = opcode::GOODBYE | opcode::ANSWER;

/// Ends the session immediately: its waiters are cancelled, and holds with the session's lease are released. Without a
/// session it only closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Goodbye;

/// Response to a goodbye: the session, if the connection had one, has ended. The server closes the connection after
/// this frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Farewell;

impl Goodbye {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        Cursor::new(frame).finish()?;
        Ok(Self)
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(FAREWELL, 0, number, 0));
    }
}
