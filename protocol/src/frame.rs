//! Frames: what stands around every message.
//!
//! ```text
//! 0        4        8        9        10       12
//! | length | number | opcode |  zero  | flags  | body ...
//! ```
//!
//! `length` counts the bytes behind it. `number` is the sender's: an answer carries the number of its request, an
//! event that answers no request carries 0.

use crate::decode_error::DecodeError;

/// Bytes in front of the body.
pub const HEADER_LEN: usize = 12;
/// Bytes of the length field, which the length does not count.
pub const LENGTH_LEN: usize = 4;

/// One whole frame, header included, borrowed from the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    bytes: &'a [u8],
}

/// The stream of frames is broken: where the next one begins is not known, so the connection must close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is above the limit.
    #[error("length: a frame of {len} bytes; the maximum is {limit}")]
    TooLong {
        /// What the frame would have, the length field included.
        len: u64,
        /// The most it may have.
        limit: usize,
    },
    /// The length is below that of a header.
    #[error("length: {length} bytes are too few for a frame header")]
    TooShort {
        /// What the length field says.
        length: u32,
    },
}

/// The first frame in `bytes`, or `None` where its end has not arrived. The length is judged as soon as it is there,
/// before anyone buffers for it.
#[inline]
pub fn next_frame(bytes: &[u8], frame_len_max: usize) -> Result<Option<Frame<'_>>, FrameError> {
    let Some(length) = bytes.first_chunk::<LENGTH_LEN>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length);
    if (length as usize) < HEADER_LEN - LENGTH_LEN {
        return Err(FrameError::TooShort { length });
    }
    // In u64, since the sum may not fit a usize of 32 bits.
    let len = u64::from(length) + LENGTH_LEN as u64;
    if len > frame_len_max as u64 {
        return Err(FrameError::TooLong { len, limit: frame_len_max });
    }
    Ok(bytes.get(..len as usize).map(|bytes| Frame { bytes }))
}

impl<'a> Frame<'a> {
    /// The frame with its header.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Length in bytes, the length field included.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a frame has a header and is never empty")]
    pub fn len(self) -> usize {
        self.bytes.len()
    }

    /// The number that ties an answer to its request.
    #[inline]
    pub fn number(self) -> u32 {
        u32::from_le_bytes([self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]])
    }

    /// Which message this is.
    #[inline]
    pub fn opcode(self) -> u8 {
        self.bytes[8]
    }

    /// The flags, each message with its own.
    #[inline]
    pub fn flags(self) -> u16 {
        u16::from_le_bytes([self.bytes[10], self.bytes[11]])
    }

    /// The bytes behind the header.
    #[inline]
    pub fn body(self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// The flags, if all of them are among `known` and the zero byte of the header is zero.
    #[inline]
    pub fn checked_flags(self, known: u16) -> Result<u16, DecodeError> {
        if self.bytes[9] != 0 {
            return Err(DecodeError::BadValue { field: "zero", value: u64::from(self.bytes[9]) });
        }
        match self.flags() & !known {
            0 => Ok(self.flags()),
            bits => Err(DecodeError::UnknownFlags { bits }),
        }
    }
}

/// A header for a body of `body_len` bytes.
#[inline]
pub fn header(opcode: u8, flags: u16, number: u32, body_len: usize) -> [u8; HEADER_LEN] {
    let length = (HEADER_LEN - LENGTH_LEN + body_len) as u32;
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..8].copy_from_slice(&number.to_le_bytes());
    header[8] = opcode;
    header[10..].copy_from_slice(&flags.to_le_bytes());
    header
}

/// Appends a frame whose body is written by `body`; the length is filled in afterwards.
#[inline]
pub fn put_frame(out: &mut Vec<u8>, opcode: u8, flags: u16, number: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&header(opcode, flags, number, 0));
    body(out);
    let length = (out.len() - start - LENGTH_LEN) as u32;
    out[start..start + LENGTH_LEN].copy_from_slice(&length.to_le_bytes());
}
