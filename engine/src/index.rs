//! From the hash of a key to its entry.

use crate::prefetch::prefetch;

/// Entries of one group.
const GROUP_LEN: usize = 12;
/// Words of one group: a cache line.
const GROUP_WORDS: usize = 16;
/// Where the numbers of entries begin in a group.
const FIRST_ENTRY: usize = 4;
/// Beyond this many displaced entries a group no longer counts them, and every search that ends there goes on.
const OVERFLOW_MAX: u32 = 255;

/// An index by hash whose lookups take one cache miss: a table of groups of one cache line each, after F14 (Bronson and
/// Shi, 2019).
///
/// ```text
/// word  0       1       2       3          4 ... 15
///       tags of entries 0-11    overflow   numbers of entries, plus one; 0 is free
/// ```
///
/// A hash belongs to one group. Its entry lies there, or, if that was full, in one of the groups behind it; then each
/// group that it passed counts it as overflow, so that a search knows where to stop and a removal leaves no trace. The
/// index holds numbers only; whoever asks compares the keys.
///
/// The three steps of a lookup can be done for many hashes at once, so that their misses overlap: [`KeyIndex::prefetch`]
/// brings the group, [`KeyIndex::candidate`] names the entry to bring, [`KeyIndex::find`] compares.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    /// Groups of 16 words, the first of them at `start`, where a cache line begins.
    words: Vec<u32>,
    start: usize,
    /// Number of groups less one; they are a power of two.
    mask: usize,
    pub(crate) count: usize,
}

impl KeyIndex {
    /// An index that takes so many entries before it grows. Memory is touched only as it is used.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let group_count = (capacity / Self::fill_max(1)).next_power_of_two();
        let words = vec![0_u32; (group_count + 1) * GROUP_WORDS];
        // A line that spans two cache lines would cost two misses, so the groups begin where a line does.
        let past = words.as_ptr() as usize / size_of::<u32>() % GROUP_WORDS;
        let start = (GROUP_WORDS - past) % GROUP_WORDS;
        Self { words, start, mask: group_count - 1, count: 0 }
    }

    /// How many entries so many groups take: five of six places, so that few are displaced.
    const fn fill_max(group_count: usize) -> usize {
        group_count * GROUP_LEN * 5 / 6
    }

    #[inline]
    fn group(&self, number: usize) -> &[u32; GROUP_WORDS] {
        let first = self.start + number * GROUP_WORDS;
        match self.words[first..].first_chunk() {
            Some(group) => group,
            None => unreachable!("groups end before the words do"),
        }
    }

    #[inline]
    fn group_mut(&mut self, number: usize) -> &mut [u32; GROUP_WORDS] {
        let first = self.start + number * GROUP_WORDS;
        match self.words[first..].first_chunk_mut() {
            Some(group) => group,
            None => unreachable!("groups end before the words do"),
        }
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    /// Step one of a lookup: brings the group of this hash near.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(self.group(self.home(hash)));
    }

    /// Step two: an entry that may be the one of this hash, most likely it.
    #[inline]
    pub(crate) fn candidate(&self, hash: u64) -> Option<u32> {
        let group = self.group(self.home(hash));
        let matches = matching(group, tag(hash));
        (matches != 0).then(|| entry_at(group, place(matches)))
    }

    /// Step three: the entry of this hash for which `is` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag(hash);
        let mut number = self.home(hash);
        loop {
            let group = self.group(number);
            let mut matches = matching(group, tag);
            while matches != 0 {
                let entry = entry_at(group, place(matches));
                if is(entry) {
                    return Some(entry);
                }
                matches &= matches - 1;
            }
            if group[3] == 0 {
                return None;
            }
            number = (number + 1) & self.mask;
            if number == self.home(hash) {
                return None;
            }
        }
    }

    /// Adds an entry that is not there. `hash_of` gives the hash of any entry, for when the index has to grow.
    pub(crate) fn insert(&mut self, hash: u64, entry: u32, hash_of: impl Fn(u32) -> u64) {
        if self.count >= Self::fill_max(self.mask + 1) {
            let mut larger = Self::with_capacity(Self::fill_max(2 * (self.mask + 1)));
            for number in 0..=self.mask {
                let group = self.group(number);
                for word in &group[FIRST_ENTRY..] {
                    if *word != 0 {
                        larger.place_entry(hash_of(word - 1), word - 1);
                    }
                }
            }
            *self = larger;
        }
        self.place_entry(hash, entry);
    }

    fn place_entry(&mut self, hash: u64, entry: u32) {
        let mut number = self.home(hash);
        loop {
            let group = self.group_mut(number);
            if let Some(free) = group[FIRST_ENTRY..].iter().position(|word| *word == 0) {
                group[FIRST_ENTRY + free] = entry + 1;
                set_tag(group, free, tag(hash));
                self.count += 1;
                return;
            }
            group[3] = (group[3] + 1).min(OVERFLOW_MAX);
            number = (number + 1) & self.mask;
        }
    }

    /// Takes an entry out. Without effect where it is not there.
    pub(crate) fn remove(&mut self, hash: u64, entry: u32) {
        let home = self.home(hash);
        let mut number = home;
        loop {
            let group = self.group_mut(number);
            if let Some(found) = group[FIRST_ENTRY..].iter().position(|word| *word == entry + 1) {
                group[FIRST_ENTRY + found] = 0;
                set_tag(group, found, 0);
                self.count -= 1;
                break;
            }
            if group[3] == 0 {
                return;
            }
            number = (number + 1) & self.mask;
            if number == home {
                return;
            }
        }
        // Every group that it had passed counted it; one that stopped counting keeps its mark for ever.
        let mut passed = home;
        while passed != number {
            let group = self.group_mut(passed);
            if group[3] < OVERFLOW_MAX {
                group[3] -= 1;
            }
            passed = (passed + 1) & self.mask;
        }
    }
}

