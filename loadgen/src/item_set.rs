//! Which keys one claim over several asks for.

use crate::key::KeyIndex;

/// Sets of keys of one size. A set follows from its first key, so that writer, checker and releaser need not tell each
/// other; two sets may have some keys in common and not others.
#[derive(Clone, Debug)]
pub struct ItemSet {
    /// Distances from the first key; all different.
    offsets: Box<[u32]>,
    key_count: u32,
}

impl ItemSet {
    /// Sets of `count` of `key_count` keys, at least one and at most all.
    pub fn new(count: u16, key_count: u32) -> Self {
        let mut offsets = vec![0];
        let mut mixed = 0_u64;
        while offsets.len() < usize::from(count) {
            // Any numbers without a pattern; where one is taken, the next that is not.
            mixed = mixed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let mut offset = ((mixed >> 32) % u64::from(key_count)) as u32;
            while offsets.contains(&offset) {
                offset = (offset + 1) % key_count;
            }
            offsets.push(offset);
        }
        Self { offsets: offsets.into(), key_count }
    }

    /// The keys of the set that begins with this one, which comes first.
    #[inline]
    pub fn keys(&self, first: KeyIndex) -> impl Iterator<Item = KeyIndex> + '_ {
        let wrap = |key: u64| (key % u64::from(self.key_count)) as u32;
        self.offsets.iter().map(move |offset| KeyIndex(wrap(u64::from(first.0) + u64::from(*offset))))
    }
}

#[cfg(test)]
mod tests {
    use super::ItemSet;
    use crate::key::KeyIndex;

    #[test]
    fn the_keys_of_a_set_differ_and_sets_overlap() {
        for (count, key_count) in [(1, 1), (5, 5), (4, 100), (64, 70)] {
            let set = ItemSet::new(count, key_count);
            let keys = |first| set.keys(KeyIndex(first)).map(|key| key.0).collect::<Vec<_>>();
            let mut sorted = keys(key_count - 1);
            assert_eq!(sorted[0], key_count - 1);
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), usize::from(count));
            assert!(sorted.iter().all(|key| *key < key_count));
        }
        let set = ItemSet::new(4, 100);
        let others = (1..100).filter(|first| set.keys(KeyIndex(*first)).any(|key| key == KeyIndex(0)));
        assert_eq!(others.count(), 3, "each other key of the set begins another set in which this one is");
    }
}
