//! The keys of a shard: each known key's counter and what hangs on it.

use crate::handle::{ClaimIx, KeyIx, PoolIx, QueueIx, TreeIx};
use crate::ids::Scope;
use crate::index::HashIndex;
use crate::key::{LongKeys, StoredKey, hash};
use crate::limits::{CLOCK_HAND_STEPS, Limits};
use crate::slab::Slab;
use ahash::RandomState;

/// Bits of [`Entry::flags`].
pub(crate) mod flag {
    /// The record is in use.
    pub(crate) const LIVE: u8 = 1 << 0;
    /// `head` is a queue, or what `TREE` or `POOL` says; otherwise the only holder, or `FREE`.
    pub(crate) const QUEUED: u8 = 1 << 1;
    /// Used since the clock hand last came by.
    pub(crate) const USED: u8 = 1 << 2;
    /// `head` is a tree, and the entry stands for its namespace. Set beside `QUEUED`.
    pub(crate) const TREE: u8 = 1 << 3;
    /// `head` is a pool. Set beside `QUEUED`.
    pub(crate) const POOL: u8 = 1 << 4;
    /// Its counter is in the durable log, and so is every grant of it from there on.
    pub(crate) const LOCAL: u8 = 1 << 5;
    /// Its counter is kept by a cluster.
    pub(crate) const QUORUM: u8 = 1 << 6;
}

/// One known key in 32 bytes.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Entry {
    key: StoredKey,
    pub(crate) flags: u8,
    pub(crate) namespace: u16,
    /// Number of the holder, queue, tree or pool, as the flags say; `FREE` without any.
    head: u32,
    /// The fence of the newest grant.
    pub(crate) fence: u64,
}

const _: () = assert!(size_of::<Entry>() == 32, "two keys to a cache line");

/// In [`Entry::head`]: nobody holds the key or waits for it.
const FREE: u32 = u32::MAX;

/// The record that has the claims of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupancy {
    /// Nobody holds the key or waits for it.
    Free,
    /// One claim holds the key, and nobody waits for it.
    Held(ClaimIx),
    /// Several claims hold the key or wait for it.
    Queued(QueueIx),
    /// The key record stands for a whole tree namespace.
    Tree(TreeIx),
    /// The key names a pool.
    Pool(PoolIx),
}

/// What an entry stands for.
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

    /// Nobody holds it or waits for it, and a grant of it needs neither log nor cluster.
    #[inline]
    pub(crate) fn is_free_and_ephemeral(&self) -> bool {
        self.is_free() && !self.has(flag::LOCAL | flag::QUORUM)
    }

    /// How durable its counter is.
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

    /// Returns the record that has the claims of the key.
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

    /// Whether nobody holds the key or waits for it.
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

    /// Replaces the only holder by a queue that has it.
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

    /// Makes the key name no pool.
    pub(crate) fn end_pool(&mut self) {
        self.flags &= !(flag::QUEUED | flag::POOL);
    }

    #[inline]
    fn is(&self, namespace: u16, key: &[u8], long_keys: &LongKeys) -> bool {
        self.namespace == namespace && self.has(flag::LIVE) && self.key.is(key, long_keys)
    }
}

/// Every key that is held, waited for, or remembered for its counter.
///
/// A key that becomes free keeps its entry, so that a key taken again and again touches no index. Beyond
/// `idle_count_max` such entries a clock hand (second chance) takes away the least used; their counters fold into the
/// **floor**, from which every key that is not known starts. So a fence may jump up, never back.
#[derive(Debug)]
pub(crate) struct KeyTable {
    pub(crate) entries: Slab<KeyIx, Entry>,
    index: HashIndex<KeyIx>,
    long_keys: LongKeys,
    hasher: RandomState,
    /// Not below any fence of a key that is no longer known.
    floor: u64,
    /// Keys whose counters are in the durable log and were folded into the floor, as long as that is not recorded.
    pub(crate) folded: Vec<(u16, Box<[u8]>)>,
    idle_count: u32,
    idle_count_max: u32,
    hand: KeyIx,
}