/// Seven bits of the hash that do not choose the group. Never 0, which marks a free place.
#[inline]
fn tag(hash: u64) -> u8 {
    (hash >> 57) as u8 | 0x80
}

/// A bit for each place of the group with this tag: bit 8 n + 7 for place n. A place behind one that matches may be
/// named without matching, which costs a comparison of keys and no more.
#[inline]
fn matching(group: &[u32; GROUP_WORDS], tag: u8) -> u128 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // Where a byte is zero after the exclusive or, subtracting one borrows into its highest bit.
    let equal = |tags: u64| {
        let differing = tags ^ (ONES * u64::from(tag));
        differing.wrapping_sub(ONES) & !differing & HIGH
    };
    let low = equal(u64::from(group[0]) | u64::from(group[1]) << 32);
    let high = equal(u64::from(group[2])) & 0xffff_ffff;
    u128::from(low) | u128::from(high) << 64
}

#[inline]
fn place(matches: u128) -> usize {
    matches.trailing_zeros() as usize / 8
}

#[inline]
fn entry_at(group: &[u32; GROUP_WORDS], place: usize) -> u32 {
    // A place that only seemed to match may be free: then the number wraps to `NONE`, which is no entry.
    group[FIRST_ENTRY + place].wrapping_sub(1)
}

fn set_tag(group: &mut [u32; GROUP_WORDS], place: usize, tag: u8) {
    let (word, shift) = (place / 4, place % 4 * 8);
    group[word] = group[word] & !(0xff << shift) | u32::from(tag) << shift;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A hash with many collisions of group and tag, and a cheap one without.
    fn hashes(seed: u64) -> [u64; 2] {
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [mixed & 0x8000_0000_0000_0003, mixed ^ mixed >> 29]
    }

    #[test]
    fn entries_are_found_until_they_are_removed() {
        for which in 0..2 {
            let hash = |entry: u32| hashes(u64::from(entry))[which];
            let mut index = KeyIndex::with_capacity(1);
            let mut model = BTreeMap::new();
            let mut random = 1_u64;
            for _ in 0..20_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let entry = (random >> 33) as u32 % 700;
                if model.remove(&entry).is_some() {
                    index.remove(hash(entry), entry);
                } else {
                    index.insert(hash(entry), entry, hash);
                    model.insert(entry, ());
                }
                let probe = (random >> 40) as u32 % 700;
                let found = index.find(hash(probe), |other| other == probe);
                assert_eq!(found, model.contains_key(&probe).then_some(probe));
            }
            assert_eq!(index.count, model.len());
            for entry in model.keys() {
                index.remove(hash(*entry), *entry);
            }
            assert_eq!(index.count, 0);
            assert!(which == 0 || index.words.iter().all(|word| *word == 0), "a removal left a trace");
        }
    }

    #[test]
    fn groups_begin_where_cache_lines_do() {
        for capacity in [1, 100, 10_000, 262_144] {
            let index = KeyIndex::with_capacity(capacity);
            assert_eq!(std::ptr::from_ref(index.group(0)) as usize % 64, 0);
        }
    }
}
