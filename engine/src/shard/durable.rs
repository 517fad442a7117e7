//! Durability of claims: their records in the log, their counters in a cluster, and answers that wait for both.

use super::Shard;
use crate::claim::{Claim, Detail, Extra, LeaseKind, State, flag};
use crate::effect::{
    Answer, Effects, Grant, KeyGrant, LogState, QuorumMember, QuorumQuestion, QuorumState, Refusal, Reserved,
    ReservedEnd, WhenDurable, remaining_ms,
};
use crate::entry::{self};
use crate::handle::{ClaimIx, KeyIx};
use crate::ids::{CounterName, Scope, Ticket};
use crate::lane::LaneState;
use crate::time::{Nanos, Time};
use waymaker_log::{Hold, Record};

impl Shard {
    /// Sets the state of the log, and the number of the shard's last durable record. Called at the beginning of a turn.
    #[inline]
    pub fn set_log_state(&mut self, state: LogState, durable: u64) {
        self.log_state = state;
        self.durable = durable;
    }

    /// Sets the state of the cluster that keeps the counters of scope Quorum. Called at the beginning of a turn.
    #[inline]
    pub fn set_quorum_state(&mut self, state: QuorumState) {
        self.quorum_state = state;
    }

    /// Whether the fence of this claim must be durable, in the log or in a cluster, before any client learns of it.
    #[inline]
    pub(super) fn must_be_reserved(&self, claim: ClaimIx) -> bool {
        let claim = &self.claims[claim];
        claim.has(flag::DURABLE)
            || self.keys.entries[claim.entry].has(entry::flag::LOCAL | entry::flag::QUORUM)
    }

    /// Whether a cluster counts this claim.
    pub(super) fn is_counted(&self, claim: ClaimIx) -> bool {
        self.scope_of(claim) == Scope::Quorum
    }

    /// Returns the present or future durability of this claim's fence.
    fn scope_of(&self, claim: ClaimIx) -> Scope {
        let claim = &self.claims[claim];
        let of_key = self.keys.entries[claim.entry].scope();
        if self.details.get(claim.detail).is_some_and(|detail| detail.wants_quorum) {
            Scope::Quorum
        } else if claim.has(flag::DURABLE) {
            of_key.max(Scope::Local)
        } else {
            of_key
        }
    }

    /// Returns the scope of a claim with this requested scope at a key. `entry` is `NONE` if the key is unknown.
    #[inline]
    pub(super) fn raised_scope(&self, entry: KeyIx, scope: Scope) -> Scope {
        self.keys.entries.get(entry).map_or(scope, |entry| entry.scope().max(scope))
    }

    /// Whether a claim with this requested scope is reserved before it is held.
    pub(super) fn is_reserved_first(&self, entry: KeyIx, scope: Scope) -> bool {
        self.raised_scope(entry, scope) != Scope::Ephemeral
    }

    /// Checks that log and cluster accept a grant of this claim.
    #[inline]
    pub(super) fn may_count_claim(&self, claim: ClaimIx) -> Result<(), Refusal> {
        if self.must_be_reserved(claim) { self.may_count_in(self.scope_of(claim)) } else { Ok(()) }
    }

    /// Checks that log and cluster accept a grant of this requested scope at a key. `entry` is `NONE` if the key is
    /// unknown.
    pub(super) fn may_count(&self, entry: KeyIx, scope: Scope) -> Result<(), Refusal> {
        self.may_count_in(self.raised_scope(entry, scope))
    }

    #[inline]
    pub(super) fn may_count_in(&self, scope: Scope) -> Result<(), Refusal> {
        if scope == Scope::Ephemeral { Ok(()) } else { self.may_count_durably(scope) }
    }

    #[cold]
    fn may_count_durably(&self, scope: Scope) -> Result<(), Refusal> {
        match self.quorum_state {
            QuorumState::Absent if scope == Scope::Quorum => return Err(Refusal::ScopeUnavailable(scope)),
            QuorumState::Unavailable if scope == Scope::Quorum => return Err(Refusal::QuorumUnavailable),
            _ => {}
        }
        match self.log_state {
            LogState::Ready => Ok(()),
            // Without a log, the cluster alone keeps the counter, and holds end with the process.
            LogState::Absent if scope == Scope::Quorum => Ok(()),
            LogState::NoSpace => Err(Refusal::NoSpace),
            LogState::Slow => Err(Refusal::LogStalled),
            LogState::Absent => Err(Refusal::ScopeUnavailable(Scope::Local)),
        }
    }

