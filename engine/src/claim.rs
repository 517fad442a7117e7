//! One claim: 64 bytes for what every claim has, the rest out of line.

use crate::handle::{ClaimIx, DetailIx, ItemIx, KeyIx, LaneIx};
use crate::measure::FreedAt;
use crate::multi_key_claim::{KeySet, MultiKeyClaim};
use crate::slab::Slab;
use crate::time::{NANOS_PER_MS, Nanos, Time};
use crate::wheel::{Timers, WheelLinks};
use std::sync::Arc;

/// Bits of [`Claim::flags`].
pub(crate) mod flag {
    /// The record is in use.
    pub(crate) const LIVE: u16 = 1 << 0;
    /// Granted; otherwise it waits.
    pub(crate) const HELD: u16 = 1 << 1;
    /// Shared with other readers; otherwise exclusive.
    pub(crate) const SHARED: u16 = 1 << 2;
    /// It lasts as long as its session: no deadline of its own.
    pub(crate) const SESSION_LEASE: u16 = 1 << 3;
    /// It hangs on the list of its lane.
    pub(crate) const LINKED: u16 = 1 << 4;
    /// Its connection was lost; `deadline` is when it ends unless the connection comes back.
    pub(crate) const RELEASING: u16 = 1 << 5;
    /// The lease asked for was above the cap.
    pub(crate) const CLAMPED: u16 = 1 << 6;
    /// Its wait ended at the instant that is being worked off.
    pub(crate) const WAIT_OVER: u16 = 1 << 7;
    /// One key of a waiting claim over several keys.
    pub(crate) const STUB: u16 = 1 << 8;
    /// It has no lease: it ends when it is released, or some time after its connection was lost.
    pub(crate) const ENDLESS: u16 = 1 << 9;
    /// Registered by its owner, who renews it by name.
    pub(crate) const REGISTERED: u16 = 1 << 10;
    /// And nothing happens at the end of its lease.
    pub(crate) const LAZY: u16 = 1 << 11;
    /// A lazy one whose lease has been over for longer than the grace: others may take it.
    pub(crate) const OVERDUE: u16 = 1 << 12;
    /// It is in the durable log; or it waits, and its fence is to be durable.
    pub(crate) const LOCAL: u16 = 1 << 13;
    /// It stands among the holders and keeps others out, but is not durable yet: its lease has not begun, its acquire is
    /// not answered, and it can still be given up. Set beside `HELD`.
    pub(crate) const RESERVED: u16 = 1 << 14;
    /// Its acquire was told that its outcome is unknown. Set beside `RESERVED`.
    pub(crate) const UNKNOWN: u16 = 1 << 15;

    /// Returns the bit of a new claim with this scope. `Detail` has which of the durable scopes it is.
    pub(crate) fn of_scope(scope: waymaker_log::Scope) -> u16 {
        if scope.is_durable() { LOCAL } else { 0 }
    }
}

/// One request for a key, and once granted, one hold.
///
/// The record never moves; its slot and secret are the id that the client shows. While it waits, `deadline` ends the
/// wait and `since` is its arrival; while it is held, `deadline` ends the lease and `since` is the grant.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Claim {
    pub(crate) secret: u64,
    /// 0 while it waits.
    pub(crate) fence: u64,
    pub(crate) deadline: Time,
    pub(crate) since: Nanos,
    /// Its key.
    pub(crate) entry: KeyIx,
    /// Who asked: a lane of this shard.
    pub(crate) lane: LaneIx,
    /// Position among the claims of the key, or in its tree.
    pub(crate) position: Position,
    pub(crate) wheel: WheelLinks,
    /// What most claims do not have, or `NONE`.
    pub(crate) detail: DetailIx,
    /// Rises with each use of the record.
    pub(crate) generation: u16,
    pub(crate) flags: u16,
}

const _: () = assert!(size_of::<Claim>() == 64, "a claim is one cache line");

impl Default for Claim {
    fn default() -> Self {
        Self {
            secret: 0,
            fence: 0,
            deadline: Time::NEVER,
            since: Nanos::ZERO,
            entry: KeyIx::NONE,
            lane: LaneIx::NONE,
            position: Position::NOWHERE,
            wheel: WheelLinks::UNSET,
            detail: DetailIx::NONE,
            generation: 0,
            flags: 0,
        }
    }
}

