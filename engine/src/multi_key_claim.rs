//! Multi-key claims that wait in the queues of several shards. `shard/multi_key` has the rules.

use crate::handle::ClaimIx;
use crate::ids::ClaimId;
use crate::stable_hash::stable_hash;
use crate::time::Time;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Multi-key claim whose acquire is not answered yet. The shards of all its keys share this value.
///
/// # How a multi-key claim is granted
///
/// A waiting multi-key claim has one *stub* in the queue of each of its keys. One step adds all stubs, while it has the
/// turns of all shards. So two claims have the same order in all queues that they share, and cannot wait for each other
/// in a circle. A stub blocks the waiters behind it as any waiter does, and holds nothing.
///
/// The stub of the smallest key is the *home*. (A stub is the waiter that stands for the claim at one key.) Only the
/// home has a timer and is linked to the lane, and the ticket of the acquire finds only the home. So only the shard of
/// the home decides about the end of the wait. When the wait ends there,
/// [`Effects::withdraw`](crate::Effects::withdraw) removes the other stubs.
///
/// A stub (the waiter that stands for the claim at one key) becomes *clear* when a claim for only its key would be
/// granted. Its shard then calls [`Effects::recheck`](crate::Effects::recheck), once until the stub may have become
/// blocked again. A worker takes the turns of all shards of the claim and checks every stub again. If all stubs are
/// clear, each becomes a hold with its own id, lease and fence. Otherwise nothing happens, and a stub that was not
/// clear causes the next check when it becomes clear. No worker waits while it has a turn, no key is held while the
/// claim waits for another one, and a failed attempt uses no fence.
#[derive(Debug)]
pub struct MultiKeyClaim {
    /// Stubs (the waiters that stand for the claim, one at each key), in the order of the keys. The first one is the
    /// home, which decides about the end of the wait.
    pub(crate) members: Box<[Member]>,
    /// Numbers of the shards of all keys of the claim, each once, in rising order.
    pub(crate) shards: Box<[u16]>,
    /// Keys of the claim. A repeated acquire with the same request id must be for the same keys.
    pub(crate) keys: Arc<KeySet>,
    /// End of the wait. Only the claim at the first key has a timer for it.
    pub(crate) wait_end: Time,
    /// Index of the member (the waiter at one key) that could not be granted at the last recheck of all keys. The next
    /// recheck begins with this member, because it is probably still blocked, and then no other member needs a check.
    /// Such repetitions are frequent: a holder that releases the keys one by one causes a recheck for each of them.
    /// Only a worker with the turns of all shards reads and changes the value.
    pub(crate) blocked: AtomicUsize,
}

/// One stub of a waiting multi-key claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) shard: u16,
    pub(crate) claim: ClaimIx,
    pub(crate) id: ClaimId,
}

impl MultiKeyClaim {
    /// Returns the shards whose turns a decision about the claim needs, in rising order.
    pub fn shards(&self) -> &[u16] {
        &self.shards
    }

    /// Returns the number of keys.
    pub fn key_count(&self) -> usize {
        self.members.len()
    }

    /// Returns the id of the waiting claim, which is the id of its waiter at the first key.
    pub fn id(&self) -> ClaimId {
        self.members[0].id
    }
}

/// Keys of a multi-key claim, to compare them with the keys of a repeated acquire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeySet {
    /// Hash of the keys; 0 if there is neither a log nor a request id. The log contains this hash instead of the keys.
    /// A client can choose two sets of keys with equal hashes, so equal hashes do not prove that the keys are equal.
    hash: u64,
    /// Each key with its length in front, so two sets are equal exactly if these bytes are equal. Empty if the claim
    /// has no request id.
    bytes: Box<[u8]>,
}

impl KeySet {
    /// Returns the set of these keys, which must be in bytewise order. For an acquire with a request id (`is_named`),
    /// the set keeps the keys and their hash. Otherwise it keeps only the hash if the server has a log (`is_recorded`),
    /// and nothing if it has none.
    pub(crate) fn new<'a>(
        keys: impl Iterator<Item = &'a [u8]> + Clone,
        is_named: bool,
        is_recorded: bool,
    ) -> Self {
        let mut bytes = Vec::new();
        if is_named {
            bytes.reserve_exact(keys.clone().map(|key| size_of::<u16>() + key.len()).sum());
            for key in keys.clone() {
                bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
                bytes.extend_from_slice(key);
            }
        }
        let is_hashed = is_named || is_recorded;
        let hash = if is_hashed { key_set_hash(keys) } else { 0 };
        Self { bytes: bytes.into(), hash }
    }

    /// Whether both sets have the same keys. Both must belong to acquires with a request id. All claims of one acquire
    /// share one `KeySet`, so mostly a comparison of the two addresses suffices.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self == other
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// Returns the hash by which the log identifies this set of keys. The keys must be in bytewise order.
pub fn key_set_hash<'a>(keys: impl Iterator<Item = &'a [u8]>) -> u64 {
    stable_hash(keys.map(|key| (key, false)))
}
