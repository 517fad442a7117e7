//! Messages that the server sends without a request.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::LockId;
use crate::limits::{OWNER_LEN_MAX, REASON_LEN_MAX};
use crate::message::opcode;

/// An event of a claim, of the connection, of its session, or of a watched key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The acquire with the number of this frame is waiting. The server sends this only if the acquire requested it.
    Queued {
        /// Id of the claim. The hold keeps it, except that the holds of an `ACQUIRE_KEYS` get ids of their own.
        id: LockId,
        /// Number of waiters in front of the claim when the server decided this event. For a set of paths, all other
        /// waiting sets count. The server may stop counting at 1024.
        position: u32,
        /// Position in the order of arrival in the shard. Waiters of one key with equal priority are served in this
        /// order.
        ticket: u64,
    },
    /// The lease of a hold expired.
    Expired {
        /// Id of the hold.
        id: LockId,
    },
    /// A hold was revoked.
    Revoked {
        /// Id of the hold.
        id: LockId,
        /// Reason of the revocation.
        reason: RevokeReason,
        /// Message from the operator. It is empty if the operator gave none, or if no operator revoked the hold.
        message: &'a [u8],
    },
    /// The session ended, with all its waiters and all holds on its lease. Its other holds last until their leases
    /// expire, or for the `release_after_ms` of their acquires if that is shorter.
    SessionExpired,
    /// Another connection that knew the id of a hold changed the end of its lease; the new end may be earlier. Also
    /// sent if it changed the future lease of a claim that waits for permits.
    LeaseMoved {
        /// Id of the hold.
        id: LockId,
        /// Remaining lease at `stamp_ms`, in milliseconds.
        remaining_ms: u32,
        /// Time when the server determined the content of this message, in milliseconds of its boot-time clock.
        stamp_ms: u64,
    },
    /// The watched key was granted. The frame has the number of the watch.
    KeyHeld {
        /// Fence of the new hold.
        fence: u64,
        /// Whether the lock is shared with other readers.
        shared: bool,
        /// Owner of the hold.
        owner: &'a [u8],
    },
    /// The watched key is free. The frame has the number of the watch.
    KeyFreed {
        /// Newest fence of the key.
        fence: u64,
    },
    /// The server dropped events of a watch, because the client did not read them in time. The frame has the number of
    /// the watch, which continues.
    Overrun,
    /// An acquire with the same request id took over the hold that the acquire with the number of this frame was
    /// granted. This connection gets no more events for that number. The server sends this only if `HELLO` requested
    /// it.
    TakenUp {
        /// Id of the hold.
        id: LockId,
    },
    /// The client has sent nothing for a while; the server expects a [`Pong`](crate::Pong). The server sends this only
    /// to clients with the capability `PING`.
    Ping,
}

/// Reason for which a hold was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeReason {
    /// Another connection that knew the id released the hold.
    ReleasedElsewhere,
    /// The hold ended after its connection was lost: `release_after_ms` (of its acquire) after the loss.
    ConnectionLost,
    /// An operator released the hold.
    Forced,
    /// A reason that this version does not know, with its number.
    Other(u8),
}

impl RevokeReason {
    /// Returns the number on the wire.
    pub fn number(self) -> u8 {
        match self {
            Self::ReleasedElsewhere => 1,
            Self::ConnectionLost => 2,
            Self::Forced => 3,
            Self::Other(number) => number,
        }
    }

    /// Returns the reason with this number.
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
    /// Parses the event from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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

    /// Appends the event as a frame. `number` is the acquire's number for `Queued` and `TakenUp`. It is the watch's
    /// number for `KeyHeld`, `KeyFreed` and `Overrun`, and 0 for all others.
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