    /// Reserves a claim that is among the holders: it blocks other claims like a hold, and is held once its fence is
    /// durable.
    pub(super) fn reserve(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        self.stand_reserved(claim, effects);
        let member = self.quorum_member(claim);
        if member.counter.is_some() {
            let members = Box::new([member]);
            return effects.ask_quorum(QuorumQuestion { at: self.now, members, multi_key: None });
        }
        effects.when_durable(WhenDurable::Begin(member.reserved));
    }

    /// First half of [`Shard::reserve`]: assigns the fence and records it. Until the claim is held, it can be given up
    /// like a waiter: it is linked to its lane, can be found by its ticket, and its wait may end.
    pub(super) fn stand_reserved(&mut self, index: ClaimIx, effects: &mut impl Effects) {
        let scope = self.scope_of(index);
        let is_recorded = scope.is_durable() && self.log_state != LogState::Absent;
        if scope == Scope::Quorum {
            let entry = self.claims[index].entry;
            let raises_scope = !self.keys.entries[entry].has(entry::flag::QUORUM);
            // The flag is set now, so that a claim that joins the holders does not get a fence that the cluster gives
            // to this one.
            self.keys.entries[entry].flags |= entry::flag::QUORUM;
            let detail = self.detail_mut(index);
            (detail.raises_scope, detail.begins_counted) = (raises_scope, true);
        }
        let claim = &mut self.claims[index];
        let entry = &mut self.keys.entries[claim.entry];
        entry.fence += 1;
        claim.fence = entry.fence;
        claim.set_state(State::Reserved);
        // Without a log, only the cluster has the fence.
        claim.flags &= !flag::DURABLE;
        if is_recorded {
            claim.flags |= flag::DURABLE;
            entry.flags |= entry::flag::LOCAL;
        }
        self.count_reserved(index, true);
        self.count_waiter(index);
        if self.is_far(index) {
            // The home alone is linked to the lane until all keys of the claim begin. Otherwise each shard would answer
            // when the connection is lost.
            self.lanes.unlink(&mut self.claims, &mut self.details, index);
            self.claims[index].deadline = Time::NEVER;
            self.counters_of(self.namespace_of(index)).far_stub_count += 1;
        } else {
            self.lanes.link(&mut self.claims, &mut self.details, index);
            self.counters_of(self.namespace_of(index)).waiting += 1;
            self.remember_waiting(index);
            let deadline = self.claims[index].deadline;
            if deadline != Time::NEVER {
                self.wheel.set(&mut self.claims, index, deadline);
            }
        }
        if is_recorded {
            self.record_hold(index, effects);
        }
    }

    /// Returns the data of a reserved claim.
    pub(super) fn quorum_member(&self, claim: ClaimIx) -> QuorumMember {
        let Claim { secret, lane, entry, fence, .. } = self.claims[claim];
        let lane = self.lanes.lanes[lane].address;
        let is_counted_elsewhere = self.scope_of(claim) == Scope::Quorum;
        let counter = is_counted_elsewhere
            .then(|| CounterName { namespace: self.namespace_of(claim), key: self.keys.key(entry).into() });
        QuorumMember {
            reserved: Reserved {
                shard: self.number,
                lane,
                slot: claim,
                secret,
                fence,
                is_counted: is_counted_elsewhere,
                since: Time::NEVER,
            },
            id: self.id(claim),
            counter,
        }
    }

    /// Ends the reservation of a claim for one key. Does nothing if the claim was given up meanwhile.
    pub fn end_reservation(&mut self, end: ReservedEnd, mut reserved: Reserved, effects: &mut impl Effects) {
        if let ReservedEnd::Begins(at) = end
            && self.has_moved(&reserved)
        {
            self.put_off(at, &mut reserved);
            return effects.when_durable(WhenDurable::Begin(reserved));
        }
        self.end_member(end, &reserved, None, effects);
    }

    /// Ends the reservation of one key. `multi_key` is the answer of a multi-key claim, which its first key sends.
    pub(super) fn end_member(
        &mut self,
        end: ReservedEnd,
        reserved: &Reserved,
        multi_key: Option<Box<[KeyGrant]>>,
        effects: &mut impl Effects,
    ) {
        match end {
            ReservedEnd::Begins(at) => {
                self.begin_reserved(at.min(reserved.since), reserved, multi_key, effects);
            }
            ReservedEnd::Unknown => self.lose_reserved(reserved, effects),
            ReservedEnd::NotCounted => self.refuse_reserved(reserved, effects),
        }
    }

