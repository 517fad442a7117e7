//! The holders and waiters of a key.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, put_frame};
use crate::id::LockId;
use crate::limits::{INSPECT_HOLDERS_MAX, OWNER_LEN_MAX, PATH_KEY_LEN_MAX};
use crate::message::opcode;

/// Opcode of the response to `INSPECT`.
pub const INSPECTED: u8 = opcode::INSPECT | opcode::ANSWER;
/// Offset of `key_length` in the frame, in bytes. The key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN;

/// Requests the state of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Inspect<'a> {
    /// Key, or path key in a tree namespace.
    pub key: &'a [u8],
}

impl<'a> Inspect<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let key = cursor.string("key", PATH_KEY_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { key })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::INSPECT, 0, number, |out| put_string(out, self.key));
    }
}

/// One hold on the key. If the client has no right to see them, `id` is zero and `owner` is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Holder<'a> {
    /// Id of the hold.
    pub id: LockId,
    /// Whether the lock is shared with other readers.
    pub shared: bool,
    /// Fence of the grant.
    pub fence: u64,
    /// Time since the grant, or since the last renewal of a registration, in milliseconds.
    pub held_ms: u64,
    /// Remaining lease, in milliseconds; `u32::MAX` if it has no end.
    pub remaining_ms: u32,
    /// Owner of the claim.
    pub owner: &'a [u8],
}

/// State of one key, or of all sets of paths that overlap one path. If very many paths overlap it, only the sets found
/// first are listed, and a set may count several times. For a key that the server does not know, `fence` and `stamp_ms`
/// are still set. All other fields are then zero or empty.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Inspected<'a> {
    /// Newest fence of the key, or of the tree namespace; every later grant has a higher one. The server does not keep
    /// a counter for every unused key. For a key without a counter, this is the floor of its shard: the next fence of
    /// the key will be above it.
    pub fence: u64,
    /// Server's boot-time clock when this state was read, in milliseconds.
    pub stamp_ms: u64,
    /// Number of holders. If too many paths overlap the path to visit all, number of held paths that overlap it.
    pub holder_count: u32,
    /// Number of waiters. If too many paths overlap the path to visit all, number of awaited paths that overlap it.
    pub waiter_count: u32,
    /// The first holders, at most `INSPECT_HOLDERS_MAX`.
    pub holders: Vec<Holder<'a>>,
    /// The first waiters in the order in which they are served, at most `INSPECT_HOLDERS_MAX`.
    pub waiters: Vec<Waiter<'a>>,
}

/// One claim that waits for the key. If the client has no right to see them, `id` is zero and `owner` is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Waiter<'a> {
    /// Id of the claim.
    pub id: LockId,
    /// Whether the claim would share the key with other readers.
    pub shared: bool,
    /// Position in the order of arrival in the shard. Waiters of equal priority are served in this order.
    pub ticket: u64,
    /// Time since the claim began to wait, in milliseconds.
    pub age_ms: u64,
    /// Remaining wait, in milliseconds; `u32::MAX` if the wait has no limit.
    pub remaining_ms: u32,
    /// Priority that the acquire requested.
    pub priority: u32,
    /// Owner of the claim.
    pub owner: &'a [u8],
}

impl<'a> Inspected<'a> {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let fence = cursor.u64("fence")?;
        let stamp_ms = cursor.u64("stamp_ms")?;
        let holder_count = cursor.u32("holder_count")?;
        let waiter_count = cursor.u32("waiter_count")?;
        let listed = cursor.count("listed_holders", INSPECT_HOLDERS_MAX)?;
        let holders = (0..listed).map(|_| Holder::decode(&mut cursor)).collect::<Result<_, _>>()?;
        let listed = cursor.count("listed_waiters", INSPECT_HOLDERS_MAX)?;
        let waiters = (0..listed).map(|_| Waiter::decode(&mut cursor)).collect::<Result<_, _>>()?;
        cursor.finish()?;
        Ok(Self { fence, stamp_ms, holder_count, waiter_count, holders, waiters })
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, INSPECTED, 0, number, |out| {
            out.extend_from_slice(&self.fence.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
            out.extend_from_slice(&self.holder_count.to_le_bytes());
            out.extend_from_slice(&self.waiter_count.to_le_bytes());
            let holders = &self.holders[..self.holders.len().min(INSPECT_HOLDERS_MAX)];
            out.extend_from_slice(&(holders.len() as u16).to_le_bytes());
            for holder in holders {
                holder.encode(out);
            }
            let waiters = &self.waiters[..self.waiters.len().min(INSPECT_HOLDERS_MAX)];
            out.extend_from_slice(&(waiters.len() as u16).to_le_bytes());
            for waiter in waiters {
                waiter.encode(out);
            }
        });
    }
}

impl<'a> Holder<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: cursor.id("holder.id", LockId::from_bytes)?,
            shared: cursor.bool("holder.shared")?,
            fence: cursor.u64("holder.fence")?,
            held_ms: cursor.u64("holder.held_ms")?,
            remaining_ms: cursor.u32("holder.remaining_ms")?,
            owner: cursor.string("holder.owner", OWNER_LEN_MAX)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_bytes());
        out.push(u8::from(self.shared));
        out.extend_from_slice(&self.fence.to_le_bytes());
        out.extend_from_slice(&self.held_ms.to_le_bytes());
        out.extend_from_slice(&self.remaining_ms.to_le_bytes());
        put_string(out, self.owner);
    }
}

impl<'a> Waiter<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: cursor.id("waiter.id", LockId::from_bytes)?,
            shared: cursor.bool("waiter.shared")?,
            ticket: cursor.u64("waiter.ticket")?,
            age_ms: cursor.u64("waiter.age_ms")?,
            remaining_ms: cursor.u32("waiter.remaining_ms")?,
            priority: cursor.u32("waiter.priority")?,
            owner: cursor.string("waiter.owner", OWNER_LEN_MAX)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_bytes());
        out.push(u8::from(self.shared));
        out.extend_from_slice(&self.ticket.to_le_bytes());
        out.extend_from_slice(&self.age_ms.to_le_bytes());
        out.extend_from_slice(&self.remaining_ms.to_le_bytes());
        out.extend_from_slice(&self.priority.to_le_bytes());
        put_string(out, self.owner);
    }
}
