//! Acquires of single keys.

use super::durability::{answer_acquire, answer_grant};
use super::quota::{MovedClaims, NewClaims};
use super::{Caller, Shard, ticket_of};
use crate::access::Rights;
use crate::claim::{Claim, Detail, LeaseKind, MOVED_BESIDE_RECORDS, OrderKey, Properties, State, flag};
use crate::effect::{
    Answer, CancelReason, ClaimAct, Effects, Event, Grant, LogState, QuorumState, Refusal, RevokeReason,
    WhenDurable,
};
use crate::entry;
use crate::handle::{ClaimIx, DetailIx, KeyIx, LaneIx};
use crate::ids::{Scope, Ticket};
use crate::measure::Measure;
use crate::multi_key_claim::KeySet;
use crate::slab::Slab;
use crate::time::Time;
use ahash::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// Request for one hold on one key. By default, a try for an exclusive hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acquire<'a> {
    /// Key of 1 to 1024 bytes. The front end must have checked the length.
    pub key: &'a [u8],
    /// Hash of the key from [`Shard::hash`].
    pub hash: u64,
    /// Length of the lease in milliseconds; 0 for the default.
    pub lease_ms: u32,
    /// Maximum wait in milliseconds; 0 for a try, `u32::MAX` for no limit.
    pub wait_ms: u32,
    /// Whether the hold is shared with other readers.
    pub shared: bool,
    /// Whether the hold lasts as long as the session of its lane.
    pub session_lease: bool,
    /// Whether to send `Queued` if the claim waits.
    pub notify_queued: bool,
    /// Rarely used options.
    pub options: Option<&'a AcquireOptions<'a>>,
}

/// Rarely used options of an acquire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcquireOptions<'a> {
    /// Time from the loss of the connection to the end of the hold, in milliseconds.
    pub release_after_ms: Option<u32>,
    /// Priority of a waiter; waiters with larger values are served earlier.
    pub priority: u32,
    /// Required durability of the fence counter.
    pub scope: Scope,
    /// Request id, which identifies one logical acquire.
    pub request_id: Option<&'a [u8]>,
    /// Owner of the claim, if it is not the owner of the lane.
    pub owner: Option<&'a [u8]>,
    /// Text for operators.
    pub metadata: Option<&'a [u8]>,
}

impl AcquireOptions<'_> {
    /// Returns the number of bytes that a claim keeps of the options.
    pub(super) fn len(&self) -> usize {
        [self.owner, self.metadata, self.request_id].into_iter().flatten().map(<[u8]>::len).sum()
    }
}

impl Acquire<'_> {
    #[inline]
    fn properties(&self, clamped: bool) -> Properties {
        let scope = self.options.map_or(Scope::Ephemeral, |options| options.scope);
        let lease = LeaseKind::of_session(self.session_lease);
        Properties { shared: self.shared, ..Properties::new(lease, clamped, scope) }
    }
}

impl Shard {
    /// Serves an acquire. The claim is granted, refused, or waits and gets its answer later.
    #[inline]
    pub fn acquire(&mut self, caller: &Caller, acquire: &Acquire<'_>, effects: &mut impl Effects) {
        let (lease_ms, clamped) = match self.checked_lease(acquire.lease_ms) {
            Ok(checked) => checked,
            Err(refusal) => return effects.answer_acquire(caller.ticket, Answer::Refused(refusal)),
        };
        let entry = self.keys.find(caller.namespace, acquire.key, acquire.hash);
        let plain = acquire.options.is_none() && !acquire.session_lease && !self.careful;
        if plain && entry.is_some() && self.keys.entries[entry].is_free_and_ephemeral() {
            if let Err(refusal) = self.has_room(caller.lane, || NewClaims::of_key(acquire.key)) {
                return effects.answer_acquire(caller.ticket, Answer::Refused(refusal));
            }
            let properties = acquire.properties(clamped);
            let claim = self.new_claim(caller.lane, entry, State::Waiting, properties);
            let grant = self.hold_alone(claim, lease_ms);
            return effects.granted(caller.ticket, grant);
        }
        self.acquire_with_care(caller, acquire, entry, lease_ms, clamped, effects);
    }

    /// Returns the lease for a requested lease, both in milliseconds, and whether it was clamped.
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

