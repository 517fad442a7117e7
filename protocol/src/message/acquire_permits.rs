//! The acquire of permits from a pool.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, put_frame};
use crate::limits::KEY_LEN_MAX;
use crate::message::acquire_terms::{AcquireOptions, AcquireTerms, flag, with_terms};
use crate::message::opcode;
use crate::message::pool::PoolOrder;

/// Flag: accept an existing pool with any capacity and any order.
pub const ANY_CAPACITY: u16 = 1 << 15;
/// All flags: those of `ACQUIRE` without `SHARED` and `PRIORITY`, plus `ANY_CAPACITY`.
pub const FLAGS: u16 = flag::ALL & !(flag::SHARED | flag::PRIORITY) | ANY_CAPACITY;
/// Offset of the length of the name in the frame, in bytes. The name follows it.
pub const NAME_OFFSET: usize = HEADER_LEN + 33;

/// Requests one hold on permits of a pool. The response is `GRANTED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AcquirePermits<'a> {
    /// Expected capacity of the pool, and the capacity of a new pool; at least 1. With `any_capacity` the capacity of
    /// an existing pool is not compared with it, and 0 means that only an existing pool is accepted.
    pub capacity: u64,
    /// Number of permits to take, at least 1 and at most the capacity.
    pub permits: u64,
    /// Expected order in which the pool serves its waiters, and the order of a new pool. With `any_capacity` the order
    /// of an existing pool is not compared with it.
    pub order: PoolOrder,
    /// Timestamp that orders the claim among the waiters of a pool with timestamp order, in microseconds since 1970. 0
    /// stands for the server's current time. The server moves a timestamp that differs from its clock by more than an
    /// hour to that distance.
    pub timestamp_us: u64,
    /// Name of the pool, 1 to 1024 bytes long.
    pub name: &'a [u8],
    /// Whether an existing pool with any capacity and any order is acceptable.
    pub any_capacity: bool,
    /// Terms of the acquire.
    pub terms: AcquireTerms<'a>,
}

with_terms!(AcquirePermits);

impl<'a> AcquirePermits<'a> {
    /// Parses the acquire from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(FLAGS)?;
        let any_capacity = flags & ANY_CAPACITY != 0;
        let mut cursor = Cursor::new(frame);
        let lengths = AcquireTerms::decode_lengths(&mut cursor)?;
        let acquire = Self {
            capacity: if any_capacity { cursor.u64("capacity")? } else { cursor.positive_u64("capacity")? },
            permits: cursor.positive_u64("permits")?,
            order: PoolOrder::decode(&mut cursor, "order")?,
            timestamp_us: cursor.u64("timestamp_us")?,
            name: cursor.non_empty_string("name", KEY_LEN_MAX)?,
            any_capacity,
            terms: AcquireTerms::new(flags, lengths, AcquireOptions::decode(flags, &mut cursor)?),
        };
        cursor.finish()?;
        Ok(acquire)
    }

    /// Appends the acquire as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let terms = self.terms.without_priority();
        let flags = terms.flags() | if self.any_capacity { ANY_CAPACITY } else { 0 };
        put_frame(out, opcode::ACQUIRE_PERMITS, flags, number, |out| {
            terms.encode_lengths(out);
            out.extend_from_slice(&self.capacity.to_le_bytes());
            out.extend_from_slice(&self.permits.to_le_bytes());
            out.push(self.order.number());
            out.extend_from_slice(&self.timestamp_us.to_le_bytes());
            put_string(out, self.name);
            terms.options.encode(out);
        });
    }
}
