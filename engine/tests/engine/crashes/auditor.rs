//! Keeps what a server that may crash at any time has acknowledged, and sees that it stays true.
//!
//! It counts in *real* milliseconds, which no restart and no boot changes.

use std::collections::{BTreeMap, BTreeSet};
use waymaker_engine::{ClaimId, Fence, Grant, HeldLock};

/// The items and the terms of a claim.
#[derive(Clone, Debug)]
pub(crate) struct ClaimRequest {
    pub(crate) lane: usize,
    pub(crate) namespace: u16,
    /// One key, or one pool, or a set of paths.
    pub(crate) items: Vec<Vec<u8>>,
    pub(crate) shared: bool,
    pub(crate) permits: u64,
    pub(crate) lease_ms: u32,
    pub(crate) is_local: bool,
    /// The loss of its connection ends it.
    pub(crate) hangs_on_lane: bool,
    pub(crate) request_id: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Hold {
    claim: ClaimRequest,
    fence: u64,
    /// Nobody else may be granted it before then.
    until: u64,
    /// On the same boot it ends by then.
    at_latest: u64,
    /// The last extension that was asked for, and the end that it asked for.
    extension: Option<(u32, u64)>,
    /// In which sync it became durable.
    sync: usize,
}

/// The fences of one counter that clients know.
#[derive(Debug, Default)]
struct KnownFences {
    newest_durable: u64,
    durable: BTreeSet<u64>,
    /// Since the last start.
    all: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Everything that was held is held.
    AfterCleanStop,
    SameBoot,
    /// Or the clock was set.
    OtherBoot,
}

#[derive(Debug)]
pub(crate) struct Auditor {
    pub(crate) real: u64,
    pub(crate) pool_capacity: u64,
    holds: BTreeMap<ClaimId, Hold>,
    fences: BTreeMap<(u16, Vec<u8>), KnownFences>,
    /// Holds that are over, as long as that may not be durable, and for ever.
    ended: BTreeSet<ClaimId>,
    dead: BTreeSet<ClaimId>,
    sync: usize,
    /// Claims that are over since the last start, or may be.
    given_up: BTreeSet<ClaimId>,
    /// Extensions that were requested before the client heard of the grant.
    extended_early: BTreeMap<ClaimId, EarlyExtensions>,
}

impl ClaimRequest {
    fn counter(&self) -> (u16, Vec<u8>) {
        // All of a tree has one counter.
        let key = if self.namespace == 1 { Vec::new() } else { self.items[0].clone() };
        (self.namespace, key)
    }

    fn conflicts(&self, other: &Self) -> bool {
        let overlap = |(a, b): (&Vec<u8>, &Vec<u8>)| match self.namespace {
            0 => a == b,
            1 => a.starts_with(b) || b.starts_with(a),
            _ => false,
        };
        let mut pairs = self.items.iter().flat_map(|a| other.items.iter().map(move |b| (a, b)));
        self.namespace == other.namespace && !(self.shared && other.shared) && pairs.any(overlap)
    }
}

/// The longest lease in any request.
pub(super) const LEASE_MS_MAX: u32 = 400;

/// The first and last end, and the longest lease, of early extensions.
#[derive(Clone, Copy, Debug)]
struct EarlyExtensions {
    first_end: u64,
    last_end: u64,
    lease_ms: u32,
}

impl Auditor {
    pub(crate) fn new(pool_capacity: u64) -> Self {
        Self {
            real: 0,
            pool_capacity,
            holds: BTreeMap::new(),
            fences: BTreeMap::new(),
            ended: BTreeSet::new(),
            dead: BTreeSet::new(),
            sync: 0,
            given_up: BTreeSet::new(),
            extended_early: BTreeMap::new(),
        }
    }

