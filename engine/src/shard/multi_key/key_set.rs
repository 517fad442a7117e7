//! Which keys a claim over several is for.

use super::RequestedKey;
use crate::stable_hash::stable_hash;

/// The keys of a claim over several, by which its request id finds it again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeySet {
    /// The number that the log has for the set; 0 if no log and no request id needs it. Anyone can find two sets with the same number, so it proves nothing.
    number: u64,
    /// Each key behind its length, so that two sets are equal exactly if these bytes are. Empty if no request id can ask for
    /// the keys again.
    bytes: Box<[u8]>,
}

impl KeySet {
    pub(super) fn new(keys: &[RequestedKey<'_>], is_named: bool, is_recorded: bool) -> Self {
        let mut bytes = Vec::new();
        if is_named {
            bytes.reserve_exact(keys.iter().map(|key| size_of::<u16>() + key.key.len()).sum());
            for RequestedKey { key, .. } in keys {
                bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
                bytes.extend_from_slice(key);
            }
        }
        let is_numbered = is_named || is_recorded;
        let number = if is_numbered { key_set_number(keys.iter().map(|key| key.key)) } else { 0 };
        Self { bytes: bytes.into(), number }
    }

    /// Whether both are for the same keys. The claims of one request share the value, so this mostly compares two addresses.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self == other
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// Returns the number that the log has for these keys, which are in bytewise order.
pub fn key_set_number<'a>(keys: impl Iterator<Item = &'a [u8]>) -> u64 {
    stable_hash(keys.map(|key| (key, false)))
}
