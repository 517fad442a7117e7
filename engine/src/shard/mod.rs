//! Shard: one part of the keys, with its own claims, timers and counters.

mod access;
mod acquire;
mod acquire_terms;
mod admission;
mod contended;
mod counters;
mod discipline;
mod durability;
mod events;
mod expire;
mod forget;
mod freeze;
mod grant;
mod inspect;
mod lanes;
mod limit;
pub mod multi_key;
mod namespace_terms;
mod quota;
mod registry;
mod release;
mod request_ids;
mod state;
mod take_over;
mod verify;
mod waiting;
mod watch;
mod work;

use crate::handle::{ClaimIx, DetailIx, KeyIx, LaneIx, PoolIx, QueueIx, TreeIx};
pub use acquire::Acquire;
pub use acquire_terms::{AcquireOptions, AcquireTerms};
pub use contended::{ContendedKey, ContendedKeys};
pub use counters::NamespaceCounters;
pub use discipline::{AcquirePermits, AcquireSet};
pub use freeze::FreezeList;
pub use inspect::PageBounds;
pub use limit::{RequestedThrottle, throttle_all};
pub use namespace_terms::NamespaceTerms;
pub use registry::{Lease, Register};
pub use state::{ShardState, TableMemory};

use crate::claim::{Claim, Detail, Extra, flag};
use crate::effect::{Effects, LogState, QuorumState, Refusal};
use crate::entry::KeyTable;
use crate::fifo::Fifo;
use crate::ids::{ClaimId, Fence, Ticket};
use crate::index::HashIndex;
use crate::lane::LaneTable;
use crate::limiter::BucketTable;
use crate::limits::{Limits, WORK_PER_TURN_MIN};
use crate::queue::Queue;
use crate::registrations::Registrations;
use crate::slab::Slab;
use crate::steps::{Steps, WorkNumber};
use crate::time::{Nanos, Reading, Time};
use crate::top_waits::TopWaits;
use crate::wheel::Wheel;
use ahash::RandomState;
use discipline::{PoolSpace, TreeSpace};
use expire::LateWait;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use watch::Watcher;
use work::{Work, WorkList};

/// Configuration of a shard, including the seeds of its random numbers.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Number of the shard, which is part of the ids of its claims.
    pub number: u16,
    /// Limits of the shard.
    pub limits: Limits,
    /// Secret seeds for the hashes in its tables. If clients knew them, they could choose keys that slow the tables
    /// down.
    pub hash_seeds: [u64; 4],
    /// Seed of the secrets in the ids of its claims.
    pub secret_seed: [u8; 32],
    /// Current time.
    pub start: Time,
}

/// Client of a request. The worker fills it in for each request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Lane from [`Shard::lane`].
    pub lane: LaneIx,
    /// Destination of the answer.
    pub ticket: Ticket,
    /// Namespace of the lane.
    pub namespace: u16,
}

