//! A bounded memory of the fence counters in etcd: the value of each counter that this server last wrote or read.

use std::collections::BTreeMap;
use waymaker_engine::{CounterName, Fence};

/// The value of a fence counter in etcd that this server last wrote or read. The default stands for a counter that does
/// not exist in etcd, or that `Positions` has forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Revision of the cluster that wrote the counter; 0 if the counter does not exist or is not remembered.
    pub(crate) revision: i64,
    /// Fence of the counter.
    pub(crate) fence: Fence,
}

/// The last known values of recently used counters. A forgotten counter costs one more round trip to the cluster. If an
/// operator has also deleted a forgotten counter from etcd, its fences begin again at the minimum that the shard
/// passes.
///
/// The fence counters are in two maps, a younger and an older one. When the younger map is full, it replaces the older
/// one. The counters that were only in the older map are then forgotten, and their values are read from etcd again when
/// needed.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    young: BTreeMap<CounterName, Position>,
    young_len: usize,
    old: BTreeMap<CounterName, Position>,
}

/// Maximum size of each of the two maps, in bytes.
const GENERATION_LEN_MAX: usize = 64 << 20;
/// Memory of one counter without its key, in bytes.
const ENTRY_LEN: usize = 96;

impl Positions {
    pub(crate) fn get(&self, name: &CounterName) -> Position {
        self.young.get(name).or_else(|| self.old.get(name)).copied().unwrap_or_default()
    }

    pub(crate) fn set(&mut self, name: &CounterName, position: Position) {
        if let Some(known) = self.young.get_mut(name) {
            *known = position;
            return;
        }
        let len = ENTRY_LEN + name.key.len();
        if self.young_len + len > GENERATION_LEN_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_len = 0;
        }
        self.young_len += len;
        self.young.insert(name.clone(), position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_positions_are_remembered_up_to_a_memory_limit() {
        const KEY_LEN: usize = 1000;
        let generation = GENERATION_LEN_MAX / (ENTRY_LEN + KEY_LEN);
        let name = |number: usize| {
            let mut key = vec![0; KEY_LEN];
            key[..8].copy_from_slice(&number.to_le_bytes());
            CounterName { namespace: 0, key: key.into() }
        };
        let position = |number: usize| Position { revision: number as i64, fence: Fence::new(1) };
        let mut positions = Positions::default();
        assert_eq!(positions.get(&name(0)), Position::default());
        for number in 1..=3 * generation {
            positions.set(&name(number), position(number));
        }
        let last = 3 * generation;
        assert_eq!(positions.get(&name(last)), position(last));
        assert_eq!(positions.get(&name(last - generation)), position(last - generation));
        assert_eq!(positions.get(&name(1)), Position::default());
        assert_eq!(positions.young.len() + positions.old.len(), 2 * generation);
    }
}
