//! Values shared by several owners, found by key while an owner exists.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

/// Minimum number of entries at which an insertion removes entries whose values have no owner.
pub(super) const SWEEP_COUNT_MIN: usize = 64;

/// A map that finds shared values, but does not own them: a value is dropped with its last owner. Its entry stays,
/// unused, until an insertion removes it.
#[derive(Debug)]
pub(super) struct SharedValues<K, V> {
    values: HashMap<K, Weak<V>>,
    /// Number of entries at which the next insertion removes unused entries.
    sweep_at: usize,
}

impl<K, V> Default for SharedValues<K, V> {
    fn default() -> Self {
        Self { values: HashMap::new(), sweep_at: SWEEP_COUNT_MIN }
    }
}

impl<K: Eq + Hash, V> SharedValues<K, V> {
    /// Returns the value of a key, if it has an owner.
    pub(super) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.values.get(key).and_then(Weak::upgrade)
    }

    /// Sets the value of a key. If the map has twice as many entries as after the last removal, first removes the
    /// unused entries.
    pub(super) fn insert(&mut self, key: K, value: &Arc<V>) {
        if self.values.len() >= self.sweep_at {
            self.values.retain(|_, value| value.strong_count() > 0);
            self.sweep_at = (2 * self.values.len()).max(SWEEP_COUNT_MIN);
        }
        self.values.insert(key, Arc::downgrade(value));
    }

    /// Returns the number of entries, including unused ones.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}
