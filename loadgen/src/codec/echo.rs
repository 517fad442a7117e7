//! An echo server: the cost of the network and of this client alone.

use std::io::{self, Read, Write};

use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{LockId, next_frame};

use super::{Answer, Broken, Claim, Codec, Parsed, Waymaker};
use crate::plan::Plan;

/// A connection to an echo server. Sends the frames of the Waymaker protocol and receives the same frames.
#[derive(Debug)]
pub struct Echo {
    frames: Waymaker,
}

impl Codec for Echo {
    type Hold = LockId;
    const HAS_FENCES: bool = false;
    const WAITS: bool = false;

    fn open(plan: &Plan, _stream: &mut (impl Read + Write)) -> io::Result<Self> {
        Ok(Self { frames: Waymaker::templates(plan) })
    }

    #[inline]
    fn put_acquire(&mut self, number: u32, claim: Claim, out: &mut Vec<u8>) {
        self.frames.append_acquire(number, claim, out);
    }

    #[inline]
    fn put_release(&mut self, number: u32, _claim: Claim, hold: &LockId, out: &mut Vec<u8>) {
        self.frames.append_release(number, *hold, out);
    }

    #[inline]
    fn next_answer(&mut self, bytes: &[u8]) -> Result<Parsed<LockId>, Broken> {
        let frame = match next_frame(bytes, FRAME_LEN_MAX) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(None),
            Err(error) => return Err(Broken(format!("not an echo server: {error}"))),
        };
        let number = frame.number();
        let (acquire_len, release_len) = self.frames.frame_lens();
        let answer = match frame.opcode() {
            opcode::ACQUIRE if frame.len() == acquire_len => {
                // Reads the lock id from the position where a grant has it, so that the client does the same work
                // as for a real grant.
                let hold = frame.body().first_chunk().copied().map(LockId::from_bytes).unwrap_or_default();
                Answer::Granted { number, hold, fence: 0 }
            }
            opcode::RELEASE if frame.len() == release_len => Answer::Released { number },
            other => {
                return Err(Broken(format!(
                    "not an echo server: opcode {other:#04x}, {} bytes",
                    frame.len()
                )));
            }
        };
        Ok(Some((answer, frame.len())))
    }
}