impl KeyTable {
    /// Memory of the table without long keys.
    pub(crate) fn len_bytes(&self) -> usize {
        self.entries.len_bytes() + self.index.len_bytes()
    }

    pub(crate) fn new(hasher: RandomState, limits: &Limits) -> Self {
        let idle_count_max = limits.idle_key_count_max;
        Self {
            // Every claim may have a key of its own, beside the idle ones.
            entries: Slab::with_capacity(limits.claim_count_max.saturating_add(idle_count_max)),
            index: HashIndex::new(limits.claim_count_max as usize + idle_count_max as usize),
            long_keys: LongKeys::default(),
            hasher,
            floor: 0,
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

    /// Brings the place of a hash in the index near.
    #[inline]
    pub(crate) fn prefetch_index(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Brings the entry near that is most likely the one of this hash.
    #[inline]
    pub(crate) fn prefetch_candidate(&self, hash: u64) {
        if let Some(entry) = self.index.candidate(hash) {
            self.entries.prefetch(entry);
        }
    }

    /// The entry of a key, or `NONE`.
    #[inline]
    pub(crate) fn find(&self, namespace: u16, key: &[u8], hash: u64) -> KeyIx {
        self.index.find(hash, |index| self.is(index, namespace, key)).unwrap_or(KeyIx::NONE)
    }

    /// Whether this entry is that of the key.
    #[inline]
    fn is(&self, index: KeyIx, namespace: u16, key: &[u8]) -> bool {
        self.entries.get(index).is_some_and(|entry| entry.is(namespace, key, &self.long_keys))
    }

    /// A new entry for a key that has none. It counts as idle until someone holds it.
    #[cold]
    pub(crate) fn insert(&mut self, namespace: u16, key: &[u8], hash_of_key: u64) -> KeyIx {
        self.evict_some();
        self.insert_beside(namespace, key, hash_of_key)
    }

    /// Like [`KeyTable::insert`], but forgets no other key: whoever inserts several has found some that are idle still.
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

    /// The key is held or waited for from here on.
    #[inline]
    pub(crate) fn leave_idle(&mut self) {
        self.idle_count -= 1;
    }

    /// Nobody holds the key or waits for it any more.
    #[inline]
    pub(crate) fn become_idle(&mut self, index: KeyIx) {
        let entry = &mut self.entries[index];
        debug_assert!(!entry.has(flag::QUEUED));
        entry.head = FREE;
        entry.flags |= flag::USED;
        self.idle_count += 1;
    }

    /// Moves the hand while there are too many idle keys, a few steps at most: a million keys that became free together
    /// leave one by one, as others arrive.
    pub(crate) fn evict_some(&mut self) {
        for _ in 0..CLOCK_HAND_STEPS {
            if self.idle_count == 0 || self.idle_count < self.idle_count_max {
                return;
            }
            let next = self.hand.number() + 1;
            self.hand = KeyIx::new(if next < self.entries.end() { next } else { 0 });
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

    /// Forgets the key in this slot, if there is one in a namespace that this concerns and it is idle. Returns the namespace if
    /// the key is not idle.
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
        self.floor = self.floor.max(entry.fence);
        if entry.has(flag::LOCAL) {
            self.folded.push((entry.namespace, entry.key.bytes(&self.long_keys).into()));
        }
        self.long_keys.discard(&mut entry.key);
        entry.flags = 0;
        self.entries.release(index);
        self.idle_count -= 1;
    }

    /// Checks the index. For tests.
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

    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// No key that is not known begins below this from here on.
    pub(crate) fn raise_floor(&mut self, fence: u64) {
        self.floor = self.floor.max(fence);
    }

    /// Whether one more idle key is kept.
    pub(crate) fn has_room_for_idle(&self) -> bool {
        self.idle_count < self.idle_count_max
    }
}