/// Rules of the locks for one part of the keys. Only the worker that has the turn of the shard runs this code, so it is
/// single-threaded.
///
/// # One request
///
/// ```text
/// begin_turn(now, drained)      expiries and leftover work first, with a limited number of steps
///   prefetch_*                  for all requests of the batch, step by step, so that their cache misses overlap:
///                               index lines and claims, then key records
///   acquire / release / ...     then one request after the other: decide, and report the effects
/// next_deadline()               when the next turn must begin even without requests
/// ```
///
/// # Invariants after each call
///
/// - The holders of a key are one exclusive claim or any number of shared ones.
/// - The first waiter of a key conflicts with a holder, with three exceptions: it belongs to a multi-key claim that
///   also waits for other keys, the key is frozen, or work that continues its grants or a thaw is pending.
/// - Each live claim is in exactly one place: it is the only holder of its key record, or it is among the holders or
///   the waiters of a queue, a pool or a tree. A waiter is linked to its lane, can be found by its ticket, and has a
///   timer unless it waits without limit or its wait is just being ended. A multi-key claim has one waiter at each key,
///   but only the waiter at the first key is linked, can be found and has a timer.
/// - The fence of a key record is at least every fence that was granted for the key, and the next grant gets a larger
///   one.
///
/// `verify` checks all of them, for tests.
///
/// # Time
///
/// `now` is the time at which the worker read its sockets. `drained` is the time up to which every worker is known to
/// have read its sockets. Deadlines are counted from `now`, but expire only after `drained` has passed them. So if the
/// server was not scheduled, a renewal that waits in a socket is applied before its lease can expire.
#[derive(Debug)]
pub struct Shard {
    number: u16,
    limits: Limits,
    now: Time,
    /// Latest reading of the clock, for measurements.
    nanos: Nanos,
    /// Time of the event that is being served: the reading of the request or of the turn, or the end of the lease or
    /// wait. The time from the end of a hold to the next grant is measured from it.
    cause: Nanos,
    /// Number of arrivals so far: acquired claims with options in a `Detail` (among them all that waited or were
    /// reserved), and takeovers of claims that were not held yet. The next waiter gets this number as its order of
    /// arrival, and as the ticket in its event `Queued`.
    arrivals: u64,
    keys: KeyTable,
    claims: Slab<ClaimIx, Claim>,
    details: Slab<DetailIx, Detail>,
    queues: Slab<QueueIx, Queue>,
    trees: Slab<TreeIx, TreeSpace>,
    /// Number of nodes of all trees, as last updated by `note_nodes`.
    node_count: u32,
    pools: Slab<PoolIx, PoolSpace>,
    /// Number of pools with a set capacity.
    set_pool_count: u32,
    buckets: BucketTable,
    lanes: LaneTable,
    wheel: Wheel,
    hasher: RandomState,
    /// Claims that wait or are reserved (they block others, but their fence is not durable yet), by their tickets (lane
    /// and request number). The acquires of these claims are not answered yet. Of a multi-key claim, only the claim at
    /// the first key.
    waiting: HashIndex<ClaimIx>,
    /// Claims with a request id, by key record, owner and request id. Of a waiting multi-key claim, only the claim at
    /// the first key.
    request_ids: HashIndex<ClaimIx>,
    secrets: ChaCha8Rng,
    /// Claims whose wait ended at the instant that is being processed.
    waits_over: Fifo<ClaimIx>,
    /// Claims whose wait timed out while grants of their key, begun before, were left to later turns. Once these grants
    /// are finished, the wait ends, unless one of the grants was for the claim.
    late_waits: Fifo<LateWait>,
    /// Whether the shard is ending the waits of the claims in `waits_over`, which timed out at an instant whose timers
    /// have all fired. While it does, such a claim is granted only by unfinished grants of its key that began before
    /// this flag was set. These grants exist because the key became free before the wait ended.
    ending_waits: bool,
    /// Number of the newest work item (work that was left to a later turn) when the shard began to end waits and set
    /// `ending_waits`. If grants of a key have a work item with at most this number, they began before that. Only these
    /// grants may still be for a claim whose wait is over.
    granting_before: WorkNumber,
    work: WorkList,
    forgetting: Option<forget::Forgetting>,
    /// Number of steps of follow-up work that this turn may still take. Work for which no step is left is done in later
    /// turns.
    steps: Steps,
    stopping: bool,
    /// Maximum number of claims: the configured limit, or 0 while the memory is full.
    claim_room: u32,
    /// `claim_room` as long as no lane had quota accounts, otherwise 0. If it is 0, each new claim is checked against
    /// the accounts of its lane.
    room_at_once: u32,
    /// Whether any lane ever had accounts.
    has_accounts: bool,
    /// Number of bytes besides the key that the quota accounts will count for the next new claim. `has_quota` sets it.
    next_len: usize,
    /// Memory limit of the process in bytes while it is reached, otherwise `None`.
    full_memory: Option<u64>,
    /// Time before which nothing new is granted, because holds may have been lost that last until then.
    grants_from: Time,
    freezes: FreezeList,
    thaw: freeze::Thaw,
    /// Whether every grant must be checked, because the shard is stopping, has frozen prefixes or is recovering.
    careful: bool,
    watchers: BTreeMap<KeyIx, Vec<Watcher>>,
    /// Number of events sent to watchers so far. The number wraps around.
    told_count: u32,
    /// Counters by namespace.
    counters: Vec<NamespaceCounters>,
    /// State of the durable log.
    log_state: LogState,
    quorum_state: QuorumState,
    /// Number of log records that this shard has made so far.
    recorded: u64,
    /// Number of the last log record of this shard that is known to be durable.
    durable: u64,
    /// Number of the newest log record of a renewal whose answer waits for the log. The answer to [`Shard::status`] for
    /// a recorded hold waits until this record is durable.
    lengthened: u64,
    registrations: Registrations,
    /// Claims that an earlier server process granted, by their ids from that process.
    restored: BTreeMap<ClaimId, ClaimIx>,
    /// Terms of the namespaces that have any.
    terms: BTreeMap<u16, NamespaceTerms>,
    top_waits: TopWaits,
}

