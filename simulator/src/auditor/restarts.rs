//! Rules about the end of a server and its next start.
//!
//! A server that has a log either stops cleanly, and carries everything over, or crashes. A crash loses ephemeral state and
//! all records that were not durable yet; a sync makes all records durable that the log had before it began. The run
//! reports ends and syncs, because it knows the disk. The auditor knows from the requests which holds have scope local. If
//! the disk is lost, or if there was no disk, all state is lost except the counters of a cluster (`cluster_fences`).

use super::Auditor;
use super::holds::Hold;
use super::keys::KeyHistory;
use super::losses::Losses;
use crate::key::{Key, kind_of};
use crate::operation::Operation;
use std::collections::{BTreeMap, BTreeSet};
use waymaker_protocol::{Event, LockId, NamespaceKind, Response, SessionId};

/// Within this time, plus the time of its syncs, a server grants again after its disk has room.
const ROOM_IS_FOUND_MS: u64 = 1_500;

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A clean stop, with a log.
    Clean,
    /// A crash at any moment, with a log.
    Crash,
    /// A crash during a clean stop: some of the state that only a clean stop carries over may be on the disk.
    Interrupted,
    /// A crash with damage to the log. The next start accepts that records are lost.
    Damage,
    /// A crash that loses the whole disk.
    Loss,
}

/// Known ends and starts of the server.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    /// Number of starts after the first one.
    pub(super) count: u32,
    /// Number of ends after which the server may not know that a key is counted.
    pub(super) loss_count: u32,
    /// Time of the newest start after the first one.
    pub(super) started_ms: Option<u64>,
    /// Boot time of the machine; the server's own clock starts there at 0.
    booted_ms: u64,
    /// Records handed to the log before this time are durable.
    pub(super) durable_ms: u64,
    /// History of `durable_ms`: records handed to the log before the first instant were durable at the second one, in
    /// microseconds of the run.
    pub(super) durable_since: Vec<(u64, u64)>,
    /// Records handed to the log after this time are not durable. `None` right after a start.
    pub(super) undurable_from_ms: Option<u64>,
    /// Times at which syncs ended.
    pub(super) synced_ms: BTreeSet<u64>,
    /// The end that no start has followed yet.
    end: Option<End>,
    /// Time at which the log of the running server failed.
    pub(super) log_failed_ms: Option<u64>,
    /// Time until which the disk was full; `u64::MAX` while it is full, `None` if it never was.
    pub(super) full_until_ms: Option<u64>,
    /// Total duration of the syncs since `full_until_ms` changed.
    pub(super) sync_ms: u64,
    pub(super) losses: Losses,
}

/// An end of the server, with the state that it surely had.
#[derive(Debug)]
struct End {
    ending: Ending,
    at_ms: u64,
    /// Time of the order to stop the server.
    stopped_ms: Option<u64>,
    holds: BTreeSet<LockId>,
    entries: Vec<(Key, u64)>,
    sessions: BTreeSet<SessionId>,
}

impl Restarts {
    /// Returns whether a sync ended at this time. The lease of a durable hold may begin then.
    pub(super) fn has_synced_at(&self, at_ms: u64) -> bool {
        self.synced_ms.contains(&at_ms)
    }

    /// Returns whether fences may have gaps because records were lost.
    pub(super) fn has_lost_records(&self) -> bool {
        self.losses.has_happened
    }

    /// Returns the time before which all records handed to the log are durable.
    pub(super) fn durable_ms(&self) -> u64 {
        self.durable_ms
    }

    /// Returns when all records handed to the log up to `left_ms` were durable, in microseconds of the run; 0 without a
    /// log.
    pub(super) fn durable_since_us(&self, left_ms: u64) -> u64 {
        let place = self.durable_since.partition_point(|(before_ms, _)| *before_ms <= left_ms);
        self.durable_since.get(place).map_or(0, |(_, at_us)| *at_us)
    }

    /// Returns whether the server was restarted at or after this time.
    pub(super) fn happened_since(&self, at_ms: u64) -> bool {
        self.started_ms.is_some_and(|started_ms| started_ms >= at_ms)
    }
}

impl Auditor {
    /// Returns whether a server may still refuse grants because records were lost.
    pub(super) fn may_recover(&self, now_ms: u64) -> bool {
        now_ms <= self.latest_ms(self.restarts.losses.granted_by_ms)
    }

