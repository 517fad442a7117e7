//! The message that keeps a session alive, with the waiters of the session and the holds on its lease. On a connection
//! without a session, the server only responds to it.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header, put_frame};
use crate::message::opcode;

/// Opcode of the response to `KEEP_ALIVE`.
pub const KEPT_ALIVE: u8 = opcode::KEEP_ALIVE | opcode::ANSWER;

/// Sets the deadline of the session to the current time plus its lease, as every other frame does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeepAlive;

impl KeepAlive {
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
        out.extend_from_slice(&header(opcode::KEEP_ALIVE, 0, number, 0));
    }
}

/// Response to a keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeptAlive {
    /// Remaining session lease at `stamp_ms`, in milliseconds; 0 without a session.
    pub remaining_ms: u32,
    /// Time when the server determined the content of this message, in milliseconds of its boot-time clock.
    pub stamp_ms: u64,
}

impl KeptAlive {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let answer = Self { remaining_ms: cursor.u32("remaining_ms")?, stamp_ms: cursor.u64("stamp_ms")? };
        cursor.finish()?;
        Ok(answer)
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, KEPT_ALIVE, 0, number, |out| {
            out.extend_from_slice(&self.remaining_ms.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
        });
    }
}
