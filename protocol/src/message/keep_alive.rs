//! Keep the session alive, however many claims hang on it; without a session, a ping.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header, put_frame};
use crate::message::opcode;

/// Opcode of the answer.
pub const KEPT_ALIVE: u8 = opcode::KEEP_ALIVE | opcode::ANSWER;

/// Moves the deadline of the session to now + its lease, as every other frame does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeepAlive;

impl KeepAlive {
    /// The request in this frame.
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

/// The session lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeptAlive {
    /// What was left of the session at `stamp_ms`; 0 without a session.
    pub remaining_ms: u32,
    /// The server's boot-time clock when this was decided.
    pub stamp_ms: u64,
}

impl KeptAlive {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let answer = Self { remaining_ms: cursor.u32("remaining_ms")?, stamp_ms: cursor.u64("stamp_ms")? };
        cursor.finish()?;
        Ok(answer)
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, KEPT_ALIVE, 0, number, |out| {
            out.extend_from_slice(&self.remaining_ms.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
        });
    }
}