    /// Whether a reserved claim was not given up, and its client is still connected.
    pub(super) fn may_begin_reserved(&self, reserved: &Reserved) -> bool {
        self.is_reserved(reserved.slot, reserved.secret) && self.is_asker_there(reserved.slot)
    }

    /// Whether a newer request has taken over a reserved claim since its begin was last left to the log. The answer
    /// must wait until the move is durable, and no client may find the claim held before the answer.
    pub(super) fn has_moved(&self, reserved: &Reserved) -> bool {
        let Reserved { slot, secret, .. } = *reserved;
        self.is_reserved(slot, secret) && self.details[self.claims[slot].detail].moved_record != 0
    }

    /// Notes that a claim could begin at `at`, but begins only after all present records are durable.
    pub(super) fn put_off(&mut self, at: Time, reserved: &mut Reserved) {
        reserved.since = reserved.since.min(at);
        if self.is_reserved(reserved.slot, reserved.secret) {
            self.detail_mut(reserved.slot).moved_record = 0;
        }
    }

    /// Makes a reserved claim held. Its lease begins at `at`.
    fn begin_reserved(
        &mut self,
        at: Time,
        reserved: &Reserved,
        multi_key: Option<Box<[KeyGrant]>>,
        effects: &mut impl Effects,
    ) {
        let claim = reserved.slot;
        if !self.is_reserved(claim, reserved.secret) {
            return;
        }
        if reserved.is_counted {
            // The cluster may have counted higher than this server.
            let record = &mut self.claims[claim];
            record.fence = reserved.fence;
            let entry = &mut self.keys.entries[record.entry];
            entry.fence = entry.fence.max(reserved.fence);
            // A claim lowers the scope that it raised only if no other claim came after it.
            debug_assert!(
                entry.has(entry::flag::QUORUM),
                "the key of a counted claim is not of scope Quorum"
            );
        }
        let is_far = self.is_far(claim);
        if !is_far && !self.is_asker_there(claim) {
            // Whoever asked is gone: a hold that nobody knows of must not begin.
            self.answer_lost(claim, effects);
            return self.end_reserved(claim, effects);
        }
        self.leave_reserved(claim);
        let ticket = self.ticket(claim);
        let detail = self.claims[claim].detail;
        let Detail { waited, lease_ms, freed_at, .. } = self.details[detail];
        if waited {
            self.details[detail].waited_nanos = Nanos::from(at).since(self.claims[claim].arrived());
            if !is_far {
                self.measure_grant(claim, freed_at, effects);
            }
        }
        self.keep_siblings(claim);
        self.forget_wait(claim);
        let record = &mut self.claims[claim];
        record.set_state(State::Held);
        record.set_granted(self.nanos.within(at));
        let is_timed = !record.lease().is_untimed();
        record.deadline = if is_timed { at.after_ms(u64::from(lease_ms)) } else { Time::NEVER };
        let deadline = record.deadline;
        if is_timed {
            self.wheel.set(&mut self.claims, claim, deadline);
        }
        if !is_far {
            let answer = match multi_key {
                None => Answer::Granted(Grant { waited, ..self.grant_of(claim) }),
                Some(mut grants) => {
                    for key_grant in &mut grants {
                        key_grant.grant.remaining_ms = remaining_ms(deadline, self.now);
                        key_grant.grant.waited = waited;
                    }
                    Answer::GrantedMultiKey(grants)
                }
            };
            answer_acquire(ticket, waited, answer, effects);
        }
        self.tell_held(claim, effects);
        let lane = self.claims[claim].lane;
        if self.lanes.lanes[lane].state != LaneState::Open {
            // The connection was lost while the claim was reserved, so the new hold must be settled like the other
            // claims of the lane.
            self.settle_lane(lane, effects);
        }
    }

