//! Claims over several keys, which may lie in several shards: granted as a whole, at one instant, or not at all.

use super::{AcquireOptions, Caller, Shard};
use crate::claim::{Detail, Extra, flag};
use crate::effect::{Answer, ClaimId, Effects, Grant, KeyGrant, Refusal, Ticket};
use crate::entry;
use crate::lane::LaneState;
use crate::limiter::{Allowance, BucketTable, Throttle};
use crate::limits::ITEM_COUNT_MAX;
use crate::planted;
use crate::slab::NONE;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// A claim over several keys while it waits, as all its shards know it.
///
/// # How such a claim is granted
///
/// While it waits it has one *stub* in the queue of each of its keys, all put there in one step, with the turns of all
/// shards in hand. So two such claims stand in the same order in every queue they share, and cannot wait for each other
/// in a circle. A stub blocks those behind it as any waiter does, and holds nothing.
///
/// The stub of the smallest key is the *home*: its shard alone has the timer, the ticket and the lane, and decides about
/// the end of the wait. Whoever ends it there says [`Effects::withdraw`], and the other stubs go.
///
/// Where a stub becomes clear its shard says [`Effects::recheck`], once. Then somebody takes all turns and looks at every
/// stub anew: are all of them clear at this instant, each becomes a hold of its own, with its own id, lease and fence.
/// If not, nothing happens, and the one that was not clear will say so when it is. Nobody waits while it has a turn, no
/// key is held while another is waited for, and no fence is spent on an attempt that fails.
#[derive(Debug, PartialEq, Eq)]
pub struct Several {
    /// In the order of the keys; the first is the home.
    members: Box<[Member]>,
    /// The shards of all members, each once, rising.
    shards: Box<[u16]>,
    /// Names the set of keys for the request id.
    pub(crate) keys_hash: u64,
}

/// One stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    shard: u16,
    claim: u32,
    id: ClaimId,
}

impl Several {
    /// The shards whose turns are needed to decide about the claim, rising.
    pub fn shards(&self) -> &[u16] {
        &self.shards
    }

    /// The id of the claim while it waits: that of its home.
    pub fn id(&self) -> ClaimId {
        self.members[0].id
    }
}

/// Asks for one hold on each of several keys.
#[derive(Clone, Copy, Debug)]
pub struct AcquireSeveral<'a> {
    /// One to [`ITEM_COUNT_MAX`] keys, each once, in bytewise order.
    pub keys: &'a [SeveralKey<'a>],
    /// Length of each lease; 0 is the default.
    pub lease_ms: u32,
    /// 0 is a try, `u32::MAX` waits until cancelled.
    pub wait_ms: u32,
    /// The holds last as long as the session of the lane.
    pub session_lease: bool,
    /// Say `Queued` if it waits.
    pub notify_queued: bool,
    /// For all keys.
    pub options: AcquireOptions<'a>,
}

/// One of several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeveralKey<'a> {
    /// 1 to 1024 bytes.
    pub key: &'a [u8],
    /// Shared with other readers.
    pub shared: bool,
    /// The shard in which the key lies.
    pub shard: u16,
}

/// A shard whose turn is in hand.
#[derive(Debug)]
pub struct Participant<'a> {
    /// The shard.
    pub shard: &'a mut Shard,
    /// The number of the asking lane there; of no meaning for [`recheck`].
    pub lane: u32,
}

/// One key of an acquire, found in its shard.
struct Located {
    /// Place among the participants.
    place: usize,
    hash: u64,
    entry: u32,
}