    pub(crate) fn granted(&mut self, claim: &ClaimRequest, grant: &Grant) {
        let is_known = self.holds.contains_key(&grant.id);
        assert!(!self.dead.contains(&grant.id), "{grant:?} is over");
        if grant.repeated {
            // The first answer may have been lost in a crash.
            let known = self.holds.get(&grant.id);
            assert!(known.is_none_or(|hold| hold.fence == grant.fence.get()), "{grant:?} had another fence");
        } else {
            assert!(!is_known, "{grant:?} was granted before");
            self.check_fence(claim, grant);
        }
        // An answer that waited for the log may come after the end of the lease, or of the hold, that it tells of.
        let is_shortened =
            self.extended_early.get(&grant.id).is_some_and(|early| early.first_end <= self.real)
                || self.holds.get(&grant.id).is_some_and(|hold| hold.until <= self.real);
        if grant.remaining_ms == 0 || is_shortened || self.given_up.contains(&grant.id) {
            return;
        }
        self.check_alone(claim, grant);
        if is_known {
            return;
        }
        // The lease of an earlier hold may not be durable: a repeated request extends it first.
        let until = if grant.repeated { self.real } else { self.real + u64::from(grant.remaining_ms) };
        let never = EarlyExtensions { first_end: u64::MAX, last_end: 0, lease_ms: 0 };
        let early = self.extended_early.remove(&grant.id).unwrap_or(never);
        let until = until.min(early.first_end);
        // A claim that was taken over has the lease that its first request asked for.
        let is_taken_over = grant.waited && claim.request_id.is_some();
        let inherited_ms = if is_taken_over { LEASE_MS_MAX } else { 0 };
        let hold = Hold {
            claim: ClaimRequest {
                lease_ms: claim.lease_ms.max(grant.remaining_ms).max(early.lease_ms).max(inherited_ms),
                ..claim.clone()
            },
            fence: grant.fence.get(),
            until,
            at_latest: early.last_end.max(self.real + u64::from(grant.remaining_ms)),
            extension: None,
            sync: self.sync,
        };
        self.holds.insert(grant.id, hold);
    }

    fn check_fence(&mut self, claim: &ClaimRequest, grant: &Grant) {
        let known = self.fences.entry(claim.counter()).or_default();
        // The answer for a claim that was taken over while reserved comes later; shared holds beside it may be answered first.
        let may_be_late = claim.request_id.is_some() && (claim.shared || claim.namespace != 0);
        assert!(
            may_be_late || grant.fence > Fence::new(known.newest_durable),
            "{claim:?} {grant:?} goes back behind {known:?}"
        );
        assert!(known.all.insert(grant.fence.get()), "{claim:?} {grant:?} was given twice");
        if claim.is_local {
            known.durable.insert(grant.fence.get());
            known.newest_durable = known.newest_durable.max(grant.fence.get());
        }
    }

    /// Nobody else has what is granted here, as far as they were told.
    fn check_alone(&self, claim: &ClaimRequest, grant: &Grant) {
        let is_other = |id: ClaimId, hold: &Hold| id != grant.id && hold.until > self.real;
        let others = || self.holds.iter().filter(|(id, hold)| is_other(**id, hold));
        for (other, hold) in others() {
            assert!(
                !claim.conflicts(&hold.claim),
                "{claim:?} {grant:?} at {}: {other:?} {hold:?}",
                self.real
            );
        }
        if claim.namespace == 2 {
            let permits = others().filter(|(_, hold)| hold.claim.namespace == 2);
            let held: u64 = permits.map(|(_, hold)| hold.claim.permits).sum();
            assert!(
                held + claim.permits <= self.pool_capacity,
                "{claim:?} at {}: {held} are held",
                self.real
            );
        }
    }

    /// Somebody asked for an end of the lease so long from now.
    pub(crate) fn extending(&mut self, id: ClaimId, number: u32, lease_ms: u32) {
        let end = self.real + u64::from(lease_ms);
        if let Some(hold) = self.holds.get_mut(&id) {
            hold.extension = Some((number, end));
            hold.at_latest = hold.at_latest.max(end);
            hold.until = hold.until.min(end);
        } else {
            let early = self.extended_early.entry(id).or_insert(EarlyExtensions {
                first_end: end,
                last_end: end,
                lease_ms,
            });
            early.first_end = early.first_end.min(end);
            early.last_end = early.last_end.max(end);
            early.lease_ms = early.lease_ms.max(lease_ms);
        }
    }

    pub(crate) fn extended(&mut self, number: u32) {
        for hold in self.holds.values_mut() {
            if let Some((_, end)) = hold.extension.filter(|(request, _)| *request == number) {
                hold.until = end;
                hold.claim.lease_ms = hold.claim.lease_ms.max((end - self.real.min(end)) as u32);
            }
        }
    }

