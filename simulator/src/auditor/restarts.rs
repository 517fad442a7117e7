//! What is known across the end of a server and its next start.
//!
//! A server that has a log ends in order, and carries everything over, or crashes. A crash takes what is ephemeral with it,
//! and whatever was not durable: records that were left before the last sync began are. Both are told by the run,
//! which knows the disk; what was under scope Local is known from what was asked. Where the disk is lost, or there was none,
//! all is over, and only what a cluster has counted goes on (`counted`).

use super::Auditor;
use super::holds::Hold;
use super::keys::KeyHistory;
use crate::mix::kind_of;
use crate::operation::{Acquire, Key, Operation};
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::{Event, LockId, NamespaceKind, Response, SessionId, StatusAnswer};

/// Within this time a server grants again once its disk has room, beside the time of its syncs.
const ROOM_IS_FOUND_MS: u64 = 1_500;

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// In order, with a log.
    Clean,
    /// From one moment to the next, with a log.
    Crash,
    /// The same while it ended in order: some of what only an end in order carries over may be there.
    Interrupted,
    /// The same, and some of the log was damaged: the next start accepts that it is lost.
    Damage,
    /// And nothing is left of what it had.
    Loss,
}

/// What is known of the ends and starts of the server.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    /// Starts after the first one.
    pub(super) count: u32,
    /// Ends after which the server may not know that a key is counted.
    pub(super) loss_count: u32,
    /// When the server last started again.
    pub(super) started_ms: Option<u64>,
    /// When the machine was booted: what its clock says is later by this.
    booted_ms: u64,
    /// What was left to the log before then is durable.
    durable_ms: u64,
    /// The same over time: what was left before the first instant was durable at the second one.
    durable_since: Vec<(u64, u64)>,
    /// Records that were left to the log after then are not durable. `None`: the server has just begun.
    undurable_from_ms: Option<u64>,
    /// When syncs ended.
    synced_ms: BTreeSet<u64>,
    /// Of the end that no start has followed yet.
    end: Option<End>,
    /// When the log of this start of the server failed.
    log_failed_ms: Option<u64>,
    /// Until when the disk was full, if it ever was; `u64::MAX` while it is.
    full_until_ms: Option<u64>,
    /// The time that syncs took since then.
    sync_ms: u64,
    losses: Losses,
}

/// What is known of records that are lost because an operator accepted damage.
#[derive(Debug, Default)]
struct Losses {
    /// Some records were lost. Counters of keys leave out fences from then on.
    has_happened: bool,
    /// No server has waited since records were lost.
    is_pending: bool,
    /// The longest lease of a hold that may be lost, in milliseconds.
    longest_ms: u64,
    /// Nothing new is granted before.
    grants_from_ms: u64,
    /// Then grants are served again at the latest.
    granted_by_ms: u64,
}

/// An end of the server, with what was surely there.
#[derive(Debug)]
struct End {
    ending: Ending,
    at_ms: u64,
    /// It was told to end then.
    stopped_ms: Option<u64>,
    holds: BTreeSet<LockId>,
    entries: Vec<(Key, u64)>,
    sessions: BTreeSet<SessionId>,
}

impl Restarts {
    /// Whether a sync ended then, with which a lease may have begun.
    pub(super) fn has_synced_at(&self, at_ms: u64) -> bool {
        self.synced_ms.contains(&at_ms)
    }

    /// Whether counters may leave out fences.
    pub(super) fn has_lost_records(&self) -> bool {
        self.losses.has_happened
    }

    /// What was left to the log before this time is durable.
    pub(super) fn durable_ms(&self) -> u64 {
        self.durable_ms
    }

    /// When everything was durable that was left to the log at that time. 0 without a log.
    pub(super) fn durable_since_us(&self, left_ms: u64) -> u64 {
        let place = self.durable_since.partition_point(|(before_ms, _)| *before_ms <= left_ms);
        self.durable_since.get(place).map_or(0, |(_, at_us)| *at_us)
    }

