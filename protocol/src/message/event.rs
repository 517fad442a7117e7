//! What the server tells unasked.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::LockId;
use crate::message::opcode;

/// Something happened to a claim or to the session of this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The acquire with the number of this frame waits. Sent only where the acquire asked for it.
    Queued {
        /// The id that the claim will keep when it is granted.
        id: LockId,
        /// How many waiters stood before it.
        position: u32,
        /// Its place in the order of arrival of its shard; waiters of equal priority are served in this order.
        ticket: u64,
    },
    /// The lease of a hold ended.
    Expired {
        /// The hold.
        id: LockId,
    },
    /// A hold was taken away.
    Revoked {
        /// The hold.
        id: LockId,
        /// By what.
        reason: RevokeReason,
    },
    /// The session ended, and with it everything that hung on it.
    SessionExpired,
    /// Another connection that knew the id moved the end of the lease.
    LeaseMoved {
        /// The hold.
        id: LockId,
        /// What was left of the lease at `stamp_ms`.
        remaining_ms: u32,
        /// The server's boot-time clock when this was decided.
        stamp_ms: u64,
    },
}

/// Why a hold was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeReason {
    /// Another connection that knew the id released it.
    ReleasedElsewhere,
    /// Its connection was lost and the time to come back ran out.
    ConnectionLost,
    /// A reason that this version does not know.
    Other(u8),
}

impl RevokeReason {
    /// The number on the wire.
    pub fn number(self) -> u8 {
        match self {
            Self::ReleasedElsewhere => 1,
            Self::ConnectionLost => 2,
            Self::Other(number) => number,
        }
    }

    /// The reason with this number.
    pub fn from_number(number: u8) -> Self {
        match number {
            1 => Self::ReleasedElsewhere,
            2 => Self::ConnectionLost,
            other => Self::Other(other),
        }
    }
}

impl Event {
    /// The event in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let event = match frame.opcode() {
            opcode::QUEUED => Self::Queued {
                id: cursor.id("id", LockId::from_bytes)?,
                position: cursor.u32("position")?,
                ticket: cursor.u64("ticket")?,
            },
            opcode::EXPIRED => Self::Expired { id: cursor.id("id", LockId::from_bytes)? },
            opcode::REVOKED => Self::Revoked {
                id: cursor.id("id", LockId::from_bytes)?,
                reason: RevokeReason::from_number(cursor.u8("reason")?),
            },
            opcode::SESSION_EXPIRED => Self::SessionExpired,
            opcode::LEASE_MOVED => Self::LeaseMoved {
                id: cursor.id("id", LockId::from_bytes)?,
                remaining_ms: cursor.u32("remaining_ms")?,
                stamp_ms: cursor.u64("stamp_ms")?,
            },
            opcode => return Err(DecodeError::UnknownOpcode { opcode }),
        };
        cursor.finish()?;
        Ok(event)
    }

    /// Appends the event as a frame. `number` is that of the acquire for `Queued`, and 0 for the others.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Queued { id, position, ticket } => put_frame(out, opcode::QUEUED, 0, number, |out| {
                out.extend_from_slice(&id.to_bytes());
                out.extend_from_slice(&position.to_le_bytes());
                out.extend_from_slice(&ticket.to_le_bytes());
            }),
            Self::Expired { id } => {
                put_frame(out, opcode::EXPIRED, 0, number, |out| out.extend_from_slice(&id.to_bytes()));
            }
            Self::Revoked { id, reason } => put_frame(out, opcode::REVOKED, 0, number, |out| {
                out.extend_from_slice(&id.to_bytes());
                out.push(reason.number());
            }),
            Self::SessionExpired => put_frame(out, opcode::SESSION_EXPIRED, 0, number, |_| {}),
            Self::LeaseMoved { id, remaining_ms, stamp_ms } => {
                put_frame(out, opcode::LEASE_MOVED, 0, number, |out| {
                    out.extend_from_slice(&id.to_bytes());
                    out.extend_from_slice(&remaining_ms.to_le_bytes());
                    out.extend_from_slice(&stamp_ms.to_le_bytes());
                });
            }
        }
    }
}
