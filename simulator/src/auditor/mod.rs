//! The auditor: checks every run of the simulator against the documented guarantees.

mod abandonment;
mod answers;
mod buckets;
mod ceilings;
mod changes;
mod chatter;
mod cluster_fences;
mod contention;
mod crowd;
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
mod multi_key;
mod namespaces;
mod numbers;
mod operators;
mod policies;
mod pool_pages;
mod pools;
mod readers;
mod refusals;
mod registrations;
mod reliances;
mod renewals;
mod request_ids;
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
use crate::operation::{Listing, Operation, Registration, RegistrationListing};
use crate::workload::Settings;
use abandonment::AbandonedAcquires;
use buckets::Buckets;
use chatter::Chatter;
use cluster_fences::{ClusterFences, EarlierCount};
use crowd::Crowds;
use duties::{Duties, Duty, Word};
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
use registrations::Registrations;
use reliances::Reliances;
pub(crate) use restarts::Ending;
use restarts::Restarts;
use rights::Tenancies;
use sessions::Session;
use stalls::Stalls;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use visits::Visits;
pub(crate) use visits::{KnownFences, Place};
use walks::Walk;
pub(crate) use watchers::WatchState;
use watches::Watches;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{LockId, Response, SessionId, next_frame};

/// A broken guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the broken rule, as listed at `Auditor`.
    pub rule: &'static str,
    /// What the rule requires and what the auditor saw instead.
    pub text: String,
}

/// Checks all server output and all client beliefs of a run against the documented guarantees, as a black box.
///
/// The run reports requests when clients send them and when they arrive at the server (`asks`, `arrived`), when the server
/// reads (`read`), what the server sends, even if it is lost on the way (`said`), and which holds clients rely on
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
/// overdue       Except while workers stand still, no hold lasts long after its latest possible end (views, ceilings).
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
/// farewell      All holds of a session are over once its GOODBYE is answered, and it gets no later grant. The connection gets
///               no frame after that response, and the server serves no request sent after GOODBYE (farewells).
/// count, number Reported counts, positions, ages and remaining times lie within the known bounds (numbers).
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
/// losses        After a loss of records the server grants nothing before the longest lease that may be lost has expired (restarts).
/// fence-counted The cluster counted each fence of scope quorum, and it is above all earlier ones of its key, whatever happened
///               to the server (cluster_fences).
/// durable       A response that promises durability follows the sync of its record (restarts).
/// session-gone  A connection gets no grant after the event that its session is over (answers).
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

/// One connection, as the auditor knows it.
#[derive(Debug, Default)]
struct Listener {
    lane: usize,
    /// Whether the connection belongs to a front end, whose streams take events and responses at their own
    /// pace, or never.
    is_front: bool,
    /// Whether the connection belongs to a visitor, whose requests the `visits` module checks.
    is_visitor: bool,
    /// Requests of a visitor that have not fully arrived at the server, each with the stream offset of its
    /// end. The server owes a response once all bytes have arrived.
    unarrived_visits: VecDeque<(u64, u32)>,
    /// Undecoded beginning of a frame; `said_from` is its offset in the stream.
    said: Vec<u8>,
    said_from: u64,
    answered: BTreeSet<u32>,
    /// Request numbers of the watches that the client requested on this connection.
    asked_watches: BTreeSet<u32>,
    /// Requests that have not fully arrived at the server, each with the stream offset of its end.
    unarrived: VecDeque<(u64, usize)>,
    /// Time since which the session of the connection is settled.
    welcome_ms: Option<u64>,
    /// Whether the connection got the event that its session is over.
    is_session_gone: bool,
    /// Server clock at which the server decided to send WELCOME.
    welcomed_ms: Option<u64>,
    /// Required events that the connection got.
    heard: BTreeSet<Word>,
    /// Holds of which the connection got a change of the lease.
    heard_of: BTreeSet<LockId>,
    /// Server clock of the newest lease that the connection got, by hold.
    moved_ms: BTreeMap<LockId, u64>,
    /// Whether the server has bytes for the connection that the connection does not take.
    is_clogged: bool,
    /// Time at which the connection took the last of such bytes.
    flows_from_us: u64,
    is_lost: bool,
    /// Request after which the client closed its sending side.
    last_words: Option<u32>,
    /// Requests that were sent after GOODBYE; `None` before a GOODBYE.
    behind_goodbye: Option<BTreeSet<u32>>,
    /// Whether the client has sent HELLO and has no WELCOME yet.
    is_greeting: bool,
    /// Whether the server answered GOODBYE.
    has_farewell: bool,
    /// Acquires for which a front end tells its client about later events of their holds.
    followed: BTreeSet<u32>,
    /// Requests whose stream the client has reset.
    reset: BTreeSet<u32>,
    /// Holds whose end the connection got.
    told_over: BTreeSet<LockId>,
    /// Time at which the server was done with the connection.
    done_us: Option<u64>,
}

