//! The auditor: checks every run of the simulator against the documented guarantees.

mod abandonment;
mod answers;
mod buckets;
mod ceilings;
mod changes;
mod chatter;
mod cluster_fences;
mod connections;
mod contention;
mod crowd;
mod durability;
#[cfg(test)]
mod durable_tests;
mod duties;
mod events;
mod farewells;
mod grants;
mod guards;
mod holds;
mod inlets;
mod keys;
mod last_words;
mod late_grants;
mod lease_words;
mod losses;
mod multi_key;
mod namespaces;
mod news;
mod numbers;
mod operators;
mod policies;
mod pool_pages;
mod pools;
mod readers;
mod records;
mod refusals;
mod registrations;
mod reliances;
mod renewals;
mod request_ids;
mod requests;
mod restarts;
mod rights;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod scene;
mod sessions;
mod shutdown;
mod stalls;
mod table_limits;
mod tokens;
mod views;
mod visits;
mod walks;
mod watchers;
mod watches;
mod welcomes;

use crate::key::Key;
use crate::operation::Operation;
use crate::workload::Settings;
use abandonment::AbandonedAcquires;
use buckets::Buckets;
use chatter::Chatter;
use cluster_fences::ClusterFences;
use crowd::Crowds;
use duties::Duties;
pub(crate) use guards::GuardView;
use guards::Guards;
use holds::{Hold, Tampering};
use keys::KeyHistory;
use namespaces::Namespaces;
use operators::OperatorRecords;
pub(crate) use policies::Times;
use pool_pages::PoolWalk;
use pools::PoolRecords;
use readers::Readers;
use records::{LaneRecord, Listener, Loss, RequestRecord};
use registrations::Registrations;
use reliances::Reliances;
pub(crate) use restarts::Ending;
use restarts::Restarts;
use rights::Tenancies;
use sessions::Session;
use stalls::Stalls;
use std::collections::{BTreeMap, VecDeque};
use visits::Visits;
pub(crate) use visits::{KnownFences, Place};
use walks::Walk;
pub(crate) use watchers::WatchState;
use watches::Watches;
use waymaker_protocol::{LockId, SessionId};

/// A broken guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the broken rule, as listed at `Auditor`.
    pub rule: &'static str,
    /// Requirement of the rule, and the observation that contradicts it.
    pub text: String,
}

