//! Reservations: grants that block other claims, but begin only when their fences are durable.

use super::answer_acquire;
use crate::claim::{Claim, Detail, State, flag};
use crate::effect::{
    Answer, Effects, Grant, KeyGrant, LogState, QuorumMember, QuorumQuestion, Refusal, Reserved, ReservedEnd,
    WhenDurable, remaining_ms,
};
use crate::entry;
use crate::handle::ClaimIx;
use crate::ids::{CounterName, Scope};
use crate::lane::LaneState;
use crate::shard::Shard;
use crate::time::{Nanos, Time};

impl Shard {
    /// Reserves a claim that is among the holders: it blocks other claims like a hold, and is held once its fence is
    /// durable.
    pub(in crate::shard) fn reserve(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        self.stand_reserved(claim, effects);
        if self.is_counted(claim) {
            let members = Box::new([self.quorum_member(claim)]);
            return effects.ask_quorum(QuorumQuestion { at: self.now, members, multi_key: None });
        }
        effects.when_durable(WhenDurable::Begin(self.reserved(claim)));
    }

    /// First half of [`Shard::reserve`]: assigns the fence and, if it must be in the log, records it there. In the
    /// second half, the log or the cluster is asked to confirm the fence; only then is the claim held. Until then, the
    /// claim can be given up like a waiter: it is linked to its lane, can be found by its ticket, and its wait may end.
    /// Of a multi-key claim, that concerns only the claim at the first key.
    pub(in crate::shard) fn stand_reserved(&mut self, index: ClaimIx, effects: &mut impl Effects) {
        let scope = self.scope_of(index);
        let is_recorded = scope.is_durable() && self.log_state != LogState::Absent;
        if scope == Scope::Quorum {
            let entry = self.claims[index].entry;
            let raises_scope = !self.keys.entries[entry].has(entry::flag::QUORUM);
            // The key counts as scope Quorum before the cluster answers. So a shared claim that joins the holders
            // before the answer must also ask the cluster, and cannot get the fence that the cluster gives to this
            // claim.
            self.keys.entries[entry].flags |= entry::flag::QUORUM;
            let detail = self.detail_mut(index);
            (detail.raises_scope, detail.begins_counted) = (raises_scope, true);
        }
        let claim = &mut self.claims[index];
        let entry = &mut self.keys.entries[claim.entry];
        entry.fence = entry.fence.next();
        claim.fence = entry.fence;
        claim.set_state(State::Reserved);
        // `DURABLE` says that the log has a record of the claim. Without a log, only the cluster has its fence. A key
        // of scope Ephemeral, which is reserved with the other keys of its claim, has no record either.
        claim.flags &= !flag::DURABLE;
        if is_recorded {
            claim.flags |= flag::DURABLE;
            entry.flags |= entry::flag::LOCAL;
        }
        self.count_reserved(index, true);
        self.count_waiter(index);
        if self.is_far(index) {
            // Of a multi-key claim, only the claim at the first key (the home) is linked to the lane until all keys
            // begin. When the connection is lost, a shard ends the linked claims and answers their acquires. If the
            // claims at the other keys were linked too, their shards would also answer this acquire.
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

    /// Returns the data that the later beginning or end of a reserved claim needs.
    pub(in crate::shard) fn reserved(&self, claim: ClaimIx) -> Reserved {
        let Claim { secret, lane, fence, .. } = self.claims[claim];
        Reserved {
            shard: self.number,
            lane: self.lanes.lanes[lane].address,
            slot: claim,
            secret,
            fence,
            is_counted: self.is_counted(claim),
            since: Time::NEVER,
        }
    }

    /// Returns the data of a reserved claim that a question to the cluster contains.
    pub(in crate::shard) fn quorum_member(&self, claim: ClaimIx) -> QuorumMember {
        let counter = self.is_counted(claim).then(|| CounterName {
            namespace: self.namespace_of(claim),
            key: self.keys.key(self.claims[claim].entry).into(),
        });
        QuorumMember { reserved: self.reserved(claim), id: self.id(claim), counter }
    }

    /// Ends the reservation of a claim that is no multi-key claim. A reserved claim is granted and blocks other claims,
    /// but is held only once the log or the cluster has confirmed its fence. `end` says whether the claim begins, is
    /// refused, or becomes unknown. If a newer request took the claim over, the claim begins only after the record of
    /// that takeover is durable. Does nothing if the claim was given up before.
    pub fn end_reservation(&mut self, end: ReservedEnd, mut reserved: Reserved, effects: &mut impl Effects) {
        if let ReservedEnd::Begins(at) = end
            && self.has_moved(&reserved)
        {
            self.put_off(at, &mut reserved);
            return effects.when_durable(WhenDurable::Begin(reserved));
        }
        self.end_member(end, &reserved, None, effects);
    }

    /// Ends the reservation of one key. `multi_key` has the grants of all keys of a multi-key claim, for the answer
    /// that its first key sends; `None` for its other keys and for a claim for one key.
    pub(in crate::shard) fn end_member(
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

    /// Whether a reserved claim was not given up, and the connection of its latest acquire is still open.
    pub(in crate::shard) fn may_begin_reserved(&self, reserved: &Reserved) -> bool {
        self.is_reserved(reserved.slot, reserved.secret) && self.is_asker_there(reserved.slot)
    }

    /// Whether a newer request has taken over a reserved claim since the claim last began to wait for the log. If so,
    /// the caller must call [`Shard::put_off`], and wait until the log record of the takeover is durable, before the
    /// claim begins. Otherwise a client could find the claim held, although a crash could still undo the takeover.
    pub(in crate::shard) fn has_moved(&self, reserved: &Reserved) -> bool {
        let Reserved { slot, secret, .. } = *reserved;
        self.is_reserved(slot, secret) && self.details[self.claims[slot].detail].moved_record != 0
    }

    /// Notes that a reserved claim could begin at `at`, but must wait until the record of a takeover is durable. Its
    /// lease runs from the earliest noted `at` nevertheless.
    pub(in crate::shard) fn put_off(&mut self, at: Time, reserved: &mut Reserved) {
        reserved.since = reserved.since.min(at);
        if self.is_reserved(reserved.slot, reserved.secret) {
            self.detail_mut(reserved.slot).moved_record = 0;
        }
    }

    /// Makes a reserved claim held. Its lease begins at `at`. Ends the claim instead if its connection was lost; does
    /// nothing if it was given up before.
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
            // The cluster may have given a higher fence than this server reserved.
            let record = &mut self.claims[claim];
            record.fence = reserved.fence;
            let entry = &mut self.keys.entries[record.entry];
            entry.fence = entry.fence.max(reserved.fence);
            // The key still has the flag `QUORUM`, which `stand_reserved` set for this claim or an earlier one. The
            // flag is cleared only if the claim that set it is given up and no later claim of the key got a fence.
            debug_assert!(
                entry.has(entry::flag::QUORUM),
                "the key of a counted claim is not of scope Quorum"
            );
        }
        let is_far = self.is_far(claim);
        if !is_far && !self.is_asker_there(claim) {
            // The connection of the acquire was lost: a hold that no client knows must not begin.
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
        // `keep_siblings` reads the multi-key claim in the `Detail`, and stores all keys of the claim there, to compare
        // them with the keys of a repeated acquire. `forget_wait` drops the `Detail` if nothing in it is needed, so it
        // comes second.
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
            // While reserved, this key of a multi-key claim was not linked to the lane, so the loss of the connection
            // did not reach it. `settle_lane` applies the loss to the new hold: for example, it times its release.
            self.settle_lane(lane, effects);
        }
    }

    /// Marks a reserved claim as unknown after the log failed, and reports that in the answer to its acquire. Only a
    /// restart of the server shows whether the log has the claim. The claim blocks other claims until a client gives it
    /// up, its wait ends, its client disconnects, or the process ends. No second answer is sent then. Has no effect on
    /// a multi-key claim at a key other than the first.
    fn lose_reserved(&mut self, reserved: &Reserved, effects: &mut impl Effects) {
        let claim = reserved.slot;
        if self.is_reserved(claim, reserved.secret)
            && self.claims[claim].state() != State::Unknown
            && !self.is_far(claim)
        {
            self.answer_reserved(claim, Answer::Refused(Refusal::Unknown), effects);
            // The client may repeat the request. The repeated request must then make a new claim, so its ticket must
            // not find this one.
            self.forget_waiting(claim);
            self.claims[claim].set_state(State::Unknown);
        }
    }

    /// Refuses a reserved claim because the cluster did not count its fence. Of a multi-key claim, only the claim at
    /// the first key is answered and ended here; its end removes the claims at the other keys.
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

    /// Answers the acquire of a waiting or reserved claim. Has no effect in [`State::Unknown`]: that acquire was
    /// answered before.
    pub(in crate::shard) fn answer_reserved(
        &self,
        claim: ClaimIx,
        answer: Answer,
        effects: &mut impl Effects,
    ) {
        if self.claims[claim].state() != State::Unknown {
            answer_acquire(self.ticket(claim), self.has_waited(claim), answer, effects);
        }
    }

    /// Whether the client of a waiting or reserved claim may have been notified that its acquire waits.
    pub(in crate::shard) fn has_waited(&self, claim: ClaimIx) -> bool {
        let Claim { detail, .. } = self.claims[claim];
        self.details[detail].waited || !self.claims[claim].is_reserved()
    }

    /// Ends a reserved claim, and reports the end of its multi-key claim, if it belongs to one. The caller has answered
    /// the acquire before, unless its lane is closed. No later claim gets the same fence.
    pub(in crate::shard) fn end_reserved(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        let multi_key = self.details[self.claims[claim].detail].multi_key().cloned();
        self.give_up_reserved(claim);
        self.end_hold(claim, effects);
        if let Some(multi_key) = multi_key {
            effects.withdraw(&multi_key);
        }
    }

    /// Ends a reservation because the claim ends. Lowers the scope of the key again if the claim raised it to Quorum
    /// and no later claim of the key got a fence.
    pub(in crate::shard) fn give_up_reserved(&mut self, claim: ClaimIx) {
        let Claim { entry, detail, fence, .. } = self.claims[claim];
        let entry = &mut self.keys.entries[entry];
        if self.details[detail].raises_scope && entry.fence == fence {
            entry.flags &= !entry::flag::QUORUM;
        }
        self.leave_reserved(claim);
    }

    /// Removes a reserved claim from its timer and from the table of tickets. Also subtracts it from the counts of
    /// waiters and from the count of the key's reserved holders. The claim begins or ends afterwards.
    fn leave_reserved(&mut self, claim: ClaimIx) {
        self.stop_waiting(claim);
        self.count_reserved(claim, false);
    }
}