impl Shard {
    /// Returns an empty shard.
    ///
    /// # Panics
    /// Panics if the limits allow less follow-up work in a turn than [`WORK_PER_TURN_MIN`].
    pub fn new(config: &ShardConfig) -> Self {
        assert!(
            config.limits.work_per_turn >= WORK_PER_TURN_MIN,
            "a turn must get on with each kind of work"
        );
        let [a, b, c, d] = config.hash_seeds;
        let hasher = RandomState::with_seeds(a, b, c, d);
        Self {
            number: config.number,
            limits: config.limits,
            now: config.start,
            nanos: config.start.into(),
            cause: config.start.into(),
            arrivals: 0,
            keys: KeyTable::new(hasher.clone(), &config.limits),
            claims: Slab::with_capacity(config.limits.claim_count_max),
            details: Slab::with_capacity(config.limits.claim_count_max),
            queues: Slab::default(),
            trees: Slab::default(),
            node_count: 0,
            pools: Slab::default(),
            set_pool_count: 0,
            buckets: BucketTable::new(hasher.clone(), &config.limits),
            lanes: LaneTable::new(hasher.clone()),
            wheel: Wheel::new(config.start),
            hasher,
            waiting: HashIndex::new(config.limits.claim_count_max as usize),
            request_ids: HashIndex::new(config.limits.claim_count_max as usize),
            secrets: ChaCha8Rng::from_seed(config.secret_seed),
            waits_over: Fifo::default(),
            late_waits: Fifo::default(),
            ending_waits: false,
            granting_before: 0,
            work: WorkList::default(),
            forgetting: None,
            steps: Steps::new(config.limits.work_per_turn),
            stopping: false,
            claim_room: config.limits.claim_count_max,
            room_at_once: config.limits.claim_count_max,
            has_accounts: false,
            next_len: 0,
            full_memory: None,
            grants_from: Time::ZERO,
            freezes: FreezeList::default(),
            thaw: freeze::Thaw::default(),
            careful: false,
            watchers: BTreeMap::new(),
            told_count: 0,
            counters: Vec::new(),
            log_state: LogState::default(),
            quorum_state: QuorumState::default(),
            recorded: 0,
            durable: 0,
            lengthened: 0,
            registrations: Registrations::default(),
            restored: BTreeMap::new(),
            terms: BTreeMap::new(),
            top_waits: TopWaits::new(config.start),
        }
    }

    /// Begins a turn: advances the time (never back), continues leftover work, and ends the claims that were due by
    /// `drained`. Leftover work and due claims each have a share of the limited steps of a turn.
    #[inline]
    pub fn begin_turn(&mut self, now: impl Into<Reading>, drained: Time, effects: &mut impl Effects) {
        self.advance(now);
        self.steps = Steps::new(self.limits.work_per_turn);
        let drained = drained.min(self.now);
        if self.is_work_left() || self.wheel.next_deadline() <= drained {
            self.follow_up(drained, effects);
        }
    }

    /// Advances the time within a turn, never back. The next requests were read at `now`.
    #[inline]
    pub fn advance(&mut self, now: impl Into<Reading>) {
        let Reading { time, nanos } = now.into();
        self.now = self.now.max(time);
        self.nanos = self.nanos.max(nanos);
        self.cause = nanos;
    }

