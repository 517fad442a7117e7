//! Who holds a key and how many wait.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, put_frame};
use crate::id::LockId;
use crate::limits::{INSPECT_HOLDERS_MAX, OWNER_LEN_MAX, PATH_KEY_LEN_MAX};
use crate::message::opcode;

/// Opcode of the answer.
pub const INSPECTED: u8 = opcode::INSPECT | opcode::ANSWER;
/// Where `key_length` stands in the frame; the key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN;

/// Asks about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Inspect<'a> {
    /// A key, or a path key in a tree namespace.
    pub key: &'a [u8],
}

impl<'a> Inspect<'a> {
    /// The question in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let key = cursor.string("key", PATH_KEY_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { key })
    }

    /// Appends the question as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::INSPECT, 0, number, |out| put_string(out, self.key));
    }
}

/// One hold of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Holder<'a> {
    /// Id of the hold.
    pub id: LockId,
    /// Shared with other readers.
    pub shared: bool,
    /// The fence it was granted.
    pub fence: u64,
    /// How long it has been held.
    pub held_ms: u64,
    /// What is left of its lease.
    pub remaining_ms: u32,
    /// For whom.
    pub owner: &'a [u8],
}

/// The state of one key. A key nobody ever took has zeros everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Inspected<'a> {
    /// The newest fence of the key.
    pub fence: u64,
    /// The server's boot-time clock when this was read.
    pub stamp_ms: u64,
    /// How many hold it.
    pub holder_count: u32,
    /// How many wait.
    pub waiter_count: u32,
    /// The first of them that hold it, at most `INSPECT_HOLDERS_MAX`.
    pub holders: Vec<Holder<'a>>,
    /// The first of them that wait, in the order in which they are served, at most as many.
    pub waiters: Vec<Waiter<'a>>,
}

/// One claim that waits for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Waiter<'a> {
    /// Id of the claim.
    pub id: LockId,
    /// It would share the key with other readers.
    pub shared: bool,
    /// Its place in the order of arrival of its shard.
    pub ticket: u64,
    /// How long it has waited.
    pub age_ms: u64,
    /// What is left of its wait; `u32::MAX` is without end.
    pub remaining_ms: u32,
    /// The priority it was asked for with.
    pub priority: u32,
    /// For whom.
    pub owner: &'a [u8],
}

impl<'a> Inspected<'a> {
    /// The answer in this frame.
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

    /// Appends the answer as a frame.
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
