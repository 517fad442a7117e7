//! Selection of the keys of a multi-key claim.

use crate::key::KeyIndex;

/// Sets of keys of one size. The first key determines the whole set, so writer, checker and releaser need not
/// share any state. Two sets may overlap in part.
#[derive(Clone, Debug)]
pub struct ItemSet {
    /// Distances from the first key; all different.
    offsets: Box<[u32]>,
    key_count: u32,
}

impl ItemSet {
    /// Returns sets of `count` of `key_count` keys, at least 1 and at most all.
    pub fn new(count: u16, key_count: u32) -> Self {
        let mut offsets = vec![0];
        let mut mixed = 0_u64;
        while offsets.len() < usize::from(count) {
            // Pseudorandom numbers; if a number is already used, the next unused one is taken.
            mixed = mixed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let mut offset = ((mixed >> 32) % u64::from(key_count)) as u32;
            while offsets.contains(&offset) {
                offset = (offset + 1) % key_count;
            }
            offsets.push(offset);
        }
        Self { offsets: offsets.into(), key_count }
    }

    /// Returns the keys of the set that begins with this key; this key comes first.
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
    fn keys_of_a_set_differ_and_sets_overlap() {
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
        assert_eq!(others.count(), 3, "every other key of the set begins another set that contains this key");
    }
}
