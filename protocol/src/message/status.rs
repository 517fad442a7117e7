//! The state of one claim.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::LockId;
use crate::limits::PATH_KEY_LEN_MAX;
use crate::message::opcode;
use crate::message::release::{KEY_FLAG, key_flag, optional_key, put_optional_key};

/// Opcode of the response to `STATUS`.
pub const STATUS_ANSWER: u8 = opcode::STATUS | opcode::ANSWER;
/// Flags of `STATUS_ANSWER`.
pub mod flag {
    /// The lock is shared with other readers.
    pub const SHARED: u16 = 1 << 0;
    /// The hold lasts as long as the session.
    pub const SESSION_LEASE: u16 = 1 << 1;
}

/// Requests the state of the claim with this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Status<'a> {
    /// Id of the claim, from the grant or from `QUEUED`.
    pub id: LockId,
    /// Key that the claim must belong to. `None` skips this check.
    pub key: Option<&'a [u8]>,
}

impl<'a> Status<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(KEY_FLAG)?;
        let mut cursor = Cursor::new(frame);
        let id = cursor.id("id", LockId::from_bytes)?;
        let key = optional_key(flags, &mut cursor)?;
        cursor.finish()?;
        Ok(Self { id, key })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::STATUS, key_flag(self.key), number, |out| {
            out.extend_from_slice(&self.id.to_bytes());
            put_optional_key(out, self.key);
        });
    }
}

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// The claim waits in a queue, or until its fence is durable.
    Waiting,
    /// The claim is granted.
    Held,
}

/// The state of a live claim. For a claim that has ended the response is the error `not_found`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusAnswer<'a> {
    /// State of the claim.
    pub state: LockState,
    /// Whether the lock is shared with other readers.
    pub shared: bool,
    /// Whether the hold lasts as long as the session.
    pub session_lease: bool,
    /// Fence of the grant; 0 while the claim waits.
    pub fence: u64,
    /// Remaining lease of a hold, or remaining wait of a waiter, at `stamp_ms` in milliseconds. `u32::MAX` means
    /// without end.
    pub remaining_ms: u32,
    /// Time since the claim was granted or began to wait, in milliseconds.
    pub age_ms: u64,
    /// Time when the server determined the content of this message, in milliseconds of its boot-time clock.
    pub stamp_ms: u64,
    /// Priority that the acquire requested.
    pub priority: u32,
    /// Time from the acquire to the grant, in milliseconds. 0 while the claim waits, and if the server was restarted
    /// after the grant.
    pub waited_ms: u64,
    /// Key of the claim or name of its pool. Of a set of paths, the first that no other path of it covers, cut to whole
    /// segments that fit into a key.
    pub key: &'a [u8],
}

impl<'a> StatusAnswer<'a> {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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

    /// Appends the response as a frame.
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
