//! Key records of a shard: the fence counter of each known key, and its claims.

use crate::handle::{ClaimIx, KeyIx, PoolIx, QueueIx, TreeIx};
use crate::ids::{Fence, Scope};
use crate::index::HashIndex;
use crate::key::{LongKeys, StoredKey, hash};
use crate::limits::{CLOCK_HAND_STEPS, Limits};
use crate::slab::Slab;
use ahash::RandomState;

/// Bits of [`Entry::flags`].
pub(crate) mod flag {
    /// Whether the record is in use.
    pub(crate) const LIVE: u8 = 1 << 0;
    /// Whether `Entry::head` is a queue, or a tree or pool if `TREE` or `POOL` is set. Without this flag, `Entry::head`
    /// is the only holder, or `FREE`.
    pub(crate) const QUEUED: u8 = 1 << 1;
    /// Whether the key was used since the clock hand (which evicts idle keys) last passed its record.
    pub(crate) const USED: u8 = 1 << 2;
    /// Whether `Entry::head` is a tree and the record stands for its namespace. Set together with `QUEUED`.
    pub(crate) const TREE: u8 = 1 << 3;
    /// Whether `Entry::head` is a pool. Set together with `QUEUED`.
    pub(crate) const POOL: u8 = 1 << 4;
    /// Whether the durable log has the counter of the key. If so, the log must also have a record of each further
    /// grant.
    pub(crate) const LOCAL: u8 = 1 << 5;
    /// Whether a cluster keeps the counter of the key.
    pub(crate) const QUORUM: u8 = 1 << 6;
}

/// Record of one known key, in 32 bytes.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Entry {
    key: StoredKey,
    pub(crate) flags: u8,
    pub(crate) namespace: u16,
    /// Number of the holder, queue, tree or pool, depending on the flags; `FREE` if the key has none of them.
    head: u32,
    /// Fence of the newest grant. Before the first grant, the fence at which the counter started (the floor of the
    /// table).
    pub(crate) fence: Fence,
}

const _: () = assert!(size_of::<Entry>() == 32, "two keys to a cache line");

/// Value of [`Entry::head`] for a key without holder, waiters and watches.
const FREE: u32 = u32::MAX;

/// Record that has the claims of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupancy {
    /// The key has no holder, no waiter and no watch.
    Free,
    /// One claim holds the key, and no claim waits for it.
    Held(ClaimIx),
    /// Several claims hold the key, claims wait for it, or a client watches it.
    Queued(QueueIx),
    /// The key record stands for a whole tree namespace.
    Tree(TreeIx),
    /// The key names a pool.
    Pool(PoolIx),
}

/// Kind of object that a key record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A key, contended or not.
    Flat,
    /// A whole tree namespace.
    Tree,
    /// A pool.
    Pool,
}

impl Entry {
    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether the key has no holder, no waiter and no watch, and a grant needs neither log nor cluster.
    #[inline]
    pub(crate) fn is_free_and_ephemeral(&self) -> bool {
        self.is_free() && !self.has(flag::LOCAL | flag::QUORUM)
    }

    /// Returns the durability of the counter.
    #[inline]
    pub(crate) fn scope(&self) -> Scope {
        if self.has(flag::QUORUM) {
            Scope::Quorum
        } else if self.has(flag::LOCAL) {
            Scope::Local
        } else {
            Scope::Ephemeral
        }
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        if self.flags & (flag::TREE | flag::POOL) == 0 {
            Kind::Flat
        } else if self.has(flag::TREE) {
            Kind::Tree
        } else {
            Kind::Pool
        }
    }

    /// Returns the record that has the claims of the key: its only holder, its queue, its tree or its pool.
    /// `Occupancy::Free` if the key has no claims.
    #[inline]
    pub(crate) fn occupancy(&self) -> Occupancy {
        if !self.has(flag::QUEUED) {
            let holder = self.holder();
            return if holder.is_none() { Occupancy::Free } else { Occupancy::Held(holder) };
        }
        match self.kind() {
            Kind::Flat => Occupancy::Queued(self.queue()),
            Kind::Tree => Occupancy::Tree(self.tree()),
            Kind::Pool => Occupancy::Pool(self.pool()),
        }
    }