/// One lane of a client, across all its connections.
#[derive(Debug, Default)]
struct LaneRecord {
    /// Client that stands for the owner: all processes of one owner count as one client.
    client: usize,
    process: usize,
    session: Option<SessionId>,
    connections: Vec<usize>,
    asked: BTreeMap<u32, usize>,
    losses: Vec<Loss>,
    /// Holds that the lane was granted.
    granted: BTreeSet<LockId>,
    holds_walk: Walk,
}

/// The loss of one connection of a lane.
#[derive(Debug)]
struct Loss {
    connection: usize,
    at_ms: u64,
    /// Time at which the lane was connected to its session again.
    back_ms: Option<u64>,
}

/// One request.
#[derive(Debug)]
struct RequestRecord {
    lane: usize,
    /// Connection on which the request was last sent.
    connection: usize,
    number: u32,
    operation: Operation,
    first_sent_ms: u64,
    sent_ms: u64,
    /// Time at which the last byte of the newest copy arrived.
    arrived_ms: Option<u64>,
    /// Newest known fence of the key when the request was first sent.
    fence_before: u64,
    /// Newest known fence of each key of an acquire when the acquire was first sent.
    fences_before: Vec<(Key, u64)>,
    /// State of the keys that a cluster counts when the acquire was first sent.
    counted_before: Vec<EarlierCount>,
    /// Number of times that the request was sent.
    sent_count: u32,
    /// Whether at least one copy of the request asked not to wait.
    is_try: bool,
    /// Whether any request or event gave a reason why the wait may be over.
    may_be_cancelled: bool,
    /// Whether the server acknowledged the cancellation of the request.
    is_cancelled: bool,
    /// Request that reset the stream of this request.
    reset_by: Option<usize>,
    is_granted: bool,
    /// Response that a repetition must get.
    kept: Option<Vec<u8>>,
    is_answered: bool,
    /// Server clock at which the grant was decided.
    granted_ms: Option<u64>,
    /// Time of the latest response.
    answered_ms: Option<u64>,
    /// Whether the acquire waited until its wait ended.
    is_timed_out: bool,
    /// Time at which the request was refused.
    refused_ms: Option<u64>,
    /// Content of `QUEUED`: the id and the ticket; then the time at which it was sent.
    queued: Option<(LockId, u64, u64)>,
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

    /// Adds a lane for a client that shares its owner with no other client.
    #[cfg(test)]
    pub(crate) fn new_lane(&mut self, client: usize) -> usize {
        self.new_lane_of(client, client)
    }

    /// Adds a lane of a process. All processes of one owner count as one client, but each process knows only
    /// its own requests.
    pub(crate) fn new_lane_of(&mut self, client: usize, process: usize) -> usize {
        self.lanes.push(LaneRecord { client, process, ..LaneRecord::default() });
        self.lanes.len() - 1
    }

    /// Opens a connection for a lane. Connections are numbered in the order in which they are opened.
    pub(crate) fn open(&mut self, lane: usize, is_front: bool) {
        self.lanes[lane].connections.push(self.connections.len());
        self.connections.push(Listener { lane, is_front, ..Listener::default() });
    }

    /// Opens a connection for a visitor. The `visits` module checks its responses one by one.
    pub(crate) fn open_to_visitor(&mut self, client: usize) {
        let lane = self.new_lane_of(client, client);
        self.open(lane, false);
        self.connections.last_mut().into_iter().for_each(|listener| listener.is_visitor = true);
    }

