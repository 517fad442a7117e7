//! Lower bound: the cost of an insert and a remove in a plain hash map.

use crate::keys::{KEY_LEN, key};
use ahash::RandomState;
use std::collections::HashMap;

/// A map whose entries have the size of a lock.
pub struct Map {
    map: HashMap<[u8; KEY_LEN], [u64; 6], RandomState>,
    resident: u64,
    released: u64,
    key_count: u64,
}

impl Map {
    /// Fills a map.
    pub fn new(resident: u32) -> Self {
        let hasher = RandomState::with_seeds(1, 2, 3, 4);
        let resident = u64::from(resident);
        let mut map = HashMap::with_hasher(hasher);
        map.extend((0..resident).map(|number| (key(number), [number; 6])));
        Self { map, resident, released: 0, key_count: resident + (resident / 8).max(1) }
    }

    /// Runs `pair_count` pairs of a remove and an insert. Returns the sum of the removed values.
    pub fn pairs(&mut self, pair_count: u64) -> u64 {
        let mut sum = 0_u64;
        for _ in 0..pair_count {
            let number = self.released % self.key_count;
            sum = sum.wrapping_add(self.map.remove(&key(number)).map_or(0, |value| value[5]));
            let number = (self.released + self.resident) % self.key_count;
            self.map.insert(key(number), [number; 6]);
            self.released += 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_remove_finds_an_inserted_entry() {
        let mut map = Map::new(64);
        assert_eq!(map.pairs(72), (0..72).sum::<u64>());
        assert_eq!(map.pairs(10), (0..10).sum::<u64>());
        assert_eq!(map.map.len(), 64);
    }
}