    /// Whether the key has no holder, no waiter and no watch, and the record stands for no pool or tree.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.head == FREE
    }

    /// Returns the only holder of a key without a queue, or `NONE`.
    #[inline]
    pub(crate) fn holder(&self) -> ClaimIx {
        debug_assert!(!self.has(flag::QUEUED));
        ClaimIx::new(self.head)
    }

    /// Returns the queue of a contended key.
    #[inline]
    pub(crate) fn queue(&self) -> QueueIx {
        debug_assert!(self.flags & (flag::QUEUED | flag::TREE | flag::POOL) == flag::QUEUED);
        QueueIx::new(self.head)
    }

    /// Returns the tree of a tree namespace.
    #[inline]
    pub(crate) fn tree(&self) -> TreeIx {
        debug_assert!(self.has(flag::TREE));
        TreeIx::new(self.head)
    }

    /// Returns the pool that the key names.
    #[inline]
    pub(crate) fn pool(&self) -> PoolIx {
        debug_assert!(self.has(flag::POOL));
        PoolIx::new(self.head)
    }

    /// Notes the only holder of a key that had no queue.
    #[inline]
    pub(crate) fn set_holder(&mut self, holder: ClaimIx) {
        debug_assert!(!self.has(flag::QUEUED));
        self.head = holder.number();
    }

    /// Replaces the only holder, if there is one, by a queue that contains it.
    pub(crate) fn set_queue(&mut self, queue: QueueIx) {
        self.head = queue.number();
        self.flags |= flag::QUEUED;
    }

    /// Replaces a queue by its only holder, or by `NONE`.
    pub(crate) fn end_queue(&mut self, holder: ClaimIx) {
        self.flags &= !flag::QUEUED;
        self.head = holder.number();
    }

    /// Makes a free key record stand for a tree namespace.
    pub(crate) fn set_tree(&mut self, tree: TreeIx) {
        self.head = tree.number();
        self.flags |= flag::QUEUED | flag::TREE;
    }

    /// Makes a free key name a pool.
    pub(crate) fn set_pool(&mut self, pool: PoolIx) {
        self.head = pool.number();
        self.flags |= flag::QUEUED | flag::POOL;
    }

    /// Removes the pool from its key record. The caller must then call [`KeyTable::become_idle`].
    pub(crate) fn end_pool(&mut self) {
        self.flags &= !(flag::QUEUED | flag::POOL);
    }

    /// Whether the record stands for this namespace as a whole, which is a tree, and not for one key.
    #[inline]
    fn is_whole(&self, namespace: u16) -> bool {
        self.namespace == namespace && self.has(flag::LIVE) && self.key.is_empty()
    }

    #[inline]
    fn is(&self, namespace: u16, key: &[u8], long_keys: &LongKeys) -> bool {
        self.namespace == namespace && self.has(flag::LIVE) && self.key.is(key, long_keys)
    }
}

/// Key records of all keys that are held, waited for, or kept for their counters.
///
/// A free key keeps its record, so acquiring the same key again does not change the index. Beyond `idle_count_max` free
/// keys, a clock hand (second chance) evicts the least used ones. Their counters fold into the **floor**: it is raised
/// to at least each of them, and the counter of every unknown key starts at it. So a fence may jump up, but never goes
/// back.
#[derive(Debug)]
pub(crate) struct KeyTable {
    pub(crate) entries: Slab<KeyIx, Entry>,
    index: HashIndex<KeyIx>,
    long_keys: LongKeys,
    hasher: RandomState,
    /// Fence at which the counter of each new key record starts; at least the highest fence of all evicted keys.
    floor: Fence,
    /// Evicted keys whose counters are in the durable log. `Shard::record_folded` empties this list in a later turn.
    /// For each key, it records that the log need not keep the counter: the floor, the fence at which counters of
    /// unknown keys start, is at least as high.
    pub(crate) folded: Vec<(u16, Box<[u8]>)>,
    idle_count: u32,
    idle_count_max: u32,
    hand: KeyIx,
}

impl KeyTable {
    /// Returns the memory of the table in bytes, without long keys.
    pub(crate) fn len_bytes(&self) -> usize {
        self.entries.len_bytes() + self.index.len_bytes()
    }

    pub(crate) fn new(hasher: RandomState, limits: &Limits) -> Self {
        let idle_count_max = limits.idle_key_count_max;
        Self {
            // Every claim may have its own key, so make room for as many keys in addition to the idle ones.
            entries: Slab::with_capacity(limits.claim_count_max.saturating_add(idle_count_max)),
            index: HashIndex::new(limits.claim_count_max as usize + idle_count_max as usize),
            long_keys: LongKeys::default(),
            hasher,
            floor: Fence::NONE,
            folded: Vec::new(),
            idle_count: 0,
            idle_count_max,
            hand: KeyIx::new(0),
        }
    }

    #[inline]
    pub(crate) fn hash(&self, namespace: u16, key: &[u8]) -> u64 {
        hash(&self.hasher, namespace, key)
    }

    /// Prefetches the index group of this hash.
    #[inline]
    pub(crate) fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Prefetches the key record that most likely has this hash.
    #[inline]
    pub(crate) fn prefetch_candidate(&self, hash: u64) {
        if let Some(entry) = self.index.candidate(hash) {
            self.entries.prefetch(entry);
        }
    }

    /// Returns the record of a key, or `NONE`.
    #[inline]
    pub(crate) fn find(&self, namespace: u16, key: &[u8], hash: u64) -> KeyIx {
        self.index.find(hash, |index| self.is(index, namespace, key)).unwrap_or(KeyIx::NONE)
    }

    /// Returns the record that stands for a tree namespace as a whole, or `NONE`. Its key is empty, so the search
    /// compares no bytes.
    #[inline]
    pub(crate) fn find_whole(&self, namespace: u16) -> KeyIx {
        let hash = self.hash(namespace, b"");
        let is_whole = |index| self.entries.get(index).is_some_and(|entry: &Entry| entry.is_whole(namespace));
        self.index.find(hash, is_whole).unwrap_or(KeyIx::NONE)
    }