    /// Returns whether the outcome of a request may be unknown because the log failed.
    pub(super) fn may_be_unknown(&self) -> bool {
        self.restarts.log_failed_ms.is_some()
    }

    /// Returns whether a server may still refuse grants because its disk was full.
    pub(super) fn may_lack_room(&self, now_ms: u64) -> bool {
        self.restarts.full_until_ms.is_some_and(|until_ms| {
            until_ms == u64::MAX
                || now_ms <= self.latest_ms(until_ms + ROOM_IS_FOUND_MS + self.restarts.sync_ms)
        })
    }

    /// Records the end of the server and what survives it.
    pub(crate) fn note_end(&mut self, now_ms: u64, ending: Ending) {
        self.duties.clear();
        let is_forgetful = self.settings.is_forgetful;
        self.visits.note_end(ending);
        self.tenancies.note_end(ending);
        if ending == Ending::Loss || now_ms >= self.restarts.losses.granted_by_ms {
            self.restarts.losses.is_pending = false;
            self.restarts.losses.longest_ms = 0;
        }
        if ending == Ending::Damage {
            self.lose_records();
        }
        // Highest durable fence of each key.
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
            // All ends count as durable, because no disk can bring the holds back.
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

    /// Updates a hold after a crash: a hold that was not durable is lost, and an end that was not durable is
    /// undone.
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
            // No release is needed any more to explain that the hold is gone.
            hold.release_count += 2;
        }
        if !is_durable {
            hold.may_end_ms = hold.may_end_ms.min(now_ms);
            hold.others_may_end = true;
            self.reliances.doubt(id);
        }
        // The record that moved the hold to its current request may be lost.
        hold.may_have_moved |= ending == Ending::Damage && (hold.settled_ms > 0 || hold.was_repeated);
        if !may_be_durable {
            hold.over_ms.get_or_insert(now_ms);
        } else if ending == Ending::Crash && hold.is_released_durably() {
            // Such a release is answered only after it is durable.
        } else if let Some(over_ms) = hold.over_ms.filter(|over_ms| *over_ms >= durable_ms) {
            hold.may_end_ms = hold.may_end_ms.min(over_ms);
            hold.others_may_end = true;
            hold.over_ms = None;
            hold.released_by = None;
        }
    }

    /// A crash may bring back a claim whose end the server reported before its grant, if that end was not
    /// durable.
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

    /// Rule `start`: a crash does not bring back a hold without a lease whose release was answered, because
    /// that release is durable.
    pub(crate) fn judge_disk(&mut self, mut held: impl Iterator<Item = LockId>) {
        if self.restarts.has_lost_records() {
            return;
        }
        let is_back = |id: &LockId| {
            self.holds.get(id).is_some_and(|hold| hold.over_ms.is_some() && hold.is_released_durably())
        };
        if let Some(id) = held.find(|id| is_back(id)) {
            let hold = format!("{:?}", self.holds.get(&id));
            self.accuse("start", || {
                format!(
                    "{id} is held again after a crash, but its release was answered and must be durable: {hold}"
                )
            });
        }
    }

    /// Rule `losses`: no reported fence and no reported lease is above the bounds on the disk. A start after
    /// a loss of records relies on these bounds.
    pub(crate) fn judge_bounds(&mut self, floor: u64, longest_lease_ms: u64) {
        let is_above = |(id, hold): &(&LockId, &Hold)| {
            let grant = self.keys.get(&hold.key).and_then(|key| key.get(hold.fence));
            let is_local = grant.is_some_and(|grant| grant.id == **id && grant.scope.is_durable());
            is_local && (hold.fence > floor || self.promised_lease_ms(hold) > longest_lease_ms)
        };
        if let Some((id, hold)) = self.holds.iter().find(is_above) {
            let text = format!(
                "{id} exceeds the bounds on the disk, fence {floor} or lease {longest_lease_ms} ms: {hold:?}"
            );
            self.accuse("losses", || text);
        }
    }

    /// Forgets refusals that may not be durable: the grant of an abandoned claim may be durable while its
    /// abandonment is not.
    fn forget_refusals(&mut self) {
        let durable_ms = self.restarts.durable_ms;
        for request in &mut self.requests {
            request.refused_ms = request.refused_ms.filter(|refused_ms| *refused_ms < durable_ms);
        }
    }

    /// Records that each counter may restart after its durable part.
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
            // Registrations are durable.
            if !matches!(kind_of(key), NamespaceKind::Registry | NamespaceKind::Lazy) {
                request.fence_before = durable(key).min(request.fence_before);
            }
        }
    }

    /// Forgets the state that no log carries over, even after a clean stop: buckets, statistics and waiters.
    fn forget_what_no_log_has(&mut self, is_clean: bool) {
        self.buckets.clear();
        for record in self.namespaces.values_mut() {
            record.begin_anew(is_clean);
        }
        for request in &mut self.requests {
            // The effect of the request may be lost; a repetition then gets another response.
            request.kept = None;
        }
        self.waiters.clear();
        self.stopping_ms = None;
        self.restarts.log_failed_ms = None;
    }

    /// Records that the server starts again, on a machine that was booted at `booted_ms`.
    pub(crate) fn note_start(&mut self, now_ms: u64, booted_ms: u64, is_rebooted: bool) {
        self.restarts.count += 1;
        self.restarts.started_ms = Some(now_ms);
        self.restarts.undurable_from_ms = None;
        self.restarts.booted_ms = booted_ms;
        let Some(end) = self.restarts.end.take() else { return };
        if end.ending != Ending::Clean {
            self.readers.forget_ends();
        }
        for (id, hold) in &mut self.holds {
            let full = |lease_ms: u32| now_ms + u64::from(lease_ms);
            let history = self.keys.get(&hold.key);
            let is_local = history.is_some_and(|history| history.is_local(hold.fence));
            // Any acquire of the key under scope local, even a refused one, makes later holds of the key
            // durable.
            let may_be_local = history.is_some_and(|history| history.is_local_asked);
            // Of a hold of scope ephemeral, the log may keep only the rest of its lease.
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
                // The lease may have restarted, or be the lease before a lost change. For a hold without
                // options, a clean stop carries over the rest of the lease.
                let rest_ms = end.stopped_ms.filter(|_| hold.has_no_options && !may_be_local);
                let rest_ms = rest_ms.map(|stopped_ms| hold.lease_end_ms.saturating_sub(stopped_ms));
                hold.late_ms =
                    hold.late_ms.max(rest_ms.map_or(full(hold.longest_ms), |rest_ms| now_ms + rest_ms));
            }
            // The log has the hold from now on, so its lease may restart after the next reboot.
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

    /// Records that a request to an earlier server is sent again: the new server may execute it once more.
    pub(super) fn note_asked_anew(&mut self, request: usize, operation: &Operation) {
        let record = &mut self.requests[request];
        record.is_granted = false;
        record.is_cancelled = false;
        match operation {
            Operation::Register(registration) => self.note_registering_anew(registration),
            Operation::Unregister { key } => self.note_unregistering_anew(request, *key),
            Operation::SetCapacity { .. } => self.pools.note_set_anew(request),
            Operation::Extend { own: true, id, .. } if self.is_of_another_client(request, *id) => {}
            // If the earlier server has not answered, it may have moved the lease too.
            Operation::Extend { id, lease_ms, .. } => {
                self.note_may_move(request, *id, *lease_ms, self.requests[request].sent_ms);
            }
            // A request that was sent while no server ran is already recorded.
            Operation::Take(withdrawal) if !self.is_withdrawal_noted(request, withdrawal) => {
                let sent_ms = self.requests[request].sent_ms;
                self.note_withdrawal(request, withdrawal, sent_ms);
            }
            _ => {}
        }
    }

    /// Returns whether a response with this stamp may have been decided by an earlier server.
    pub(super) fn is_from_before(&self, request: usize, stamp_ms: u64) -> bool {
        self.restarts.started_ms.is_some_and(|started_ms| {
            self.requests[request].first_sent_ms <= started_ms && stamp_ms <= started_ms
        })
    }

    /// Rule `repeat`: an acquire that is repeated after a restart gets its first hold again while that hold
    /// lasts.
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
                // With an ephemeral hold, the number of its acquire is not carried over.
                && self.keys.get(&key).is_some_and(|history| history.is_local(hold.fence))
                && Some(**id) != granted
                && self.surely_lives(**id, now_ms)
        });
        if let Some((first, _)) = first {
            let (first, lane) = (*first, self.requests[request].lane);
            let number = self.requests[request].number;
            self.accuse("repeat", || {
                format!(
                    "lane {lane}, request {number}: the first response granted {first}, which still lasts, but the repetition gets {granted:?}"
                )
            });
        }
    }

    /// Converts the stamps of a response from the server's clock, which starts at the boot, to the clock of
    /// the run.
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
