//! Which keys a claim over several is for.

use super::SeveralKey;
use crate::stable_hash::stable_hash;

/// The keys of a claim over several, by which its request id finds it again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeySet {
    /// Each key behind its length, so that two sets are equal exactly if these bytes are. Empty if no request id can ask for
    /// the keys again.
    bytes: Box<[u8]>,
    /// The number that the log has for the set. Anyone can find two sets with the same number, so it proves nothing.
    number: u64,
}

impl KeySet {
    pub(super) fn new(keys: &[SeveralKey<'_>], is_named: bool) -> Self {
        let mut bytes = Vec::new();
        if is_named {
            bytes.reserve_exact(keys.iter().map(|key| size_of::<u16>() + key.key.len()).sum());
            for SeveralKey { key, .. } in keys {
                bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
                bytes.extend_from_slice(key);
            }
        }
        let number = stable_hash(keys.iter().map(|key| (key.key, false)));
        Self { bytes: bytes.into(), number }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}