    /// Whether the server was started again since then.
    pub(super) fn happened_since(&self, at_ms: u64) -> bool {
        self.started_ms.is_some_and(|started_ms| started_ms >= at_ms)
    }
}

impl Auditor {
    /// Everything that was left to the log before then is durable.
    pub(crate) fn note_durable(&mut self, before_ms: u64, now_us: u64) {
        self.restarts.durable_ms = before_ms;
        if self.restarts.durable_since.last().is_none_or(|(last_ms, _)| *last_ms < before_ms) {
            self.restarts.durable_since.push((before_ms, now_us));
        }
    }

    /// Nothing that was left to the log after that time is durable.
    pub(crate) fn note_nothing_durable_since(&mut self, at_ms: u64) {
        self.restarts.undurable_from_ms = Some(at_ms);
    }

    /// Judges a response that says that something is durable. It comes behind the sync of its record, which was left when the request
    /// had arrived.
    pub(super) fn judge_durable(&mut self, request: usize, response: &Response<'_>) {
        if let (Operation::Status { id }, Response::Status(status)) =
            (self.requests[request].operation, response)
            && let Some(left_ms) = self.lengthened_ms(id, status)
        {
            return self.judge_durable_since(request, left_ms);
        }
        if self.settings.log().is_none() || !self.is_said_when_durable(request, response) {
            return;
        }
        let asked = &self.requests[request];
        let arrived_ms = asked.arrived_ms.filter(|_| asked.sent_count == 1).unwrap_or(asked.first_sent_ms);
        self.judge_durable_since(request, arrived_ms);
    }

    /// Accuses a response that tells of a record that is not durable. The record was left at that time at the earliest.
    pub(super) fn judge_durable_since(&mut self, request: usize, left_ms: u64) {
        let Some(undurable_from_ms) = self.restarts.undurable_from_ms else { return };
        if self.settings.log().is_some() && left_ms > undurable_from_ms {
            let asked = &self.requests[request];
            let (lane, number, operation) = (asked.lane, asked.number, asked.operation);
            self.accuse("durable", || {
                format!(
                    "lane {lane}: {number} is answered with what was left at {left_ms}, nothing from {undurable_from_ms} on is durable: {operation:?}"
                )
            });
        }
    }

    /// Returns when the one unanswered extend of a durable hold arrived, if a status shows the longer lease that it gave the hold.
    fn lengthened_ms(&self, id: LockId, status: &StatusAnswer<'_>) -> Option<u64> {
        let hold = self.holds.get(&id).filter(|hold| hold.session.is_none() && !hold.lease_is_open)?;
        // Of two words of one millisecond the later one is not known.
        let is_newest = hold.lease_stamp_ms < status.stamp_ms;
        let end_ms = status.stamp_ms + u64::from(status.remaining_ms);
        let is_local = self.keys.get(&hold.key).is_some_and(|key| key.is_local(hold.fence));
        let [(extend, ..)] = hold.may_move[..] else { return None };
        let extend = &self.requests[extend];
        // A hold is shown behind its lease, with nothing left of it, until its end is decided.
        let is_open = status.remaining_ms > 0 && status.remaining_ms < u32::MAX;
        let is_longer = is_local && is_newest && is_open && end_ms > hold.lease_end_ms.max(hold.late_ms);
        extend.arrived_ms.filter(|_| is_longer && extend.sent_count == 1)
    }

