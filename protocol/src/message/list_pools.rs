//! The pools of a namespace, page by page.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::limits::{KEY_LEN_MAX, LIST_PAGE_MAX};
use crate::message::opcode;
use crate::message::pool::PoolOrder;

/// Opcode of the response to `LIST_POOLS`.
pub const POOLS_LISTED: u8 = opcode::LIST_POOLS | opcode::ANSWER;

/// Requests one page of the pools of the namespace that the client may list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ListPools<'a> {
    /// Position of the page: 0 for the first page, then `next` of the previous page.
    pub cursor: u64,
    /// Maximum number of pools in the page; 0 is as many as fit.
    pub count_max: u16,
    /// Lists only pools whose names begin with these bytes. At most 1024 bytes.
    pub prefix: &'a [u8],
}

impl<'a> ListPools<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let list = Self {
            cursor: cursor.u64("cursor")?,
            count_max: cursor.u16("count_max")?,
            prefix: cursor.string("prefix", KEY_LEN_MAX)?,
        };
        cursor.finish()?;
        Ok(list)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::LIST_POOLS, 0, number, |out| {
            out.extend_from_slice(&self.cursor.to_le_bytes());
            out.extend_from_slice(&self.count_max.to_le_bytes());
            put_string(out, self.prefix);
        });
    }
}

/// One pool with its capacity and its counts, without lists of its holders and waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ListedPool<'a> {
    /// Number of permits of the pool.
    pub capacity: u64,
    /// Number of permits that are held. It may exceed the capacity after the capacity was lowered.
    pub held: u64,
    /// Newest fence of the pool.
    pub fence: u64,
    /// Order in which the waiters are served.
    pub order: PoolOrder,
    /// Whether `SET_CAPACITY` set the capacity. Such a pool continues to exist without holders and waiters.
    pub is_set: bool,
    /// Number of holders.
    pub holder_count: u32,
    /// Number of waiters.
    pub waiter_count: u32,
    /// Name of the pool.
    pub name: &'a [u8],
}

/// One page of pools. A page may be empty although other pages follow. A pool that exists from the first page to the
/// last is in exactly one page. The order is unspecified.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolsListed<'a> {
    /// Cursor of the next page; 0 after the last page.
    pub next: u64,
    /// The pools of this page.
    pub pools: Vec<ListedPool<'a>>,
}

impl<'a> PoolsListed<'a> {
    /// Parses the page from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let next = cursor.u64("next")?;
        let count = cursor.count("count", usize::from(LIST_PAGE_MAX))?;
        let pools = (0..count).map(|_| ListedPool::decode(&mut cursor)).collect::<Result<_, _>>()?;
        cursor.finish()?;
        Ok(Self { next, pools })
    }

    /// Appends the page as a frame. At most `LIST_PAGE_MAX` pools are sent and further ones are lost, so the caller
    /// must not add more.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, POOLS_LISTED, 0, number, |out| {
            let pools = &self.pools[..self.pools.len().min(usize::from(LIST_PAGE_MAX))];
            out.extend_from_slice(&self.next.to_le_bytes());
            out.extend_from_slice(&(pools.len() as u16).to_le_bytes());
            for pool in pools {
                pool.encode(out);
            }
        });
    }
}

impl<'a> ListedPool<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            capacity: cursor.u64("pool.capacity")?,
            held: cursor.u64("pool.held")?,
            fence: cursor.u64("pool.fence")?,
            order: PoolOrder::decode(cursor, "pool.order")?,
            is_set: cursor.bool("pool.is_set")?,
            holder_count: cursor.u32("pool.holder_count")?,
            waiter_count: cursor.u32("pool.waiter_count")?,
            name: cursor.string("pool.name", KEY_LEN_MAX)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for value in [self.capacity, self.held, self.fence] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.push(self.order.number());
        out.push(u8::from(self.is_set));
        out.extend_from_slice(&self.holder_count.to_le_bytes());
        out.extend_from_slice(&self.waiter_count.to_le_bytes());
        put_string(out, self.name);
    }
}
