//! Index from the hash of a record to its handle.

use crate::growing::make_room;
use crate::handle::Handle;
use crate::prefetch::prefetch;
use std::marker::PhantomData;

/// Number of entries in one group.
const GROUP_LEN: usize = 12;
/// Average number of entries per group at which the index begins to double.
const FILL_MAX: usize = 8;
/// Largest count of displaced entries of a group. A group with this count stops counting, and a search that finds no
/// match in it always goes on to the next group.
const OVERFLOW_MAX: u32 = 255;

/// Group of entries and their tags, in one cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Group {
    /// Seven hash bits of each entry, below a highest bit that is always set; 0 marks a free place.
    tags: [u8; GROUP_LEN],
    /// Number of entries behind this group whose home is this group or an earlier one; stays at `OVERFLOW_MAX` once it
    /// was reached.
    overflow: u32,
    entries: [u32; GROUP_LEN],
}

const _: () = assert!(size_of::<Group>() == 64);

/// Index by hash with about one cache miss per lookup: a table of groups of one cache line each, after F14 (Bronson and
/// Shi, 2019).
///
/// A hash has a home group. Its entry is in the home group or, if that was full, in one of the groups behind it. Each
/// group that the entry passed counts it as overflow. So a search stops at a group without overflow, and a removal
/// leaves no tombstone. The index holds only numbers; the caller compares the keys.
///
/// # Growth
///
/// The index grows one group at a time, as in linear hashing (Litwin, 1980). While it doubles from `n` groups, each
/// insertion adds one group at the end, with number `n + i`. The entries of group `i` are then placed again. The next
/// bit of each hash decides between group `i` and the new group. So an insertion moves the entries of about one group,
/// regardless of the size of the index, and each hash has only one home.
///
/// # Lookups of a batch
///
/// A lookup has three steps, which can be done for many hashes at once to overlap their cache misses:
/// [`HashIndex::prefetch`] prefetches the group, [`HashIndex::candidate`] returns the likely entry, and
/// [`HashIndex::find`] compares.
#[derive(Debug)]
pub(crate) struct HashIndex<Ix> {
    groups: Vec<Group>,
    /// Bits of a hash that choose its group: the number of groups rounded up to a power of two, minus one.
    mask: usize,
    count: usize,
    /// Number of entries from which an insertion adds a group. 0 while the index doubles, so that each insertion adds
    /// one.
    grow_at: usize,
    /// Number of groups that the index needs at most. Once doubling the vector of groups would exceed 256 KiB,
    /// `make_room` reserves address space for this number of groups. So a large vector is not copied when it grows.
    group_count_max: usize,
    handles: PhantomData<Ix>,
}

impl<Ix: Handle> HashIndex<Ix> {
    /// Returns an empty index for up to `entry_count_max` entries. Its memory grows with the number of present entries.
    pub(crate) fn new(entry_count_max: usize) -> Self {
        // The ratio of groups to entries is highest just after doubling, with `FILL_MAX + 1` entries for two groups.
        let group_count_max = 2 * (entry_count_max / FILL_MAX + 1);
        Self {
            groups: vec![Group::default()],
            mask: 0,
            count: 0,
            grow_at: FILL_MAX,
            group_count_max,
            handles: PhantomData,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the memory of the groups in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.groups.len() * size_of::<Group>()
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        let number = hash as usize & self.mask;
        // If the group with this number does not exist yet, its entries are in the group that will be split to fill it.
        if number < self.groups.len() { number } else { number & self.mask >> 1 }
    }

    #[inline]
    fn behind(&self, number: usize) -> usize {
        if number + 1 < self.groups.len() { number + 1 } else { 0 }
    }

    /// Prefetches the group of this hash. First step of a lookup.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(&self.groups[self.home(hash)]);
    }

    /// Returns the entry that most likely has this hash: the first one in the home group with the same tag. Second step
    /// of a lookup.
    #[inline]
    pub(crate) fn candidate(&self, hash: u64) -> Option<Ix> {
        self.groups[self.home(hash)].find(tag(hash), |_| true).map(|(_, entry)| Ix::new(entry))
    }

