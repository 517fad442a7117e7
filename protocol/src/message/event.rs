//! What the server tells unasked.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::LockId;
use crate::limits::{OWNER_LEN_MAX, REASON_LEN_MAX};
use crate::message::opcode;

/// Something happened to a claim, to the session of this connection, or to a key that it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
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
        /// What the operator wrote; empty where no operator did it.
        message: &'a [u8],
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
    /// Somebody holds the key that the request with this number watches.
    KeyHeld {
        /// The fence of that grant.
        fence: u64,
        /// Shared with other readers.
        shared: bool,
        /// For whom.
        owner: &'a [u8],
    },
    /// Nobody holds the key any more that the request with this number watches.
    KeyFreed {
        /// The newest fence of the key.
        fence: u64,
    },
    /// The connection did not read, so events of the watch with this number were dropped.
    Overrun,
    /// A repetition of its request id took up the hold that the acquire with this number was granted: this connection
    /// hears no more of it under that number. Sent only where HELLO asked for it.
    TakenUp {
        /// The hold.
        id: LockId,
    },
    /// The client has sent nothing for a while; the server expects a [`Pong`](crate::Pong). Sent only to a client with the
    /// capability `PING`.
    Ping,
}

/// Why a hold was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeReason {
    /// Another connection that knew the id released it.
    ReleasedElsewhere,
    /// Its connection was lost and the time to come back ran out.
    ConnectionLost,
    /// An operator released it.
    Forced,
    /// A reason that this version does not know.
    Other(u8),
}

impl RevokeReason {
    /// The number on the wire.
    pub fn number(self) -> u8 {
        match self {
            Self::ReleasedElsewhere => 1,
            Self::ConnectionLost => 2,
            Self::Forced => 3,
            Self::Other(number) => number,
        }
    }

    /// The reason with this number.
    pub fn from_number(number: u8) -> Self {
        match number {
            1 => Self::ReleasedElsewhere,
            2 => Self::ConnectionLost,
            3 => Self::Forced,
            other => Self::Other(other),
        }
    }
}

impl<'a> Event<'a> {
    /// The event in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
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
                message: cursor.string("message", REASON_LEN_MAX)?,
            },
            opcode::SESSION_EXPIRED => Self::SessionExpired,
            opcode::LEASE_MOVED => Self::LeaseMoved {
                id: cursor.id("id", LockId::from_bytes)?,
                remaining_ms: cursor.u32("remaining_ms")?,
                stamp_ms: cursor.u64("stamp_ms")?,
            },
            opcode::KEY_HELD => Self::KeyHeld {
                fence: cursor.u64("fence")?,
                shared: cursor.bool("shared")?,
                owner: cursor.string("owner", OWNER_LEN_MAX)?,
            },
            opcode::KEY_FREED => Self::KeyFreed { fence: cursor.u64("fence")? },
            opcode::OVERRUN => Self::Overrun,
            opcode::TAKEN_UP => Self::TakenUp { id: cursor.id("id", LockId::from_bytes)? },
            opcode::PING => Self::Ping,
            opcode => return Err(DecodeError::UnknownOpcode { opcode }),
        };
        cursor.finish()?;
        Ok(event)
    }

    /// Appends the event as a frame. `number` is that of the acquire for `Queued` and `TakenUp`, that of the watch for
    /// `KeyHeld`, `KeyFreed` and `Overrun`, and 0 for the others.
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
            Self::Revoked { id, reason, message } => put_frame(out, opcode::REVOKED, 0, number, |out| {
                out.extend_from_slice(&id.to_bytes());
                out.push(reason.number());
                put_string(out, message);
            }),
            Self::SessionExpired => put_frame(out, opcode::SESSION_EXPIRED, 0, number, |_| {}),
            Self::LeaseMoved { id, remaining_ms, stamp_ms } => {
                put_frame(out, opcode::LEASE_MOVED, 0, number, |out| {
                    out.extend_from_slice(&id.to_bytes());
                    out.extend_from_slice(&remaining_ms.to_le_bytes());
                    out.extend_from_slice(&stamp_ms.to_le_bytes());
                });
            }
            Self::KeyHeld { fence, shared, owner } => put_frame(out, opcode::KEY_HELD, 0, number, |out| {
                out.extend_from_slice(&fence.to_le_bytes());
                out.push(u8::from(*shared));
                put_string(out, owner);
            }),
            Self::KeyFreed { fence } => {
                put_frame(out, opcode::KEY_FREED, 0, number, |out| {
                    out.extend_from_slice(&fence.to_le_bytes());
                });
            }
            Self::Overrun => put_frame(out, opcode::OVERRUN, 0, number, |_| {}),
            Self::TakenUp { id } => {
                put_frame(out, opcode::TAKEN_UP, 0, number, |out| out.extend_from_slice(&id.to_bytes()));
            }
            Self::Ping => put_frame(out, opcode::PING, 0, number, |_| {}),
        }
    }
}