    /// Marks a reserved claim as unknown after the log failed. Its outcome is unknown until the server restarts. It
    /// blocks other claims until the process ends, and gets no further answer if it is given up before.
    fn lose_reserved(&mut self, reserved: &Reserved, effects: &mut impl Effects) {
        let claim = reserved.slot;
        if self.is_reserved(claim, reserved.secret)
            && self.claims[claim].state() != State::Unknown
            && !self.is_far(claim)
        {
            self.answer_reserved(claim, Answer::Refused(Refusal::Unknown), effects);
            // The same request may be repeated, and then is another claim.
            self.forget_waiting(claim);
            self.claims[claim].set_state(State::Unknown);
        }
    }

    /// Refuses a reserved claim that the cluster did not count. The home of a multi-key claim decides for all its keys.
    fn refuse_reserved(&mut self, reserved: &Reserved, effects: &mut impl Effects) {
        let claim = reserved.slot;
        if self.is_reserved(claim, reserved.secret) && !self.is_far(claim) {
            self.answer_reserved(claim, Answer::Refused(Refusal::QuorumUnavailable), effects);
            self.end_reserved(claim, effects);
        }
    }

    fn is_reserved(&self, claim: ClaimIx, secret: u64) -> bool {
        self.claims.get(claim).is_some_and(|claim| claim.is_reserved() && claim.secret == secret)
    }

    /// Answers the acquire of a waiting or reserved claim.
    pub(super) fn answer_reserved(&self, claim: ClaimIx, answer: Answer, effects: &mut impl Effects) {
        if self.claims[claim].state() != State::Unknown {
            answer_acquire(self.ticket(claim), self.has_waited(claim), answer, effects);
        }
    }

    /// Whether the client of a waiting or reserved claim may have been notified that its acquire waits.
    pub(super) fn has_waited(&self, claim: ClaimIx) -> bool {
        let Claim { detail, .. } = self.claims[claim];
        self.details[detail].waited || !self.claims[claim].is_reserved()
    }

    /// Ends a reserved claim whose acquire was answered. Its fence is used up.
    pub(super) fn end_reserved(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        let multi_key = self.details[self.claims[claim].detail].multi_key().cloned();
        self.give_up_reserved(claim);
        self.end_hold(claim, effects);
        if let Some(multi_key) = multi_key {
            effects.withdraw(&multi_key);
        }
    }

    /// Ends a reservation because the claim ends. If it was to be the first claim of its key that a cluster counts, and
    /// no claim came after it, the key's scope is lowered again.
    pub(super) fn give_up_reserved(&mut self, claim: ClaimIx) {
        let Claim { entry, detail, fence, .. } = self.claims[claim];
        let entry = &mut self.keys.entries[entry];
        if self.details[detail].raises_scope && entry.fence == fence {
            entry.flags &= !entry::flag::QUORUM;
        }
        self.leave_reserved(claim);
    }

    /// Removes a reserved claim from its timer, the table of tickets and the counts, because it begins or ends.
    fn leave_reserved(&mut self, claim: ClaimIx) {
        self.stop_waiting(claim);
        self.count_reserved(claim, false);
    }

    /// Answers once all existing records are durable.
    pub(super) fn answer_durably(&self, ticket: Ticket, answer: Answer, effects: &mut impl Effects) {
        if self.recorded > self.durable {
            effects.when_durable(WhenDurable::Answer(ticket, answer));
        } else {
            effects.answer(ticket, answer);
        }
    }

    /// Returns the number of the next record.
    fn next_record(&mut self) -> u64 {
        self.recorded += 1;
        self.recorded
    }

    pub(super) fn record(&mut self, record: &Record<'_>, effects: &mut impl Effects) {
        let number = self.next_record();
        effects.record(self.number, number, record);
    }

    /// Records that a hold exists, with its present lease.
    pub(super) fn record_hold(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        let number = self.next_record();
        self.with_hold(claim, |hold| effects.record(self.number, number, &Record::Held(hold)));
    }

    #[cold]
    pub(super) fn record_end(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        self.record(&Record::Ended { id: self.id(claim) }, effects);
    }

    /// Records the present end of a hold's lease.
    pub(super) fn record_lease(
        &mut self,
        claim: ClaimIx,
        deadline: Time,
        lease_ms: u32,
        effects: &mut impl Effects,
    ) {
        let (id, deadline_ms) = (self.id(claim), deadline.as_millis());
        self.record(&Record::LeaseMoved { id, deadline_ms, lease_ms }, effects);
    }

    /// Adds a record for a key that has none. Counters that were evicted for it are recorded in a later turn. Until
    /// then, the log has their exact values.
    pub(super) fn insert_key(&mut self, namespace: u16, key: &[u8], hash: u64) -> KeyIx {
        self.keys.insert(namespace, key, hash)
    }