    /// Whether the request surely caused a record that the response depends on.
    fn is_said_when_durable(&self, request: usize, response: &Response<'_>) -> bool {
        let is_local = |id: LockId| {
            let hold = self.holds.get(&id);
            hold.is_some_and(|hold| self.keys.get(&hold.key).is_some_and(|key| key.is_local(hold.fence)))
        };
        match (self.requests[request].operation, response) {
            (Operation::Acquire(acquire), Response::Granted(granted)) => {
                !granted.repeated && self.is_claim_durable(request, &acquire)
            }
            (Operation::Acquire(acquire), Response::GrantedKeys(granted)) => {
                !granted.repeated && self.is_claim_durable(request, &acquire)
            }
            (Operation::Extend { id, .. }, Response::Extended(extended)) => {
                let end_ms = extended.stamp_ms + u64::from(extended.remaining_ms);
                // Of two words of one millisecond the later one is not known.
                let is_known = |hold: &Hold| !hold.lease_is_open && hold.may_move.len() < 2;
                let is_longer = |hold: &Hold| is_known(hold) && hold.lease_end_ms.max(hold.late_ms) < end_ms;
                is_local(id) && self.holds.get(&id).is_some_and(is_longer)
            }
            (Operation::ForceRelease { id }, Response::ForceReleased(released)) => {
                is_local(id) && !released.was_waiting
            }
            (Operation::SetCapacity { .. }, Response::CapacitySet(_)) => true,
            (Operation::Register(registering), Response::Registered(_)) => !registering.heartbeat,
            _ => false,
        }
    }

    /// Returns whether the claim of this acquire surely goes into the log. An acquire may find an earlier claim by its request id, with the scope
    /// of that claim.
    fn is_claim_durable(&self, request: usize, acquire: &Acquire) -> bool {
        let is_durable = |other: usize| matches!(self.requests[other].operation, Operation::Acquire(other) if other.scope.is_durable());
        acquire.scope.is_durable()
            && (acquire.request_id.is_none() || self.same_requests(request, acquire).all(is_durable))
    }

    /// A sync ended.
    pub(crate) fn note_synced(&mut self, now_ms: u64) {
        self.restarts.synced_ms.insert(now_ms);
    }

    /// A sync took so long, during which the log does nothing else.
    pub(crate) fn note_sync_time(&mut self, took_ms: u64) {
        self.restarts.sync_ms += took_ms;
    }

    /// The log of the server failed: all that waits for it is answered as unknown.
    pub(crate) fn note_log_failed(&mut self, now_ms: u64) {
        self.restarts.log_failed_ms.get_or_insert(now_ms);
    }

    /// The disk becomes full, or has room again.
    pub(crate) fn note_disk_full(&mut self, now_ms: u64, is_full: bool) {
        self.restarts.full_until_ms = Some(if is_full { u64::MAX } else { now_ms });
        self.restarts.sync_ms = 0;
    }

    /// A server starts, and says how long it grants nothing because records may be lost.
    pub(crate) fn note_losses(&mut self, now_ms: u64, wait_ms: Option<u64>) {
        let Losses { is_pending, longest_ms, .. } = self.restarts.losses;
        if is_pending && wait_ms.is_none_or(|wait_ms| wait_ms < longest_ms) {
            self.accuse("losses", || {
                format!("a server waits for {wait_ms:?} ms, and a lost lease may have {longest_ms} ms")
            });
        }
        self.restarts.losses.grants_from_ms = if is_pending { now_ms + longest_ms } else { 0 };
        self.restarts.losses.granted_by_ms = now_ms + wait_ms.unwrap_or(0);
    }

    /// Some records are lost, and with them any hold.
    fn lose_records(&mut self) {
        let is_local = |id: &LockId, hold: &Hold| {
            let grant = self.keys.get(&hold.key).and_then(|key| key.get(hold.fence));
            grant.is_some_and(|grant| grant.id == *id && grant.scope.is_durable())
        };
        let leases = self.holds.iter().filter(|(id, hold)| hold.over_ms.is_none() && is_local(id, hold));
        let longest_ms = leases.map(|(_, hold)| self.promised_lease_ms(hold)).max().unwrap_or(0);
        self.restarts.losses.is_pending = true;
        self.restarts.losses.longest_ms = self.restarts.losses.longest_ms.max(longest_ms);
        // Also the record of an end may be lost.
        self.restarts.durable_ms = 0;
        self.pools.forget_sets();
        self.operators.doubt_thaws();
        self.restarts.losses.has_happened = true;
    }