    /// Returns the entry of this hash for which `is` returns true. Third step of a lookup. The first two steps,
    /// [`HashIndex::prefetch`] and [`HashIndex::candidate`], only save cache misses and may be left out.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl FnMut(Ix) -> bool) -> Option<Ix> {
        self.place_of(hash, is).map(|(_, _, entry)| entry)
    }

    /// Returns the group, the place and the handle of the entry of this hash for which `is` returns true.
    #[inline]
    fn place_of(&self, hash: u64, mut is: impl FnMut(Ix) -> bool) -> Option<(usize, usize, Ix)> {
        let home = self.home(hash);
        let mut number = home;
        loop {
            let group = &self.groups[number];
            if let Some((at, entry)) = group.find(tag(hash), |entry| is(Ix::new(entry))) {
                return Some((number, at, Ix::new(entry)));
            }
            if group.overflow == 0 {
                return None;
            }
            number = self.behind(number);
            if number == home {
                return None;
            }
        }
    }

    /// Adds an entry that the index does not contain. If the index grows, it calls `hash_of` for the entries that may
    /// have to move.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, entry: Ix, hash_of: impl Fn(Ix) -> u64) {
        if self.count >= self.grow_at {
            self.add_group(hash_of);
        }
        self.place_entry(hash, entry);
        self.count += 1;
    }

    #[inline]
    fn place_entry(&mut self, hash: u64, entry: Ix) {
        let mut number = self.home(hash);
        loop {
            let group = &mut self.groups[number];
            if let Some(at) = group.free_place() {
                group.tags[at] = tag(hash);
                group.entries[at] = entry.number();
                return;
            }
            group.overflow = (group.overflow + 1).min(OVERFLOW_MAX);
            number = self.behind(number);
        }
    }

    /// Adds the next group and divides the entries of another group between both.
    #[cold]
    #[inline(never)]
    fn add_group(&mut self, hash_of: impl Fn(Ix) -> u64) {
        let added = self.groups.len();
        let mask = (added + 1).next_power_of_two() - 1;
        let split = added & mask >> 1;
        let mut moving = Vec::with_capacity(GROUP_LEN);
        // Entries that stay in the split group are also placed again, because most displaced ones now fit into their
        // home group. Otherwise more and more groups would count overflow, and searches would become long.
        self.take_out_where(split, |home, _| home == split, &hash_of, &mut moving);
        if self.groups[added - 1].overflow > 0 {
            // If the groups up to the last one were full, entries with home groups near the end are in the first
            // groups. If they stayed in the first groups, a search for them would have to pass each new group.
            self.take_out_where(0, |home, number| home > number, &hash_of, &mut moving);
        }
        if self.groups.len() == self.groups.capacity() {
            make_room(&mut self.groups, self.group_count_max);
        }
        self.groups.push(Group::default());
        self.mask = mask;
        self.grow_at = if self.groups.len().is_power_of_two() { FILL_MAX * self.groups.len() } else { 0 };
        for (hash, entry) in moving {
            self.place_entry(hash, entry);
        }
    }

    /// Takes out the entries for which `is_wanted` returns true, given their home group and their actual group, and
    /// adds them to `taken`. Searches group `number` and the groups behind it. An entry whose home group was full is in
    /// a group behind it, and each full group on the way counts it in `overflow`. So the search ends after the first
    /// group whose `overflow` is 0.
    fn take_out_where(
        &mut self,
        mut number: usize,
        is_wanted: impl Fn(usize, usize) -> bool,
        hash_of: impl Fn(Ix) -> u64,
        taken: &mut Vec<(u64, Ix)>,
    ) {
        for _ in 0..self.groups.len() {
            for at in 0..GROUP_LEN {
                let Group { tags, entries, .. } = &self.groups[number];
                let (is_used, entry) = (tags[at] != 0, Ix::new(entries[at]));
                if is_used {
                    let hash = hash_of(entry);
                    let home = self.home(hash);
                    if is_wanted(home, number) {
                        self.take_out(home, number, at);
                        taken.push((hash, entry));
                    }
                }
            }
            if self.groups[number].overflow == 0 {
                return;
            }
            number = self.behind(number);
        }
    }

    /// Removes an entry. Has no effect if the entry is absent.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, entry: Ix) {
        if let Some((number, at, _)) = self.place_of(hash, |other| other == entry) {
            self.take_out(self.home(hash), number, at);
            self.count -= 1;
        }
    }

    /// Frees the place `at` in group `number`, whose entry has the home group `home`.
    #[inline]
    fn take_out(&mut self, home: usize, number: usize, at: usize) {
        self.groups[number].tags[at] = 0;
        // Each group that the entry passed has counted it in `overflow`. A group with `OVERFLOW_MAX` keeps this count
        // forever, because its true count is unknown.
        let mut passed = home;
        while passed != number {
            let overflow = &mut self.groups[passed].overflow;
            if *overflow < OVERFLOW_MAX {
                *overflow -= 1;
            }
            passed = self.behind(passed);
        }
    }

    /// Checks the tags, the number of entries, and the count `overflow` of each group: the number of entries that are
    /// behind this group although their home is this group or an earlier one. So a search finds each entry. For tests.
    ///
    /// # Panics
    /// Panics if a check fails.
    pub(crate) fn verify(&self, hash_of: impl Fn(Ix) -> u64) {
        let mut overflows = vec![0_u32; self.groups.len()];
        let mut count = 0;
        for (number, group) in self.groups.iter().enumerate() {
            for (at, entry) in group.iter() {
                count += 1;
                let hash = hash_of(Ix::new(entry));
                assert_eq!(group.tags[at], tag(hash), "tag of entry {entry}");
                let mut passed = self.home(hash);
                while passed != number {
                    overflows[passed] += 1;
                    passed = self.behind(passed);
                }
            }
        }
        assert_eq!(count, self.count, "entries of the index");
        for (number, group) in self.groups.iter().enumerate() {
            let counted = group.overflow;
            assert!(
                counted == overflows[number] || counted == OVERFLOW_MAX,
                "group {number} counts {counted} displaced entries, {} passed it",
                overflows[number]
            );
        }
        let group_count = self.groups.len();
        assert_eq!(self.mask, group_count.next_power_of_two() - 1, "mask of {group_count} groups");
        assert!(count <= (FILL_MAX + 1) * group_count, "{count} entries in {group_count} groups");
    }
}