    /// Checks the terms of any kind of acquire. Returns the lease in milliseconds, and whether it was clamped.
    pub(super) fn checked_terms(
        &self,
        lease_ms: u32,
        session_lease: bool,
        scope: Scope,
    ) -> Result<(u32, bool), Refusal> {
        let lease = self.checked_lease(lease_ms)?;
        let is_offered = match scope {
            Scope::Ephemeral => true,
            Scope::Local => self.log_state != LogState::Absent,
            Scope::Quorum => self.quorum_state != QuorumState::Absent,
        };
        if !is_offered {
            return Err(Refusal::ScopeUnavailable(scope));
        }
        if session_lease && lease_ms != 0 {
            let message = "must be 0 if the hold lasts as long as its session";
            return Err(Refusal::bad_input("lease_ms", 0, message));
        }
        if self.stopping {
            return Err(Refusal::Shutdown);
        }
        Ok(lease)
    }

    /// Checks that the limits and the accounts of a lane allow one more claim.
    #[inline]
    pub(super) fn has_room(
        &mut self,
        lane: LaneIx,
        counted: impl FnOnce() -> NewClaims,
    ) -> Result<(), Refusal> {
        self.has_room_for(lane, 1, counted)
    }

    /// Checks that the limits and the accounts of a lane allow this number of additional claims.
    #[inline]
    pub(super) fn has_room_for(
        &mut self,
        lane: LaneIx,
        count: u32,
        counted: impl FnOnce() -> NewClaims,
    ) -> Result<(), Refusal> {
        if self.claims.live_count().saturating_add(count) <= self.room_at_once {
            return Ok(());
        }
        self.has_room_and_quota(lane, count, counted())
    }

    /// Serves every acquire but a plain one of a known free key.
    #[inline(never)]
    fn acquire_with_care(
        &mut self,
        caller: &Caller,
        acquire: &Acquire<'_>,
        entry: KeyIx,
        lease_ms: u32,
        clamped: bool,
        effects: &mut impl Effects,
    ) {
        match self.decide(caller, acquire, entry, lease_ms, clamped, effects) {
            Ok(Some(grant)) => answer_grant(caller.ticket, grant, effects),
            Ok(None) => {}
            Err(refusal) => effects.answer_acquire(caller.ticket, Answer::Refused(refusal)),
        }
    }

    /// Decides about an acquire. Returns the grant, or `None` if the claim waits. A refusal changes nothing. `known` is
    /// the record of the key, or `NONE`.
    fn decide(
        &mut self,
        caller: &Caller,
        acquire: &Acquire<'_>,
        known: KeyIx,
        lease_ms: u32,
        clamped: bool,
        effects: &mut impl Effects,
    ) -> Result<Option<Grant>, Refusal> {
        let options = acquire.options.copied().unwrap_or_default();
        self.checked_terms(acquire.lease_ms, acquire.session_lease, options.scope)?;
        let owner = options.owner.unwrap_or(&self.lanes.lanes[caller.lane].owner);
        if let Some(request_id) = options.request_id
            && let Some(claim) = self.find_request_id(caller.lane, known, owner, request_id, None)
        {
            let asked = (acquire.shared, acquire.session_lease, acquire.notify_queued);
            return self.acquire_again(caller, asked, claim, effects);
        }
        self.may_grant()?;
        self.has_room(caller.lane, || NewClaims::of_key(acquire.key).and(options.len()))?;
        let scope = self.raised_scope(known, options.scope);
        self.may_count_in(scope)?;
        let links = acquire.session_lease || options.release_after_ms.is_some() || scope.is_durable();
        let order = self.order_of_newcomer(options.priority);
        let frozen = self.meets_freeze(caller, acquire.key);
        let contended =
            known.is_some() && !self.is_newcomer_clear(known, acquire.shared, acquire.wait_ms, order);
        let waits = contended || frozen;
        let mut depth = 0;
        if waits {
            if acquire.wait_ms == 0 {
                return Err(if contended {
                    Refusal::Busy(Box::new(self.contention(caller.lane, known, acquire.shared)))
                } else {
                    Refusal::Frozen
                });
            }
            depth = self.has_room_for_waiter(caller.lane, known)?;
        }
        if links || waits {
            self.has_room_on_lane(caller.lane, 1)?;
        }
        let entry = if known.is_none() {
            self.insert_key(caller.namespace, acquire.key, acquire.hash)
        } else {
            known
        };
        let claim = self.new_claim(caller.lane, entry, State::Waiting, acquire.properties(clamped));
        self.note_options(claim, caller.ticket.number, lease_ms, &options, order, links || waits);
        if !waits {
            self.join_holders(claim);
            let grant = self.begin(claim, lease_ms, acquire.wait_ms, effects);
            if self.keys.entries[entry].has(entry::flag::QUEUED) {
                self.note_newcomer_holds(claim);
                if grant.is_some() {
                    self.tell_held(claim, effects);
                }
            }
            return Ok(grant);
        }
        self.enqueue(claim, false);
        self.wait_until(claim, acquire.wait_ms);
        effects.waits(caller.ticket);
        effects.measure(Measure::Queued { depth });
        self.note_wait(claim);
        if acquire.notify_queued {
            self.queued_event(claim, self.position_of(claim), effects);
        }
        Ok(None)
    }