    /// Whether this record is the record of the key.
    #[inline]
    fn is(&self, index: KeyIx, namespace: u16, key: &[u8]) -> bool {
        self.entries.get(index).is_some_and(|entry| entry.is(namespace, key, &self.long_keys))
    }

    /// Adds a record for a key that has none. The key counts as idle until it gets a holder, a waiter, or a watch.
    #[cold]
    pub(crate) fn insert(&mut self, namespace: u16, key: &[u8], hash_of_key: u64) -> KeyIx {
        self.evict_some();
        self.insert_beside(namespace, key, hash_of_key)
    }

    /// Adds a record like [`KeyTable::insert`], but evicts no idle key. A caller that adds several keys looks up all of
    /// them first. An eviction after these look-ups could remove the record of an idle key that the caller has found.
    pub(crate) fn insert_beside(&mut self, namespace: u16, key: &[u8], hash_of_key: u64) -> KeyIx {
        let index = self.entries.allocate();
        self.entries[index] = Entry {
            key: self.long_keys.store(key),
            flags: flag::LIVE | flag::USED,
            namespace,
            head: FREE,
            fence: self.floor,
        };
        self.idle_count += 1;
        let Self { entries, long_keys, hasher, index: table, .. } = self;
        table.insert(hash_of_key, index, |other| {
            let entry = &entries[other];
            hash(hasher, entry.namespace, entry.key.bytes(long_keys))
        });
        index
    }

    pub(crate) fn key(&self, index: KeyIx) -> &[u8] {
        self.entries[index].key.bytes(&self.long_keys)
    }

    /// Subtracts 1 from the number of idle keys, because a key is held, waited for or watched from now on.
    #[inline]
    pub(crate) fn leave_idle(&mut self) {
        self.idle_count -= 1;
    }

    /// Marks the record of a key as free and recently used, and counts the key as idle, because its last claim or watch
    /// ended. The record keeps the fence counter until the clock hand (which removes records of idle keys) evicts it.
    #[inline]
    pub(crate) fn become_idle(&mut self, index: KeyIx) {
        let entry = &mut self.entries[index];
        debug_assert!(!entry.has(flag::QUEUED));
        entry.head = FREE;
        entry.flags |= flag::USED;
        self.idle_count += 1;
    }

    /// Moves the clock hand by a few steps if there are too many idle keys. If a million keys become free together,
    /// they are thus evicted gradually, as other keys arrive.
    pub(crate) fn evict_some(&mut self) {
        for _ in 0..CLOCK_HAND_STEPS {
            if self.idle_count == 0 || self.idle_count < self.idle_count_max {
                return;
            }
            self.hand = self.entries.after(self.hand);
            let entry = &mut self.entries[self.hand];
            if !entry.has(flag::LIVE) || !entry.is_free() {
                continue;
            }
            if entry.has(flag::USED) {
                entry.flags &= !flag::USED;
                continue;
            }
            self.evict(self.hand);
        }
    }

    /// Evicts the key in this slot if it is idle and `concerns` accepts its namespace. Returns the namespace if
    /// `concerns` accepts it but the key is not idle.
    pub(crate) fn forget(&mut self, slot: KeyIx, concerns: impl FnOnce(u16) -> bool) -> Option<u16> {
        let entry = self.entries.get(slot).filter(|entry| entry.has(flag::LIVE))?;
        let Entry { namespace, head, .. } = *entry;
        if !concerns(namespace) {
            return None;
        }
        if head != FREE {
            return Some(namespace);
        }
        self.evict(slot);
        None
    }

    fn evict(&mut self, index: KeyIx) {
        let hash = self.hash(self.entries[index].namespace, self.key(index));
        self.index.remove(hash, index);
        let entry = &mut self.entries[index];
        // Raise the floor, at which the counter of each new record starts. So a later record of this key never starts
        // below the evicted counter.
        self.floor = self.floor.max(entry.fence);
        if entry.has(flag::LOCAL) {
            self.folded.push((entry.namespace, entry.key.bytes(&self.long_keys).into()));
        }
        self.long_keys.discard(&mut entry.key);
        entry.flags = 0;
        self.entries.release(index);
        self.idle_count -= 1;
    }

    /// Checks that the index finds each key record. For tests.
    pub(crate) fn verify_index(&self) {
        self.index.verify(|index| self.hash(self.entries[index].namespace, self.key(index)));
    }

    #[cfg(debug_assertions)]
    pub(crate) fn records_touched(&self) -> u64 {
        self.entries.touched() + self.long_keys.touched()
    }

    pub(crate) fn idle_count(&self) -> u32 {
        self.idle_count
    }

    pub(crate) fn floor(&self) -> Fence {
        self.floor
    }

    /// Raises the floor to at least `fence`: the counter of an unknown key never starts below it.
    pub(crate) fn raise_floor(&mut self, fence: Fence) {
        self.floor = self.floor.max(fence);
    }

    /// Whether the table has room for one more idle key.
    pub(crate) fn has_room_for_idle(&self) -> bool {
        self.idle_count < self.idle_count_max
    }
}
