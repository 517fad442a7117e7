//! Acquires of single keys.

use super::admission::Admission;
use super::quota::NewClaims;
use super::{AcquireOptions, AcquireTerms, Caller, Shard};
use crate::claim::{LeaseKind, OrderKey, Properties, State};
use crate::effect::{Answer, Contention, Effects, Grant, LogState, QuorumState, Refusal};
use crate::entry;
use crate::handle::{ClaimIx, KeyIx, LaneIx};
use crate::ids::Scope;
use std::sync::Arc;

/// Request for one hold on one key. By default, the hold is exclusive and the request does not wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acquire<'a> {
    /// Key of 1 to 1024 bytes. The caller must have checked the length.
    pub key: &'a [u8],
    /// Hash of the key from [`Shard::hash`].
    pub hash: u64,
    /// Whether the hold is shared with other readers.
    pub shared: bool,
    /// Terms of the acquire.
    pub terms: AcquireTerms<'a>,
}

impl Admission for Acquire<'_> {
    fn key(&self) -> &[u8] {
        self.key
    }

    fn terms(&self) -> &AcquireTerms<'_> {
        &self.terms
    }

    fn is_shared(&self) -> bool {
        self.shared
    }

    #[inline]
    fn properties(&self, clamped: bool) -> Properties {
        let lease = LeaseKind::of_session(self.terms.session_lease);
        Properties { shared: self.shared, ..Properties::new(lease, clamped, self.terms.scope()) }
    }

    fn check(&self, _: &Shard, _: KeyIx) -> Result<(), Refusal> {
        Ok(())
    }

    fn check_repeated(&self, _: &Shard, _: ClaimIx) -> Result<(), Refusal> {
        Ok(())
    }

    fn order(&self, shard: &Shard) -> OrderKey {
        shard.order_of_newcomer(self.terms.options().priority)
    }

    fn is_clear(&self, shard: &Shard, known: KeyIx, order: OrderKey) -> bool {
        shard.is_newcomer_clear(known, self.shared, self.terms.wait_ms, order)
    }

    fn contention(&self, shard: &Shard, caller: &Caller, known: KeyIx) -> Contention {
        shard.contention(caller.lane, known, self.shared)
    }

    fn entry(&self, shard: &mut Shard, namespace: u16, hash: u64, known: KeyIx) -> KeyIx {
        if known.is_none() { shard.insert_key(namespace, self.key, hash) } else { known }
    }

    fn note(&self, _: &mut Shard, _: ClaimIx) {}

    fn join(&self, shard: &mut Shard, claim: ClaimIx) {
        shard.join_holders(claim);
    }

    fn note_joined(&self, shard: &mut Shard, claim: ClaimIx, is_held: bool, effects: &mut impl Effects) {
        let entry = shard.claims[claim].entry;
        if shard.keys.entries[entry].has(entry::flag::QUEUED) {
            shard.note_newcomer_holds(claim);
            if is_held {
                shard.tell_held(claim, effects);
            }
        }
    }

    fn enqueue(&self, shard: &mut Shard, claim: ClaimIx) -> usize {
        shard.enqueue(claim, false);
        if self.terms.notify_queued { shard.position_of(claim) } else { 0 }
    }
}

impl Shard {
    /// Serves an acquire. The claim is granted or refused, or the answer comes later: the claim waits, or its fence is
    /// not durable yet.
    #[inline]
    pub fn acquire(&mut self, caller: &Caller, acquire: &Acquire<'_>, effects: &mut impl Effects) {
        let (lease_ms, clamped) = match self.checked_lease(acquire.terms.lease_ms) {
            Ok(checked) => checked,
            Err(refusal) => return effects.answer_acquire(caller.ticket, Answer::Refused(refusal)),
        };
        let entry = self.keys.find(caller.namespace, acquire.key, acquire.hash);
        // A plain acquire of a known free key is the common case. If the counter of the key is ephemeral, the acquire
        // needs no `Detail` (record of rare data), no queue and no record in the log.
        let plain = acquire.terms.options.is_none() && !acquire.terms.session_lease && !self.careful;
        if plain && entry.is_some() && self.keys.entries[entry].is_free_and_ephemeral() {
            if let Err(refusal) = self.has_room(caller.lane, || NewClaims::of_key(acquire.key)) {
                return effects.answer_acquire(caller.ticket, Answer::Refused(refusal));
            }
            let properties = acquire.properties(clamped);
            let claim = self.new_claim(caller.lane, entry, State::Waiting, properties);
            let grant = self.hold_alone(claim, lease_ms);
            return effects.granted(caller.ticket, grant);
        }
        self.acquire_with_care(caller, acquire, entry, effects);
    }