    /// Begins the hold of a claim that was granted at once and is among the holders. Returns `None` if it is only
    /// reserved, so that its answer comes later.
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

    /// Limits the time that a claim may be reserved to its wait time. A try may be reserved without a time limit.
    pub(super) fn reserve_newcomer(&mut self, claim: ClaimIx, wait_ms: u32) {
        if wait_ms > 0 {
            self.claims[claim].deadline = self.wait_end(wait_ms);
        }
    }

    /// Checks that one more claim of a lane may wait for a key. Returns the number of waiters including it.
    pub(super) fn has_room_for_waiter(&self, lane: LaneIx, entry: KeyIx) -> Result<u32, Refusal> {
        self.may_have_waiter(lane)?;
        let limit = self.limits.waiter_count_per_key_max;
        let waiter_count = if entry.is_none() { 0 } else { self.waiter_count(entry) };
        if entry.is_none() || waiter_count < limit {
            return Ok(waiter_count + 1);
        }
        Err(Refusal::Overloaded { limit: "waiters per key", value: u64::from(limit) })
    }

    /// Checks that `count` more claims may be linked to a lane.
    pub(super) fn has_room_on_lane(&self, lane: LaneIx, count: u32) -> Result<(), Refusal> {
        let limit = self.limits.linked_claim_count_per_lane_max;
        if count == 0 || self.lanes.lanes[lane].linked_count + count <= limit {
            return Ok(());
        }
        Err(Refusal::Overloaded { limit: "claims per connection", value: u64::from(limit) })
    }

    /// Sends the lane of a waiter the event that its request is queued.
    pub(super) fn queued_event(&self, claim: ClaimIx, position: usize, effects: &mut impl Effects) {
        let Ticket { lane, number } = self.ticket(claim);
        let ticket = self.details[self.claims[claim].detail].order.arrival;
        let position = position as u32;
        effects.event(lane, Event::Queued { number, id: self.id(claim), position, ticket });
    }

