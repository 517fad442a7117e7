//! Frames: the header and the body of each message.
//!
//! ```text
//! 0        4        8        9        10       12
//! | length | number | opcode |  zero  | flags  | body ...
//! ```
//!
//! The field `length` counts the bytes after itself. The sender of a request chooses `number`; the response repeats it.
//! [`Event::encode`](crate::Event::encode) says which number an event has. All numbers, in the header and in bodies,
//! are little endian.

use crate::decode_error::DecodeError;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 12;
/// Length of the length field in bytes. The field does not count itself.
pub const LENGTH_LEN: usize = 4;

/// One whole frame with its header, borrowed from the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    bytes: &'a [u8],
}

/// The length field of a frame is out of range. The receiver cannot read the frames after it, so the connection must
/// close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than the limit.
    #[error("length: a frame of {len} bytes; the maximum is {limit}")]
    TooLong {
        /// Length of the frame in bytes, with the length field.
        len: u64,
        /// Maximum length of a frame in bytes.
        limit: usize,
    },
    /// The frame is shorter than a header.
    #[error("length: {length} bytes are too few for a frame header")]
    TooShort {
        /// Value of the length field in bytes.
        length: u32,
    },
}

/// Returns the first frame in `bytes`, or `None` if its end has not arrived. Checks the length as soon as the length
/// field is complete, so that the receiver never buffers a frame that is too long.
///
/// # Errors
/// Returns a [`FrameError`] if the frame is shorter than a header or longer than `frame_len_max`.
#[inline]
pub fn next_frame(bytes: &[u8], frame_len_max: usize) -> Result<Option<Frame<'_>>, FrameError> {
    let Some(length) = bytes.first_chunk::<LENGTH_LEN>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length);
    if (length as usize) < HEADER_LEN - LENGTH_LEN {
        return Err(FrameError::TooShort { length });
    }
    // Add as u64: the sum may not fit a usize of 32 bits.
    let len = u64::from(length) + LENGTH_LEN as u64;
    if len > frame_len_max as u64 {
        return Err(FrameError::TooLong { len, limit: frame_len_max });
    }
    Ok(bytes.get(..len as usize).map(|bytes| Frame { bytes }))
}

impl<'a> Frame<'a> {
    /// Returns a frame of these bytes, which must be the bytes of one frame that [`next_frame`] returned. Returns
    /// `None` if there are fewer bytes than a header has.
    #[inline]
    pub fn whole(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() >= HEADER_LEN).then_some(Self { bytes })
    }

    /// Returns the bytes of the frame with its header.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the length of the frame in bytes, with the length field.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a frame has a header and is never empty")]
    pub fn len(self) -> usize {
        self.bytes.len()
    }

    /// Returns the number in the header. It connects a response to its request.
    #[inline]
    pub fn number(self) -> u32 {
        u32::from_le_bytes([self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]])
    }

    /// Returns the opcode of the message.
    #[inline]
    pub fn opcode(self) -> u8 {
        self.bytes[8]
    }

    /// Returns the flags. Each message defines its own.
    #[inline]
    pub fn flags(self) -> u16 {
        u16::from_le_bytes([self.bytes[10], self.bytes[11]])
    }

    /// Returns the bytes after the header.
    #[inline]
    pub fn body(self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// Returns the flags.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if a flag is not in `known`, or if the zero byte of the header is not zero.
    #[inline]
    pub fn checked_flags(self, known: u16) -> Result<u16, DecodeError> {
        // Compare the zero byte and the flags in one step, because every message passes this check.
        let word = u32::from_le_bytes([self.bytes[8], self.bytes[9], self.bytes[10], self.bytes[11]]);
        if word & !(u32::from(known) << 16 | 0xff) != 0 {
            return Err(self.bad_flags(known));
        }
        Ok((word >> 16) as u16)
    }

    #[cold]
    fn bad_flags(self, known: u16) -> DecodeError {
        match self.bytes[9] {
            0 => DecodeError::UnknownFlags { bits: self.flags() & !known },
            value => DecodeError::BadValue { field: "zero", value: u64::from(value) },
        }
    }
}

/// Returns a header for a body of `body_len` bytes.
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

/// Appends a frame: writes the header, calls `body` to append the body, then sets the length in the header.
#[inline]
pub fn put_frame(out: &mut Vec<u8>, opcode: u8, flags: u16, number: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&header(opcode, flags, number, 0));
    body(out);
    let length = (out.len() - start - LENGTH_LEN) as u32;
    out[start..start + LENGTH_LEN].copy_from_slice(&length.to_le_bytes());
}
