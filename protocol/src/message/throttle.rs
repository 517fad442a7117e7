//! Taking tokens from one rate-limit bucket, or from several.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, header, put_frame};
use crate::items::{Item, Items};
use crate::limits::{BUCKET_COUNT_MAX, KEY_LEN_MAX};
use crate::message::opcode;

/// Opcode of the response to `THROTTLE` and `THROTTLE_ALL`.
pub const THROTTLED: u8 = opcode::THROTTLE | opcode::ANSWER;
/// Flag of `THROTTLE` and `THROTTLE_ALL`: refund the tokens instead of taking them.
pub const REFUND: u16 = 1 << 0;
/// Flag of `THROTTLED`: the tokens were taken. Also set for a cost of 0 and for a refund.
pub const ALLOWED: u16 = 1 << 0;
/// Offset of the length of the name in `THROTTLE`, in bytes. The name follows it.
pub const NAME_OFFSET: usize = HEADER_LEN + 20;
/// Value of `retry_after_ns` if no retry can succeed.
pub const RETRY_NEVER_NS: u64 = u64::MAX;

/// One bucket with its rule (`rate`, `burst` and `period_ns`) and the requested tokens. The server does not keep the
/// rule; each request carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bucket<'a> {
    /// Number of tokens refilled in one period, at least 1.
    pub rate: u32,
    /// Number of tokens in a full bucket, at least 1. The time to fill an empty bucket must be below 2^63 nanoseconds.
    pub burst: u32,
    /// Number of tokens to take or refund; 0 only reads the state of the bucket.
    pub cost: u32,
    /// Length of the period in which the bucket gets `rate` new tokens, in nanoseconds. It is at least 1 and below
    /// 2^63.
    pub period_ns: u64,
    /// Name of the bucket, 1 to 1024 bytes long.
    pub name: &'a [u8],
}

/// Takes tokens from one bucket, or refunds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Throttle<'a> {
    /// Bucket with its rule and the requested tokens.
    pub bucket: Bucket<'a>,
    /// Whether to refund the tokens instead of taking them.
    pub refund: bool,
}

/// Takes tokens from several buckets: from all of them, or from none. Or refunds tokens to all of them. No two buckets
/// may have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ThrottleAll<'a> {
    /// Buckets with their rules, 1 to `BUCKET_COUNT_MAX`.
    pub buckets: Items<'a, Bucket<'a>>,
    /// Whether to refund the tokens instead of taking them.
    pub refund: bool,
}

/// The state of the bucket after the request. For several buckets it is the state of the tightest: the one with the
/// longest `retry_after_ns`, then with the fewest `remaining`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Throttled {
    /// Whether the tokens were taken. Always true for a cost of 0 and for a refund.
    pub allowed: bool,
    /// Number of tokens in the bucket.
    pub remaining: u64,
    /// Time after which the same request can succeed, in nanoseconds. 0 if it succeeded, `RETRY_NEVER_NS` if its cost
    /// is above the burst.
    pub retry_after_ns: u64,
    /// Time after which the bucket is full again if no further tokens are taken, in nanoseconds.
    pub reset_after_ns: u64,
}

impl<'a> Throttle<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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
    /// Length of the frame in bytes.
    pub const FRAME_LEN: usize = HEADER_LEN + 24;

    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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

    /// Appends the response as a frame.
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
