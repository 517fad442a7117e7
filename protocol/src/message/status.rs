//! What became of one claim.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::LockId;
use crate::limits::PATH_KEY_LEN_MAX;
use crate::message::opcode;
use crate::message::release::{KEY_FLAG, key_flag, optional_key, put_optional_key};

/// Opcode of the answer.
pub const STATUS_ANSWER: u8 = opcode::STATUS | opcode::ANSWER;
/// Flags of the answer.
pub mod flag {
    /// Shared with other readers.
    pub const SHARED: u16 = 1 << 0;
    /// The lease is the session's.
    pub const SESSION_LEASE: u16 = 1 << 1;
}

/// Asks about the claim with this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Status<'a> {
    /// From the grant or from `QUEUED`.
    pub id: LockId,
    /// If set, the claim must be one of this key.
    pub key: Option<&'a [u8]>,
}

impl<'a> Status<'a> {
    /// The question in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(KEY_FLAG)?;
        let mut cursor = Cursor::new(frame);
        let id = cursor.id("id", LockId::from_bytes)?;
        let key = optional_key(flags, &mut cursor)?;
        cursor.finish()?;
        Ok(Self { id, key })
    }

    /// Appends the question as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::STATUS, key_flag(self.key), number, |out| {
            out.extend_from_slice(&self.id.to_bytes());
            put_optional_key(out, self.key);
        });
    }
}

/// Whether a claim waits or is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Queued.
    Waiting,
    /// Granted.
    Held,
}

/// The state of a live claim. One that is over is answered `not_found`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusAnswer<'a> {
    /// Waiting or held.
    pub state: LockState,
    /// Shared with other readers.
    pub shared: bool,
    /// The lease is the session's.
    pub session_lease: bool,
    /// 0 while waiting.
    pub fence: u64,
    /// What was left at `stamp_ms`: of the lease if held, of the wait if waiting (`u32::MAX` is without end).
    pub remaining_ms: u32,
    /// How long ago it was granted, or began to wait.
    pub age_ms: u64,
    /// The server's boot-time clock when this was decided.
    pub stamp_ms: u64,
    /// The priority it was asked for with.
    pub priority: u32,
    /// How long it had waited before its grant. 0 while it waits, and where the server was started after the grant.
    pub waited_ms: u64,
    /// The key of the claim; the first of several paths.
    pub key: &'a [u8],
}

impl<'a> StatusAnswer<'a> {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(flag::SHARED | flag::SESSION_LEASE)?;
        let mut cursor = Cursor::new(frame);
        let state = match cursor.u8("state")? {
            0 => LockState::Waiting,
            1 => LockState::Held,
            other => return Err(DecodeError::BadValue { field: "state", value: u64::from(other) }),
        };
        let answer = Self {
            state,
            shared: flags & flag::SHARED != 0,
            session_lease: flags & flag::SESSION_LEASE != 0,
            fence: cursor.u64("fence")?,
            remaining_ms: cursor.u32("remaining_ms")?,
            age_ms: cursor.u64("age_ms")?,
            stamp_ms: cursor.u64("stamp_ms")?,
            priority: cursor.u32("priority")?,
            waited_ms: cursor.u64("waited_ms")?,
            key: cursor.string("key", PATH_KEY_LEN_MAX)?,
        };
        cursor.finish()?;
        Ok(answer)
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.shared { flag::SHARED } else { 0 }
            | if self.session_lease { flag::SESSION_LEASE } else { 0 };
        put_frame(out, STATUS_ANSWER, flags, number, |out| {
            out.push(match self.state {
                LockState::Waiting => 0,
                LockState::Held => 1,
            });
            out.extend_from_slice(&self.fence.to_le_bytes());
            out.extend_from_slice(&self.remaining_ms.to_le_bytes());
            out.extend_from_slice(&self.age_ms.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
            out.extend_from_slice(&self.priority.to_le_bytes());
            out.extend_from_slice(&self.waited_ms.to_le_bytes());
            put_string(out, self.key);
        });
    }
}
