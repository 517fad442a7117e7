//! The state of a pool, and setting its capacity.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, put_frame};
use crate::id::LockId;
use crate::limits::{DESCRIBE_LISTED_MAX, KEY_LEN_MAX, OWNER_LEN_MAX, REASON_LEN_MAX};
use crate::message::opcode;

/// Opcode of the response to `DESCRIBE_POOL`.
pub const POOL_DESCRIBED: u8 = opcode::DESCRIBE_POOL | opcode::ANSWER;
/// Opcode of the response to `SET_CAPACITY`.
pub const CAPACITY_SET: u8 = opcode::SET_CAPACITY | opcode::ANSWER;
/// Offset of the length of the name in `DESCRIBE_POOL`, in bytes. The name follows it.
pub const DESCRIBE_NAME_OFFSET: usize = HEADER_LEN;
/// Offset of the length of the name in `SET_CAPACITY`, in bytes. The name follows it.
pub const SET_NAME_OFFSET: usize = HEADER_LEN + 9;

/// Flag of `SET_CAPACITY`: adds `reason`.
pub const SET_REASON: u16 = 1 << 0;

/// Order in which a pool serves its waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PoolOrder {
    /// Order of arrival.
    #[default]
    Arrival,
    /// Order of the timestamps in the acquires; for equal timestamps, order of arrival.
    Timestamp,
}

impl PoolOrder {
    /// Returns the number on the wire.
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

/// Requests the state of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DescribePool<'a> {
    /// Name of the pool, 1 to 1024 bytes long.
    pub name: &'a [u8],
}

impl<'a> DescribePool<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let name = cursor.non_empty_string("name", KEY_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { name })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::DESCRIBE_POOL, 0, number, |out| put_string(out, self.name));
    }
}

/// State of one pool. If the pool does not exist, `fence` and `stamp_ms` are still set. All other fields are then zero,
/// false or empty.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolDescribed<'a> {
    /// Number of permits of the pool; 0 if the pool does not exist.
    pub capacity: u64,
    /// Number of permits that are held. It may exceed the capacity after the capacity was lowered.
    pub held: u64,
    /// Newest fence of the pool; every later grant has a higher one. For a pool without a counter, this is the floor of
    /// its shard: the next fence of the pool will be above it.
    pub fence: u64,
    /// Server's boot-time clock when this state was read, in milliseconds.
    pub stamp_ms: u64,
    /// Order in which the waiters are served.
    pub order: PoolOrder,
    /// Whether `SET_CAPACITY` set the capacity, rather than the first acquire.
    pub is_set: bool,
    /// Number of holders.
    pub holder_count: u32,
    /// Number of waiters.
    pub waiter_count: u32,
    /// Up to `DESCRIBE_LISTED_MAX` of the holders, roughly in the order of their grants.
    pub holders: Vec<PermitHolder<'a>>,
    /// The first waiters in the order in which they are served, at most `DESCRIBE_LISTED_MAX`.
    pub waiters: Vec<PermitWaiter<'a>>,
}

/// One hold on permits of a pool. `id` is zero and `owner` is empty if the client has no right to see these two fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PermitHolder<'a> {
    /// Id of the hold.
    pub id: LockId,
    /// Number of permits of the hold.
    pub permits: u64,
    /// Fence of the grant.
    pub fence: u64,
    /// Time since the grant, in milliseconds.
    pub age_ms: u64,
    /// Remaining lease, in milliseconds; `u32::MAX` if the hold has no lease.
    pub remaining_ms: u32,
    /// Owner of the claim.
    pub owner: &'a [u8],
}

/// One claim that waits for permits of a pool. `id` is zero and `owner` is empty if the client has no right to see
/// these two fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PermitWaiter<'a> {
    /// Id of the claim.
    pub id: LockId,
    /// Number of permits of the claim.
    pub permits: u64,
    /// Position in the order of arrival in the shard.
    pub ticket: u64,
    /// Time since the claim began to wait, in milliseconds.
    pub age_ms: u64,
    /// Remaining wait, in milliseconds; `u32::MAX` if the wait has no limit.
    pub remaining_ms: u32,
    /// Owner of the claim.
    pub owner: &'a [u8],
}

impl<'a> PoolDescribed<'a> {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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

    /// Appends the response as a frame.
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

/// Sets the capacity of a pool, or removes an unused pool. Holders keep their permits. Waiters that request more
/// permits than the new capacity are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SetCapacity<'a> {
    /// New capacity. 0 removes the pool, which must have no holders and no waiters.
    pub capacity: u64,
    /// Order in which the waiters are served; no effect if the capacity is 0. An existing pool must have this order
    /// already.
    pub order: PoolOrder,
    /// Name of the pool, 1 to 1024 bytes long.
    pub name: &'a [u8],
    /// Reason for the audit log; may be empty.
    pub reason: &'a [u8],
}

impl<'a> SetCapacity<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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

/// Response to `SET_CAPACITY`: the pool has the requested capacity, or does not exist if the requested capacity is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CapacitySet {
    /// Previous capacity; 0 if the pool did not exist.
    pub previous: u64,
}

impl CapacitySet {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let previous = cursor.u64("previous")?;
        cursor.finish()?;
        Ok(Self { previous })
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, CAPACITY_SET, 0, number, |out| out.extend_from_slice(&self.previous.to_le_bytes()));
    }
}