    /// Returns the lease for a requested lease, both in milliseconds, and whether it was clamped to the maximum. A
    /// requested lease of 0 is the default lease. Refuses any other lease below the minimum.
    #[inline]
    pub(super) fn checked_lease(&self, lease_ms: u32) -> Result<(u32, bool), Refusal> {
        let Self { limits, .. } = self;
        if lease_ms == 0 {
            Ok((limits.lease_default_ms, false))
        } else if lease_ms < limits.lease_min_ms {
            let limit = u64::from(limits.lease_min_ms);
            Err(Refusal::bad_input("lease_ms", limit, "the lease is shorter than the minimum"))
        } else {
            Ok((lease_ms.min(limits.lease_max_ms), lease_ms > limits.lease_max_ms))
        }
    }

    /// Checks the terms of any kind of acquire, and that the shard is not stopping. Returns the lease in milliseconds,
    /// and whether it was clamped.
    pub(super) fn checked_terms(&self, terms: &AcquireTerms<'_>) -> Result<(u32, bool), Refusal> {
        let scope = terms.scope();
        let lease = self.checked_lease(terms.lease_ms)?;
        let is_offered = match scope {
            Scope::Ephemeral => true,
            Scope::Local => self.log_state != LogState::Absent,
            Scope::Quorum => self.quorum_state != QuorumState::Absent,
        };
        if !is_offered {
            return Err(Refusal::ScopeUnavailable(scope));
        }
        if terms.session_lease && terms.lease_ms != 0 {
            let message = "must be 0 if the hold lasts as long as its session";
            return Err(Refusal::bad_input("lease_ms", 0, message));
        }
        if self.stopping {
            return Err(Refusal::Shutdown);
        }
        Ok(lease)
    }

    /// Checks that the limits of the shard and the quota accounts of a lane allow one more claim. `counted` returns the
    /// amounts that the accounts count.
    #[inline]
    pub(super) fn has_room(
        &mut self,
        lane: LaneIx,
        counted: impl FnOnce() -> NewClaims,
    ) -> Result<(), Refusal> {
        self.has_room_for(lane, 1, counted)
    }

    /// Checks that the limits of the shard and the quota accounts of a lane allow `count` more claims. `counted`
    /// returns the amounts that the accounts count.
    #[inline]
    pub(super) fn has_room_for(
        &mut self,
        lane: LaneIx,
        count: u32,
        counted: impl FnOnce() -> NewClaims,
    ) -> Result<(), Refusal> {
        // `room_at_once` is the number of claims up to which neither the limits of the shard nor quotas need a check.
        // It is 0 once any lane has had quota accounts, so this comparison never skips a quota.
        if self.claims.live_count().saturating_add(count) <= self.room_at_once {
            return Ok(());
        }
        self.has_room_and_quota(lane, count, counted())
    }

    /// Serves every acquire except a plain acquire of a known free key whose counter is ephemeral. While the shard must
    /// check each grant (`careful`), also serves those.
    #[inline(never)]
    fn acquire_with_care(
        &mut self,
        caller: &Caller,
        acquire: &Acquire<'_>,
        known: KeyIx,
        effects: &mut impl Effects,
    ) {
        let decided = self.admit(caller, acquire, acquire.hash, known, effects);
        self.answer_decided(caller, decided, effects);
    }