/// Checks all server output and all client beliefs of a run against the documented guarantees, as a black box.
///
/// The run reports requests when clients send them (`asks`) and when they arrive at the server (`arrived`). It reports when
/// the server reads (`read`), its output, even if that is lost on the way (`said`), and which holds clients rely on
/// (`believes`). The auditor knows nothing of shards, queues, timer wheels or workers. It only knows the published rules, each
/// under a name. The module that checks a rule is in parentheses.
///
/// ```text
/// guard         While a guard of a real client reports that it holds, the server holds the lock for this guard alone (guards).
/// one-owner     No two guards of one process rely on the same hold (real_client).
/// last-word     No guard relies on its hold for longer than the newest lease that its process has read allows (readers).
/// loss-reason   A lost guard has the reason that its process read (readers); its callback runs exactly once (real_client).
/// forgotten     A client does not release a hold whose guard the program left without a release (readers).
/// window        A lane has no more unanswered requests than its window allows (readers).
/// chatter       A lane sends no more requests than its holds and its callers explain (chatter).
/// caller        A caller gets only errors that the run explains (real_client::caller).
/// late-caller   A caller has its result in time (real_client::caller).
/// needless-loss No guard is lost at its local deadline without a fault; no guard has less time than the responses allow (renewals).
/// unowned       No hold is left without a guard (guards).
/// renewal       A lane renews its leases in time (renewals).
/// uncalled      A real client cancels an acquire whose caller has dropped it (abandonment).
/// silence       A real client gives up a connection whose server is silent (real_client::silence).
/// told          Callers and guards get the values that the server sent (readers).
/// watcher       A watch shows the newest state that its process has read, and lasts until it is dropped (watchers).
/// exclusion     Two clients never rely on conflicting holds at once, by the documented lease arithmetic (reliances).
/// early-grant   A conflicting grant follows the last acknowledged lease, a release, or another known end of the earlier
///               hold or registration (holds, registrations).
/// lost-lease    A renewal that arrives before the lease ends finds the hold, however long the server stalls (refusals).
///               The server reports no end of a hold that must still last (events).
/// lost-session  The same for sessions and any received bytes (sessions).
/// drained       No instant counts as read while a connection in transfer holds bytes from before it, nor while a worker has
///               unserved requests from before it that a sweep waits for.
/// turns         Connections that yielded continue in the order in which they yielded, and none while leases are due.
/// last-words    A client that closed its sending side still gets all responses that the server has for it (last_words).
/// fence-*       Fences are unique, without gaps, and rise in the order of the grants and in real time (keys).
/// ticket-order  Waiters of equal priority are served in the order of their arrival (keys).
/// priority-bound A priority moves a waiter forward by no more than its limit (keys).
/// old-id        The id of an ended claim and a forged id have no effect.
/// own-claim     A request that is limited to own claims has no effect on the claim of another client (answers).
/// repeat        A repeated request number gets its first response (answers).
/// request-id    A repeated request id finds its claim (request_ids).
/// answers       Each request has exactly one response, of the right kind, and responses match their requests (answers).
/// stamp         The server decides a response after the request was sent and before the response is sent (answers).
/// cancelled     A claim whose cancellation is acknowledged is not granted (grants); no wait is reported as cancelled without
///               a reason (refusals).
/// early-timeout A wait does not end before its time (refusals).
/// overtaking    No acquire is granted before an earlier waiter, except by its priority (keys).
/// overdue       Except while workers do not run, no hold lasts long after its latest possible end (views, ceilings).
/// unanswered    After a time without faults, no client waits for a response (simulation).
/// leftover      After all clients have left, the server has no claims and no connections (simulation).
/// late-answer   The server answers each request that arrives in time, and each wait at its end (duties).
/// late-expiry   A hold that ends with its lease ends in time, and its lane gets the event (duties).
/// late-session  A session whose clients are silent ends in time, and each of its connections gets the event (duties).
/// late-grant    A waiting claim is granted in time after the last conflicting claim is gone (late_grants).
/// event         REVOKED, LEASE_MOVED, TAKEN_UP, QUEUED, KEY_HELD and SESSION_EXPIRED reach every connection that must get them,
///               and not before the grant of the hold that they are about (events). Each connection gets the end of a hold
///               once, front ends included (inlets).
/// welcome       No frame precedes the WELCOME of a connection (farewells). WELCOME announces the limits of the server and the
///               session that the client requested (welcomes).
/// farewell      All holds of a session have ended once its GOODBYE is answered, and it gets no later grant. The connection
///               gets no frame after that response, and the server serves no request sent after GOODBYE (farewells).
/// count, number Reported counts, positions, ages and remaining times are within the known bounds (numbers).
/// tokens        The numbers of the rate limiter agree with each other and with earlier ones (tokens).
/// limit         The server admits nothing beyond a limit, and refuses nothing for a limit that is not reached (table_limits).
///               Answered requests count against no limit of their connection (node::listeners).
/// steps         No shard turn requests more steps of follow-up work than its limit, and a cluster gets only a few
///               transactions at once.
/// armed         A worker visits each shard in which a timer is due, and some worker is awake when it is due.
/// view          INSPECT, STATUS, LIST, HOLDS, VERIFY, LOOK_UP, DESCRIBE_POOL and NAMESPACES agree with earlier responses (views).
/// page          An item that is held during a whole walk is in exactly one page of LIST, HOLDS or LIST_ENTRIES (walks). A pool
///               whose capacity was set is in exactly one page of LIST_POOLS (pool_pages).
/// busy          The server refuses an acquire without a wait only if a conflicting claim was possible (contention).
/// all-or-none   A multi-key claim gets all of its keys or none (multi_key).
/// capacity      The permits held never exceed the capacity of the pool (pools).
/// rate          No bucket grants more tokens than its rate allows, or refuses tokens that it must have (buckets).
/// listener      A stream of a front end gets the end of its hold and of its lane; no hold remains that no stream knows
///               (node::listeners).
/// watch         A watching client gets each grant, in order, and gets "free" only while the key is free (watches).
/// frozen        The server grants nothing under a frozen prefix (operators).
/// stopping      A stopping server grants nothing and keeps no waiters (shutdown).
/// losses        After a loss of records the server grants nothing before the longest lease that may be lost has expired (losses).
/// fence-counted The cluster counted each fence of scope quorum, and it is above all earlier ones of its key, whatever happened
///               to the server (cluster_fences).
/// durable       A response that promises durability follows the sync of its record (durability).
/// session-gone  A connection gets no grant after the event that its session has ended (answers).
/// visit         Fences rise across removals of their namespace; the server removes no namespace that is in use (visits).
/// rights        A request of a tenant succeeds only with the right that it needs, and is not refused with it. Holds, request
///               ids and sessions of other identities look absent (rights).
/// identity      The same for holds and sessions from before a restart; their own identity finds them (rights).
/// refused       A refused request changes nothing (rights).
/// quota         An identity has no more than its quota and one more for each worker (rights); when all clients have left,
///               every count is zero (simulation).
/// reload        A policy that takes a right away ends the connections of its identity, and no others (policies).
/// start, log    A server starts from any content of its disk and restores all of it; the log accepts what the server writes
///               (restarts, node::contents).
/// ```
///
/// The auditor gives the server the benefit of the doubt: a response that no client received may have had any content. For
/// each hold the auditor keeps the **floor**, the earliest instant at which the server may have ended the hold. Every rule
/// about time compares with the floor.
#[derive(Debug)]
pub(crate) struct Auditor {
    settings: Settings,
    connections: Vec<Listener>,
    lanes: Vec<LaneRecord>,
    requests: Vec<RequestRecord>,
    sessions: BTreeMap<SessionId, Session>,
    holds: BTreeMap<LockId, Hold>,
    /// Claims that are known to wait, each with its acquire.
    waiters: BTreeMap<LockId, usize>,
    /// Claims whose end the server reported before their grant, with the time of the report. The server kept
    /// the grant for a repetition.
    ended_unheard: BTreeMap<LockId, u64>,
    /// Requests about ids that no response had named as held yet.
    tampered: BTreeMap<LockId, Tampering>,
    crowds: Crowds,
    keys: BTreeMap<Key, KeyHistory>,
    reliances: Reliances,
    guards: Guards,
    readers: Readers,
    chatter: Chatter,
    abandoned: AbandonedAcquires,
    pools: PoolRecords,
    buckets: Buckets,
    registrations: Registrations,
    operators: OperatorRecords,
    namespaces: Namespaces,
    watches: Watches,
    duties: Duties,
    /// Time of the last event that moved a lease, by hold and new lease.
    moved: BTreeMap<(LockId, u32), u64>,
    /// Walks over the holds of a namespace, by client and number of the walk.
    walks: BTreeMap<(usize, u32), Walk>,
    /// Walks over the pools of a namespace, by client and number of the walk.
    pool_walks: BTreeMap<(usize, u32), PoolWalk>,
    /// Sessions that the server reported as over, each with its earliest possible end.
    ended_sessions: VecDeque<(SessionId, u64)>,
    stalls: Stalls,
    restarts: Restarts,
    cluster_fences: ClusterFences,
    visits: Visits,
    tenancies: Tenancies,
    /// Time of the order to stop the server.
    stopping_ms: Option<u64>,
    /// Whether the auditor reports nothing, because another check decides about this run.
    is_silent: bool,
    /// Responses decoded since the trace last took them; `None` without a trace.
    spoken: Option<Vec<String>>,
    violation: Option<Violation>,
    grant_count: u64,
}