    /// Returns the queue position of a claim that arrives now.
    pub(super) fn order_of_newcomer(&self, priority: u32) -> OrderKey {
        let boost_ms = priority.saturating_mul(self.limits.priority_step_ms);
        let boost_ms = boost_ms.min(self.limits.priority_boost_max_ms);
        let arrival_ms = i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX);
        OrderKey { rank: arrival_ms - i64::from(boost_ms), arrival: self.arrivals }
    }

    /// Returns a new claim that is in no queue and no list of holders.
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

    /// Stores the data of a claim that its record has no room for.
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
            self.remember_request_id(claim);
        }
    }

    /// Returns the number of the request that arrives now. A lane notes how many requests had arrived when it lost its
    /// connection, so a request that takes over a waiter also counts.
    fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals - 1
    }

    /// Makes a claim in a queue findable by its ticket, and limits its wait to `wait_ms`.
    pub(super) fn wait_until(&mut self, claim: ClaimIx, wait_ms: u32) {
        self.time_wait(claim, wait_ms);
        self.remember_waiting(claim);
    }

    /// Limits the wait of a claim to `wait_ms` from now.
    pub(super) fn time_wait(&mut self, claim: ClaimIx, wait_ms: u32) {
        let deadline = self.wait_end(wait_ms);
        if deadline != Time::NEVER {
            self.claims[claim].deadline = deadline;
            self.wheel.set(&mut self.claims, claim, deadline);
        }
    }

    /// Returns the end of a wait that begins now.
    pub(super) fn wait_end(&self, wait_ms: u32) -> Time {
        if wait_ms == u32::MAX { Time::NEVER } else { self.now.after_ms(u64::from(wait_ms)) }
    }

    pub(super) fn remember_waiting(&mut self, claim: ClaimIx) {
        let hash = self.ticket_hash(self.ticket(claim));
        let Self { waiting, claims, details, lanes, hasher, .. } = self;
        waiting.insert(hash, claim, |other| hasher.hash_one(ticket_of(claims, details, lanes, other)));
    }

    pub(super) fn ticket_hash(&self, ticket: Ticket) -> u64 {
        self.hasher.hash_one(ticket)
    }

    /// Returns the waiting claim of this request, if it still waits.
    pub(super) fn find_waiting(&self, ticket: Ticket) -> Option<ClaimIx> {
        self.waiting.find(self.ticket_hash(ticket), |claim| self.ticket(claim) == ticket)
    }

    pub(super) fn forget_waiting(&mut self, claim: ClaimIx) {
        if self.claims[claim].state() == State::Unknown {
            // Its ticket was removed when its outcome became unknown.
            return;
        }
        let hash = self.ticket_hash(self.ticket(claim));
        self.waiting.remove(hash, claim);
    }

    /// Serves a repeated request id. If its claim is held, the grant is the answer; if the claim waits, the new request
    /// takes it over.
    pub(super) fn acquire_again(
        &mut self,
        caller: &Caller,
        (shared, session_lease, notify_queued): (bool, bool, bool),
        claim: ClaimIx,
        effects: &mut impl Effects,
    ) -> Result<Option<Grant>, Refusal> {
        self.check_repeated(claim, shared, session_lease)?;
        self.may_move_to(claim, caller.lane, &mut MovedClaims::default())?;
        if self.claims[claim].is_held() {
            let is_recorded = self.move_hold(claim, caller.lane, caller.ticket.number, effects);
            let grant = Grant { repeated: true, ..self.grant_of(claim) };
            if is_recorded {
                effects.when_durable(WhenDurable::Answer(caller.ticket, Answer::Granted(grant)));
                return Ok(None);
            }
            return Ok(Some(grant));
        }
        self.supersede(claim, caller, false, effects);
        if notify_queued && !self.claims[claim].is_reserved() {
            self.queued_event(claim, self.position_of(claim), effects);
        }
        Ok(None)
    }

    /// Refuses a repeated request that may not have the claim of its request id. The claim must have the same mode and
    /// kind of lease, and its outcome must not be unknown. No lost record may have ended the claim and granted the key
    /// to another client.
    pub(super) fn check_repeated(
        &mut self,
        claim: ClaimIx,
        shared: bool,
        session_lease: bool,
    ) -> Result<(), Refusal> {
        self.may_grant()?;
        if self.claims[claim].state() == State::Unknown {
            // The older request got the only answer. The outcome stays unknown until the process ends.
            return Err(Refusal::Unknown);
        }
        let wrong = |message| Err(Refusal::bad_input("request_id", 0, message));
        if self.claims[claim].has(flag::SHARED) != shared {
            return wrong("the request id belongs to a claim of the other mode (read or write)");
        }
        if self.claims[claim].has_session_lease() != session_lease {
            return wrong(
                "the request id belongs to a claim with the other kind of lease (its own or its session's)",
            );
        }
        Ok(())
    }

    /// Moves a waiter to a newer acquire and refuses the older one. If the claim is in the log, the move is recorded,
    /// and both answers wait until the records of all its keys are durable. Otherwise a crash could grant the claim to
    /// the refused request.
    pub(super) fn supersede(
        &mut self,
        claim: ClaimIx,
        caller: &Caller,
        are_others_recorded: bool,
        effects: &mut impl Effects,
    ) {
        let (before, waited) = (self.ticket(claim), self.has_waited(claim));
        self.forget_waiting(claim);
        let is_recorded =
            self.move_reserved(claim, caller.lane, caller.ticket.number, effects) || are_others_recorded;
        self.detail_mut(claim).asked = self.next_arrival();
        self.remember_waiting(claim);
        let superseded = Answer::Refused(Refusal::Cancelled(CancelReason::Superseded));
        if !is_recorded {
            answer_acquire(before, waited, superseded, effects);
        } else if waited {
            effects.when_durable(WhenDurable::AnswerWaiter(before, superseded));
        } else {
            effects.when_durable(WhenDurable::Answer(before, superseded));
        }
        effects.waits(caller.ticket);
    }

    /// Moves a claim that is not held yet to the lane of a newer request. Returns whether the claim is in the log, so
    /// that the move was recorded too.
    pub(super) fn move_reserved(
        &mut self,
        claim: ClaimIx,
        lane: LaneIx,
        number: u32,
        effects: &mut impl Effects,
    ) -> bool {
        self.move_to_lane(claim, lane, ClaimAct::TakeOver, effects);
        let detail = self.detail_mut(claim);
        (detail.number, detail.waited) = (number, true);
        self.record_move(claim, effects)
    }

    /// Records the request that a claim has moved to, if the claim is in the log. Returns whether it is.
    fn record_move(&mut self, claim: ClaimIx, effects: &mut impl Effects) -> bool {
        let is_recorded = self.claims[claim].is_recorded();
        if is_recorded {
            self.record_hold(claim, effects);
            self.detail_mut(claim).moved_record = self.recorded;
        }
        is_recorded
    }

    /// Notes that other keys of a moved claim are in the log. Even if this key is not, no client may learn of its new
    /// lane before the answer to the new request.
    pub(super) fn note_moved_beside_records(&mut self, claim: ClaimIx) {
        if !self.claims[claim].is_recorded() {
            self.detail_mut(claim).moved_record = MOVED_BESIDE_RECORDS;
        }
    }

    /// Moves a claim to another lane, from which its request was repeated. Reports the act if another identity acquired
    /// the claim.
    pub(super) fn move_to_lane(
        &mut self,
        claim: ClaimIx,
        lane: LaneIx,
        act: ClaimAct,
        effects: &mut impl Effects,
    ) {
        let from = self.claims[claim].lane;
        if from == lane {
            return;
        }
        self.report_act(lane, claim, act, effects);
        let linked = self.claims[claim].has(flag::LINKED);
        self.lanes.unlink(&mut self.claims, &mut self.details, claim);
        self.set_lane(claim, lane);
        // From now on, the claim belongs to the identity of its new lane.
        if self.claims[claim].detail.is_some() {
            let detail = self.claims[claim].detail;
            self.details[detail].identity = None;
        }
        self.lanes.lanes[lane].claim_count += 1;
        self.move_amounts(claim, from, lane);
        self.lanes.drop_claim(from);
        if linked {
            self.lanes.link(&mut self.claims, &mut self.details, claim);
            self.stop_releasing(claim);
        }
    }

    /// Moves a hold to the lane that requested it again under this number, and notifies the former lane. Returns
    /// whether the move was recorded. The log has the session and the request of a hold, and no client may learn of
    /// them before they are durable.
    pub(super) fn move_hold(
        &mut self,
        claim: ClaimIx,
        lane: LaneIx,
        number: u32,
        effects: &mut impl Effects,
    ) -> bool {
        let before = std::mem::replace(&mut self.detail_mut(claim).number, number);
        if self.claims[claim].lane == lane && before == number {
            return false;
        }
        self.taken_up_event(claim, before, effects);
        self.move_to_lane(claim, lane, ClaimAct::TakeOver, effects);
        let detail = self.detail_mut(claim);
        (detail.waited, detail.repeated) = (false, true);
        self.record_move(claim, effects)
    }

    fn request_id_hash(hasher: &RandomState, entry: KeyIx, owner: &[u8], request_id: &[u8]) -> u64 {
        let mut state = hasher.build_hasher();
        state.write_u32(entry.number());
        state.write_usize(owner.len());
        state.write(owner);
        state.write(request_id);
        state.finish()
    }

    /// Returns the claim that a request id of this lane names. If `keys` is `None`, the request was for this key alone;
    /// otherwise it was for these keys, including this one.
    pub(super) fn find_request_id(
        &self,
        lane: LaneIx,
        entry: KeyIx,
        owner: &[u8],
        request_id: &[u8],
        keys: Option<&KeySet>,
    ) -> Option<ClaimIx> {
        if entry.is_none() {
            return None;
        }
        let hash = Self::request_id_hash(&self.hasher, entry, owner, request_id);
        let names = |claim: ClaimIx| {
            let detail = &self.details[self.claims[claim].detail];
            self.claims[claim].entry == entry
                && self.owner_of(claim).as_ref() == owner
                && detail.request_id.as_deref() == Some(request_id)
                && detail.is_part_of(keys)
                && self.may(lane, claim, Rights::RELEASE_OTHERS)
        };
        self.request_ids.find(hash, names)
    }

    pub(super) fn request_id_hash_of(&self, claim: ClaimIx) -> u64 {
        Self::hash_of_named(&self.hasher, &self.claims, &self.details, claim)
    }

    /// Returns the hash of a claim with a request id. The detail of such a claim has the owner.
    fn hash_of_named(
        hasher: &RandomState,
        claims: &Slab<ClaimIx, Claim>,
        details: &Slab<DetailIx, Detail>,
        claim: ClaimIx,
    ) -> u64 {
        let Claim { entry, detail, .. } = claims[claim];
        let Detail { owner, request_id, .. } = &details[detail];
        let (owner, request_id) =
            (owner.as_deref().unwrap_or_default(), request_id.as_deref().unwrap_or_default());
        Self::request_id_hash(hasher, entry, owner, request_id)
    }

    pub(super) fn remember_request_id(&mut self, claim: ClaimIx) {
        // The owner is part of the hash, so it must not change when the claim moves to another lane.
        if self.detail_mut(claim).owner.is_none() {
            let owner = Arc::clone(&self.lanes.lanes[self.claims[claim].lane].owner);
            self.detail_mut(claim).owner = Some(owner);
        }
        let hash = self.request_id_hash_of(claim);
        let Self { request_ids, claims, details, hasher, .. } = self;
        request_ids.insert(hash, claim, |other| Self::hash_of_named(hasher, claims, details, other));
    }

    pub(super) fn forget_request_id(&mut self, claim: ClaimIx) {
        let hash = self.request_id_hash_of(claim);
        self.request_ids.remove(hash, claim);
    }

    pub(super) fn owner_of(&self, claim: ClaimIx) -> &Arc<[u8]> {
        let claim = &self.claims[claim];
        let own = self.details.get(claim.detail).and_then(|d| d.owner.as_ref());
        own.unwrap_or(&self.lanes.lanes[claim.lane].owner)
    }

    /// Notifies the lane of a hold that the acquire with this number no longer has it.
    fn taken_up_event(&self, claim: ClaimIx, number: u32, effects: &mut impl Effects) {
        self.tell_holder(claim, Event::TakenUp { number, id: self.id(claim) }, effects);
    }

    /// Notifies the lane of a hold that the hold ended without a release.
    pub(super) fn revoke_event(&self, claim: ClaimIx, reason: RevokeReason, effects: &mut impl Effects) {
        self.tell_holder(claim, Event::Revoked { id: self.id(claim), reason }, effects);
    }

    /// Sends an event to the lane of a hold if the lane is open. The event must not arrive before the answer that
    /// grants the hold.
    pub(super) fn tell_holder(&self, claim: ClaimIx, event: Event, effects: &mut impl Effects) {
        let lane = &self.lanes.lanes[self.claims[claim].lane];
        if lane.state != crate::lane::LaneState::Open {
            return;
        }
        if self.is_move_pending(claim) {
            effects.when_durable(WhenDurable::Tell(lane.address, event));
        } else {
            effects.event(lane.address, event);
        }
    }

    /// Whether the answer to the request that a hold moved to may still wait for the log.
    pub(super) fn is_move_pending(&self, claim: ClaimIx) -> bool {
        let detail = self.details.get(self.claims[claim].detail);
        detail.is_some_and(|detail| detail.moved_record > self.durable)
    }
}