    /// Records the keys whose counters were folded into the floor.
    pub(super) fn record_folded(&mut self, effects: &mut impl Effects) {
        for (namespace, key) in std::mem::take(&mut self.keys.folded) {
            self.record(&Record::Folded { namespace, key: &key }, effects);
        }
    }

    /// Records the state that survives only a clean stop: holds and counters that are not in the log.
    pub fn record_ephemeral(&mut self, effects: &mut impl Effects) {
        self.record(&Record::Floor { fence: self.keys.floor() }, effects);
        for index in self.keys.entries.handles() {
            let entry = &self.keys.entries[index];
            let (namespace, fence) = (entry.namespace, entry.fence);
            if entry.has(entry::flag::LIVE) && !entry.has(entry::flag::LOCAL) && fence > 0 {
                let number = self.next_record();
                let key = self.keys.key(index);
                let counter = Record::Counter { namespace, scope: Scope::Ephemeral, fence, key };
                effects.record(self.number, number, &counter);
            }
        }
        for claim in self.claims.handles() {
            // A reserved claim without a record is part of a multi-key claim that begins together with the records
            // written here.
            if self.claims[claim].is_among_holders() && !self.claims[claim].is_recorded() {
                self.record_hold(claim, effects);
            }
        }
    }

    /// Passes a claim that is among the holders to `put`, in the form of the log.
    pub(super) fn with_hold(&self, index: ClaimIx, put: impl FnOnce(Hold<'_>)) {
        let claim = &self.claims[index];
        let none = Detail::default();
        let detail = self.details.get(claim.detail).unwrap_or(&none);
        let lane = &self.lanes.lanes[claim.lane];
        // A reserved claim gets its lease when this record is durable; any other hold keeps its present lease.
        let begun = claim.is_held() && !claim.lease().is_untimed();
        let end = if claim.state() == State::Releasing { detail.lease_end } else { claim.deadline };
        let length_ms = match &detail.extra {
            Extra::Registration(registered) => registered
                .end_ms
                .saturating_sub(claim.began().round_up().as_millis() as i64)
                .clamp(0, u32::MAX.into()) as u32,
            _ if detail.lease_ms > 0 => detail.lease_ms,
            // The length of the lease is not in memory. The remaining lease is enough, because the next start comes
            // later.
            _ => end.remaining_ms_since(self.now),
        };
        self.with_item(index, detail, |item| {
            put(Hold {
                id: self.id(index),
                namespace: self.namespace_of(index),
                scope: if claim.is_recorded() { self.scope_of(index) } else { Scope::Ephemeral },
                shared: claim.has(flag::SHARED),
                session_lease: claim.has_session_lease(),
                endless: claim.lease() == LeaseKind::Endless,
                clamped: claim.has(flag::CLAMPED),
                waited: detail.waited,
                repeated: detail.repeated,
                fence: claim.fence,
                begins_counted: false,
                awaits_count: claim.is_reserved() && detail.begins_counted,
                since_ms: claim.began().round_up().as_millis(),
                deadline_ms: (begun && end != Time::NEVER).then_some(end.as_millis()),
                lease_ms: length_ms,
                release_after_ms: detail.release_after_ms,
                priority: detail.priority,
                number: detail.number,
                session: lane.session,
                owner: self.owner_of(index),
                identity: self.identity_of(index).map(|identity| &**identity),
                request_id: detail.request_id.as_deref(),
                metadata: detail.text(),
                // Also needed without a request id: the answer to the acquire contains all keys.
                set_hash: detail.key_set_number(),
                item,
            })
        });
    }
}

/// Answers an acquire that did not wait. A hold that was found by its request id is not a new grant.
#[inline]
pub(super) fn answer_grant(ticket: Ticket, grant: Grant, effects: &mut impl Effects) {
    if grant.repeated {
        effects.answer_acquire(ticket, Answer::Granted(grant));
    } else {
        effects.granted(ticket, grant);
    }
}

/// Answers an acquire that waited, or one that is still in flight.
pub(super) fn answer_acquire(ticket: Ticket, waited: bool, answer: Answer, effects: &mut impl Effects) {
    if waited {
        effects.answer_waiter(ticket, answer);
    } else {
        effects.answer_acquire(ticket, answer);
    }
}
