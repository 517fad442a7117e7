//! Admission of acquires: the checks and steps that keys and pools have in common.
//!
//! Acquires of sets of paths do the same checks in a function of their own. There, the shard creates the claim before
//! it knows whether the set must wait, because a tree checks a set and adds its paths in one step. If the set may not
//! wait, the shard removes the claim again.

use super::quota::NewClaims;
use super::{AcquireOptions, AcquireTerms, Caller, Shard};
use crate::claim::{OrderKey, Properties, State};
use crate::effect::{Answer, Contention, Effects, Grant, Refusal};
use crate::handle::{ClaimIx, KeyIx};
use crate::ids::Scope;
use crate::measure::Measure;

/// Request for a hold on one key record. [`Shard::admit`] decides about it, and calls these methods for the rules of
/// its kind.
pub(super) trait Admission {
    /// Returns the name of the key record.
    fn key(&self) -> &[u8];

    fn terms(&self) -> &AcquireTerms<'_>;

    /// Whether the hold is shared with other readers.
    fn is_shared(&self) -> bool;

    /// Returns the properties of the new claim.
    fn properties(&self, clamped: bool) -> Properties;

    /// Refuses a request with invalid data that only this kind of request has, or that contradicts an existing pool.
    fn check(&self, shard: &Shard, known: KeyIx) -> Result<(), Refusal>;

    /// Refuses a repeated request that differs from its claim in the data that only this kind of request has.
    fn check_repeated(&self, shard: &Shard, claim: ClaimIx) -> Result<(), Refusal>;

    /// Returns the queue position of the new claim.
    fn order(&self, shard: &Shard) -> OrderKey;

    /// Whether the new claim conflicts with no holder, and no waiter blocks it. A claim that may not wait has no queue
    /// position, so waiters behind `order` may block it too. `known` is the record of the key.
    fn is_clear(&self, shard: &Shard, known: KeyIx, order: OrderKey) -> bool;

    /// Returns the data about the claim that blocks the new one.
    fn contention(&self, shard: &Shard, caller: &Caller, known: KeyIx) -> Contention;

    /// Returns the record of the key. Creates it if `known` is `NONE`.
    fn entry(&self, shard: &mut Shard, namespace: u16, hash: u64, known: KeyIx) -> KeyIx;

    /// Stores the data of a new claim that only this kind of request has.
    fn note(&self, shard: &mut Shard, claim: ClaimIx);

    /// Adds a clear claim to the holders.
    fn join(&self, shard: &mut Shard, claim: ClaimIx);

    /// Called after a claim that did not wait has joined the holders. `is_held` says whether its hold has begun;
    /// otherwise the claim is reserved until its fence is durable. If a key has a queue, the queue forgets that the
    /// shard has requested checks of the multi-key claims that the new holder blocks. Later grants of the key request
    /// them again. The watchers of the key are notified of a hold.
    fn note_joined(&self, shard: &mut Shard, claim: ClaimIx, is_held: bool, effects: &mut impl Effects);

    /// Adds a claim to the waiters. Returns the number of waiters before it, as `Shard::position_of` counts them. The
    /// number may be 0 if the request does not ask for it.
    fn enqueue(&self, shard: &mut Shard, claim: ClaimIx) -> usize;
}

impl Shard {
    /// Decides about an acquire. Returns the grant, or `None` if the answer comes later. A refusal changes nothing.
    /// `hash` is the hash of the key, and `known` is its record, or `NONE` if it has none.
    pub(super) fn admit<A: Admission>(
        &mut self,
        caller: &Caller,
        request: &A,
        hash: u64,
        known: KeyIx,
        effects: &mut impl Effects,
    ) -> Result<Option<Grant>, Refusal> {
        let (terms, options) = (request.terms(), request.terms().options());
        let (lease_ms, clamped) = self.checked_terms(terms)?;
        // A repeated request adds no claim, so the limits for new claims below do not apply to it.
        if let Some(claim) = self.claim_of_request(caller, known, options) {
            request.check_repeated(self, claim)?;
            let shared = request.is_shared();
            return self.acquire_again(caller, shared, terms, claim, effects);
        }
        request.check(self, known)?;
        self.may_grant()?;
        self.has_room(caller.lane, || NewClaims::of_key(request.key()).and(options.len()))?;
        let scope = self.raised_scope(known, options.scope);
        self.may_count_in(scope)?;
        let order = request.order(self);
        let is_clear = known.is_none() || request.is_clear(self, known, order);
        // A frozen key is not granted, but its claims may wait for the end of the freeze.
        let waits = !is_clear || self.meets_freeze(caller, request.key());
        let mut depth = 0;
        if waits {
            if terms.wait_ms == 0 {
                return Err(if is_clear {
                    Refusal::Frozen
                } else {
                    Refusal::Busy(Box::new(request.contention(self, caller, known)))
                });
            }
            depth = self.has_room_for_waiter(caller.lane, known)?;
        }
        let hangs_on_lane = waits || terms.hangs_on_lane(scope);
        if hangs_on_lane {
            self.has_room_on_lane(caller.lane, 1)?;
        }
        // From here on, the shard changes, so no check that can refuse the request may follow.
        let entry = request.entry(self, caller.namespace, hash, known);
        let claim = self.new_claim(caller.lane, entry, State::Waiting, request.properties(clamped));
        self.note_options(claim, caller.ticket.number, lease_ms, options, order, hangs_on_lane);
        request.note(self, claim);
        if !waits {
            request.join(self, claim);
            let grant = self.begin(claim, lease_ms, terms.wait_ms, effects);
            request.note_joined(self, claim, grant.is_some(), effects);
            return Ok(grant);
        }
        let position = request.enqueue(self, claim);
        self.wait_until(claim, terms.wait_ms);
        effects.waits(caller.ticket);
        effects.measure(Measure::Queued { depth });
        self.note_wait(claim);
        if terms.notify_queued {
            self.queued_event(claim, position, effects);
        }
        Ok(None)
    }

    /// Answers an acquire that was granted or refused. Does nothing if its answer comes later (`None`).
    pub(super) fn answer_decided(
        &self,
        caller: &Caller,
        decided: Result<Option<Grant>, Refusal>,
        effects: &mut impl Effects,
    ) {
        match decided {
            // A repeated grant is an earlier hold that this acquire found by its request id. The effect `granted` would
            // count it as a new grant, so `answer_acquire` sends it.
            Ok(Some(grant)) if grant.repeated => {
                effects.answer_acquire(caller.ticket, Answer::Granted(grant));
            }
            Ok(Some(grant)) => effects.granted(caller.ticket, grant),
            Ok(None) => {}
            Err(refusal) => effects.answer_acquire(caller.ticket, Answer::Refused(refusal)),
        }
    }

    /// Returns the claim that the request id and the owner of an acquire name, if there is one that the lane may take
    /// over.
    #[inline]
    pub(super) fn claim_of_request(
        &self,
        caller: &Caller,
        entry: KeyIx,
        options: &AcquireOptions<'_>,
    ) -> Option<ClaimIx> {
        let request_id = options.request_id?;
        let owner = options.owner.unwrap_or(&self.lanes.lanes[caller.lane].owner);
        self.find_request_id(caller.lane, entry, owner, request_id, None)
    }
}

impl AcquireTerms<'_> {
    /// Whether a hold with these terms must be linked to its lane: it ends with the session or after the loss of the
    /// connection, or it is reserved before it is held.
    #[inline]
    pub(super) fn hangs_on_lane(&self, scope: Scope) -> bool {
        self.session_lease
            || scope.is_durable()
            || self.options.is_some_and(|options| options.release_after_ms.is_some())
    }
}