    pub(crate) fn expired(&mut self, id: ClaimId) {
        let early = self.holds.get(&id).filter(|hold| hold.until > self.real);
        assert!(early.is_none(), "at {} too early: {early:?}", self.real);
        self.ending(id);
    }

    /// Somebody who knows the id of a claim was told that there is none.
    pub(crate) fn not_found(&mut self, id: ClaimId) {
        let held = self.holds.get(&id).filter(|hold| hold.until > self.real);
        assert!(held.is_none(), "at {} {id:?} is not found: {held:?}", self.real);
        self.ending(id);
    }

    /// A hold is over, or may be.
    pub(crate) fn ending(&mut self, id: ClaimId) {
        self.holds.remove(&id);
        self.given_up.insert(id);
    }

    /// A hold is over for certain, once that is durable.
    pub(crate) fn ended(&mut self, id: ClaimId) {
        self.ending(id);
        self.ended.insert(id);
    }

    /// A connection is lost: who knows what becomes of what hangs on it.
    pub(crate) fn lost(&mut self, lane: usize) {
        self.holds.retain(|_, hold| hold.claim.lane != lane || !hold.claim.hangs_on_lane);
    }

    pub(crate) fn synced(&mut self, sync: usize, is_all: bool) {
        self.sync = sync;
        if is_all {
            self.dead.append(&mut self.ended);
        }
    }

    /// A server has started. This is what it holds, and what holds were granted together but never answered.
    pub(crate) fn started(
        &mut self,
        how: Start,
        listed: &BTreeMap<ClaimId, HeldLock>,
        groups: &[Vec<ClaimId>],
    ) {
        self.ended.clear();
        self.given_up.clear();
        for known in self.fences.values_mut() {
            if how != Start::AfterCleanStop {
                known.all = known.durable.clone();
            }
        }
        for group in groups {
            let count = group.iter().filter(|id| listed.contains_key(id)).count();
            assert!(count == 0 || count == group.len(), "{count} of {group:?} came back");
        }
        let risen = listed.keys().find(|id| self.dead.contains(id));
        assert!(risen.is_none(), "{risen:?} had ended");
        let real = self.real;
        self.holds.retain(|_, hold| {
            let is_kept = hold.claim.is_local || how == Start::AfterCleanStop;
            is_kept && !hold.claim.hangs_on_lane && hold.until > real
        });
        for (id, hold) in &mut self.holds {
            let lock = listed.get(id).unwrap_or_else(|| panic!("at {real} {id:?} is lost: {hold:?}"));
            check_restored(hold, lock);
            let end = real + u64::from(lock.remaining_ms);
            assert!(end >= hold.until, "at {real} it ends too early: {lock:?} {hold:?}");
            // Nobody may know when the last sync was done.
            let full = real + u64::from(hold.claim.lease_ms);
            let at_latest = if hold.sync == self.sync { hold.at_latest.max(full) } else { hold.at_latest };
            assert!(how == Start::OtherBoot || end <= at_latest, "at {real} {end} is late: {hold:?}");
            (hold.at_latest, hold.extension) = (end, None);
        }
    }

    /// All that was told to be held is.
    pub(crate) fn check_held(&self, listed: &BTreeMap<ClaimId, HeldLock>) {
        for (id, hold) in self.holds.iter().filter(|(_, hold)| hold.until > self.real) {
            let lock = listed.get(id).unwrap_or_else(|| panic!("at {} {id:?} is lost: {hold:?}", self.real));
            check_restored(hold, lock);
        }
    }
}

fn check_restored(hold: &Hold, lock: &HeldLock) {
    let ClaimRequest { lane, namespace, items, shared, request_id, .. } = &hold.claim;
    assert_eq!(lock.fence, Fence::new(hold.fence), "{lock:?}");
    assert_eq!(lock.owner.as_ref(), owner(*lane), "{lock:?}");
    assert_eq!(lock.request_id, request_id.clone().unwrap_or_default(), "{lock:?}");
    if *namespace != 1 {
        assert_eq!((&lock.key, lock.shared), (&items[0], *shared), "{lock:?}");
    }
}

/// Whose the claims of a lane are.
pub(crate) fn owner(lane: usize) -> &'static [u8] {
    [&b"a"[..], b"b", b"c", b"d"][lane]
}
