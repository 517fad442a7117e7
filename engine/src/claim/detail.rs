//! Rare data of a claim.

use crate::handle::ClaimIx;
use crate::measure::FreedAt;
use crate::multi_key_claim::{KeySet, MultiKeyClaim};
use crate::time::{NANOS_PER_MS, Time};
use std::sync::Arc;

/// Position of a waiter relative to other waiters: by rank, then by order of arrival in the shard. Fixed at arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct OrderKey {
    /// In a queue, the time of the arrival less the boost of the priority, in milliseconds; it may be below zero. For
    /// permits, the timestamp of the acquire in microseconds, which only a pool ordered by timestamp uses.
    pub(crate) rank: i64,
    /// Decides between equal ranks: the value of the shard's counter of arrivals when the claim arrived. The counter
    /// counts each acquire whose claim has a [`Detail`], and each takeover of a claim that is not held yet. A claim
    /// without a `Detail` does not wait, so it needs no position.
    pub(crate) arrival: u64,
}

impl OrderKey {
    /// Position before every waiter.
    pub(crate) const FIRST: Self = Self { rank: i64::MIN, arrival: 0 };

    /// Returns the first position behind this one.
    pub(crate) fn next(self) -> Self {
        Self { arrival: self.arrival + 1, ..self }
    }
}

/// Data that depends on the kind of request.
#[derive(Debug, Default)]
pub(crate) enum Extra {
    /// No further data: a claim for one key, or for a set of paths without a request id.
    #[default]
    None,
    /// Number of permits that the claim holds or waits for, in its pool.
    Permits(u64),
    /// Multi-key claim that is not held yet and has this claim as a member.
    MultiKeyClaim(Arc<MultiKeyClaim>),
    /// All keys of the multi-key claim that this hold was granted with; at most their hash if the claim has no request
    /// id. A repeated acquire with a request id must be for exactly these keys.
    Sibling(Arc<KeySet>),
    /// Hash of all keys of the multi-key claim that a restored hold was granted with. The log has this hash, but not
    /// the keys.
    RestoredSibling(u64),
    /// Hash of the paths and modes (read or write) of a set that was acquired with a request id.
    Paths(u64),
    /// Type, value and end of a registration.
    Registration(Box<RegisteredAs>),
}

/// Data that an owner registered for a key.
#[derive(Debug)]
pub(crate) struct RegisteredAs {
    pub(crate) type_name: Arc<[u8]>,
    pub(crate) value: Arc<[u8]>,
    /// End of the lease in milliseconds of the engine's clock. It may be below zero.
    pub(crate) end_ms: i64,
    /// Whether the namespace is lazy: the end of the lease has no immediate effect.
    pub(crate) lazy: bool,
}

impl RegisteredAs {
    /// Returns the number of bytes of the type and the value.
    pub(crate) fn len(&self) -> usize {
        self.type_name.len() + self.value.len()
    }
}