impl Claim {
    #[inline]
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// It is held, and whoever asked for it was told, or is about to be.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.flags & (flag::HELD | flag::RESERVED) == flag::HELD
    }
}

/// Position of a claim: its neighbours in a list of its key, or its items in a tree. The kind of the key says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position([u32; 2]);

impl Position {
    /// Position of a claim that is in no list and no tree.
    pub(crate) const NOWHERE: Self = Self([u32::MAX; 2]);

    /// Position of a set of paths: its first item in the tree, and the number of its paths beside the first.
    pub(crate) fn of_set(first_item: ItemIx, more_path_count: u32) -> Self {
        Self([first_item.number(), more_path_count])
    }

    /// Returns the claim behind this one among the holders or waiters of a key or pool, or `NONE`.
    #[inline]
    pub(crate) fn next(self) -> ClaimIx {
        ClaimIx::new(self.0[0])
    }

    /// Returns the claim before this one, or `NONE`.
    #[inline]
    pub(crate) fn previous(self) -> ClaimIx {
        ClaimIx::new(self.0[1])
    }

    #[inline]
    pub(crate) fn set_next(&mut self, next: ClaimIx) {
        self.0[0] = next.number();
    }

    #[inline]
    pub(crate) fn set_previous(&mut self, previous: ClaimIx) {
        self.0[1] = previous.number();
    }

    /// Returns the first item of a set of paths.
    #[inline]
    pub(crate) fn first_item(self) -> ItemIx {
        ItemIx::new(self.0[0])
    }

    /// Returns the number of paths of a set beside the first.
    #[inline]
    pub(crate) fn more_path_count(self) -> u32 {
        self.0[1]
    }
}

impl Timers for Slab<ClaimIx, Claim> {
    #[inline]
    fn links(&mut self, timer: ClaimIx) -> &mut WheelLinks {
        &mut self[timer].wheel
    }

    #[inline]
    fn deadline(&self, timer: ClaimIx) -> Time {
        self[timer].deadline
    }
}

/// Where a waiter stands: by arrival less its boost, then by order of arrival in the shard. Fixed at arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct OrderKey {
    /// Below zero for a boosted waiter of a young clock.
    pub(crate) arrival_less_boost_ms: i64,
    pub(crate) arrival: u64,
}

impl OrderKey {
    /// Before every waiter.
    pub(crate) const FIRST: Self = Self { arrival_less_boost_ms: i64::MIN, arrival: 0 };

    /// The first place behind this one.
    pub(crate) fn next(self) -> Self {
        Self { arrival: self.arrival + 1, ..self }
    }
}

/// What a claim has because of what it asked for.
#[derive(Debug, Default)]
pub(crate) enum Extra {
    /// One key.
    #[default]
    None,
    /// So many permits of a pool.
    Permits(u64),
    /// A part of a claim over several keys that is not answered yet.
    MultiKeyClaim(Arc<MultiKeyClaim>),
    /// One of the holds that a claim over several keys became, whose request id asks for all of them.
    Sibling(Arc<KeySet>),
    /// The same, restored from the log, which has no more than this number for the set of keys.
    RestoredSibling(u64),
    /// The paths of a set that a request id names, by their fingerprint.
    Paths(u64),
    /// An entry of a registry.
    Registration(Box<RegisteredAs>),
}

/// What an owner said about the key that it registered, beside the value.
#[derive(Debug)]
pub(crate) struct RegisteredAs {
    pub(crate) type_name: Arc<[u8]>,
    /// The end of the lease, in milliseconds of the engine's clock: it may lie before zero.
    pub(crate) end_ms: i64,
}

