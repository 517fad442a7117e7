//! Look at a pool, and set its capacity.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, put_frame};
use crate::id::LockId;
use crate::limits::{DESCRIBE_LISTED_MAX, KEY_LEN_MAX, OWNER_LEN_MAX, REASON_LEN_MAX};
use crate::message::opcode;

/// Opcode of the answer to `DESCRIBE_POOL`.
pub const POOL_DESCRIBED: u8 = opcode::DESCRIBE_POOL | opcode::ANSWER;
/// Opcode of the answer to `SET_CAPACITY`.
pub const CAPACITY_SET: u8 = opcode::SET_CAPACITY | opcode::ANSWER;
/// Where the length of the name stands in `DESCRIBE_POOL`; the name follows it.
pub const DESCRIBE_NAME_OFFSET: usize = HEADER_LEN;
/// Where the length of the name stands in `SET_CAPACITY`; the name follows it.
pub const SET_NAME_OFFSET: usize = HEADER_LEN + 9;

/// Flag of `SET_CAPACITY`: brings `reason`.
pub const SET_REASON: u16 = 1 << 0;

/// In which order those who wait for a pool are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PoolOrder {
    /// As they arrived.
    #[default]
    Arrival,
    /// By the timestamps that they brought.
    Timestamp,
}

impl PoolOrder {
    /// The number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Self, DecodeError> {
        match cursor.u8(field)? {
            0 => Ok(Self::Arrival),
            1 => Ok(Self::Timestamp),
            other => Err(DecodeError::BadValue { field, value: u64::from(other) }),
        }
    }
}

/// Asks about one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DescribePool<'a> {
    /// 1 to 1024 bytes.
    pub name: &'a [u8],
}

impl<'a> DescribePool<'a> {
    /// The question in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let name = cursor.non_empty_string("name", KEY_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { name })
    }

    /// Appends the question as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::DESCRIBE_POOL, 0, number, |out| put_string(out, self.name));
    }
}

/// The state of one pool. One that nobody ever used has zeros everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolDescribed<'a> {
    /// How many permits it has; 0 if there is no such pool.
    pub capacity: u64,
    /// How many of them are held; more than the capacity after it was made smaller.
    pub held: u64,
    /// The newest fence of the pool.
    pub fence: u64,
    /// The server's boot-time clock when this was read.
    pub stamp_ms: u64,
    /// In which order those who wait are served.
    pub order: PoolOrder,
    /// The capacity was set by `SET_CAPACITY`, not by the first who came.
    pub is_set: bool,
    /// How many hold permits.
    pub holder_count: u32,
    /// How many wait.
    pub waiter_count: u32,
    /// The first of the holders, at most `DESCRIBE_LISTED_MAX`.
    pub holders: Vec<PermitHolder<'a>>,
    /// The first of the waiters, at most `DESCRIBE_LISTED_MAX`.
    pub waiters: Vec<PermitWaiter<'a>>,
}

/// One hold of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PermitHolder<'a> {
    /// Id of the hold.
    pub id: LockId,
    /// How many permits.
    pub permits: u64,
    /// The fence it was granted.
    pub fence: u64,
    /// How long it has been held.
    pub age_ms: u64,
    /// What is left of its lease.
    pub remaining_ms: u32,
    /// For whom.
    pub owner: &'a [u8],
}

/// One who waits for a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PermitWaiter<'a> {
    /// Id of the claim.
    pub id: LockId,
    /// How many permits.
    pub permits: u64,
    /// Its place in the order of arrival.
    pub ticket: u64,
    /// How long it has waited.
    pub age_ms: u64,
    /// What is left of its wait; `u32::MAX` is without end.
    pub remaining_ms: u32,
    /// For whom.
    pub owner: &'a [u8],
}

