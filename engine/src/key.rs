//! Storage of keys: short keys inside the record, longer ones out of line.

use crate::handle::handle;
use crate::limits::KEY_LEN_MAX;
use crate::slab::Slab;
use ahash::RandomState;
use std::hash::{BuildHasher, Hasher};

handle! {
    /// Handle of a key that does not fit into its record.
    pub(crate) LongKeyIx
}

/// Length of the longest key that a record stores inline, in bytes.
const INLINE_LEN: usize = 16;

/// Marker in `len` for a key that is stored out of line.
const LONG: u8 = u8::MAX;

/// Key of a record; empty unless one was stored.
///
/// In the table of the limiter, an empty key marks an unused record, because no bucket has an empty name. The key table
/// has a flag for that, because there the empty key stands for a whole tree.
#[derive(Debug, Default)]
pub(crate) struct StoredKey {
    /// The key, padded with zeros. For a long key, the first four bytes are its handle in [`LongKeys`].
    bytes: [u8; INLINE_LEN],
    /// Length of the key in bytes, or `LONG`.
    len: u8,
}

impl StoredKey {
    #[inline]
    pub(crate) fn is(&self, key: &[u8], long_keys: &LongKeys) -> bool {
        if key.len() <= INLINE_LEN {
            // If both lengths are equal, the stored key is inline too, because `LONG` is greater than any inline
            // length. Both keys are padded with zeros, so whole arrays are compared.
            usize::from(self.len) == key.len() && self.bytes == padded(key)
        } else {
            self.len == LONG && *long_keys.keys[self.number()] == *key
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn bytes<'a>(&'a self, long_keys: &'a LongKeys) -> &'a [u8] {
        if self.len == LONG { &long_keys.keys[self.number()] } else { &self.bytes[..usize::from(self.len)] }
    }

    /// Returns the handle of a key that is stored out of line.
    fn number(&self) -> LongKeyIx {
        LongKeyIx::new(u32::from_le_bytes([self.bytes[0], self.bytes[1], self.bytes[2], self.bytes[3]]))
    }
}

/// Keys of a table that do not fit into their records.
#[derive(Debug, Default)]
pub(crate) struct LongKeys {
    keys: Slab<LongKeyIx, Box<[u8]>>,
}

impl LongKeys {
    #[cfg(debug_assertions)]
    pub(crate) fn touched(&self) -> u64 {
        self.keys.touched()
    }

    /// Returns the stored form of a key. A long key is kept until [`LongKeys::discard`] is called with this form.
    pub(crate) fn store(&mut self, key: &[u8]) -> StoredKey {
        debug_assert!(key.len() <= KEY_LEN_MAX);
        if key.len() <= INLINE_LEN {
            return StoredKey { bytes: padded(key), len: key.len() as u8 };
        }
        let number = self.keys.allocate();
        self.keys[number] = key.into();
        let mut bytes = [0; INLINE_LEN];
        bytes[..4].copy_from_slice(&number.number().to_le_bytes());
        StoredKey { bytes, len: LONG }
    }

    /// Empties the key of a record that is about to be released, and frees the memory of a long key.
    pub(crate) fn discard(&mut self, key: &mut StoredKey) {
        if key.len == LONG {
            self.keys[key.number()] = Box::default();
            self.keys.release(key.number());
        }
        key.len = 0;
    }
}

/// Returns the keyed hash of a key in its namespace.
#[inline]
pub(crate) fn hash(hasher: &RandomState, namespace: u16, key: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write_u16(namespace);
    state.write(key);
    state.finish()
}

#[inline]
fn padded(key: &[u8]) -> [u8; INLINE_LEN] {
    // A key of exactly 16 bytes is copied with a constant length, so the compiler emits no call of `memcpy` for it.
    // This code runs for nearly every request.
    let mut inline = [0; INLINE_LEN];
    if key.len() == INLINE_LEN {
        inline.copy_from_slice(key);
    } else {
        inline[..key.len()].copy_from_slice(key);
    }
    inline
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_keys_of_any_length_are_distinct() {
        let mut long_keys = LongKeys::default();
        let keys: [&[u8]; 8] = [
            b"k",
            b"k\0",
            &[b'a'; 15],
            &[b'a'; 16],
            &[b'a'; 17],
            b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            &[b'a'; KEY_LEN_MAX],
        ];
        let mut stored: Vec<_> = keys.iter().map(|key| long_keys.store(key)).collect();
        for (number, stored) in stored.iter().enumerate() {
            assert_eq!(stored.bytes(&long_keys), keys[number]);
            for (other, key) in keys.iter().enumerate() {
                assert_eq!(stored.is(key, &long_keys), number == other, "{number} and {other}");
            }
        }
        for stored in &mut stored {
            long_keys.discard(stored);
            assert!(stored.is_empty());
        }
        assert_eq!(long_keys.keys.live_count(), 0, "a long key was not given back");
    }
}
