//! Reading and writing the fields of a frame's body. Every error of reading a field names the field.

use crate::decode_error::DecodeError;
use crate::frame::Frame;
use crate::id::ID_LEN;

/// Reader of the fields of one frame, in order. Each method that reads a field takes its name, to name it in an error.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    offset: usize,
}

macro_rules! read_integer {
    ($($name:ident: $type:ty),*) => {$(
        /// Reads a little-endian integer.
        ///
        /// # Errors
        /// Returns [`DecodeError::Truncated`] if the bytes end inside the field.
        #[inline]
        pub fn $name(&mut self, field: &'static str) -> Result<$type, DecodeError> {
            Ok(<$type>::from_le_bytes(self.array(field)?))
        }
    )*};
}

impl<'a> Cursor<'a> {
    /// Returns a cursor at the first byte of the frame's body.
    #[inline]
    pub fn new(frame: Frame<'a>) -> Self {
        Self { bytes: frame.bytes(), offset: crate::frame::HEADER_LEN }
    }

    /// Returns a cursor at the first of these bytes. They may be only a part of a frame.
    #[inline]
    pub fn over(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    read_integer!(u8: u8, u16: u16, u32: u32, u64: u64, i64: i64);

    /// Returns the offset of the next byte to read. It counts from the start of the frame, or from the start of the
    /// bytes that were given to [`Cursor::over`].
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the bytes that were read since [`Self::offset`] returned `offset`.
    #[inline]
    pub fn read_since(&self, offset: usize) -> &'a [u8] {
        self.bytes.get(offset..self.offset).unwrap_or_default()
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    /// Returns [`DecodeError::Truncated`] if the bytes end inside the field.
    #[inline]
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        match self.bytes.get(self.offset..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(chunk) => {
                self.offset += N;
                Ok(*chunk)
            }
            None => Err(self.truncated(field, N)),
        }
    }

    /// Reads an id of 16 bytes.
    ///
    /// # Errors
    /// Returns [`DecodeError::Truncated`] if the bytes end inside the field.
    #[inline]
    pub fn id<T>(
        &mut self,
        field: &'static str,
        from_bytes: fn([u8; ID_LEN]) -> T,
    ) -> Result<T, DecodeError> {
        Ok(from_bytes(self.array(field)?))
    }

    /// Reads `len` bytes.
    ///
    /// # Errors
    /// Returns [`DecodeError::Truncated`] if the bytes end inside the field.
    #[inline]
    pub fn slice(&mut self, field: &'static str, len: usize) -> Result<&'a [u8], DecodeError> {
        match self.bytes.get(self.offset..).and_then(|rest| rest.get(..len)) {
            Some(slice) => {
                self.offset += len;
                Ok(slice)
            }
            None => Err(self.truncated(field, len)),
        }
    }

    /// Reads a string: its length as u16, then its bytes.
    ///
    /// # Errors
    /// Returns [`DecodeError::TooLong`] above `limit` bytes, and [`DecodeError::Truncated`] if the bytes end inside the
    /// field.
    #[inline]
    pub fn string(&mut self, field: &'static str, limit: usize) -> Result<&'a [u8], DecodeError> {
        let len = usize::from(self.u16(field)?);
        if len > limit {
            return Err(DecodeError::TooLong { field, actual: len, limit });
        }
        self.slice(field, len)
    }

    /// Reads a string like [`Cursor::string`] that must not be empty.
    ///
    /// # Errors
    /// Returns [`DecodeError::Empty`] for an empty string, and the errors of [`Cursor::string`].
    #[inline]
    pub fn non_empty_string(&mut self, field: &'static str, limit: usize) -> Result<&'a [u8], DecodeError> {
        let string = self.string(field, limit)?;
        if string.is_empty() { Err(DecodeError::Empty { field }) } else { Ok(string) }
    }

    /// Reads an integer that must not be 0.
    ///
    /// # Errors
    /// Returns [`DecodeError::BadValue`] for 0, and [`DecodeError::Truncated`] if the bytes end inside the field.
    #[inline]
    pub fn positive_u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        match self.u32(field)? {
            0 => Err(DecodeError::BadValue { field, value: 0 }),
            value => Ok(value),
        }
    }

    /// Reads an integer that must not be 0.
    ///
    /// # Errors
    /// Returns [`DecodeError::BadValue`] for 0, and [`DecodeError::Truncated`] if the bytes end inside the field.
    #[inline]
    pub fn positive_u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        match self.u64(field)? {
            0 => Err(DecodeError::BadValue { field, value: 0 }),
            value => Ok(value),
        }
    }

    /// Reads a boolean: one byte, 0 or 1.
    ///
    /// # Errors
    /// Returns [`DecodeError::BadValue`] for another byte, and [`DecodeError::Truncated`] if there is no byte.
    #[inline]
    pub fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::BadValue { field, value: u64::from(other) }),
        }
    }

    /// Reads a number of items as u16.
    ///
    /// # Errors
    /// Returns [`DecodeError::TooMany`] above `limit`, and [`DecodeError::Truncated`] if the bytes end inside the
    /// field.
    #[inline]
    pub fn count(&mut self, field: &'static str, limit: usize) -> Result<usize, DecodeError> {
        let count = usize::from(self.u16(field)?);
        if count > limit { Err(DecodeError::TooMany { field, count, limit }) } else { Ok(count) }
    }

    /// Checks that every byte was read.
    ///
    /// # Errors
    /// Returns [`DecodeError::TrailingBytes`] if bytes remain.
    #[inline]
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.bytes.len() - self.offset {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes { count }),
        }
    }

    #[cold]
    fn truncated(&self, field: &'static str, need: usize) -> DecodeError {
        DecodeError::Truncated { field, offset: self.offset, need, have: self.bytes.len() }
    }
}

/// Appends a string: its length as u16, then its bytes. Cuts a string above 65,535 bytes, which is longer than the
/// limit of any field.
#[inline]
pub fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    let len = u16::try_from(string.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&string[..usize::from(len)]);
}