/// Returns a tag of seven hash bits that do not choose the group. The tag is never 0, which marks a free place.
#[inline]
fn tag(hash: u64) -> u8 {
    (hash >> 57) as u8 | 0x80
}

/// Highest bit of each byte, which is set in tags and clear in free places.
const HIGH: u64 = 0x8080_8080_8080_8080;

impl Group {
    /// Returns the occupied places and their entries.
    fn iter(&self) -> impl Iterator<Item = (usize, u32)> {
        let is_used = |(at, entry): (usize, &u32)| (self.tags[at] != 0).then_some((at, *entry));
        self.entries.iter().enumerate().filter_map(is_used)
    }

    /// Returns the tags of the first eight places and the tags of the other four.
    #[inline]
    fn tag_words(&self) -> [u64; 2] {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.tags;
        [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from(u32::from_le_bytes([i, j, k, l]))]
    }

    /// Returns the first place with this tag whose entry satisfies `is`, and the entry.
    ///
    /// The search may also compare the entry behind a match if its tag differs only in the lowest bit. That costs one
    /// key comparison and is otherwise harmless. Free places never match.
    #[inline(always)]
    fn find(&self, tag: u8, mut is: impl FnMut(u32) -> bool) -> Option<(usize, u32)> {
        const ONES: u64 = 0x0101_0101_0101_0101;
        for (word, first) in self.tag_words().into_iter().zip([0, 8]) {
            // A byte that is zero after the exclusive or matches: subtracting one borrows into its highest bit.
            let differing = word ^ (ONES * u64::from(tag));
            let mut matches = differing.wrapping_sub(ONES) & !differing & word & HIGH;
            while matches != 0 {
                let at = first + matches.trailing_zeros() as usize / 8;
                let entry = self.entries[at];
                if is(entry) {
                    return Some((at, entry));
                }
                matches &= matches - 1;
            }
        }
        None
    }

    /// Returns the first free place.
    #[inline]
    fn free_place(&self) -> Option<usize> {
        let [low, high] = self.tag_words();
        let (low, high) = (!low & HIGH, !high & HIGH >> 32);
        if low != 0 {
            Some(low.trailing_zeros() as usize / 8)
        } else if high != 0 {
            Some(8 + high.trailing_zeros() as usize / 8)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahash::RandomState;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    /// Returns two hashes: the first often collides in group and tag, the second rarely.
    fn hashes(seed: u64) -> [u64; 2] {
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [mixed & 0x8000_0000_0000_0003, RandomState::with_seeds(1, 2, 3, 4).hash_one(seed)]
    }

    #[test]
    fn entries_are_found_until_they_are_removed() {
        for which in 0..2 {
            let hash = |entry: u32| hashes(u64::from(entry))[which];
            let mut index = HashIndex::<u32>::new(1);
            let mut model = BTreeMap::new();
            let mut random = 1_u64;
            for step in 0..20_000 {
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
                if step < 1000 || step % 64 == 0 {
                    index.verify(hash);
                }
            }
            assert_eq!(index.len(), model.len());
            for entry in model.keys() {
                index.remove(hash(*entry), *entry);
            }
            assert_eq!(index.len(), 0);
            let is_empty = |group: &Group| group.tags == [0; GROUP_LEN] && group.overflow == 0;
            assert!(which == 0 || index.groups.iter().all(is_empty), "a removal left a trace");
        }
    }

    #[test]
    fn an_insertion_moves_the_entries_of_at_most_one_group() {
        let asked = Cell::new(0_u32);
        let hash = |entry: u32| hashes(u64::from(entry))[1];
        let counted = |entry| {
            asked.set(asked.get() + 1);
            hash(entry)
        };
        let mut index = HashIndex::<u32>::new(1_000_000);
        let (mut dearest, mut sum) = (0, 0_u64);
        for entry in 0..1_000_000 {
            asked.set(0);
            index.insert(hash(entry), entry, counted);
            dearest = dearest.max(asked.get());
            sum += u64::from(asked.get());
        }
        assert!(dearest <= 20 * GROUP_LEN as u32, "an insertion looked at {dearest} entries");
        assert!(sum <= 3_000_000, "all insertions looked at {sum} entries");
        index.verify(hash);
        assert!((0..1_000_000).all(|entry| index.find(hash(entry), |other| other == entry) == Some(entry)));
        assert!(index.groups.len() <= index.group_count_max, "{} groups", index.groups.len());
    }

    #[test]
    fn groups_are_aligned_to_cache_lines() {
        let mut index = HashIndex::<u32>::new(10_000);
        for entry in 0..10_000 {
            index.insert(hashes(u64::from(entry))[1], entry, |entry| hashes(u64::from(entry))[1]);
            assert_eq!(index.groups.as_ptr() as usize % 64, 0);
        }
    }
}