    /// Records a request that a client sends; `end` is the stream offset of its last byte. The same number
    /// again is a repetition.
    pub(crate) fn asks(
        &mut self,
        connection: usize,
        number: u32,
        operation: Operation,
        end: u64,
        now_ms: u64,
    ) {
        let lane = self.connections[connection].lane;
        self.note_meddling(lane, &operation);
        if self.guards.is_real(lane) {
            match operation {
                Operation::Hello { .. } => self.note_greeting(lane),
                _ => self.judge_window(connection, number, !self.lanes[lane].asked.contains_key(&number)),
            }
            if let Operation::Extend { id, .. } | Operation::Status { id } = operation {
                self.note_asked_behind(lane, number, id);
            }
        }
        let request = match self.lanes[lane].asked.get(&number).copied() {
            Some(request) if self.requests[request].operation.is_repeated_by(&operation) => {
                self.requests[request].is_try |= operation.is_try();
                let is_other_server = self.restarts.happened_since(self.requests[request].sent_ms);
                self.requests[request].sent_ms = now_ms;
                self.requests[request].connection = connection;
                self.requests[request].sent_count += 1;
                if is_other_server {
                    self.note_asked_anew(request, &operation);
                }
                // A repeated request that the server has already answered has no effect.
                if self.requests[request].kept.is_none() {
                    self.note_if_freeze(request, &operation, now_ms);
                }
                self.requests[request].arrived_ms = None;
                if let Operation::Acquire(acquire) = operation {
                    self.note_in_crowd(request, &acquire);
                }
                // The repeated request may wait again, under another id.
                self.requests[request].queued = None;
                self.requests[request].is_answered &= self.requests[request].kept.is_some();
                request
            }
            _ => {
                let request = self.note_new(connection, number, operation, now_ms);
                if self.guards.is_real(lane) {
                    self.judge_chatter(connection, request, now_ms);
                }
                request
            }
        };
        if let Operation::Acquire(acquire) = operation {
            self.note_same_request_id(request, &acquire);
        }
        if let Operation::Take(withdrawal) = operation {
            self.note_withdrawal_sent(request, &withdrawal);
        }
        if let Operation::Watch { .. } = operation {
            self.connections[connection].asked_watches.insert(number);
        }
        self.note_behind_goodbye(connection, number, &operation);
        self.connections[connection].is_greeting |= matches!(operation, Operation::Hello { .. });
        self.connections[connection].unarrived.push_back((end, request));
    }

    fn note_new(&mut self, connection: usize, number: u32, operation: Operation, now_ms: u64) -> usize {
        let lane = self.connections[connection].lane;
        let fence_before = match operation {
            Operation::Inspect { key }
            | Operation::Describe { pool: key }
            | Operation::Watch { key }
            | Operation::Verify { key, .. }
            | Operation::LookUp { key }
            | Operation::Register(Registration { key, .. }) => self.newest_fence(key),
            _ => 0,
        };
        let fences_before = match operation {
            Operation::Acquire(acquire) => {
                acquire.keys().iter().map(|(key, _)| (*key, self.key(*key).newest_said())).collect()
            }
            _ => Vec::new(),
        };
        let counted_before = match operation {
            Operation::Acquire(acquire) => self.counted_before(&acquire),
            _ => Vec::new(),
        };
        self.requests.push(RequestRecord {
            lane,
            connection,
            number,
            operation,
            first_sent_ms: now_ms,
            sent_ms: now_ms,
            arrived_ms: None,
            fence_before,
            fences_before,
            counted_before,
            sent_count: 1,
            is_try: operation.is_try(),
            may_be_cancelled: false,
            is_cancelled: false,
            reset_by: None,
            is_granted: false,
            kept: None,
            is_answered: false,
            is_timed_out: false,
            granted_ms: None,
            answered_ms: None,
            refused_ms: None,
            queued: None,
        });
        let request = self.requests.len() - 1;
        self.lanes[lane].asked.insert(number, request);
        match operation {
            Operation::Release { id, own: true, .. } | Operation::Extend { id, own: true, .. }
                if self.is_of_another_client(request, id) => {}
            Operation::Release { id, forged: false, .. } => self.note_may_end(id, now_ms),
            Operation::Extend { id, lease_ms, .. } => self.note_may_move(request, id, lease_ms, now_ms),
            Operation::Cancel { acquire, .. } => {
                if let Some(acquire) = self.lanes[lane].asked.get(&acquire).copied() {
                    self.requests[acquire].may_be_cancelled = true;
                    if self.connections[connection].is_front {
                        self.requests[acquire].reset_by = Some(request);
                    }
                }
            }
            Operation::Goodbye => self.note_goodbye(lane, now_ms),
            Operation::Acquire(acquire) => {
                self.note_in_crowd(request, &acquire);
                self.pools.note_named(&acquire, now_ms);
                if acquire.scope.is_durable() {
                    acquire.keys().into_iter().for_each(|(key, _)| self.key(key).is_local_asked = true);
                }
            }
            Operation::SetCapacity { pool, capacity } => {
                self.pools.note_set(pool, request, capacity, now_ms);
            }
            Operation::Take(withdrawal) => self.note_withdrawal(request, &withdrawal, now_ms),
            Operation::Register(registration) => self.note_registering(lane, &registration, now_ms),
            Operation::Unregister { key } => self.note_unregistering(request, key, now_ms),
            Operation::Freeze { .. } => self.note_if_freeze(request, &operation, now_ms),
            Operation::ForceRelease { id } => self.note_forced(id, now_ms),
            Operation::Holds { cursor: 0 } => self.lanes[lane].holds_walk = Walk::new(now_ms),
            Operation::List(Listing { cursor: 0, walk, .. })
            | Operation::ListEntries(RegistrationListing { cursor: 0, walk, .. }) => {
                self.walks.insert((self.lanes[lane].client, walk), Walk::new(now_ms));
            }
            Operation::ListPools(Listing { cursor: 0, walk, .. }) => {
                self.pool_walks.insert((self.lanes[lane].client, walk), PoolWalk::new(now_ms));
            }
            _ => {}
        }
        request
    }