    /// Returns the time at which a turn must begin even without requests: `ZERO` if work is left over, `NEVER` if no
    /// timer is set.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        if self.is_work_left() { Time::ZERO } else { self.wheel.next_deadline() }
    }

    /// Returns a time before which no further lease or wait expires, regardless of leftover work; `NEVER` if no timer
    /// is set. Leftover work may still end waits that have expired.
    #[inline]
    pub fn next_end(&self) -> Time {
        self.wheel.next_deadline()
    }

    #[inline]
    fn is_work_left(&self) -> bool {
        !self.work.is_empty()
            || !self.waits_over.is_empty()
            || !self.late_waits.is_empty()
            || !self.keys.folded.is_empty()
    }

    /// Returns the latest reading of the clock in this shard.
    pub fn reading(&self) -> Reading {
        Reading { time: self.now, nanos: self.nanos }
    }

    /// Returns the current time of this shard.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the number of claims: waiting, reserved (granted, but not durable yet) and held.
    pub fn claim_count(&self) -> u32 {
        self.claims.live_count()
    }

    /// Returns the number of claims whose acquire is not answered yet: they wait, or their fence is not durable. A
    /// multi-key claim counts once.
    pub fn waiting_count(&self) -> u32 {
        self.waiting.len() as u32
    }

    /// Returns the number of accesses to records of this shard, in builds with debug assertions. The number measures
    /// work independently of the machine.
    #[cfg(debug_assertions)]
    pub fn records_touched(&self) -> u64 {
        let trees: u64 = self.trees.iter().map(|space| space.tree.records_touched()).sum();
        self.claims.touched()
            + self.details.touched()
            + self.queues.touched()
            + self.keys.records_touched()
            + self.buckets.records_touched()
            + self.lanes.lanes.touched()
            + self.pools.touched()
            + trees
    }

    /// Returns the number of free keys that are kept for their counters.
    pub fn idle_key_count(&self) -> u32 {
        self.keys.idle_count()
    }

    /// Returns the fence at which unknown keys start.
    pub fn floor(&self) -> Fence {
        self.keys.floor()
    }

    /// Returns the keyed hash of a key, for [`Acquire::hash`] and for prefetching.
    #[inline]
    pub fn hash(&self, namespace: u16, key: &[u8]) -> u64 {
        self.keys.hash(namespace, key)
    }

    /// Prefetches the index group of a key, and the free claim record that its acquire will take. `ahead` acquires are
    /// served before this one, and each of them takes one record. The worker calls this function in the first of two
    /// prefetch passes over some requests of a batch, before it serves any of them.
    #[inline]
    pub fn prefetch_acquire(&self, hash: u64, ahead: usize) {
        self.keys.prefetch_index(hash);
        self.claims.prefetch_free(ahead);
    }

    /// Prefetches a claim. First of two prefetch passes over some requests of a batch, for those that name a claim by
    /// its id.
    #[inline]
    pub fn prefetch_claim(&self, slot: ClaimIx) {
        self.claims.prefetch(slot);
    }

    /// Prefetches the key record that most likely has this hash. Second of two prefetch passes over some requests of a
    /// batch, for acquires of a key.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64) {
        self.keys.prefetch_candidate(hash);
    }

    /// Prefetches the key record of a claim, and the neighbours of the claim in the timer wheel. Second of two prefetch
    /// passes over some requests of a batch, for releases and renewals.
    #[inline]
    pub fn prefetch_around(&self, slot: ClaimIx) {
        if let Some(claim) = self.claims.get(slot) {
            self.keys.entries.prefetch(claim.entry);
            self.claims.prefetch(claim.wheel.next());
            self.claims.prefetch(claim.wheel.previous());
        }
    }

    /// Stops all new grants: waiters and new acquires are refused, but holds can still be renewed and released.
    pub fn stop(&mut self) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        self.careful = true;
        self.work.push(Work::RefuseWaiters(ClaimIx::new(0)));
    }

    /// Whether [`Shard::stop`] was called.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Whether new claims are refused because the memory of the process is full.
    #[inline]
    pub fn is_memory_full(&self) -> bool {
        self.full_memory.is_some()
    }

    /// Sets the memory limit of the process in bytes if it is reached, or `None` if it is not. While it is reached, no
    /// claim, bucket or pool with a set capacity is added. Existing ones can still be used, renewed and released.
    #[cold]
    pub fn set_full_memory(&mut self, limit: Option<u64>) {
        self.full_memory = limit;
        self.buckets.set_full_memory(limit);
        self.claim_room = if limit.is_some() { 0 } else { self.limits.claim_count_max };
        self.set_room_at_once();
    }

    /// Refuses grants until `grants_from`, because the restored log may lack holds that last until then. Restored holds
    /// can be renewed and released, but not found by their request ids.
    pub fn refuse_grants_until(&mut self, grants_from: Time) {
        self.grants_from = grants_from;
        self.careful = self.is_careful();
    }

    /// Whether a new grant may be refused although the key is free. The reason may be that the shard is stopping, that
    /// a prefix is frozen, or that the restored log may lack holds that still last.
    fn is_careful(&self) -> bool {
        self.stopping || !self.freezes.is_empty() || self.grants_from > self.now
    }

    /// Refuses a new grant before `grants_from`, because holds may have been lost that last until then.
    fn may_grant(&mut self) -> Result<(), Refusal> {
        if self.grants_from == Time::ZERO {
            return Ok(());
        }
        let remaining_ms = self.grants_from.ms_since(self.now);
        if remaining_ms > 0 {
            return Err(Refusal::Recovering { remaining_ms });
        }
        self.refuse_grants_until(Time::ZERO);
        Ok(())
    }

    fn id(&self, claim: ClaimIx) -> ClaimId {
        let Claim { generation, secret, detail, .. } = self.claims[claim];
        let id = ClaimId::new(self.number, claim.number(), generation, secret);
        let restored_place = self.details.get(detail).and_then(|detail| detail.restored_place);
        ClaimId { place: restored_place.unwrap_or(id.place), ..id }
    }

    /// Returns the live claim with this id from a client, if it is in this namespace and, if given, for this key.
    #[inline]
    fn claim_of(&self, id: ClaimId, namespace: u16, key: Option<&[u8]>) -> Result<ClaimIx, Refusal> {
        let mut slot = ClaimIx::named_by(id.place);
        let mut generation = ClaimId::generation_of(id.place);
        if !self.restored.is_empty() {
            (slot, generation) = self.restored_place(id);
        }
        let Some(claim) = self.claims.get(slot) else { return Err(Refusal::NotFound) };
        let same = claim.is_live()
            && claim.secret == id.secret
            && claim.generation == generation
            && self.keys.entries[claim.entry].namespace == namespace
            && key.is_none_or(|key| self.keys.key(claim.entry) == key);
        if same { Ok(slot) } else { Err(Refusal::NotFound) }
    }

    fn next_secret(&mut self) -> u64 {
        self.secrets.next_u64()
    }

    fn ticket(&self, claim: ClaimIx) -> Ticket {
        ticket_of(&self.claims, &self.details, &self.lanes, claim)
    }

    /// Returns the `Detail` of a claim, the record of its rare data. Creates it if there is none.
    fn detail_mut(&mut self, claim: ClaimIx) -> &mut Detail {
        if self.claims[claim].detail.is_none() {
            // The record is empty, even if another claim used it before: `drop_detail` and `free_detail` reset a record
            // when they release it.
            self.claims[claim].detail = self.details.allocate();
        }
        &mut self.details[self.claims[claim].detail]
    }

    /// Drops the `Detail` (the record of rare data) of a claim that is held, or about to be, if nothing in it is needed
    /// any more.
    #[inline]
    fn drop_idle_detail(&mut self, claim: ClaimIx) {
        if !self.claims[claim].has(flag::LINKED) && !self.details[self.claims[claim].detail].outlives_wait() {
            self.drop_detail(claim);
        }
    }

    fn drop_detail(&mut self, claim: ClaimIx) {
        let detail = std::mem::replace(&mut self.claims[claim].detail, DetailIx::NONE);
        if detail.is_some() {
            self.details[detail] = Detail::default();
            self.details.release(detail);
        }
    }

    /// Removes a claim from its lane and frees its record. The claim must no longer be among the holders or waiters of
    /// its key.
    #[inline(always)]
    fn free_claim(&mut self, index: ClaimIx) {
        let claim = &self.claims[index];
        let (lane, entry) = (claim.lane, claim.entry);
        let counted_len = if claim.detail.is_none() { 0 } else { self.free_detail(index) };
        let claim = &mut self.claims[index];
        claim.end();
        self.claims.release(index);
        let record = &mut self.lanes.lanes[lane];
        if record.needs_care {
            self.drop_claim_with_care(lane, entry, counted_len);
        } else {
            record.claim_count -= 1;
        }
    }

    /// Drops the `Detail` of a claim that ends. Removes the claim from the list of its lane, and from the tables of
    /// registrations, restored claims and request ids. Returns the number of bytes that quota accounts count for the
    /// claim, without its key.
    fn free_detail(&mut self, claim: ClaimIx) -> u32 {
        self.lanes.unlink(&mut self.claims, &mut self.details, claim);
        let detail = self.claims[claim].detail;
        let Detail { restored_place, request_id, counted_len, extra, .. } = &self.details[detail];
        let (is_restored, is_named, counted_len) =
            (restored_place.is_some(), request_id.is_some(), *counted_len);
        if matches!(extra, Extra::Registration(_)) {
            self.end_registration(claim);
        }
        if is_restored {
            self.restored.remove(&self.id(claim));
        }
        if is_named {
            self.forget_request_id(claim);
        }
        self.claims[claim].detail = DetailIx::NONE;
        self.details[detail] = Detail::default();
        self.details.release(detail);
        counted_len
    }
}

fn ticket_of(
    claims: &Slab<ClaimIx, Claim>,
    details: &Slab<DetailIx, Detail>,
    lanes: &LaneTable,
    claim: ClaimIx,
) -> Ticket {
    let Claim { lane, detail, .. } = claims[claim];
    Ticket { lane: lanes.lanes[lane].address, number: details[detail].number }
}