impl Auditor {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            connections: Vec::new(),
            lanes: Vec::new(),
            requests: Vec::new(),
            sessions: BTreeMap::new(),
            holds: BTreeMap::new(),
            waiters: BTreeMap::new(),
            ended_unheard: BTreeMap::new(),
            tampered: BTreeMap::new(),
            crowds: Crowds::default(),
            keys: BTreeMap::new(),
            reliances: Reliances::default(),
            guards: Guards::default(),
            readers: Readers::default(),
            chatter: Chatter::default(),
            abandoned: AbandonedAcquires::default(),
            pools: PoolRecords::default(),
            buckets: Buckets::default(),
            registrations: Registrations::default(),
            operators: OperatorRecords::default(),
            namespaces: Namespaces::default(),
            watches: Watches::default(),
            duties: Duties::default(),
            moved: BTreeMap::new(),
            walks: BTreeMap::new(),
            pool_walks: BTreeMap::new(),
            ended_sessions: VecDeque::new(),
            stalls: Stalls::default(),
            restarts: Restarts::default(),
            cluster_fences: ClusterFences::default(),
            visits: Visits::default(),
            tenancies: Tenancies::default(),
            stopping_ms: None,
            is_silent: false,
            spoken: None,
            violation: None,
            grant_count: 0,
        }
    }

    /// Records a broken guarantee. Only the first one of a run counts.
    pub(crate) fn accuse(&mut self, rule: &'static str, text: impl FnOnce() -> String) {
        if self.violation.is_none() && !self.is_silent {
            self.violation = Some(Violation { rule, text: text() });
        }
    }

    /// Reports nothing from here on, so that a run continues after a violation.
    pub(crate) fn silence(&mut self) {
        self.is_silent = true;
    }

    /// Describes each response from here on, for a trace.
    pub(crate) fn describe_responses(&mut self) {
        self.spoken = Some(Vec::new());
    }

    /// Returns the descriptions since the last call.
    pub(crate) fn take_spoken(&mut self) -> Vec<String> {
        self.spoken.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    pub(crate) fn grant_count(&self) -> u64 {
        self.grant_count
    }

    /// Returns the newest known fence of a key, of grants and of registrations.
    pub(crate) fn newest_fence(&self, key: Key) -> u64 {
        let granted = self.keys.get(&key).map_or(0, KeyHistory::newest_said);
        granted.max(self.newest_registration_fence(key))
    }

    /// Returns when the workers have surely finished all work that was pending at `from_us`, in microseconds
    /// of the run.
    pub(crate) fn latest_us(&self, from_us: u64) -> u64 {
        self.stalls.latest_us(from_us)
    }

    /// Returns when the workers have surely finished all work that was pending at `from_ms`, by the server
    /// clock.
    fn latest_ms(&self, from_ms: u64) -> u64 {
        let from_us = (from_ms + 1).saturating_sub(self.settings.start_ms) * 1000;
        self.settings.server_ms(self.stalls.latest_us(from_us))
    }

    fn key(&mut self, key: Key) -> &mut KeyHistory {
        self.keys.entry(key).or_default()
    }

    /// Records that a client relies on a hold until `until_us`. The auditor shortens this if the client
    /// cannot know of an earlier end.
    pub(crate) fn believes(&mut self, id: LockId, until_us: u64, now_us: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        let limit_ms = self.outer_floor_ms(hold);
        let limit_us = limit_ms.saturating_sub(self.settings.start_ms).saturating_mul(1000);
        let until_us = until_us.min(limit_us);
        let until_us = if hold.others_may_end { 0 } else { until_us };
        if let Some(other) = self.reliances.believe(hold.key, id, (hold.form, hold.shared), until_us, now_us)
        {
            let key = hold.key;
            self.accuse("exclusion", || {
                format!(
                    "key {key}: clients rely on the conflicting holds {id} and {other} at the same time, at {now_us} us"
                )
            });
        }
    }

    /// Records that no client relies on a hold any more.
    pub(crate) fn doubts(&mut self, id: LockId) {
        self.reliances.doubt(id);
    }

    /// Records that some worker does not run for `for_us` from now on.
    pub(crate) fn note_stall(&mut self, now_us: u64, for_us: u64) {
        self.stalls.note(now_us, for_us);
    }

    /// Rule `fence-step`, checked at the end of a run: the fences missing in the history of a key number at
    /// most the grants whose response no client received.
    pub(crate) fn finish(&mut self) {
        if self.settings.is_forgetful || self.restarts.has_lost_records() {
            return;
        }
        let mut unheard: BTreeMap<Key, u64> = BTreeMap::new();
        for request in &self.requests {
            if let Operation::Acquire(acquire) = request.operation {
                // Each copy of an acquire may have been granted, if its lane was lost in between. A grant
                // that must become durable first may be abandoned before that, and its fence is used up.
                let is_told = if self.settings.durability.is_some() { request.is_granted } else { true };
                let heard = u32::from(request.is_answered && is_told);
                for (key, _) in acquire.keys() {
                    *unheard.entry(key).or_default() += u64::from(request.sent_count - heard);
                }
            }
        }
        let mut counted = self
            .keys
            .iter()
            .map(|(key, history)| (*key, history.missing_count(), unheard.get(key).copied().unwrap_or(0)));
        // A new key starts above the fences of removed namespaces.
        let skipped = self.visits.highest().max(self.tenancies.highest());
        let wrong = counted.find(|(_, missing, unheard)| *missing > unheard + skipped);
        if let Some((key, missing, unheard)) = wrong {
            self.accuse("fence-step", || {
                format!(
                    "key {key}: {missing} fences are missing, but only {unheard} grants can be unknown to clients"
                )
            });
        }
    }
}