/// Data that not every claim has: a claim needs it while its acquire waits, to be in a list of its lane, for permits
/// and registrations, after a restart, or for rare options.
#[derive(Debug)]
pub(crate) struct Detail {
    /// Neighbours in the list of the lane that has the claim: `Lane::unsettled` or `Lane::settled`. These two lists
    /// have the claims that a lost connection or an ended session affects.
    pub(crate) lane_next: ClaimIx,
    pub(crate) lane_previous: ClaimIx,
    pub(crate) order: OrderKey,
    /// Request number of the acquire that the answer to this claim goes to, or went to.
    pub(crate) number: u32,
    /// For a claim that is not held yet: value of the shard's counter of arrivals when its latest acquire arrived. That
    /// acquire gets the answer. `Lane::lost_arrivals` is the value when the lane last lost its connection. If that
    /// value is higher, the connection of the acquire was lost.
    pub(crate) asked: u64,
    /// Length of the lease in milliseconds. A waiting claim gets this lease with its grant.
    pub(crate) lease_ms: u32,
    pub(crate) priority: u32,
    pub(crate) release_after_ms: Option<u32>,
    /// End of the lease of a hold that lost its connection. The deadline of the claim is the earlier one of `lease_end`
    /// and `release_end`.
    pub(crate) lease_end: Time,
    /// End of a hold whose connection was lost: `release_after_ms` after the loss.
    pub(crate) release_end: Time,
    /// Owner of the claim, if it may differ from the owner of the lane.
    pub(crate) owner: Option<Arc<[u8]>>,
    /// Identity that acquired a restored hold, if known. Other claims have the identity of their lane.
    pub(crate) identity: Option<Arc<str>>,
    /// Request id. Unless they were restored, the claims at the keys of a multi-key claim share the memory of their
    /// request id, owner and metadata. If the multi-key claim had to wait, its claim at the first key has a copy of the
    /// request id for itself.
    pub(crate) request_id: Option<Arc<[u8]>>,
    /// Text for operators.
    pub(crate) metadata: Option<Arc<[u8]>>,
    /// Whether the acquire asks for scope `Quorum`, so that a cluster keeps the fence counter.
    pub(crate) wants_quorum: bool,
    /// Whether the hold begins only when a cluster has raised a fence counter. In a multi-key claim, one key whose
    /// counter the cluster keeps is enough: the claims at all keys then wait for the cluster.
    pub(crate) begins_counted: bool,
    /// Whether the claim raised the scope of its key to `Quorum`. If the claim ends before it is held, and no later
    /// claim of the key got a fence, the scope is lowered again.
    pub(crate) raises_scope: bool,
    /// Whether the acquire that gets the answer was reported with `Effects::waits`, so that its answer must go through
    /// `Effects::answer_waiter`. Set when a waiting claim is reserved (its fence is not durable yet), when a waiting
    /// multi-key claim is granted, and when a later acquire takes over a claim that is not held yet. Has no effect
    /// while a claim is in a queue, because its acquire is known to wait.
    pub(crate) waited: bool,
    /// Whether the latest acquire of the claim found it by its request id when it was already held.
    pub(crate) repeated: bool,
    /// Number of the log record that says that a later acquire has taken the claim over. 0 if there is no such record;
    /// [`MOVED_BESIDE_RECORDS`] if the log has such records only for other keys of its multi-key claim. The answer to
    /// the later acquire, and every later event about the claim, waits until the record is durable. If the log or the
    /// cluster confirms the fence of the claim while this number is not 0, the shard delays the hold: until all records
    /// so far are durable. That delay covers the record of the takeover, so `Shard::put_off` resets this number to 0.
    pub(crate) moved_record: u64,
    /// Time for which a hold had waited before its grant.
    pub(crate) waited_nanos: u64,
    /// Time at which the end of a hold made room for this claim, while the fence of this claim is not durable yet;
    /// `NEVER` if the grant has another cause. When the claim becomes held, the time since then is measured for the
    /// metrics.
    pub(crate) freed_at: FreedAt,
    /// Place in the id of a restored hold, which it had in the earlier server process. Clients know the hold by that
    /// id.
    pub(crate) restored_place: Option<u64>,
    /// Number of bytes that the accounts of the lane count for the claim, without its key.
    pub(crate) counted_len: u32,
    pub(crate) extra: Extra,
}

/// Value of [`Detail::moved_record`] for a claim without a log record, after a later acquire has taken over its
/// multi-key claim. The log has records of this takeover for other keys, maybe from other shards. This shard does not
/// know when those records are durable. So it delays all later events about the claim with `Effects::when_durable`,
/// which sends them after the answer to the later acquire.
pub(crate) const MOVED_BESIDE_RECORDS: u64 = u64::MAX;

impl Default for Detail {
    fn default() -> Self {
        Self {
            lane_next: ClaimIx::NONE,
            lane_previous: ClaimIx::NONE,
            order: OrderKey::default(),
            number: 0,
            asked: 0,
            lease_ms: 0,
            priority: 0,
            release_after_ms: None,
            lease_end: Time::NEVER,
            release_end: Time::NEVER,
            owner: None,
            identity: None,
            request_id: None,
            metadata: None,
            wants_quorum: false,
            begins_counted: false,
            raises_scope: false,
            waited: false,
            repeated: false,
            moved_record: 0,
            waited_nanos: 0,
            freed_at: FreedAt::NEVER,
            restored_place: None,
            counted_len: 0,
            extra: Extra::None,
        }
    }
}

