//! Reading and writing fields of a body, with the name of the field in every error.

use crate::decode_error::DecodeError;
use crate::frame::Frame;
use crate::id::ID_LEN;

/// Reads the fields of one frame from front to back.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    offset: usize,
}

macro_rules! read_integer {
    ($($name:ident: $type:ty),*) => {$(
        /// The next little-endian integer.
        #[inline]
        pub fn $name(&mut self, field: &'static str) -> Result<$type, DecodeError> {
            Ok(<$type>::from_le_bytes(self.array(field)?))
        }
    )*};
}

impl<'a> Cursor<'a> {
    /// A cursor at the first byte of the body.
    #[inline]
    pub fn new(frame: Frame<'a>) -> Self {
        Self { bytes: frame.bytes(), offset: crate::frame::HEADER_LEN }
    }

    /// A cursor at the first of these bytes, which are no whole frame.
    #[inline]
    pub fn over(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    read_integer!(u8: u8, u16: u16, u32: u32, u64: u64, i64: i64);

    /// How many bytes lie before the next field.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The bytes that were read since the cursor stood at `offset`.
    #[inline]
    pub fn read_since(&self, offset: usize) -> &'a [u8] {
        self.bytes.get(offset..self.offset).unwrap_or_default()
    }

    /// The next `N` bytes.
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

    /// An id of sixteen bytes.
    #[inline]
    pub fn id<T>(
        &mut self,
        field: &'static str,
        from_bytes: fn([u8; ID_LEN]) -> T,
    ) -> Result<T, DecodeError> {
        Ok(from_bytes(self.array(field)?))
    }

    /// The next `len` bytes.
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

    /// A length as u16 and then so many bytes, at most `limit`.
    #[inline]
    pub fn string(&mut self, field: &'static str, limit: usize) -> Result<&'a [u8], DecodeError> {
        let len = usize::from(self.u16(field)?);
        if len > limit {
            return Err(DecodeError::TooLong { field, actual: len, limit });
        }
        self.slice(field, len)
    }

    /// Like [`Cursor::string`], but not empty.
    #[inline]
    pub fn non_empty_string(&mut self, field: &'static str, limit: usize) -> Result<&'a [u8], DecodeError> {
        let string = self.string(field, limit)?;
        if string.is_empty() { Err(DecodeError::Empty { field }) } else { Ok(string) }
    }

    /// The next integer, which must not be 0.
    #[inline]
    pub fn positive_u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        match self.u32(field)? {
            0 => Err(DecodeError::BadValue { field, value: 0 }),
            value => Ok(value),
        }
    }

    /// The next integer, which must not be 0.
    #[inline]
    pub fn positive_u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        match self.u64(field)? {
            0 => Err(DecodeError::BadValue { field, value: 0 }),
            value => Ok(value),
        }
    }

    /// One byte, 0 or 1.
    #[inline]
    pub fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::BadValue { field, value: u64::from(other) }),
        }
    }

    /// A count as u16, at most `limit`.
    #[inline]
    pub fn count(&mut self, field: &'static str, limit: usize) -> Result<usize, DecodeError> {
        let count = usize::from(self.u16(field)?);
        if count > limit { Err(DecodeError::TooMany { field, count, limit }) } else { Ok(count) }
    }

    /// Succeeds when every byte was read.
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

/// Appends a length as u16 and the bytes. Strings longer than the length can say are cut; all limits are far below.
#[inline]
pub fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    let len = u16::try_from(string.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&string[..usize::from(len)]);
}