    /// The lease in the last response about a hold, or the lease of its session; 0 without a lease.
    fn promised_lease_ms(&self, hold: &Hold) -> u64 {
        match hold.session {
            Some(session) => self.lease_ms_of_session(Some(session)).into(),
            None if hold.lease_ms == u32::MAX => 0,
            None => hold.lease_ms.into(),
        }
    }

    /// Nothing new is granted until every hold that may be lost has expired.
    pub(super) fn judge_granted_after_losses(&mut self, id: LockId, stamp_ms: u64) {
        let grants_from_ms = self.restarts.losses.grants_from_ms;
        if stamp_ms < grants_from_ms {
            self.accuse("losses", || {
                format!("{id} was granted at {stamp_ms}, lost holds may last until {grants_from_ms}")
            });
        }
    }

    /// Whether a server may still refuse grants because records were lost.
    pub(super) fn may_recover(&self, now_ms: u64) -> bool {
        now_ms <= self.latest_ms(self.restarts.losses.granted_by_ms)
    }

    /// Whether what was asked may be unknown: it waited for a log that failed.
    pub(super) fn may_be_unknown(&self) -> bool {
        self.restarts.log_failed_ms.is_some()
    }

    /// Whether a server may still refuse grants because its disk was full.
    pub(super) fn may_lack_room(&self, now_ms: u64) -> bool {
        self.restarts.full_until_ms.is_some_and(|until_ms| {
            until_ms == u64::MAX
                || now_ms <= self.latest_ms(until_ms + ROOM_IS_FOUND_MS + self.restarts.sync_ms)
        })
    }

    /// The server ended.
    pub(crate) fn note_end(&mut self, now_ms: u64, ending: Ending) {
        self.duties.clear();
        let is_forgetful = self.settings.is_forgetful;
        self.visits.note_end(ending);
        if ending == Ending::Loss || now_ms >= self.restarts.losses.granted_by_ms {
            self.restarts.losses.is_pending = false;
            self.restarts.losses.longest_ms = 0;
        }
        if ending == Ending::Damage {
            self.lose_records();
        }
        // Up to which fence each counter is durable.
        let mut counters = BTreeMap::new();
        let mut durable = BTreeSet::new();
        for (key, history) in &self.keys {
            let Some((first, last)) = history.locals().filter(|_| ending != Ending::Loss) else { continue };
            counters.insert(*key, if is_forgetful { last } else { u64::MAX });
            durable.extend(history.durable_ids(first, is_forgetful));
        }
        if ending == Ending::Damage {
            durable.clear();
        }
        if ending == Ending::Clean {
            durable = self.holds.keys().copied().collect();
        }
        let ids: Vec<LockId> = self.holds.keys().copied().collect();
        let living: BTreeSet<LockId> =
            durable.iter().copied().filter(|id| self.surely_lives(*id, now_ms)).collect();
        let keeps_session = |hold: &Hold| !hold.may_have_moved;
        let sessions = living.iter().filter_map(|id| {
            let hold = &self.holds[id];
            let session = self.lanes[hold.lane].session.filter(|_| keeps_session(hold));
            session.filter(|id| self.surely_goes_on(*id, now_ms))
        });
        let sessions: BTreeSet<SessionId> = sessions.collect();
        let entries = self.surely_registered(now_ms);
        if ending == Ending::Loss {
            // An end that was not durable is one all the same.
            self.restarts.durable_ms = now_ms + 1;
            self.pools.forget_sets();
        }
        self.restarts.loss_count += u32::from(matches!(ending, Ending::Damage | Ending::Loss));
        if ending != Ending::Clean {
            for id in ids {
                self.lose_what_was_not_durable(id, durable.contains(&id), ending, now_ms);
            }
            self.forget_unheard_ends();
            self.forget_counters(&counters);
        }
        if matches!(ending, Ending::Crash | Ending::Interrupted | Ending::Damage) {
            self.forget_refusals();
        }
        if ending == Ending::Damage {
            self.keys.values_mut().for_each(KeyHistory::forget_scope);
        }
        if matches!(ending, Ending::Damage | Ending::Loss) {
            self.operators.thaw_all(now_ms);
        }
        self.end_sessions(&sessions, now_ms);
        let stopped_ms = self.stopping_ms.filter(|_| ending == Ending::Clean);
        self.forget_what_no_log_has(ending == Ending::Clean);
        self.restarts.end = Some(End { ending, at_ms: now_ms, stopped_ms, holds: living, entries, sessions });
    }