impl<'a> PoolDescribed<'a> {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let capacity = cursor.u64("capacity")?;
        let held = cursor.u64("held")?;
        let fence = cursor.u64("fence")?;
        let stamp_ms = cursor.u64("stamp_ms")?;
        let order = PoolOrder::decode(&mut cursor, "order")?;
        let is_set = cursor.bool("is_set")?;
        let holder_count = cursor.u32("holder_count")?;
        let waiter_count = cursor.u32("waiter_count")?;
        let listed = cursor.count("listed_holders", DESCRIBE_LISTED_MAX)?;
        let holders = (0..listed).map(|_| PermitHolder::decode(&mut cursor)).collect::<Result<_, _>>()?;
        let listed = cursor.count("listed_waiters", DESCRIBE_LISTED_MAX)?;
        let waiters = (0..listed).map(|_| PermitWaiter::decode(&mut cursor)).collect::<Result<_, _>>()?;
        cursor.finish()?;
        Ok(Self {
            capacity,
            held,
            fence,
            stamp_ms,
            order,
            is_set,
            holder_count,
            waiter_count,
            holders,
            waiters,
        })
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, POOL_DESCRIBED, 0, number, |out| {
            for value in [self.capacity, self.held, self.fence, self.stamp_ms] {
                out.extend_from_slice(&value.to_le_bytes());
            }
            out.push(self.order.number());
            out.push(u8::from(self.is_set));
            out.extend_from_slice(&self.holder_count.to_le_bytes());
            out.extend_from_slice(&self.waiter_count.to_le_bytes());
            let holders = &self.holders[..self.holders.len().min(DESCRIBE_LISTED_MAX)];
            out.extend_from_slice(&(holders.len() as u16).to_le_bytes());
            for holder in holders {
                holder.encode(out);
            }
            let waiters = &self.waiters[..self.waiters.len().min(DESCRIBE_LISTED_MAX)];
            out.extend_from_slice(&(waiters.len() as u16).to_le_bytes());
            for waiter in waiters {
                waiter.encode(out);
            }
        });
    }
}

impl<'a> PermitHolder<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: cursor.id("holder.id", LockId::from_bytes)?,
            permits: cursor.u64("holder.permits")?,
            fence: cursor.u64("holder.fence")?,
            age_ms: cursor.u64("holder.age_ms")?,
            remaining_ms: cursor.u32("holder.remaining_ms")?,
            owner: cursor.string("holder.owner", OWNER_LEN_MAX)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_bytes());
        for value in [self.permits, self.fence, self.age_ms] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.remaining_ms.to_le_bytes());
        put_string(out, self.owner);
    }
}

impl<'a> PermitWaiter<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: cursor.id("waiter.id", LockId::from_bytes)?,
            permits: cursor.u64("waiter.permits")?,
            ticket: cursor.u64("waiter.ticket")?,
            age_ms: cursor.u64("waiter.age_ms")?,
            remaining_ms: cursor.u32("waiter.remaining_ms")?,
            owner: cursor.string("waiter.owner", OWNER_LEN_MAX)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_bytes());
        for value in [self.permits, self.ticket, self.age_ms] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.remaining_ms.to_le_bytes());
        put_string(out, self.owner);
    }
}

/// Sets the capacity of a pool and the order of those who wait for it, whoever holds permits of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SetCapacity<'a> {
    /// From 1 on.
    pub capacity: u64,
    /// In which order those who wait are served.
    pub order: PoolOrder,
    /// 1 to 1024 bytes.
    pub name: &'a [u8],
    /// Why, for the audit log; empty without a reason.
    pub reason: &'a [u8],
}

impl<'a> SetCapacity<'a> {
    /// The request in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(SET_REASON)?;
        let mut cursor = Cursor::new(frame);
        let set = Self {
            capacity: cursor.u64("capacity")?,
            order: PoolOrder::decode(&mut cursor, "order")?,
            name: cursor.non_empty_string("name", KEY_LEN_MAX)?,
            reason: if flags & SET_REASON != 0 { cursor.string("reason", REASON_LEN_MAX)? } else { b"" },
        };
        cursor.finish()?;
        Ok(set)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.reason.is_empty() { 0 } else { SET_REASON };
        put_frame(out, opcode::SET_CAPACITY, flags, number, |out| {
            out.extend_from_slice(&self.capacity.to_le_bytes());
            out.push(self.order.number());
            put_string(out, self.name);
            if flags != 0 {
                put_string(out, self.reason);
            }
        });
    }
}

/// The pool has the capacity that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CapacitySet {
    /// What it had before; 0 if there was no such pool.
    pub previous: u64,
}

impl CapacitySet {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let previous = cursor.u64("previous")?;
        cursor.finish()?;
        Ok(Self { previous })
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, CAPACITY_SET, 0, number, |out| out.extend_from_slice(&self.previous.to_le_bytes()));
    }
}
