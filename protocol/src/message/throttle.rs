//! Take tokens of one bucket or of several.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, header, put_frame};
use crate::items::{Item, Items};
use crate::limits::{BUCKET_COUNT_MAX, KEY_LEN_MAX};
use crate::message::opcode;

/// Opcode of the answer to both.
pub const THROTTLED: u8 = opcode::THROTTLE | opcode::ANSWER;
/// Flag of both: give the tokens back instead of taking them.
pub const REFUND: u16 = 1 << 0;
/// Flag of the answer.
pub const ALLOWED: u16 = 1 << 0;
/// Where the length of the name stands in `THROTTLE`; the name follows it.
pub const NAME_OFFSET: usize = HEADER_LEN + 20;
/// `retry_after_ns` where waiting does not help.
pub const RETRY_NEVER_NS: u64 = u64::MAX;

/// One bucket, its rule, and what is asked of it. The rule comes with each request and is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bucket<'a> {
    /// How many tokens come back in one period, from 1 on.
    pub rate: u32,
    /// How many tokens it holds when it is full, from 1 on.
    pub burst: u32,
    /// How many tokens to take; 0 looks without taking.
    pub cost: u32,
    /// Length of the period, from 1 on.
    pub period_ns: u64,
    /// 1 to 1024 bytes.
    pub name: &'a [u8],
}

/// Asks one bucket for tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Throttle<'a> {
    /// The bucket.
    pub bucket: Bucket<'a>,
    /// Give the tokens back instead of taking them.
    pub refund: bool,
}

/// Asks several buckets for tokens: all give them, or none loses any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ThrottleAll<'a> {
    /// 1 to `BUCKET_COUNT_MAX` buckets.
    pub buckets: Items<'a, Bucket<'a>>,
    /// Give the tokens back instead of taking them.
    pub refund: bool,
}

/// What the bucket says, or the tightest of several: that with the longest `retry_after_ns`, then with the fewest
/// `remaining`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Throttled {
    /// The tokens were taken; always for a cost of 0, and for a refund.
    pub allowed: bool,
    /// How many tokens are left.
    pub remaining: u64,
    /// After how long the same request would be allowed; 0 if it was, `RETRY_NEVER_NS` if the cost is above the burst.
    pub retry_after_ns: u64,
    /// After how long the bucket is full again if nobody takes of it.
    pub reset_after_ns: u64,
}

impl<'a> Throttle<'a> {
    /// The request in this frame.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(REFUND)?;
        let mut cursor = Cursor::new(frame);
        let bucket = Bucket::decode(&mut cursor)?;
        cursor.finish()?;
        Ok(Self { bucket, refund: flags & REFUND != 0 })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.refund { REFUND } else { 0 };
        put_frame(out, opcode::THROTTLE, flags, number, |out| self.bucket.encode(out));
    }
}

impl<'a> ThrottleAll<'a> {
    /// The request in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(REFUND)?;
        let mut cursor = Cursor::new(frame);
        let buckets = Items::decode(&mut cursor)?;
        cursor.finish()?;
        Ok(Self { buckets, refund: flags & REFUND != 0 })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.refund { REFUND } else { 0 };
        put_frame(out, opcode::THROTTLE_ALL, flags, number, |out| self.buckets.encode(out));
    }
}

impl<'a> Item<'a> for Bucket<'a> {
    const COUNT_MAX: usize = BUCKET_COUNT_MAX;

    #[inline]
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            rate: cursor.positive_u32("rate")?,
            burst: cursor.positive_u32("burst")?,
            cost: cursor.u32("cost")?,
            period_ns: cursor.positive_u64("period_ns")?,
            name: cursor.non_empty_string("name", KEY_LEN_MAX)?,
        })
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        for value in [self.rate, self.burst, self.cost] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.period_ns.to_le_bytes());
        put_string(out, self.name);
    }
}

impl Throttled {
    /// Length of its frame.
    pub const FRAME_LEN: usize = HEADER_LEN + 24;

    /// The answer in this frame.
    #[inline]
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(ALLOWED)?;
        let mut cursor = Cursor::new(frame);
        let throttled = Self {
            allowed: flags & ALLOWED != 0,
            remaining: cursor.u64("remaining")?,
            retry_after_ns: cursor.u64("retry_after_ns")?,
            reset_after_ns: cursor.u64("reset_after_ns")?,
        };
        cursor.finish()?;
        Ok(throttled)
    }

    /// Appends the answer as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.allowed { ALLOWED } else { 0 };
        let mut frame = [0; Self::FRAME_LEN];
        frame[..12].copy_from_slice(&header(THROTTLED, flags, number, Self::FRAME_LEN - HEADER_LEN));
        frame[12..20].copy_from_slice(&self.remaining.to_le_bytes());
        frame[20..28].copy_from_slice(&self.retry_after_ns.to_le_bytes());
        frame[28..36].copy_from_slice(&self.reset_after_ns.to_le_bytes());
        out.extend_from_slice(&frame);
    }
}