    /// A hold after a crash: one that was ephemeral is gone, and an end that was not durable is forgotten.
    fn lose_what_was_not_durable(&mut self, id: LockId, is_durable: bool, ending: Ending, now_ms: u64) {
        let durable_ms = self.restarts.durable_ms;
        self.note_guarded_lost(id);
        let Some(hold) = self.holds.get_mut(&id) else { return };
        let is_asked = self.keys.get(&hold.key).is_some_and(|key| key.is_local_asked);
        // Until a server has synced its first record, a crash leaves the disk as the server found it.
        let is_as_found = self.restarts.happened_since(durable_ms);
        let may_be_durable = match ending {
            Ending::Crash => is_durable || is_asked || is_as_found,
            Ending::Interrupted | Ending::Damage => true,
            Ending::Clean | Ending::Loss => is_durable,
        };
        if !is_durable || hold.over_ms.is_some() {
            // No word of somebody is needed any more to explain that it is not there.
            hold.release_count += 2;
        }
        if !is_durable {
            hold.may_end_ms = hold.may_end_ms.min(now_ms);
            hold.others_may_end = true;
            self.sure.doubt(id);
        }
        // The record of its move to the request that has it may be lost.
        hold.may_have_moved |= ending == Ending::Damage && (hold.settled_ms > 0 || hold.was_repeated);
        if !may_be_durable {
            hold.over_ms.get_or_insert(now_ms);
        } else if ending == Ending::Crash && hold.is_released_durably() {
            // The release was answered because it was durable.
        } else if let Some(over_ms) = hold.over_ms.filter(|over_ms| *over_ms >= durable_ms) {
            hold.may_end_ms = hold.may_end_ms.min(over_ms);
            hold.others_may_end = true;
            hold.over_ms = None;
            hold.released_by = None;
        }
    }

    /// A crash may bring back a claim whose end the server reported before the grant, if that end was not durable.
    fn forget_unheard_ends(&mut self) {
        let durable_ms = self.restarts.durable_ms;
        let ended = std::mem::take(&mut self.ended_unheard);
        for (id, over_ms) in ended {
            if over_ms < durable_ms {
                self.ended_unheard.insert(id, over_ms);
            } else {
                self.note_tampering(id, over_ms);
            }
        }
    }

    /// Judges the holds on the disk after a crash: the release of a hold without a lease was answered only when it was durable.
    pub(crate) fn judge_disk(&mut self, mut held: impl Iterator<Item = LockId>) {
        if self.restarts.has_lost_records() {
            return;
        }
        let is_back = |id: &LockId| {
            self.holds.get(id).is_some_and(|hold| hold.over_ms.is_some() && hold.is_released_durably())
        };
        if let Some(id) = held.find(|id| is_back(id)) {
            let hold = format!("{:?}", self.holds.get(&id));
            self.accuse("start", || format!("a crash brings back {id}, whose release was answered: {hold}"));
        }
    }

    /// Judges the bounds on the disk after a crash. No fence and no lease of a response is above them, because a start after a loss of
    /// records relies on them.
    pub(crate) fn judge_bounds(&mut self, floor: u64, longest_lease_ms: u64) {
        let is_above = |(id, hold): &(&LockId, &Hold)| {
            let grant = self.keys.get(&hold.key).and_then(|key| key.get(hold.fence));
            let is_local = grant.is_some_and(|grant| grant.id == **id && grant.scope.is_durable());
            is_local && (hold.fence > floor || self.promised_lease_ms(hold) > longest_lease_ms)
        };
        if let Some((id, hold)) = self.holds.iter().find(is_above) {
            let text = format!(
                "{id} is above the fence {floor} or the lease {longest_lease_ms} of the disk: {hold:?}"
            );
            self.accuse("losses", || text);
        }
    }