/// Serves an acquire of several keys. `participants` are all their shards, rising, in a turn each.
pub fn acquire(
    participants: &mut [Participant<'_>],
    ticket: Ticket,
    namespace: u16,
    request: &AcquireSeveral<'_>,
    effects: &mut impl Effects,
) {
    match decide(participants, ticket, namespace, request, effects) {
        Ok(Some(grants)) => effects.answer(ticket, Answer::GrantedSeveral(grants)),
        Ok(None) => {}
        Err(refusal) => effects.answer(ticket, Answer::Refused(refusal)),
    }
}

/// Grants a waiting claim if all of it is clear. `participants` are all its shards, rising, in a turn each. Does nothing
/// where the claim is decided already.
pub fn recheck(participants: &mut [Participant<'_>], several: &Several, effects: &mut impl Effects) {
    if !is_grantable(participants, several) {
        return forget_frozen(participants, several);
    }
    align_time(participants);
    let place = |shard: u16| place_of(participants, shard);
    let places: Vec<usize> = several.members.iter().map(|member| place(member.shard)).collect();
    let home = &participants[places[0]].shard;
    let ticket = home.ticket(several.members[0].claim);
    let mut grants = Vec::with_capacity(places.len());
    let lane = |(member, place): (&Member, &usize)| participants[*place].shard.claims[member.claim].lane;
    let lanes: Vec<u32> = several.members.iter().zip(&places).map(lane).collect();
    for (member, place) in several.members.iter().zip(&places) {
        let shard = &mut participants[*place].shard;
        grants.push(shard.grant_stub(member.claim, member != &several.members[0]));
    }
    effects.answer_waiter(ticket, Answer::GrantedSeveral(grants.into()));
    for (member, place) in several.members.iter().zip(&places) {
        let shard = &mut participants[*place].shard;
        let entry = shard.claims[member.claim].entry;
        shard.tell_held(member.claim, effects);
        // Whom the stub kept out, the hold keeps out, and a reader that it let pass did so before.
        shard.simplify(entry);
    }
    for (lane, place) in lanes.into_iter().zip(&places) {
        let shard = &mut participants[*place].shard;
        if shard.lanes.lanes[lane].state == LaneState::Detached {
            // This shard has heard already that the connection was lost: the hold is in line with that from the start.
            shard.settle_lane(lane, effects);
        }
    }
}

/// Whether a claim waits, its client listens, and every stub of it is clear.
fn is_grantable(participants: &[Participant<'_>], several: &Several) -> bool {
    let is_clear = |(number, member): (usize, &Member)| {
        let shard = &participants[place_of(participants, member.shard)].shard;
        shard.is_stub(member) && !shard.stopping && shard.is_stub_clear(member.claim, number == 0)
    };
    let mut members = several.members.iter().enumerate();
    if planted!(OneClearKeyIsEnough) { members.any(is_clear) } else { members.all(is_clear) }
}

/// Whether somebody should be about to call [`recheck`] for a waiting claim: all of it is clear, and nothing is left to be
/// done in its shards that would tell so. For tests.
pub fn is_grant_due(participants: &[Participant<'_>], several: &Several) -> bool {
    is_grantable(participants, several) && participants.iter().all(|one| one.shard.work.is_empty())
}

/// Where a frozen prefix keeps a claim back, the thaw has to say again that it is clear.
fn forget_frozen(participants: &mut [Participant<'_>], several: &Several) {
    for member in &several.members {
        let shard = &mut participants[place_of(participants, member.shard)].shard;
        if shard.is_stub(member) && shard.is_entry_frozen(shard.claims[member.claim].entry) {
            shard.claims[member.claim].flags &= !flag::CLEAR;
        }
    }
}

fn place_of(participants: &[Participant<'_>], shard: u16) -> usize {
    let found = participants.binary_search_by_key(&shard, |participant| participant.shard.number);
    found.expect("the turns of all shards of the claim are in hand")
}

/// The present of all shards is that of the latest, so that what happens here has one instant.
fn align_time(participants: &mut [Participant<'_>]) {
    let now = participants.iter().map(|participant| participant.shard.now).max();
    for participant in participants {
        participant.shard.now = now.unwrap_or_default();
    }
}

/// Grants, a refusal, or `None` where the claim waits. Nothing changes where it refuses.
fn decide(
    participants: &mut [Participant<'_>],
    ticket: Ticket,
    namespace: u16,
    request: &AcquireSeveral<'_>,
    effects: &mut impl Effects,
) -> Result<Option<Box<[KeyGrant]>>, Refusal> {
    let keys = request.keys;
    if keys.is_empty() || keys.len() > ITEM_COUNT_MAX {
        let message = "a claim is over one to so many keys";
        return Err(Refusal::bad_input("keys", ITEM_COUNT_MAX as u64, message));
    }
    align_time(participants);
    for key in keys {
        // From here on no key may be forgotten: this claim may be about to hold it.
        let place = place_of(participants, key.shard);
        participants[place].shard.keys.evict_some();
    }
    let located: Vec<Located> = keys.iter().map(|key| locate(participants, namespace, key)).collect();
    let home = &participants[located[0].place];
    let options = &request.options;
    let (lease_ms, clamped) =
        home.shard.checked_terms(request.lease_ms, request.session_lease, options.scope)?;
    if participants.iter().any(|participant| participant.shard.stopping) {
        return Err(Refusal::Shutdown);
    }
    let keys_hash = home.shard.hash_of_keys(keys);
    let caller = |place: usize| Caller { lane: participants[place].lane, ticket, namespace };
    let callers: Vec<Caller> = located.iter().map(|located| caller(located.place)).collect();
    if let Some(request_id) = options.request_id {
        let owner = options.owner.unwrap_or(&home.shard.lanes.lanes[home.lane].owner);
        let find = |located: &Located| {
            let shard = &participants[located.place].shard;
            shard.find_request_id(located.entry, owner, request_id, Some(keys_hash))
        };
        let found: Vec<Option<u32>> = located.iter().map(find).collect();
        if found.iter().any(Option::is_some) {
            return acquire_again(participants, request, &located, &callers, &found, effects);
        }
    }
    let links = request.session_lease || options.release_after_ms.is_some();
    let orders: Vec<_> = located
        .iter()
        .map(|located| participants[located.place].shard.order_of_newcomer(options.priority))
        .collect();
    let mut clear = Vec::with_capacity(keys.len());
    for (place, Participant { shard, .. }) in participants.iter().enumerate() {
        shard.has_room_for(located.iter().filter(|located| located.place == place).count())?;
    }
    for ((key, located), order) in keys.iter().zip(&located).zip(&orders) {
        let shard = &participants[located.place].shard;
        let contended = located.entry != NONE
            && !shard.is_newcomer_clear(located.entry, key.shared, request.wait_ms, *order);
        let frozen = shard.is_frozen(namespace, key.key);
        if request.wait_ms == 0 && (contended || frozen) {
            return Err(if contended {
                Refusal::Busy(Box::new(shard.contention(located.entry, key.shared)))
            } else {
                Refusal::Frozen
            });
        }
        clear.push(!contended && !frozen);
    }
    let waits = clear.contains(&false);
    for (place, Participant { shard, lane }) in participants.iter().enumerate() {
        let here = located.iter().filter(|located| located.place == place);
        if waits {
            here.clone().try_for_each(|located| shard.has_room_for_waiter(located.entry))?;
        }
        // While it waits, only its home hangs on its lane.
        let hanging_count =
            if links { here.count() } else { usize::from(waits && place == located[0].place) };
        shard.has_room_on_lane(*lane, hanging_count as u32)?;
    }
    let flags = flag::LIVE
        | if request.session_lease { flag::SESSION_LEASE } else { 0 }
        | if clamped { flag::CLAMPED } else { 0 }
        | if waits { flag::STUB } else { 0 };
    let mut members = Vec::with_capacity(keys.len());
    for (number, (key, located)) in keys.iter().zip(&located).enumerate() {
        let Participant { shard, lane } = &mut participants[located.place];
        let entry = if located.entry == NONE {
            shard.keys.insert_beside(namespace, key.key, located.hash)
        } else {
            located.entry
        };
        let claim = shard.new_claim(*lane, entry, flags | if key.shared { flag::SHARED } else { 0 });
        // Only the home hangs on its lane while it waits, and only the home is found by the request id.
        let hangs_on_lane = if waits { number == 0 } else { links };
        let options =
            AcquireOptions { request_id: options.request_id.filter(|_| !waits || number == 0), ..*options };
        // Another member may have arrived in this shard since `orders` were taken; only their sequence counts.
        let order = crate::claim::OrderKey { arrival: shard.arrivals, ..orders[number] };
        shard.note_options(claim, ticket.number, lease_ms, &options, order, hangs_on_lane);
        members.push(Member { shard: key.shard, claim, id: shard.id(claim) });
    }
    let mut shards: Vec<u16> = keys.iter().map(|key| key.shard).collect();
    shards.sort_unstable();
    shards.dedup();
    let several = Arc::new(Several { members: members.into(), shards: shards.into(), keys_hash });
    if waits {
        let position = enqueue_all(participants, &several, &located, &clear, options.request_id);
        effects.waits(ticket);
        let home = &mut participants[located[0].place].shard;
        home.wait_until(several.members[0].claim, request.wait_ms);
        if request.notify_queued {
            home.queued_event(several.members[0].claim, position, effects);
        }
        return Ok(None);
    }
    let mut grants = Vec::with_capacity(keys.len());
    for (member, located) in several.members.iter().zip(&located) {
        let shard = &mut participants[located.place].shard;
        grants.push(shard.hold_one_of_several(member.claim, lease_ms, &several));
        let entry = shard.claims[member.claim].entry;
        if shard.keys.entries[entry].has(entry::flag::QUEUED) {
            shard.unmark_stubs_behind(member.claim);
            shard.tell_held(member.claim, effects);
        }
    }
    Ok(Some(grants.into()))
}

fn locate(participants: &[Participant<'_>], namespace: u16, key: &SeveralKey<'_>) -> Located {
    let place = place_of(participants, key.shard);
    let shard = &participants[place].shard;
    let hash = shard.hash(namespace, key.key);
    Located { place, hash, entry: shard.keys.find(namespace, key.key, hash) }
}

/// Puts all stubs in their queues; `clear` are those that need not be told of. Says how many waiters stand before the home.
fn enqueue_all(
    participants: &mut [Participant<'_>],
    several: &Arc<Several>,
    located: &[Located],
    clear: &[bool],
    request_id: Option<&[u8]>,
) -> usize {
    let mut position = 0;
    for (number, (member, located)) in several.members.iter().zip(located).enumerate() {
        let shard = &mut participants[located.place].shard;
        let detail = shard.detail_mut(member.claim);
        detail.extra = Extra::Several(Arc::clone(several));
        if number > 0 {
            detail.request_id = request_id.map(Box::from);
        }
        let stands_before = shard.enqueue(member.claim);
        if clear[number] {
            shard.claims[member.claim].flags |= flag::CLEAR;
        }
        if number == 0 {
            position = stands_before;
        }
    }
    position
}

/// The same request id once more: the claim that it named then is the answer, or is taken over.
fn acquire_again(
    participants: &mut [Participant<'_>],
    request: &AcquireSeveral<'_>,
    located: &[Located],
    callers: &[Caller],
    found: &[Option<u32>],
    effects: &mut impl Effects,
) -> Result<Option<Box<[KeyGrant]>>, Refusal> {
    let wrong = |message: &'static str| Refusal::bad_input("request_id", 0, message);
    let home = &participants[located[0].place].shard;
    let waiting = found[0].filter(|claim| !home.claims[*claim].has(flag::HELD));
    // While it waits only its home is found by the request id.
    let claims: Vec<u32> = if let Some(claim) = waiting {
        let several = home.details[home.claims[claim].detail].several();
        several.into_iter().flat_map(|several| several.members.clone()).map(|member| member.claim).collect()
    } else {
        found
            .iter()
            .copied()
            .collect::<Option<_>>()
            .ok_or_else(|| wrong("the request id names a claim of which some keys are held no longer"))?
    };
    for ((claim, located), key) in claims.iter().zip(located).zip(request.keys) {
        let record = &participants[located.place].shard.claims[*claim];
        if record.has(flag::SHARED) != key.shared {
            return Err(wrong("the request id names a claim of the other mode"));
        }
        if record.has(flag::SESSION_LEASE) != request.session_lease {
            return Err(wrong("the request id names a claim with the other kind of lease"));
        }
    }
    if waiting.is_some() {
        for (number, (claim, (located, caller))) in claims.iter().zip(located.iter().zip(callers)).enumerate()
        {
            let shard = &mut participants[located.place].shard;
            if number > 0 {
                shard.move_to_lane(*claim, caller.lane);
                continue;
            }
            shard.supersede(*claim, caller, effects);
            if request.notify_queued {
                shard.queued_event(*claim, shard.position_of(*claim), effects);
            }
        }
        return Ok(None);
    }
    let mut grants = Vec::with_capacity(claims.len());
    for (claim, (located, caller)) in claims.iter().zip(located.iter().zip(callers)) {
        let shard = &mut participants[located.place].shard;
        shard.move_to_lane(*claim, caller.lane);
        let grant = Grant { repeated: true, ..shard.grant_of(*claim) };
        grants.push(shard.key_grant(*claim, grant));
    }
    Ok(Some(grants.into()))
}

/// What is asked of one of several buckets.
#[derive(Clone, Copy, Debug)]
pub struct SeveralThrottle<'a> {
    /// The shard in which the bucket lies.
    pub shard: u16,
    /// What is asked; its hash is filled in here.
    pub throttle: Throttle<'a>,
}

/// Takes from several buckets, from all or from none, and answers for the tightest. `participants` are all their shards,
/// rising, in a turn each.
pub fn throttle(
    participants: &mut [Participant<'_>],
    ticket: Ticket,
    namespace: u16,
    now_ns: u64,
    throttles: &[SeveralThrottle<'_>],
    effects: &mut impl Effects,
) {
    let answer = match take_all(participants, namespace, now_ns, throttles) {
        Ok(allowance) => Answer::Throttled(allowance),
        Err(refusal) => Answer::Refused(refusal),
    };
    effects.answer(ticket, answer);
}

fn take_all(
    participants: &mut [Participant<'_>],
    namespace: u16,
    now_ns: u64,
    throttles: &[SeveralThrottle<'_>],
) -> Result<Allowance, Refusal> {
    let mut names: Vec<&[u8]> = throttles.iter().map(|several| several.throttle.name).collect();
    names.sort_unstable();
    if names.is_empty() || names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Refusal::bad_input("buckets", 0, "each bucket stands here once"));
    }
    let mut asked = Vec::with_capacity(throttles.len());
    for SeveralThrottle { shard, throttle } in throttles {
        BucketTable::check(throttle)?;
        let place = place_of(participants, *shard);
        let hash = participants[place].shard.bucket_hash(namespace, throttle.name);
        asked.push((place, Throttle { hash, ..*throttle }));
    }
    let decide = |(place, throttle): &(usize, Throttle<'_>)| {
        participants[*place].shard.buckets.decide(now_ns, namespace, throttle)
    };
    let allowance = asked.iter().map(decide).reduce(Allowance::tightest);
    let refused = allowance.filter(|allowance| !allowance.allowed && !planted!(OneBucketGivesAlone));
    if let Some(refused) = refused {
        return Ok(refused);
    }
    let mut taken: Option<Allowance> = None;
    for (number, (place, throttle)) in asked.iter().enumerate() {
        match participants[*place].shard.buckets.take(now_ns, namespace, throttle) {
            Ok(allowance) => taken = Some(taken.map_or(allowance, |taken| taken.tightest(allowance))),
            Err(refusal) => {
                // No room for this bucket: what was taken from the others goes back, exactly.
                for (place, throttle) in &asked[..number] {
                    let back = Throttle { refund: !throttle.refund, ..*throttle };
                    let _ = participants[*place].shard.buckets.take(now_ns, namespace, &back);
                }
                return Err(refusal);
            }
        }
    }
    taken.ok_or_else(|| Refusal::bad_input("buckets", 0, "each bucket stands here once"))
}

impl Shard {
    /// A waiting claim over several keys is over: its stubs in this shard go, and whom they kept out comes in.
    pub fn withdraw(&mut self, several: &Several, effects: &mut impl Effects) {
        for member in &several.members {
            if member.shard == self.number && self.is_stub(member) {
                let entry = self.claims[member.claim].entry;
                let matters = !self.keeps_nobody_out(member.claim);
                self.leave_queue(member.claim);
                self.free_claim(member.claim);
                if matters {
                    self.grant_from_head(entry, effects);
                } else {
                    self.simplify(entry);
                }
            }
        }
    }

    /// The waiting claims over several keys that are at home here. For tests.
    pub fn waiting_several(&self) -> Vec<Arc<Several>> {
        let home = |claim: u32| {
            let record = &self.claims[claim];
            let waits = record.has(flag::LIVE) && record.has(flag::STUB) && self.is_home(claim);
            if waits { self.details[record.detail].several().cloned() } else { None }
        };
        (0..self.claims.end()).filter_map(home).collect()
    }

    /// Whether this stub still waits.
    fn is_stub(&self, member: &Member) -> bool {
        let claim = &self.claims[member.claim];
        claim.has(flag::STUB) && claim.secret == member.id.secret
    }

    /// Whether a stub would be granted now if it were alone.
    fn is_stub_clear(&self, stub: u32, is_home: bool) -> bool {
        let claim = &self.claims[stub];
        let queue = &self.queues[self.keys.entries[claim.entry].head];
        let shared = claim.has(flag::SHARED);
        let stands_free = claim.has(flag::CLEAR)
            || queue.first_waiter() == stub
            || shared && queue.only_readers_before(&self.claims, &self.details, stub);
        let is_over = is_home && self.ending_waits && claim.has(flag::WAIT_OVER);
        // Shards hear of a lost connection one after the other; what the home has heard counts. A lane that is gone for ever
        // may not get a hold anywhere.
        let is_listening = match self.lanes.lanes[claim.lane].state {
            LaneState::Open => true,
            LaneState::Detached => !is_home,
            LaneState::Closed => false,
        };
        stands_free
            && queue.is_open_to(shared, &self.claims)
            && is_listening
            && !is_over
            && (planted!(FreezeMissesSeveral) || !self.is_entry_frozen(claim.entry))
    }

    /// Whether this stub, or hold, is the one whose shard decides while the claim waits.
    pub(super) fn is_home(&self, claim: u32) -> bool {
        let several = self.details.get(self.claims[claim].detail).and_then(Detail::several);
        several.is_some_and(|several| several.id() == self.id(claim))
    }

    /// The id by which a waiter is known: of a stub, that of its home.
    pub(super) fn deciding_id(&self, claim: u32) -> ClaimId {
        let several = self.details.get(self.claims[claim].detail).and_then(Detail::several);
        several.map_or_else(|| self.id(claim), |several| several.id())
    }

    /// Says that a stub has become clear.
    pub(super) fn tell_clear(&self, stub: u32, effects: &mut impl Effects) {
        if let Some(several) = self.details[self.claims[stub].detail].several() {
            effects.recheck(several);
        }
    }

    /// Whether so many more claims fit the shard.
    fn has_room_for(&self, count: usize) -> Result<(), Refusal> {
        let limit = self.limits.claim_count_max;
        if self.claims.live_count() as usize + count <= limit as usize {
            return Ok(());
        }
        Err(Refusal::Overloaded { limit: "claims per shard", value: u64::from(limit) })
    }

    fn hash_of_keys(&self, keys: &[SeveralKey<'_>]) -> u64 {
        let mut state = self.hasher.build_hasher();
        for key in keys {
            state.write_usize(key.key.len());
            state.write(key.key);
        }
        state.finish()
    }

    /// Makes one key of a claim that is granted at once a hold.
    fn hold_one_of_several(&mut self, claim: u32, lease_ms: u32, several: &Arc<Several>) -> KeyGrant {
        self.keep_siblings(claim, several);
        let grant = self.hold(claim, lease_ms);
        self.key_grant(claim, grant)
    }

    /// A hold remembers its siblings only where a request id may ask for all of them again.
    fn keep_siblings(&mut self, claim: u32, several: &Arc<Several>) {
        let detail = self.detail_mut(claim);
        if detail.request_id.is_some() {
            detail.extra = Extra::Several(Arc::clone(several));
        }
        self.drop_idle_detail(claim);
    }

    /// Makes a stub a hold.
    fn grant_stub(&mut self, claim: u32, is_far: bool) -> KeyGrant {
        let queue = self.keys.entries[self.claims[claim].entry].head;
        self.leave_queue(claim);
        self.queues[queue].holders.push_back(&mut self.claims, claim);
        if self.detail_mut(claim).request_id.is_none() {
            self.detail_mut(claim).extra = Extra::None;
        } else if is_far {
            self.remember_request_id(claim);
        }
        let grant = self.start_lease_of_waiter(claim);
        self.key_grant(claim, Grant { waited: true, ..grant })
    }

    fn key_grant(&self, claim: u32, grant: Grant) -> KeyGrant {
        let record = &self.claims[claim];
        KeyGrant { grant, shared: record.has(flag::SHARED), key: self.keys.key(record.entry).into() }
    }
}
