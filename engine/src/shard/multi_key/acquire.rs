//! Acquires of several keys.

use super::{
    MultiKeyClaim, Participant, align_time, begin_multi_key, must_be_reserved, note_counted, place_of,
};
use crate::claim::{Extra, LeaseKind, OrderKey, Properties, State};
use crate::effect::{Answer, Effects, Grant, KeyGrant, LogState, Refusal, WhenDurable};
use crate::entry;
use crate::handle::{ClaimIx, KeyIx};
use crate::ids::Ticket;
use crate::limits::ITEM_COUNT_MAX;
use crate::measure::Measure;
use crate::multi_key_claim::{KeySet, Member};
use crate::shard::quota::{MovedClaims, NewClaims};
use crate::shard::{AcquireOptions, AcquireTerms, Caller};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Request for one hold on each of several keys.
#[derive(Clone, Copy, Debug)]
pub struct AcquireMultiKey<'a> {
    /// One to [`ITEM_COUNT_MAX`] keys, each once, in bytewise order.
    pub keys: &'a [RequestedKey<'a>],
    /// Terms of the acquire, for all keys.
    pub terms: AcquireTerms<'a>,
}

impl AcquireMultiKey<'_> {
    /// Returns the amounts that quota accounts count for the claims of this request.
    fn counted(&self) -> NewClaims {
        let keys = self.keys.iter().map(|key| key.key.len()).sum();
        NewClaims { count: self.keys.len(), keys, more: self.terms.options().len() }
    }
}

/// Key of a multi-key acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedKey<'a> {
    /// Key of 1 to 1024 bytes.
    pub key: &'a [u8],
    /// Whether the hold is shared with other readers.
    pub shared: bool,
    /// Shard of the key.
    pub shard: u16,
}

/// Serves an acquire of several keys. `participants` are the shards of all keys in rising order, each with its turn
/// held.
///
/// # Panics
/// Panics if the shard of a key is not among `participants`.
pub fn acquire(
    participants: &mut [Participant<'_>],
    ticket: Ticket,
    namespace: u16,
    request: &AcquireMultiKey<'_>,
    effects: &mut impl Effects,
) {
    let decided = Attempt::begin(participants, ticket, namespace, request)
        .and_then(|mut attempt| attempt.decide(effects));
    match decided {
        Ok(Some(grants)) => effects.answer_acquire(ticket, Answer::GrantedMultiKey(grants)),
        Ok(None) => {}
        Err(refusal) => effects.answer_acquire(ticket, Answer::Refused(refusal)),
    }
}

/// Acquire that is decided at one instant, with the turns of all its shards held.
struct Attempt<'a, 'p> {
    participants: &'a mut [Participant<'p>],
    request: &'a AcquireMultiKey<'a>,
    ticket: Ticket,
    namespace: u16,
    /// Shard and key record for each key of the request, in the order of the request.
    located: Vec<Located>,
    /// Lease in milliseconds for all keys, as the shard of the first key computed it.
    lease_ms: u32,
    clamped: bool,
    keys: Arc<KeySet>,
}

/// Place of one key of the request: its shard, and its record there (`NONE` if it has none).
struct Located {
    /// Position among the participants.
    place: usize,
    hash: u64,
    entry: KeyIx,
}