    /// A claim may be held though it was given up: that it was granted may be durable, and that it was given up not.
    fn forget_refusals(&mut self) {
        let durable_ms = self.restarts.durable_ms;
        for request in &mut self.requests {
            request.refused_ms = request.refused_ms.filter(|refused_ms| *refused_ms < durable_ms);
        }
    }

    /// Each counter may go on anew behind what is durable of it.
    fn forget_counters(&mut self, counters: &BTreeMap<Key, u64>) {
        let durable = |key: Key| counters.get(&key).copied().unwrap_or(0);
        for (key, history) in &mut self.keys {
            history.forget_behind(durable(*key));
        }
        for request in &mut self.requests {
            for (key, fence) in &mut request.fences_before {
                *fence = durable(*key).min(*fence);
            }
            let (Operation::Inspect { key }
            | Operation::Describe { pool: key }
            | Operation::Watch { key }
            | Operation::Verify { key, .. }) = request.operation
            else {
                continue;
            };
            // What is registered is durable.
            if !matches!(kind_of(key), NamespaceKind::Registry | NamespaceKind::Lazy) {
                request.fence_before = durable(key).min(request.fence_before);
            }
        }
    }

    /// What a start leaves out, in order or not: buckets, and what was counted.
    fn forget_what_no_log_has(&mut self, is_clean: bool) {
        self.buckets.clear();
        for record in self.namespaces.values_mut() {
            record.begin_anew(is_clean);
        }
        for request in &mut self.requests {
            // Its effect may be lost, and if it is asked again its answer is another one.
            request.kept = None;
        }
        self.waiters.clear();
        self.stopping_ms = None;
        self.restarts.log_failed_ms = None;
    }

    /// The server starts again, on a machine that was booted then.
    pub(crate) fn note_start(&mut self, now_ms: u64, booted_ms: u64, is_rebooted: bool) {
        self.restarts.count += 1;
        self.restarts.started_ms = Some(now_ms);
        self.restarts.undurable_from_ms = None;
        self.restarts.booted_ms = booted_ms;
        let Some(end) = self.restarts.end.take() else { return };
        if end.ending != Ending::Clean {
            self.heard.forget_ends();
        }
        for (id, hold) in &mut self.holds {
            let full = |lease_ms: u32| now_ms + u64::from(lease_ms);
            let history = self.keys.get(&hold.key);
            let is_local = history.is_some_and(|history| history.is_local(hold.fence));
            // Any acquire of the key under scope Local, also a refused one, put its later holds into the log.
            let may_be_local = history.is_some_and(|history| history.is_local_asked);
            // Of a hold of scope Ephemeral only the rest of its lease may be known.
            let due = |end_ms: u64, lease_ms: u32| {
                if is_local { full(lease_ms) } else { now_ms + end_ms.saturating_sub(end.at_ms) }
            };
            if is_rebooted && end.holds.contains(id) {
                hold.lease_end_ms = hold.lease_end_ms.max(due(hold.lease_end_ms, hold.lease_ms));
                for (_, end_ms, lease_ms) in &mut hold.may_move {
                    *end_ms = (*end_ms).max(due(*end_ms, *lease_ms));
                }
            }
            if is_rebooted || end.ending != Ending::Clean {
                // Its lease may have begun anew, or be the one before a word that was lost. Of a hold without options an end in order
                // carries over the rest of its lease.
                let rest_ms = end.stopped_ms.filter(|_| hold.has_no_options && !may_be_local);
                let rest_ms = rest_ms.map(|stopped_ms| hold.lease_end_ms.saturating_sub(stopped_ms));
                hold.late_ms =
                    hold.late_ms.max(rest_ms.map_or(full(hold.longest_ms), |rest_ms| now_ms + rest_ms));
            }
            // The log has it from now on. After the next reboot its lease may begin anew.
            hold.has_no_options = false;
        }
        for (key, fence) in end.entries {
            self.note_registered_anew(key, fence, now_ms);
        }
        for (id, session) in &mut self.sessions {
            if end.sessions.contains(id) {
                session.live_on(now_ms);
            }
        }
        debug_assert!(end.at_ms <= now_ms);
    }

