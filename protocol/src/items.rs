//! Lists in a request. Decoding checks all items of a list once. After that, the items are read directly from the bytes
//! of the frame.

use std::marker::PhantomData;

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;

/// One item of a list.
pub trait Item<'a>: Copy {
    /// Maximum number of items in a list.
    const COUNT_MAX: usize;

    /// Reads the next item.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the item is malformed.
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError>;

    /// Appends the item.
    fn encode(&self, out: &mut Vec<u8>);
}

/// A list with at least one item, as encoded on the wire. All items were checked, so reading them cannot fail and
/// allocates nothing. Only the default value is empty; a peer rejects a message with an empty list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Items<'a, T> {
    count: u16,
    bytes: &'a [u8],
    items: PhantomData<T>,
}

impl<'a, T: Item<'a>> Items<'a, T> {
    /// Encodes `items` into `buffer`, replacing the contents of `buffer`, and returns the list.
    ///
    /// # Errors
    /// Returns an error if there is no item, if there are more than [`Item::COUNT_MAX`], or if an item is malformed. It
    /// does not check the limit for the total length of the keys in `ACQUIRE_KEYS`.
    pub fn new(items: impl IntoIterator<Item = T>, buffer: &'a mut Vec<u8>) -> Result<Self, DecodeError> {
        buffer.clear();
        let mut count = 0;
        for item in items.into_iter().take(T::COUNT_MAX + 1) {
            item.encode(buffer);
            count += 1;
        }
        Self::check(count, &mut Cursor::over(buffer))
    }

    /// Reads the number of items, then reads and checks the items.
    pub(crate) fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        let count = usize::from(cursor.u16("count")?);
        Self::check(count, cursor)
    }

    fn check(count: usize, cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        if count == 0 {
            return Err(DecodeError::Empty { field: "count" });
        }
        if count > T::COUNT_MAX {
            return Err(DecodeError::TooMany { field: "count", count, limit: T::COUNT_MAX });
        }
        let start = cursor.offset();
        for _ in 0..count {
            T::decode(cursor)?;
        }
        Ok(Self { count: count as u16, bytes: cursor.read_since(start), items: PhantomData })
    }

    /// Returns an iterator over the items in their order.
    #[inline]
    pub fn iter(&self) -> Iter<'a, T> {
        Iter { left: self.len(), cursor: Cursor::over(self.bytes), items: PhantomData }
    }
}

impl<T> Items<'_, T> {
    /// Returns the number of items.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns whether the list is empty. Only the default list is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the length of the items on the wire in bytes, without the count.
    #[inline]
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the count and the items.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(self.bytes);
    }
}

impl<T> Default for Items<'_, T> {
    fn default() -> Self {
        Self { count: 0, bytes: b"", items: PhantomData }
    }
}

impl<'a, T: Item<'a> + std::fmt::Debug> std::fmt::Debug for Items<'a, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Item<'a>> IntoIterator for Items<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    #[inline]
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Iterator over the items of a list in their order.
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    left: usize,
    cursor: Cursor<'a>,
    items: PhantomData<T>,
}

impl<'a, T: Item<'a>> Iterator for Iter<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        // Cannot fail: `Items::check` already decoded this item.
        T::decode(&mut self.cursor).ok()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a, T: Item<'a>> ExactSizeIterator for Iter<'a, T> {}