impl<'a, 'p> Attempt<'a, 'p> {
    /// Finds all keys. Refuses a request with invalid terms, and every request while one of the shards is stopping.
    fn begin(
        participants: &'a mut [Participant<'p>],
        ticket: Ticket,
        namespace: u16,
        request: &'a AcquireMultiKey<'a>,
    ) -> Result<Self, Refusal> {
        let keys = request.keys;
        if keys.is_empty() || keys.len() > ITEM_COUNT_MAX {
            let message = "the number of keys is out of range";
            return Err(Refusal::bad_input("keys", ITEM_COUNT_MAX as u64, message));
        }
        align_time(participants);
        for key in keys {
            // `evict_some` may evict idle keys of the shard to make room. This must come before the search for the keys
            // of the request: a later eviction could remove a key that this claim is about to hold.
            let place = place_of(participants, key.shard);
            participants[place].shard.keys.evict_some();
        }
        let located: Vec<Located> = keys.iter().map(|key| locate(participants, namespace, key)).collect();
        let home = &participants[located[0].place].shard;
        let (lease_ms, clamped) = home.checked_terms(&request.terms)?;
        if participants.iter().any(|participant| participant.shard.stopping) {
            return Err(Refusal::Shutdown);
        }
        let is_recorded = home.log_state != LogState::Absent;
        let keys = Arc::new(KeySet::new(
            keys.iter().map(|key| key.key),
            request.terms.options().request_id.is_some(),
            is_recorded,
        ));
        Ok(Self { participants, request, ticket, namespace, located, lease_ms, clamped, keys })
    }

    /// Decides about the acquire. Returns the grants, or `None` if the answer comes later. A refusal adds no claim and
    /// changes no claim that is still alive.
    fn decide(&mut self, effects: &mut impl Effects) -> Result<Option<Box<[KeyGrant]>>, Refusal> {
        let mut found = self.find_request_id();
        if self.withdraw_given_up(&found, effects) {
            found = self.find_request_id();
        }
        if found.iter().any(Option::is_some) {
            return self.repeat(&found, effects);
        }
        self.participants.iter_mut().try_for_each(|participant| participant.shard.may_grant())?;
        let orders: Vec<OrderKey> = self.located.iter().map(|located| self.order_at(located.place)).collect();
        let clear = self.clear_keys(&orders)?;
        let waits = clear.contains(&false);
        self.check_room(waits)?;
        let multi_key = Arc::new(self.make_claims(&orders, waits));
        if waits {
            self.wait(&multi_key, &clear, effects);
            return Ok(None);
        }
        Ok(self.hold(&multi_key, effects))
    }

    /// Returns for each key the claim of an earlier acquire with the same request id, owner and keys, if there is one
    /// that the lane may take over. The list is empty if this acquire has no request id.
    fn find_request_id(&mut self) -> Vec<Option<ClaimIx>> {
        let options = self.request.terms.options();
        let Some(request_id) = options.request_id else { return Vec::new() };
        let home = &self.participants[self.located[0].place];
        let owner = options.owner.unwrap_or(&home.shard.lanes.lanes[home.lane].owner);
        let entry = self.located[0].entry;
        if let Some(claim) = home.shard.find_request_id(home.lane, entry, owner, request_id, Some(&self.keys))
            && let Some(detail) = home.shard.details.get(home.shard.claims[claim].detail)
            && let Some(keys) = detail.key_set()
        {
            // The claims at all keys share one `KeySet`. With it, the comparisons below compare only two addresses.
            self.keys = Arc::clone(keys);
        }
        let find = |located: &Located| {
            let Participant { shard, lane } = &self.participants[located.place];
            shard.find_request_id(*lane, located.entry, owner, request_id, Some(&self.keys))
        };
        self.located.iter().map(find).collect()
    }

    /// Removes the remaining claims of an earlier multi-key claim with the same request id. The earlier claim has ended
    /// at its first key, but is still reserved at another key. The shards of the other keys have not been notified of
    /// its end yet. Returns whether there was such a claim.
    ///
    /// The first key of a multi-key claim is the last of its keys to begin. So if the claim at the first key has ended
    /// while another key is reserved, the acquire was never granted. Its remaining claims can be removed, and the
    /// repeated acquire makes a new claim.
    fn withdraw_given_up(&mut self, found: &[Option<ClaimIx>], effects: &mut impl Effects) -> bool {
        if found.first() != Some(&None) {
            return false;
        }
        let mut any = false;
        for (claim, located) in found.iter().zip(&self.located).skip(1) {
            let shard = &self.participants[located.place].shard;
            let reserved = claim.filter(|claim| shard.claims[*claim].is_reserved());
            let Some(detail) = reserved.map(|claim| shard.claims[claim].detail) else { continue };
            let Some(multi_key) = shard.details[detail].multi_key().cloned() else { continue };
            for participant in &mut *self.participants {
                participant.shard.withdraw(&multi_key, effects);
            }
            any = true;
        }
        any
    }

    fn order_at(&self, place: usize) -> OrderKey {
        self.participants[place].shard.order_of_newcomer(self.request.terms.options().priority)
    }

    /// Whether the holds may end with the session or the connection of their lane. If so, they must be linked to the
    /// lane: the shard visits the linked claims when the lane changes its state.
    fn hangs_on_lane(&self) -> bool {
        self.request.terms.session_lease || self.request.terms.options().release_after_ms.is_some()
    }

    /// Returns for each key whether nothing blocks it, and its prefix is not frozen. If the acquire may not wait,
    /// refuses it because of the first key that is blocked or frozen. Also refuses it if the log or the cluster accepts
    /// no grant, or if there is no room for the claims.
    fn clear_keys(&mut self, orders: &[OrderKey]) -> Result<Vec<bool>, Refusal> {
        for located in &self.located {
            let shard = &self.participants[located.place].shard;
            shard.may_count(located.entry, self.request.terms.scope())?;
        }
        let home = self.located[0].place;
        for (place, Participant { shard, lane }) in self.participants.iter_mut().enumerate() {
            let count = self.located.iter().filter(|located| located.place == place).count();
            shard.has_room_for(*lane, count as u32, || {
                // The quota accounts are the same in all shards, so one shard checks the quota for all keys together.
                // This is the shard of the first key: its claim also counts the bytes of the strings that all claims of
                // the request share.
                if place == home { self.request.counted() } else { NewClaims::default() }
            })?;
        }
        let AcquireMultiKey { keys, terms: AcquireTerms { wait_ms, .. } } = *self.request;
        let is_clear = |((key, located), order): ((&RequestedKey<'_>, &Located), &OrderKey)| {
            let Participant { shard, lane } = &self.participants[located.place];
            let contended = located.entry.is_some()
                && !shard.is_newcomer_clear(located.entry, key.shared, wait_ms, *order);
            let frozen = shard.is_frozen(self.namespace, key.key);
            match (contended, frozen) {
                (true, _) if wait_ms == 0 => {
                    Err(Refusal::Busy(Box::new(shard.contention(*lane, located.entry, key.shared))))
                }
                (_, true) if wait_ms == 0 => Err(Refusal::Frozen),
                (contended, frozen) => Ok(!contended && !frozen),
            }
        };
        keys.iter().zip(&self.located).zip(orders).map(is_clear).collect()
    }

    /// Checks that the queues and the lanes have room for the claims.
    fn check_room(&self, waits: bool) -> Result<(), Refusal> {
        let home = self.located[0].place;
        for (place, Participant { shard, lane }) in self.participants.iter().enumerate() {
            let here = self.located.iter().filter(|located| located.place == place);
            if waits {
                here.clone()
                    .try_for_each(|located| shard.has_room_for_waiter(*lane, located.entry).map(drop))?;
            }
            // The lane must have room for each claim that will be linked to it. If the holds depend on the lane, these
            // are the claims of all keys. Otherwise, only the claim at the first key is linked, and only while it waits
            // for the keys or for a durable fence.
            let is_linked = waits || self.request.terms.scope().is_durable();
            let hanging_count =
                if self.hangs_on_lane() { here.count() } else { usize::from(is_linked && place == home) };
            shard.has_room_on_lane(*lane, hanging_count as u32)?;
        }
        Ok(())
    }

    /// Creates one claim for each key, in no queue yet.
    fn make_claims(&mut self, orders: &[OrderKey], waits: bool) -> MultiKeyClaim {
        let request = self.request;
        let holds_hang_on_lane = self.hangs_on_lane();
        let lease = LeaseKind::of_session(request.terms.session_lease);
        let properties = Properties::new(lease, self.clamped, request.terms.scope());
        let state = if waits { State::Stub } else { State::Waiting };
        // All claims share the strings.
        let AcquireOptions { release_after_ms, priority, scope, owner, metadata, request_id } =
            *request.terms.options();
        let [owner, metadata, request_id] =
            [owner, metadata, request_id].map(|own| own.map(Arc::<[u8]>::from));
        let options = AcquireOptions {
            release_after_ms,
            priority,
            scope,
            owner: None,
            metadata: None,
            request_id: None,
        };
        let mut members = Vec::with_capacity(request.keys.len());
        for (number, (key, located)) in request.keys.iter().zip(&self.located).enumerate() {
            let Participant { shard, lane } = &mut self.participants[located.place];
            let entry = if located.entry.is_none() {
                shard.keys.insert_beside(self.namespace, key.key, located.hash)
            } else {
                located.entry
            };
            let properties = Properties { shared: key.shared, ..properties };
            let claim = shard.new_claim(*lane, entry, state, properties);
            // While the claim waits, only its waiter at the first key is linked to the lane and can be found by the
            // request id.
            let hangs_on_lane = if waits { number == 0 } else { holds_hang_on_lane };
            // If several keys are in this shard, each one counts as an arrival. So the arrival numbers in `orders` are
            // outdated, and each claim takes the present number.
            let order = OrderKey { arrival: shard.arrivals, ..orders[number] };
            shard.note_options(claim, self.ticket.number, self.lease_ms, &options, order, hangs_on_lane);
            let detail = shard.detail_mut(claim);
            (detail.owner, detail.metadata) = (owner.clone(), metadata.clone());
            if request_id.is_some() && (!waits || number == 0) {
                detail.request_id.clone_from(&request_id);
                shard.remember_request_id(claim);
            }
            members.push(Member { shard: key.shard, claim, id: shard.id(claim) });
        }
        let mut shards: Vec<u16> = request.keys.iter().map(|key| key.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let home = &self.participants[self.located[0].place].shard;
        let wait_end = home.wait_end(request.terms.wait_ms);
        MultiKeyClaim {
            members: members.into(),
            shards: shards.into(),
            keys: Arc::clone(&self.keys),
            wait_end,
            blocked: AtomicUsize::new(0),
        }
    }

    /// Adds the claim at each key to the queue of that key. `clear` says for each key whether nothing blocks it and it
    /// is not frozen. The shard of such a key need not request a recheck of the whole claim, because this acquire has
    /// just checked all keys.
    fn wait(&mut self, multi_key: &Arc<MultiKeyClaim>, clear: &[bool], effects: &mut impl Effects) {
        let request_id: Option<Arc<[u8]>> = self.request.terms.options().request_id.map(Arc::from);
        for (number, (member, located)) in multi_key.members.iter().zip(&self.located).enumerate() {
            let shard = &mut self.participants[located.place].shard;
            let detail = shard.detail_mut(member.claim);
            detail.extra = Extra::MultiKeyClaim(Arc::clone(multi_key));
            if number > 0 {
                detail.request_id.clone_from(&request_id);
            }
            shard.enqueue(member.claim, clear[number]);
            if !clear[number] {
                shard.note_wait(member.claim);
            }
        }
        effects.waits(self.ticket);
        let home = &mut self.participants[self.located[0].place].shard;
        home.wait_until(multi_key.members[0].claim, self.request.terms.wait_ms);
        let entry = home.claims[multi_key.members[0].claim].entry;
        effects.measure(Measure::Queued { depth: home.waiter_count(entry) });
        if self.request.terms.notify_queued {
            let claim = multi_key.members[0].claim;
            home.queued_event(claim, home.position_of(claim), effects);
        }
    }

    /// Makes the claim at each key a hold, or reserves it if any fence must be durable first. Returns the grants, or
    /// `None` if the claims are reserved and answered later.
    fn hold(
        &mut self,
        multi_key: &Arc<MultiKeyClaim>,
        effects: &mut impl Effects,
    ) -> Option<Box<[KeyGrant]>> {
        let places: Vec<usize> = self.located.iter().map(|located| located.place).collect();
        let is_reserved = must_be_reserved(self.participants, multi_key, &places);
        note_counted(self.participants, multi_key, &places);
        let mut grants = Vec::with_capacity(multi_key.members.len());
        for (number, (member, place)) in multi_key.members.iter().zip(&places).enumerate() {
            let shard = &mut self.participants[*place].shard;
            shard.detail_mut(member.claim).extra = Extra::MultiKeyClaim(Arc::clone(multi_key));
            shard.join_holders(member.claim);
            let grant = if is_reserved {
                if number == 0 {
                    shard.reserve_newcomer(member.claim, self.request.terms.wait_ms);
                }
                shard.stand_reserved(member.claim, effects);
                shard.grant_of(member.claim)
            } else {
                shard.keep_siblings(member.claim);
                shard.drop_idle_detail(member.claim);
                shard.start_lease(member.claim, self.lease_ms)
            };
            grants.push(shard.key_grant(member.claim, grant));
            let entry = shard.claims[member.claim].entry;
            if shard.keys.entries[entry].has(entry::flag::QUEUED) {
                shard.note_newcomer_holds(member.claim);
                if !is_reserved {
                    shard.tell_held(member.claim, effects);
                }
            }
        }
        if !is_reserved {
            return Some(grants.into());
        }
        begin_multi_key(self.participants, multi_key, &places, grants, effects);
        None
    }

    /// Serves a repeated request id: the new request takes the claim over. If the claim is held, the grants are the
    /// answer. If it waits or is reserved, its answer goes to the new request later.
    fn repeat(
        &mut self,
        found: &[Option<ClaimIx>],
        effects: &mut impl Effects,
    ) -> Result<Option<Box<[KeyGrant]>>, Refusal> {
        let home = &self.participants[self.located[0].place].shard;
        let waiting = found[0].filter(|claim| !home.claims[*claim].is_held());
        // While the claim waits, only its waiter at the first key can be found by the request id.
        let claims: Option<Vec<ClaimIx>> = match waiting.map(|claim| home.claims[claim].detail) {
            Some(detail) => home.details[detail].multi_key().and_then(|multi_key| self.members_of(multi_key)),
            None => found.iter().copied().collect(),
        };
        let message = "the request id belongs to a claim that no longer holds all its keys";
        let claims = claims.ok_or_else(|| Refusal::bad_input("request_id", 0, message))?;
        let mut moved = MovedClaims::default();
        for ((claim, located), key) in claims.iter().zip(&self.located).zip(self.request.keys) {
            let Participant { shard, lane } = &mut self.participants[located.place];
            shard.check_repeated(*claim, key.shared, self.request.terms.session_lease)?;
            shard.may_move_to(*claim, *lane, &mut moved)?;
        }
        if waiting.is_some() {
            self.supersede(&claims, effects);
            return Ok(None);
        }
        let mut grants = Vec::with_capacity(claims.len());
        let mut is_recorded = false;
        for (claim, located) in claims.iter().zip(&self.located) {
            let Participant { shard, lane } = &mut self.participants[located.place];
            is_recorded |= shard.move_hold(*claim, *lane, self.ticket.number, effects);
            let grant = Grant { repeated: true, ..shard.grant_of(*claim) };
            grants.push(shard.key_grant(*claim, grant));
        }
        if is_recorded {
            for (claim, located) in claims.iter().zip(&self.located) {
                self.participants[located.place].shard.note_moved_beside_records(*claim);
            }
            let answer = Answer::GrantedMultiKey(grants.into());
            effects.when_durable(WhenDurable::Answer(self.ticket, answer));
            return Ok(None);
        }
        Ok(Some(grants.into()))
    }

    /// Returns the claims that belong to a multi-key claim, one for each key, in the order of the keys. Returns `None`
    /// if the keys are not the keys of this request, or if one of the claims has ended.
    fn members_of(&self, multi_key: &MultiKeyClaim) -> Option<Vec<ClaimIx>> {
        let member = |(member, located): (&Member, &Located)| {
            self.participants[located.place].shard.member_at(member, located.entry)
        };
        let is_same_count = multi_key.members.len() == self.located.len();
        is_same_count.then(|| multi_key.members.iter().zip(&self.located).map(member).collect())?
    }

    /// Moves a waiting or reserved multi-key claim to this request, one key after the other.
    fn supersede(&mut self, claims: &[ClaimIx], effects: &mut impl Effects) {
        let mut is_recorded = false;
        for (claim, located) in claims.iter().zip(&self.located).skip(1) {
            let Participant { shard, lane } = &mut self.participants[located.place];
            is_recorded |= shard.move_reserved(*claim, *lane, self.ticket.number, effects);
        }
        // The shard of the first key answers for all keys.
        let (claim, Participant { shard, lane }) = (claims[0], &mut self.participants[self.located[0].place]);
        let caller = Caller { lane: *lane, ticket: self.ticket, namespace: self.namespace };
        shard.supersede(claim, &caller, is_recorded, effects);
        if shard.claims[claim].is_reserved() {
            return;
        }
        if self.request.terms.notify_queued {
            shard.queued_event(claim, shard.position_of(claim), effects);
        }
        // If the connection of the older request was lost, the claim could not be granted since then, but its keys may
        // have become free. So the shard requests a recheck: the worker takes the turns of all its shards, and grants
        // the claim if nothing blocks it.
        shard.tell_clear(claim, effects);
    }
}

fn locate(participants: &[Participant<'_>], namespace: u16, key: &RequestedKey<'_>) -> Located {
    let place = place_of(participants, key.shard);
    let shard = &participants[place].shard;
    let hash = shard.hash(namespace, key.key);
    Located { place, hash, entry: shard.keys.find(namespace, key.key, hash) }
}
