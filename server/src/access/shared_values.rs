//! Values that several owners share. They are found by key as long as an owner exists.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

/// Minimum number of entries at which an insertion removes entries whose values have no owner.
pub(super) const SWEEP_COUNT_MIN: usize = 64;

/// A map that finds shared values, but does not own them: a value is dropped with its last owner. The entry of a
/// dropped value stays in the map until an insertion removes it.
#[derive(Debug)]
pub(super) struct SharedValues<K, V> {
    values: HashMap<K, Weak<V>>,
    /// Number of entries at which the next insertion removes the entries whose values have no owner.
    sweep_at: usize,
}

impl<K, V> Default for SharedValues<K, V> {
    fn default() -> Self {
        Self { values: HashMap::new(), sweep_at: SWEEP_COUNT_MIN }
    }
}

impl<K: Eq + Hash, V> SharedValues<K, V> {
    /// Returns the value of a key. Returns `None` if the key has no entry, or if its value no longer has an owner.
    pub(super) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.values.get(key).and_then(Weak::upgrade)
    }

    /// Sets the value of a key. If the number of entries has doubled since the last removal of entries without owners,
    /// and is at least [`SWEEP_COUNT_MIN`], first removes such entries.
    pub(super) fn insert(&mut self, key: K, value: &Arc<V>) {
        if self.values.len() >= self.sweep_at {
            self.values.retain(|_, value| value.strong_count() > 0);
            self.sweep_at = (2 * self.values.len()).max(SWEEP_COUNT_MIN);
        }
        self.values.insert(key, Arc::downgrade(value));
    }

    /// Returns the number of entries, including those whose values have no owner.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}