/// What a claim has while it waits, or because it asked for something special.
#[derive(Debug)]
pub(crate) struct Detail {
    /// Neighbours in the list of the lane.
    pub(crate) lane_next: ClaimIx,
    pub(crate) lane_previous: ClaimIx,
    pub(crate) order: OrderKey,
    /// The number of its acquire, to which its answer goes.
    pub(crate) number: u32,
    /// Number of requests that had arrived in the shard before that acquire.
    pub(crate) asked: u64,
    /// The lease it will get.
    pub(crate) lease_ms: u32,
    pub(crate) priority: u32,
    pub(crate) release_after_ms: Option<u32>,
    /// While its connection is lost: the end of its lease, and the end that the lost connection sets. `deadline` is the
    /// earlier one.
    pub(crate) lease_end: Time,
    pub(crate) release_end: Time,
    /// Whose it is, where that is not the owner of the lane.
    pub(crate) owner: Option<Arc<[u8]>>,
    /// The identity that took it, if it was restored and that is known; of others the lane has it.
    pub(crate) identity: Option<Arc<str>>,
    /// The keys of one claim over several keys share their strings.
    pub(crate) request_id: Option<Arc<[u8]>>,
    /// Or the value that is registered.
    pub(crate) metadata: Option<Arc<[u8]>>,
    /// Its fence is to be counted by a cluster.
    pub(crate) wants_quorum: bool,
    /// It begins once a cluster has counted it, or another key of its claim.
    pub(crate) begins_counted: bool,
    /// It has raised the scope of its key, which is taken back if it never begins.
    pub(crate) raises_scope: bool,
    /// Its acquire was told, or may have been told, that it waits.
    pub(crate) waited: bool,
    /// Whether the request that has it found it by its request id.
    pub(crate) repeated: bool,
    /// Number of the record of its last move to another request; 0 if it never moved, [`MOVED_BESIDE_RECORDS`] if only other keys of its
    /// claim are recorded. The answer to that request, and every later event about the claim, waits until the record is durable.
    pub(crate) moved_record: u64,
    /// Of a hold: for how long its claim had waited.
    pub(crate) waited_nanos: u64,
    /// Of a reserved claim: when its key became free for it.
    pub(crate) freed_at: FreedAt,
    /// The place that its id names: that of an earlier server, from whose log it was restored.
    pub(crate) restored_place: Option<u64>,
    /// Bytes beside its key that the accounts of its lane count.
    pub(crate) counted_len: u32,
    pub(crate) extra: Extra,
}

/// Only other keys of its claim recorded the move, maybe in other shards. This shard does not know when those records are durable, so all
/// later events of the claim go through the log, behind the answer.
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
    /// Of a hold: for how long its claim had waited, in whole milliseconds.
    pub(crate) fn waited_ms(&self) -> u64 {
        self.waited_nanos / NANOS_PER_MS
    }

    pub(crate) fn permits(&self) -> Option<u64> {
        if let Extra::Permits(permits) = self.extra { Some(permits) } else { None }
    }

    pub(crate) fn multi_key(&self) -> Option<&Arc<MultiKeyClaim>> {
        if let Extra::MultiKeyClaim(multi_key) = &self.extra { Some(multi_key) } else { None }
    }

    /// The fingerprint of the paths of a set that a request id names.
    pub(crate) fn fingerprint(&self) -> Option<u64> {
        if let Extra::Paths(fingerprint) = self.extra { Some(fingerprint) } else { None }
    }

    /// Whether this claim and its siblings are for exactly `keys`; `None` asks for a claim that has no siblings.
    pub(crate) fn is_part_of(&self, keys: Option<&KeySet>) -> bool {
        match (&self.extra, keys) {
            (Extra::MultiKeyClaim(multi_key), Some(keys)) => multi_key.keys.is_same(keys),
            (Extra::Sibling(own), Some(keys)) => own.is_same(keys),
            // Equal numbers do not prove equal sets. The caller therefore finds each key's hold by the key, and the number
            // only rejects.
            (Extra::RestoredSibling(number), Some(keys)) => *number == keys.number(),
            (Extra::MultiKeyClaim(_) | Extra::Sibling(_) | Extra::RestoredSibling(_), None) => false,
            (_, keys) => keys.is_none(),
        }
    }

    /// The keys of the claim of which it is a part, unless it was restored.
    pub(crate) fn key_set(&self) -> Option<&Arc<KeySet>> {
        match &self.extra {
            Extra::MultiKeyClaim(multi_key) => Some(&multi_key.keys),
            Extra::Sibling(keys) => Some(keys),
            _ => None,
        }
    }

    /// The number by which the log knows the keys of the claim of which it is a part.
    pub(crate) fn key_set_number(&self) -> Option<u64> {
        match &self.extra {
            Extra::MultiKeyClaim(multi_key) => Some(multi_key.keys.number()),
            Extra::Sibling(keys) => Some(keys.number()),
            Extra::RestoredSibling(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn registration(&self) -> Option<&RegisteredAs> {
        if let Extra::Registration(registered) = &self.extra { Some(registered) } else { None }
    }

    /// Whether a claim that is held and not linked still needs it.
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