    /// What was asked of an earlier server is asked of this one: it may do it once more.
    pub(super) fn note_asked_anew(&mut self, request: usize, operation: &Operation) {
        let asked = &mut self.requests[request];
        asked.is_granted = false;
        asked.is_cancelled = false;
        match operation {
            Operation::Register(registering) => self.note_registering_anew(registering),
            Operation::Unregister { key } => self.note_unregistering_anew(request, *key),
            Operation::SetCapacity { .. } => self.pools.note_set_anew(request),
            Operation::Extend { own: true, id, .. } if self.is_of_another_client(request, *id) => {}
            // If the earlier server has not answered, it may have moved the lease too.
            Operation::Extend { id, lease_ms, .. } => {
                self.note_may_move(request, *id, *lease_ms, self.requests[request].sent_ms);
            }
            // A request that was sent while no server ran is noted already.
            Operation::Take(taking) if !self.is_taking_noted(request, taking) => {
                let sent_ms = self.requests[request].sent_ms;
                self.note_taking(request, taking, sent_ms);
            }
            _ => {}
        }
    }

    /// Whether an answer with this stamp may have been decided by an earlier server.
    pub(super) fn is_from_before(&self, request: usize, stamp_ms: u64) -> bool {
        self.restarts.started_ms.is_some_and(|started_ms| {
            self.requests[request].first_sent_ms <= started_ms && stamp_ms <= started_ms
        })
    }

    /// An acquire that is repeated after a restart, while what it got lives, gets that again.
    pub(super) fn judge_first_answer(
        &mut self,
        request: usize,
        key: Key,
        granted: Option<LockId>,
        now_ms: u64,
    ) {
        if self.restarts.count == 0 || self.requests[request].sent_count < 2 {
            return;
        }
        let first = self.holds.iter().find(|(id, hold)| {
            hold.request == request
                && hold.key == key
                && hold.request_id.is_none()
                // The number of an acquire is not carried over with an ephemeral hold.
                && self.keys.get(&key).is_some_and(|history| history.is_local(hold.fence))
                && Some(**id) != granted
                && self.surely_lives(**id, now_ms)
        });
        if let Some((first, _)) = first {
            let (first, lane) = (*first, self.requests[request].lane);
            let number = self.requests[request].number;
            self.accuse("repeat", || {
                format!("lane {lane}: {number} got {first}, which lives, and gets {granted:?} now")
            });
        }
    }

    /// Stamps are readings of the server's clock: moves those of an answer to the time of the run.
    pub(super) fn place_stamps(&self, response: &mut Response<'_>) {
        let stamp_ms = match response {
            Response::Welcome(answer) => &mut answer.stamp_ms,
            Response::KeptAlive(answer) => &mut answer.stamp_ms,
            Response::Granted(answer) => &mut answer.stamp_ms,
            Response::GrantedKeys(answer) => &mut answer.stamp_ms,
            Response::Extended(answer) => &mut answer.stamp_ms,
            Response::Status(answer) => &mut answer.stamp_ms,
            Response::Inspected(answer) => &mut answer.stamp_ms,
            Response::Registered(answer) => &mut answer.stamp_ms,
            Response::LookedUp(answer) => &mut answer.stamp_ms,
            Response::PoolDescribed(answer) => &mut answer.stamp_ms,
            Response::Event(Event::LeaseMoved { stamp_ms, .. }) => stamp_ms,
            _ => return,
        };
        *stamp_ms += self.restarts.booted_ms;
    }
}
