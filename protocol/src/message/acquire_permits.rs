//! Acquire permits of a pool.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, put_frame};
use crate::limits::KEY_LEN_MAX;
use crate::message::acquire::{AcquireOptions, flag};
use crate::message::opcode;
use crate::message::pool::PoolOrder;

/// Flag: take the pool with whatever capacity it has.
pub const ANY_CAPACITY: u16 = 1 << 15;
/// All there are: those of `ACQUIRE` without `SHARED` and `PRIORITY`, and `ANY_CAPACITY`.
pub const FLAGS: u16 = flag::ALL & !(flag::SHARED | flag::PRIORITY) | ANY_CAPACITY;
/// Where the length of the name stands in the frame; the name follows it.
pub const NAME_OFFSET: usize = HEADER_LEN + 33;

/// Asks for one hold on some permits of a pool. Answered with `GRANTED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AcquirePermits<'a> {
    /// Length of the lease; 0 is the server's default.
    pub lease_ms: u32,
    /// How long to wait for the grant; 0 is a try, `WAIT_FOREVER_MS` waits until cancelled.
    pub wait_ms: u32,
    /// How many permits the pool has, from 1 on. 0 only with `any_capacity`: then nothing is said about it.
    pub capacity: u64,
    /// How many of them to take, from 1 on.
    pub permits: u64,
    /// In which order those who wait are served.
    pub order: PoolOrder,
    /// The place in a pool that serves by timestamp: microseconds since 1970. 0 is the server's now.
    pub timestamp_us: u64,
    /// 1 to 1024 bytes: the pool.
    pub name: &'a [u8],
    /// The lease is the session's.
    pub session_lease: bool,
    /// Send `QUEUED` when the claim has to wait.
    pub notify_queued: bool,
    /// Take the pool with whatever capacity it has.
    pub any_capacity: bool,
    /// What most claims leave out. There is no `priority`; one that is set is not sent.
    pub options: AcquireOptions<'a>,
}

impl<'a> AcquirePermits<'a> {
    /// The acquire in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(FLAGS)?;
        let any_capacity = flags & ANY_CAPACITY != 0;
        let mut cursor = Cursor::new(frame);
        let acquire = Self {
            lease_ms: cursor.u32("lease_ms")?,
            wait_ms: cursor.u32("wait_ms")?,
            capacity: if any_capacity { cursor.u64("capacity")? } else { cursor.positive_u64("capacity")? },
            permits: cursor.positive_u64("permits")?,
            order: PoolOrder::decode(&mut cursor, "order")?,
            timestamp_us: cursor.u64("timestamp_us")?,
            name: cursor.non_empty_string("name", KEY_LEN_MAX)?,
            session_lease: flags & flag::SESSION_LEASE != 0,
            notify_queued: flags & flag::NOTIFY_QUEUED != 0,
            any_capacity,
            options: AcquireOptions::decode(flags, &mut cursor)?,
        };
        cursor.finish()?;
        Ok(acquire)
    }

    /// Appends the acquire as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let options = AcquireOptions { priority: None, ..self.options };
        let flags = options.flags()
            | if self.session_lease { flag::SESSION_LEASE } else { 0 }
            | if self.notify_queued { flag::NOTIFY_QUEUED } else { 0 }
            | if self.any_capacity { ANY_CAPACITY } else { 0 };
        put_frame(out, opcode::ACQUIRE_PERMITS, flags, number, |out| {
            out.extend_from_slice(&self.lease_ms.to_le_bytes());
            out.extend_from_slice(&self.wait_ms.to_le_bytes());
            out.extend_from_slice(&self.capacity.to_le_bytes());
            out.extend_from_slice(&self.permits.to_le_bytes());
            out.push(self.order.number());
            out.extend_from_slice(&self.timestamp_us.to_le_bytes());
            put_string(out, self.name);
            options.encode(out);
        });
    }
}
