//! Multi-key claims, whose keys may be in several shards. They are granted as a whole, at one instant, or not at all.

mod acquire;
#[cfg(test)]
mod tests;

use crate::handle::{ClaimIx, KeyIx, LaneIx};
pub use crate::multi_key_claim::{MultiKeyClaim, key_set_hash};
pub use acquire::{AcquireMultiKey, RequestedKey, acquire};

use super::Shard;
use crate::claim::{Claim, Detail, Extra, flag};
use crate::effect::{
    Answer, Effects, Grant, KeyGrant, QuorumQuestion, Refusal, Reserved, ReservedEnd, ReservedMultiKey,
    WhenDurable,
};
use crate::ids::ClaimId;
use crate::lane::LaneState;
use crate::measure::FreedAt;
use crate::multi_key_claim::Member;
use crate::time::Reading;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Shard with its turn held.
#[derive(Debug)]
pub struct Participant<'a> {
    /// The shard itself.
    pub shard: &'a mut Shard,
    /// Number of the requesting lane in the shard. Only `multi_key::acquire` uses it.
    pub lane: LaneIx,
}

/// Grants a waiting multi-key claim if nothing blocks any of its keys. Reserves it instead if the grant of any key must
/// be confirmed first, by the durable log or by the cluster. Refuses it if the log or the cluster accepts no such
/// grant. `participants` are the shards of all its keys in rising order, each with its turn held. Does nothing if the
/// claim is already decided.
///
/// # Panics
/// Panics if a shard of the claim is not among `participants`.
pub fn recheck(participants: &mut [Participant<'_>], multi_key: &MultiKeyClaim, effects: &mut impl Effects) {
    if !is_grantable(participants, multi_key) {
        return forget_frozen(participants, multi_key);
    }
    align_time(participants);
    let place = |shard: u16| place_of(participants, shard);
    let places: Vec<usize> = multi_key.members.iter().map(|member| place(member.shard)).collect();
    let home = &participants[places[0]].shard;
    let ticket = home.ticket(multi_key.members[0].claim);
    let is_reserved = must_be_reserved(participants, multi_key, &places);
    note_counted(participants, multi_key, &places);
    if let Err(refusal) = may_count(participants, multi_key, &places) {
        let home = &mut participants[places[0]].shard;
        effects.answer_waiter(ticket, Answer::Refused(refusal));
        return home.end_wait(multi_key.members[0].claim, effects);
    }
    let mut grants = Vec::with_capacity(places.len());
    let lane = |(member, place): (&Member, &usize)| participants[*place].shard.claims[member.claim].lane;
    let lanes: Vec<LaneIx> = multi_key.members.iter().zip(&places).map(lane).collect();
    for (member, place) in multi_key.members.iter().zip(&places) {
        let shard = &mut participants[*place].shard;
        grants.push(shard.grant_stub(member.claim, member != &multi_key.members[0], is_reserved, effects));
    }
    if is_reserved {
        begin_multi_key(participants, multi_key, &places, grants, effects);
    } else {
        effects.answer_waiter(ticket, Answer::GrantedMultiKey(grants.into()));
    }
    for (member, place) in multi_key.members.iter().zip(&places) {
        let shard = &mut participants[*place].shard;
        let entry = shard.claims[member.claim].entry;
        if !is_reserved {
            shard.tell_held(member.claim, effects);
        }
        // When a waiter leaves its queue, waiters behind it may often be granted, but not here. The new hold blocks the
        // same claims as its waiter did before, and readers that may pass the waiter were granted earlier. So only an
        // unused queue is removed.
        shard.simplify(entry);
    }
    for (lane, place) in lanes.into_iter().zip(&places) {
        let shard = &mut participants[*place].shard;
        if shard.lanes.lanes[lane].state == LaneState::Detached {
            // This shard already knows that the connection was lost. The loss did not reach the claim before, because a
            // waiter that is not at the first key is not linked to the lane. `settle_lane` applies the loss to the new
            // hold: for example, it times its release.
            shard.settle_lane(lane, effects);
        }
    }
}

/// Whether the log or the cluster must confirm the grant of at least one key of the claim before the key is held. If
/// so, all keys are reserved, and their holds begin together.
fn must_be_reserved(participants: &[Participant<'_>], multi_key: &MultiKeyClaim, places: &[usize]) -> bool {
    let mut members = multi_key.members.iter().zip(places);
    members.any(|(member, place)| participants[*place].shard.must_be_reserved(member.claim))
}

/// If a cluster assigns the fence of any of the keys, sets `begins_counted` in the `Detail` (record of rare data) of
/// each claim. The log records of these claims then say that the holds take effect only when the cluster has answered.
fn note_counted(participants: &mut [Participant<'_>], multi_key: &MultiKeyClaim, places: &[usize]) {
    let mut members = multi_key.members.iter().zip(places);
    if members.any(|(member, place)| participants[*place].shard.is_counted(member.claim)) {
        for (member, place) in multi_key.members.iter().zip(places) {
            participants[*place].shard.detail_mut(member.claim).begins_counted = true;
        }
    }
}

/// Checks that log and cluster accept the grants of all keys that need them.
fn may_count(
    participants: &[Participant<'_>],
    multi_key: &MultiKeyClaim,
    places: &[usize],
) -> Result<(), Refusal> {
    let mut members = multi_key.members.iter().zip(places);
    members.try_for_each(|(member, place)| participants[*place].shard.may_count_claim(member.claim))
}

/// Asks the log or the cluster to confirm a claim whose keys are all reserved. After the confirmation, the holds of all
/// keys begin together, and the shard of the first key answers for all of them.
fn begin_multi_key(
    participants: &[Participant<'_>],
    multi_key: &MultiKeyClaim,
    places: &[usize],
    grants: Vec<KeyGrant>,
    effects: &mut impl Effects,
) {
    let grants = grants.into_boxed_slice();
    let members = multi_key.members.iter().zip(places);
    if members.clone().any(|(member, place)| participants[*place].shard.is_counted(member.claim)) {
        let member =
            |(member, place): (&Member, &usize)| participants[*place].shard.quorum_member(member.claim);
        let (at, members) = (participants[places[0]].shard.now, members.map(member).collect());
        return effects.ask_quorum(QuorumQuestion { at, members, multi_key: Some(grants) });
    }
    let member = |(member, place): (&Member, &usize)| participants[*place].shard.reserved(member.claim);
    let members = members.map(member).collect();
    effects.when_durable(WhenDurable::BeginMultiKey(Box::new(ReservedMultiKey { members, grants })));
}

/// Ends the reservations of all keys of a claim at one instant and with the same outcome. If the holds began one after
/// the other, one could end before the claim is answered. Its client could then learn of that end before the grant. If
/// a newer request took the claim over, its holds begin only after the records of that takeover are durable.
/// `participants` are the shards of all keys in rising order, each with its turn held.
///
/// # Panics
/// Panics if a shard of the claim is not among `participants`.
pub fn end_reservation(
    participants: &mut [Participant<'_>],
    end: ReservedEnd,
    mut multi_key: Box<ReservedMultiKey>,
    effects: &mut impl Effects,
) {
    // The answer has the time of the latest shard, so the remaining leases must be computed at that time.
    align_time(participants);
    let place = |reserved: &Reserved| place_of(participants, reserved.shard);
    let places: Vec<usize> = multi_key.members.iter().map(place).collect();
    if let ReservedEnd::Begins(at) = end {
        let (home, first) = (&mut participants[places[0]].shard, &multi_key.members[0]);
        if !home.may_begin_reserved(first) {
            // The end of the claim at the first key also withdraws the claims at the other keys.
            return home.end_member(end, first, None, effects);
        }
        let mut members = multi_key.members.iter().zip(&places);
        if members.any(|(member, place)| participants[*place].shard.has_moved(member)) {
            for (member, place) in multi_key.members.iter_mut().zip(&places) {
                participants[*place].shard.put_off(at, member);
            }
            return effects.when_durable(WhenDurable::BeginMultiKey(multi_key));
        }
    }
    let ReservedMultiKey { members, grants } = *multi_key;
    let mut grants = Some(grants);
    // The first key answers for all keys, so it comes last: a client that learns of the grant finds all keys held.
    for (number, (member, place)) in members.iter().zip(places).enumerate().rev() {
        let answer = grants.take_if(|_| number == 0);
        participants[place].shard.end_member(end, member, answer, effects);
    }
}

/// Whether a multi-key claim can be granted now. The claim must wait, its wait must not be over, and its client must be
/// connected. No key may be blocked or frozen, and no shard of the claim may be stopping.
fn is_grantable(participants: &[Participant<'_>], multi_key: &MultiKeyClaim) -> bool {
    let is_clear = |number: &usize| {
        let member = &multi_key.members[*number];
        let shard = &participants[place_of(participants, member.shard)].shard;
        shard.is_stub(member) && !shard.stopping && shard.is_stub_clear(member.claim, *number == 0)
    };
    let first = multi_key.blocked.load(Ordering::Relaxed);
    let blocked = (first..multi_key.members.len()).chain(0..first).find(|number| !is_clear(number));
    if let Some(number) = blocked {
        multi_key.blocked.store(number, Ordering::Relaxed);
    }
    blocked.is_none()
}

/// Whether a call of [`recheck`] for a waiting claim must be pending: the claim can be granted now, and no shard in
/// `participants` has work left that could cause the call. For tests.
///
/// # Panics
/// Panics if a shard of the claim is not among `participants`.
pub fn is_grant_due(participants: &[Participant<'_>], multi_key: &MultiKeyClaim) -> bool {
    is_grantable(participants, multi_key) && participants.iter().all(|one| one.shard.work.is_empty())
}

/// For each multi-key claim whose keys are all reserved, returns the ids of its claims at the keys that the log has
/// recorded. Until the holds begin, a crash keeps all of these claims or none. A claim of scope Ephemeral is not
/// recorded. For tests.
pub fn reserved_multi_key_claims(shards: &[&Shard]) -> Vec<Vec<ClaimId>> {
    let claim_of = |member: &Member| {
        let shard = shards.iter().find(|shard| shard.number == member.shard);
        let claim = shard.and_then(|shard| shard.claims.get(member.claim));
        claim.filter(|claim| claim.is_reserved() && claim.secret == member.id.secret)
    };
    let is_recorded =
        |member: &&Member| claim_of(member).is_some_and(super::super::claim::Claim::is_recorded);
    let homes = shards.iter().flat_map(|shard| shard.multi_key_claims_at_home(Claim::is_reserved));
    homes
        .filter(|multi_key| multi_key.members.iter().all(|member| claim_of(member).is_some()))
        .map(|multi_key| multi_key.members.iter().filter(is_recorded).map(|member| member.id).collect())
        .collect()
}

/// For each frozen key of the claim, makes the queue of the key forget for which claims a recheck was requested. The
/// end of the freeze then requests new rechecks.
fn forget_frozen(participants: &mut [Participant<'_>], multi_key: &MultiKeyClaim) {
    if !participants.iter().any(|one| one.shard.careful) {
        return;
    }
    for member in &multi_key.members {
        let shard = &mut participants[place_of(participants, member.shard)].shard;
        if shard.is_stub(member) && shard.is_entry_frozen(shard.claims[member.claim].entry) {
            let queue = shard.keys.entries[shard.claims[member.claim].entry].queue();
            shard.queues[queue].forget_announced();
        }
    }
}

pub(super) fn place_of(participants: &[Participant<'_>], shard: u16) -> usize {
    let found = participants.binary_search_by_key(&shard, |participant| participant.shard.number);
    found.expect("the caller has the turns of all shards of the claim")
}

/// Sets the time of all shards to the time of the latest shard, so that a request has one instant.
fn align_time(participants: &mut [Participant<'_>]) {
    let readings = participants.iter().map(|participant| participant.shard.reading());
    let Some(Reading { time, nanos }) = readings.max_by_key(|reading| reading.nanos) else { return };
    for Participant { shard, .. } in participants {
        (shard.now, shard.nanos) = (time, nanos);
    }
}

impl Shard {
    /// Ends the claims in this shard that belong to a multi-key claim, and grants the waiters that they blocked. The
    /// multi-key claim has ended at its first key, whose shard decides for all keys. The worker then calls this
    /// function for each shard of the multi-key claim. Until then, the claims at the other keys wait in their queues or
    /// are among the holders.
    pub fn withdraw(&mut self, multi_key: &MultiKeyClaim, effects: &mut impl Effects) {
        for member in &multi_key.members {
            if member.shard != self.number || self.claims[member.claim].secret != member.id.secret {
                continue;
            }
            if !self.is_stub(member) {
                // The claim at this key is reserved. (If it were held already, it would end in the same way.)
                self.end_granted_member(member.claim, effects);
            } else {
                let entry = self.claims[member.claim].entry;
                let matters = self.queues[self.keys.entries[entry].queue()].has_writers();
                self.leave_queue(member.claim);
                self.free_claim(member.claim);
                if matters {
                    self.grant_from_head(entry, FreedAt::NEVER, effects);
                } else {
                    self.simplify(entry);
                }
            }
        }
    }

    fn end_granted_member(&mut self, claim: ClaimIx, effects: &mut impl Effects) {
        if self.claims[claim].is_reserved() {
            self.give_up_reserved(claim);
        }
        self.end_hold(claim, effects);
    }

    /// Returns the waiting multi-key claims whose first key is in this shard. For tests.
    pub fn waiting_multi_key_claims(&self) -> Vec<Arc<MultiKeyClaim>> {
        self.multi_key_claims_at_home(Claim::is_stub)
    }

    fn multi_key_claims_at_home(&self, is_wanted: fn(&Claim) -> bool) -> Vec<Arc<MultiKeyClaim>> {
        let home = |claim: ClaimIx| {
            let record = &self.claims[claim];
            let is_one = is_wanted(record) && self.is_home(claim);
            if is_one { self.details[record.detail].multi_key().cloned() } else { None }
        };
        self.claims.handles().filter_map(home).collect()
    }

    /// Whether the waiter of a multi-key claim at this key still waits.
    fn is_stub(&self, member: &Member) -> bool {
        let claim = &self.claims[member.claim];
        claim.is_stub() && claim.secret == member.id.secret
    }

    /// Returns the claim that stands for a multi-key claim at this key, unless it has ended.
    fn member_at(&self, member: &Member, entry: KeyIx) -> Option<ClaimIx> {
        let claim = self.claims.get(member.claim)?;
        let is_same = claim.is_live() && claim.secret == member.id.secret && claim.entry == entry;
        is_same.then_some(member.claim)
    }

    /// Whether a waiter of a multi-key claim could be granted now if the claim were for its key alone. `is_home` says
    /// whether the key is the first key of the claim.
    fn is_stub_clear(&self, stub: ClaimIx, is_home: bool) -> bool {
        let claim = &self.claims[stub];
        let queue = &self.queues[self.keys.entries[claim.entry].queue()];
        let shared = claim.has(flag::SHARED);
        let order = self.details[claim.detail].order;
        let stands_free = || {
            queue.first_waiter() == stub
                || shared && queue.only_readers_before(&self.claims, &self.details, order)
        };
        let is_over = is_home && self.is_wait_over(stub);
        // The shards of a claim learn of a lost connection one after the other. Only the shard of the first key decides
        // whether the loss ends the wait, so the other shards ignore it. A closed lane may not get a hold in any shard.
        let is_listening = match self.lanes.lanes[claim.lane].state {
            LaneState::Open => !is_home || self.is_asker_there(stub),
            LaneState::Detached => !is_home,
            LaneState::Closed => false,
        };
        queue.is_open_to(shared, &self.claims)
            && is_listening
            && !is_over
            && stands_free()
            && !self.is_entry_frozen(claim.entry)
    }

    /// Whether this claim stands for a waiting or reserved multi-key claim at its first key. The shard of the first key
    /// decides about such a multi-key claim.
    pub(super) fn is_home(&self, claim: ClaimIx) -> bool {
        let multi_key = self.details.get(self.claims[claim].detail).and_then(Detail::multi_key);
        multi_key.is_some_and(|multi_key| multi_key.id() == self.id(claim))
    }

    /// Returns the id by which clients know a waiter. For a waiter of a multi-key claim, this is the id of its waiter
    /// at the first key.
    pub(super) fn deciding_id(&self, claim: ClaimIx) -> ClaimId {
        let multi_key = self.details.get(self.claims[claim].detail).and_then(Detail::multi_key);
        multi_key.map_or_else(|| self.id(claim), |multi_key| multi_key.id())
    }

    /// Requests a recheck of all keys of a multi-key claim, because a grant may have become possible: nothing blocks
    /// its waiter at one key any more, or a later acquire has taken it over after the loss of its connection.
    pub(super) fn tell_clear(&self, stub: ClaimIx, effects: &mut impl Effects) {
        if let Some(multi_key) = self.details[self.claims[stub].detail].multi_key() {
            effects.recheck(multi_key);
        }
    }

    /// Stores the set of all keys of the multi-key claim in the `Detail` of a hold, to compare it with the keys of a
    /// repeated acquire. After a restart, only the hash of the set is left.
    pub(super) fn keep_siblings(&mut self, claim: ClaimIx) {
        let detail = self.detail_mut(claim);
        if let Some(keys) = detail.multi_key().map(|multi_key| Arc::clone(&multi_key.keys)) {
            detail.extra = Extra::Sibling(keys);
        }
    }

    /// Makes a waiter of a multi-key claim a hold, or reserves it if `is_reserved`. `is_far` says that its key is not
    /// the first key of the claim.
    fn grant_stub(
        &mut self,
        claim: ClaimIx,
        is_far: bool,
        is_reserved: bool,
        effects: &mut impl Effects,
    ) -> KeyGrant {
        let queue = self.keys.entries[self.claims[claim].entry].queue();
        self.leave_queue(claim);
        self.queues[queue].holders.push_back(&mut self.claims, claim);
        if is_far && self.detail_mut(claim).request_id.is_some() {
            self.remember_request_id(claim);
        }
        self.detail_mut(claim).waited = true;
        let grant = if is_reserved {
            self.stand_reserved(claim, effects);
            self.grant_of(claim)
        } else {
            self.keep_siblings(claim);
            if !is_far {
                self.measure_grant(claim, FreedAt::NEVER, effects);
            }
            self.start_lease_of_waiter(claim)
        };
        self.key_grant(claim, Grant { waited: true, ..grant })
    }

    fn key_grant(&self, claim: ClaimIx, grant: Grant) -> KeyGrant {
        let record = &self.claims[claim];
        KeyGrant { grant, shared: record.has(flag::SHARED), key: self.keys.key(record.entry).into() }
    }
}