    /// Returns the newest known fence of a key, of grants and of registrations.
    pub(crate) fn newest_fence(&self, key: Key) -> u64 {
        let granted = self.keys.get(&key).map_or(0, KeyHistory::newest_said);
        granted.max(self.newest_registration_fence(key))
    }

    /// Records that the first `count` bytes of a connection have arrived at the server.
    pub(crate) fn arrived(&mut self, connection: usize, count: u64, now_ms: u64) {
        let next = |connection: &mut Listener| connection.unarrived.pop_front_if(|(end, _)| *end <= count);
        while let Some((_, request)) = next(&mut self.connections[connection]) {
            self.requests[request].arrived_ms = Some(now_ms);
            self.owe_answer(connection, request, now_ms);
        }
        let next =
            |connection: &mut Listener| connection.unarrived_visits.pop_front_if(|(end, _)| *end <= count);
        while let Some((_, number)) = next(&mut self.connections[connection]) {
            self.owe(self.to_us(now_ms + 1), Duty::Visit { connection, number });
        }
    }

    /// Records that a connection is broken or closed: from now on the server may know of it.
    pub(crate) fn lost(&mut self, connection: usize, now_ms: u64) {
        if std::mem::replace(&mut self.connections[connection].is_lost, true) {
            return;
        }
        let lane = self.connections[connection].lane;
        self.lanes[lane].losses.push(Loss { connection, at_ms: now_ms, back_ms: None });
        self.note_left(lane, now_ms);
        self.limit_belief_in_lane(lane);
    }

    /// Decodes and checks what the server sends to a connection, even if it never arrives.
    pub(crate) fn said(&mut self, connection: usize, bytes: &[u8], now_ms: u64) {
        if self.connections[connection].is_visitor {
            return self.note_said_to_visitor(connection, bytes);
        }
        let mut said = std::mem::take(&mut self.connections[connection].said);
        said.extend_from_slice(bytes);
        let mut offset = 0;
        loop {
            match next_frame(&said[offset..], FRAME_LEN_MAX) {
                Ok(None) => break,
                Err(error) => {
                    self.accuse("answers", || {
                        format!("the byte stream to connection {connection} has no valid frame: {error}")
                    });
                    break;
                }
                Ok(Some(frame)) => {
                    offset += frame.len();
                    match Response::decode(frame) {
                        Ok(mut response) => {
                            if let Some(spoken) = &mut self.spoken {
                                let (lane, number) = (self.connections[connection].lane, frame.number());
                                spoken.push(format!("says to {number} of lane {lane}: {response:?}"));
                            }
                            self.place_stamps(&mut response);
                            if self.guards.is_real(self.connections[connection].lane) {
                                let end = self.connections[connection].said_from + offset as u64;
                                self.note_unread(connection, end, frame.number(), &response);
                            }
                            self.hear(connection, frame.number(), &response, frame.bytes(), now_ms);
                        }
                        Err(error) => self.accuse("answers", || {
                            format!("connection {connection} got a frame that is no valid response: {error}")
                        }),
                    }
                }
            }
        }
        said.drain(..offset);
        self.connections[connection].said = said;
        self.connections[connection].said_from += offset as u64;
    }

    /// Records whether the server could write all pending bytes of a connection.
    pub(crate) fn note_flow(&mut self, connection: usize, flows: bool, now_us: u64) {
        let listener = &mut self.connections[connection];
        if flows && listener.is_clogged {
            listener.flows_from_us = now_us;
        }
        listener.is_clogged = !flows;
    }

    /// Records that the server is done with a connection. Bytes that it read but has not served are left to
    /// some worker.
    pub(crate) fn done(&mut self, connection: usize, now_us: u64) {
        self.connections[connection].done_us = Some(now_us);
    }

    /// Returns the latest time at which a request without a response took effect, if it did. Returns `None`
    /// if it may still take effect.
    fn last_effect_ms(&self, request: usize) -> Option<u64> {
        let lane = &self.lanes[self.requests[request].lane];
        let mut done_us = 0;
        for connection in &lane.connections {
            done_us = done_us.max(self.connections[*connection].done_us?);
        }
        Some(self.settings.server_ms(self.stalls.latest_us(done_us)))
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

    /// Records that some worker stands still for `for_us` from now on.
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