impl Detail {
    /// Returns the time for which a hold had waited before its grant, in whole milliseconds.
    pub(crate) fn waited_ms(&self) -> u64 {
        self.waited_nanos / NANOS_PER_MS
    }

    /// Returns the number of permits, if the claim is for permits of a pool.
    pub(crate) fn permits(&self) -> Option<u64> {
        if let Extra::Permits(permits) = self.extra { Some(permits) } else { None }
    }

    /// Returns the multi-key claim that has this claim as a member, until the claim is held.
    pub(crate) fn multi_key(&self) -> Option<&Arc<MultiKeyClaim>> {
        if let Extra::MultiKeyClaim(multi_key) = &self.extra { Some(multi_key) } else { None }
    }

    /// Returns the hash of the paths of a set and their modes (read or write), if the set was acquired with a request
    /// id.
    pub(crate) fn fingerprint(&self) -> Option<u64> {
        if let Extra::Paths(fingerprint) = self.extra { Some(fingerprint) } else { None }
    }

    /// Whether this claim belongs to a multi-key claim for exactly `keys`; with `None`, whether it belongs to no
    /// multi-key claim. For a restored hold, only the hashes of the keys are compared.
    pub(crate) fn is_part_of(&self, keys: Option<&KeySet>) -> bool {
        match (&self.extra, keys) {
            (Extra::MultiKeyClaim(multi_key), Some(keys)) => multi_key.keys.is_same(keys),
            (Extra::Sibling(own), Some(keys)) => own.is_same(keys),
            // Equal hashes do not prove equal sets of keys, but different hashes prove different sets. The caller has
            // found the hold by its key, so it uses the hash only to reject other sets.
            (Extra::RestoredSibling(hash), Some(keys)) => *hash == keys.hash(),
            (Extra::MultiKeyClaim(_) | Extra::Sibling(_) | Extra::RestoredSibling(_), None) => false,
            (_, keys) => keys.is_none(),
        }
    }

    /// Returns the keys of the multi-key claim to which the claim belongs, or at most their hash if it has no request
    /// id. `None` for any other claim, and for a restored hold, whose other keys are unknown.
    pub(crate) fn key_set(&self) -> Option<&Arc<KeySet>> {
        match &self.extra {
            Extra::MultiKeyClaim(multi_key) => Some(&multi_key.keys),
            Extra::Sibling(keys) => Some(keys),
            _ => None,
        }
    }

    /// Returns the hash under which the log has the keys of the multi-key claim to which the claim belongs.
    pub(crate) fn key_set_hash(&self) -> Option<u64> {
        match &self.extra {
            Extra::MultiKeyClaim(multi_key) => Some(multi_key.keys.hash()),
            Extra::Sibling(keys) => Some(keys.hash()),
            Extra::RestoredSibling(hash) => Some(*hash),
            _ => None,
        }
    }

    /// Returns the data that an owner registered, if the claim is a registration.
    pub(crate) fn registration(&self) -> Option<&RegisteredAs> {
        if let Extra::Registration(registered) = &self.extra { Some(registered) } else { None }
    }

    /// Returns the text that lists show for the claim: its metadata, or the registered value.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        self.registration().map(|registered| &*registered.value).or(self.metadata.as_deref())
    }

    /// Whether a hold still needs this data after its grant. A hold in one of the lists of its lane keeps the data in
    /// any case, because the data has the links of the list.
    pub(crate) fn outlives_wait(&self) -> bool {
        matches!(self.extra, Extra::Permits(_) | Extra::Registration(_))
            || self.priority != 0
            || self.owner.is_some()
            || self.request_id.is_some()
            || self.metadata.is_some()
            || self.restored_place.is_some()
            || self.waited_nanos >= NANOS_PER_MS
            || self.counted_len > 0
    }
}