    /// Begins the hold of a claim that was granted at once and is among the holders. If its fence must be durable
    /// first, reserves the claim instead and returns `None`: its answer then comes later.
    pub(super) fn begin(
        &mut self,
        claim: ClaimIx,
        lease_ms: u32,
        wait_ms: u32,
        effects: &mut impl Effects,
    ) -> Option<Grant> {
        if self.must_be_reserved(claim) {
            self.reserve_newcomer(claim, wait_ms);
            self.reserve(claim, effects);
            return None;
        }
        if self.claims[claim].detail.is_some() {
            self.drop_idle_detail(claim);
        }
        Some(self.start_lease(claim, lease_ms))
    }

    /// Sets the deadline of a claim that is about to be reserved: if its fence is not durable within `wait_ms`, the
    /// acquire is refused. 0 and `u32::MAX` set no deadline.
    pub(super) fn reserve_newcomer(&mut self, claim: ClaimIx, wait_ms: u32) {
        if wait_ms > 0 {
            self.claims[claim].deadline = self.wait_end(wait_ms);
        }
    }

    /// Checks that a lane has room for `count` more linked claims: the claims that the loss of the connection or the
    /// end of the session affects. They are waiters, claims whose fence is not durable yet, and holds that end with the
    /// session or the connection.
    pub(super) fn has_room_on_lane(&self, lane: LaneIx, count: u32) -> Result<(), Refusal> {
        let limit = self.limits.linked_claim_count_per_lane_max;
        if count == 0 || self.lanes.lanes[lane].linked_count + count <= limit {
            return Ok(());
        }
        Err(Refusal::Overloaded { limit: "claims per connection", value: u64::from(limit) })
    }

    /// Returns a new claim that is in no queue and no list of holders, and counts it for its lane and the quota
    /// accounts of the lane.
    #[inline(always)]
    pub(super) fn new_claim(
        &mut self,
        lane: LaneIx,
        entry: KeyIx,
        state: State,
        properties: Properties,
    ) -> ClaimIx {
        let secret = self.next_secret();
        let index = self.claims.allocate();
        self.claims[index].begin(state, entry, lane, secret, self.nanos, properties);
        let lane = &mut self.lanes.lanes[lane];
        lane.claim_count += 1;
        if self.has_accounts {
            self.count_new_claim(index);
        }
        index
    }

    /// Stores the terms and options of a claim in its `Detail`, the record of its rare data. If `hangs_on_lane`, links
    /// the claim to its lane, so that the loss of the connection or the end of the session reaches it.
    pub(super) fn note_options(
        &mut self,
        claim: ClaimIx,
        number: u32,
        lease_ms: u32,
        options: &AcquireOptions<'_>,
        order: OrderKey,
        hangs_on_lane: bool,
    ) {
        let asked = self.next_arrival();
        let detail = self.detail_mut(claim);
        detail.order = order;
        detail.number = number;
        detail.asked = asked;
        detail.lease_ms = lease_ms;
        detail.priority = options.priority;
        detail.wants_quorum = options.scope == Scope::Quorum;
        detail.release_after_ms = options.release_after_ms;
        detail.owner = options.owner.map(Arc::from);
        detail.metadata = options.metadata.map(Arc::from);
        detail.request_id = options.request_id.map(Arc::from);
        if hangs_on_lane {
            self.lanes.link(&mut self.claims, &mut self.details, claim);
        }
        if options.request_id.is_some() {
            // `remember_request_id` computes a hash from the request id and the owner, so both must be stored before.
            self.remember_request_id(claim);
        }
    }

    /// Returns the owner of a claim: the owner in its request, otherwise the owner of its lane.
    pub(super) fn owner_of(&self, claim: ClaimIx) -> &Arc<[u8]> {
        let claim = &self.claims[claim];
        let own = self.details.get(claim.detail).and_then(|d| d.owner.as_ref());
        own.unwrap_or(&self.lanes.lanes[claim.lane].owner)
    }
}
