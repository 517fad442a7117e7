//! Who judges a run.

mod answers;
mod buckets;
mod ceilings;
mod changes;
mod chatter;
mod contention;
mod counted;
mod crowd;
#[cfg(test)]
mod durable_tests;
mod duties;
mod entries;
mod events;
mod farewells;
mod grants;
mod guards;
mod heard;
mod holds;
mod inlets;
mod keeping;
mod keys;
mod last_words;
mod late_grants;
mod lease_words;
mod namespaces;
mod numbers;
mod operators;
mod pool_pages;
mod pools;
mod refusals;
mod request_ids;
mod restarts;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod scene;
mod sessions;
mod several;
mod stalls;
mod stopping;
mod sure;
mod table_limits;
mod tokens;
mod uncalled;
mod views;
mod visits;
mod walks;
mod watchers;
mod watches;
mod welcomes;

use crate::operation::{EntryListing, Key, Listing, Operation, Registering};
use crate::workload::Settings;
use buckets::Buckets;
use chatter::Chatter;
use counted::{Counted, CountedBefore};
use crowd::Crowds;
use duties::{Duties, Duty, Word};
use entries::Entries;
pub(crate) use guards::GuardView;
use guards::Guards;
use heard::Heard;
use holds::{Hold, Tampering};
use keys::KeyHistory;
use namespaces::Namespaces;
use operators::OperatorRecords;
use pool_pages::PoolWalk;
use pools::PoolRecords;
pub(crate) use restarts::Ending;
use restarts::Restarts;
use sessions::Session;
use stalls::Stalls;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use sure::SureHolds;
use uncalled::Uncalled;
use visits::Visits;
pub(crate) use visits::{Place, ToldFences};
use walks::Walk;
pub(crate) use watchers::WatchedState;
use watches::Watches;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{LockId, Response, SessionId, next_frame};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub rule: &'static str,
    /// How.
    pub text: String,
}

/// Judges every word of the server against what it promises, from the outside alone.
///
/// It hears what clients ask and when that arrives at the server (`asks`, `arrived`), when the server reads (`read`), what it
/// says, lost or not (`said`), and what clients believe (`believes`). It knows nothing of shards, queues, wheels or workers; only the
/// published rules, each under a name:
///
/// ```text
/// guard         while a guard of a real client says that it holds, the server holds it for that guard alone (guards)
/// one-owner     no two guards of one process believe in one hold
/// last-word     no guard believes longer than the newest word that its process has read allows; loss-reason: a loss has the reason
///               that was read, and its callback is called once; forgotten: a hold that its guard left is not released (heard)
/// window        a lane has no more unanswered requests than it may; chatter: it sends no more than its holds and callers explain
/// caller        a caller has no error that nothing explains; late-caller: it has its answer in time (`real_client::caller`)
/// needless-loss no guard is lost at its local deadline without a fault, or believes shorter than an answer allows; unowned: no hold is
///               left without a guard; renewal: a lane renews its leases in time (keeping)
/// uncalled      a real client cancels an acquire whose caller has left (uncalled); silence: it gives up a connection whose server is
///               silent (`real_client::silence`)
/// told          callers and guards are told what the server said (heard)
/// watcher       a watch shows the newest state that its process has read, and lasts until it is dropped (watchers)
/// exclusion     two clients that by the documented arithmetic may believe in conflicting holds never do so at once
/// early-grant   the next conflicting grant comes after the last acknowledged lease, a release, or another known end
/// lost-lease    a renewal that arrived before the end of the lease finds the hold, however long the server stalled
/// lost-session  the same for sessions and any bytes; drained: no instant counts as read while a connection is on its way with bytes from before,
///               nor while a worker has unserved requests from before that a sweep waits for
/// turns         connections that gave way go on in the order in which they did, and none while leases are due
/// last-words    a client that sends no more still gets the answers that the server has (last_words)
/// fence-*       unique, in the order of grants and of real time, without gaps
/// ticket-order  equal priorities are served as they arrived; priority-bound: no boost above the limit
/// old-id        what is over is never acted upon, and neither is what was forged
/// repeat        a repeated number gets its first answer; request-id: a repeated id finds its claim
/// answers       one answer for each request, of the right kind, and only for what was asked
/// stamp         what was decided was decided after it was asked and before it was said
/// cancelled     who was told that its wait is over is not granted, and nobody is told so without a reason
/// early-timeout a wait does not end before its time
/// overtaking    nobody who asks later than another waits is served before it, but for its priority
/// overdue       but for the time in which workers do not run, nothing is held long after its latest end (ceilings)
/// late-answer   each request that arrives is answered in time, a wait at its end (duties)
/// late-expiry   a hold that ends with its lease does so in time, and its lane hears it
/// late-session  a session whose clients are silent ends in time, and each of its connections hears it
/// late-grant    a claim that waits is granted once nobody is in its way (late_grants)
/// event         REVOKED, LEASE_MOVED, TAKEN_UP, QUEUED, KEY_HELD and SESSION_EXPIRED are said to whoever must hear them, and not
///               before the grant of the hold that they are about; each connection hears once that a hold is over, through front ends too (inlets)
/// welcome       nothing comes before the welcome of a connection (farewells), which announces the limits of the server and the session that
///               was asked for (welcomes)
/// farewell      what a session has is over when its goodbye is answered, and nothing is granted to it later; the connection hears
///               nothing behind that answer, and nothing that was sent behind the goodbye is served (farewells)
/// count, number counts, positions, ages and remaining times lie in the intervals that are known (numbers)
/// tokens        the numbers of the limiter agree with each other and with those before (tokens)
/// limit         nothing is let in beyond a limit, and nothing is refused for one that it does not reach (table_limits); requests that
///               are answered count against no limit of their connection (`node::listeners`)
/// steps         no turn asks for more follow-up work than it may do; armed: a worker comes by for what ends in each shard,
///               and some worker is awake when it is due
/// view          what INSPECT, STATUS, LIST, HOLDS, VERIFY, LOOK_UP, DESCRIBE_POOL and NAMESPACES show agrees with what was said
/// page          what is held all the while stands in exactly one of the pages of LIST, HOLDS and LIST_ENTRIES (walks);
///               a pool whose capacity was set is in exactly one of the pages of LIST_POOLS (pool_pages)
/// busy          a try is refused only where somebody may have been in its way (contention)
/// all-or-none   of several keys all are granted, or none (several)
/// capacity      the permits that are held are never more than there are (pools)
/// rate          no bucket gives more than its rule allows, and refuses only what it may lack (buckets)
/// listener      a stream of a front end hears that its hold is over and that its lane is closed, and no hold is left of which no stream
///               has heard (`node::listeners`)
/// watch         who watches hears of each grant, in order, and that a key is free only when it is (watches)
/// frozen        nothing is granted where an operator froze (operators)
/// stopping      a server that stops grants nothing, and nobody waits for it (stopping)
/// losses        where records were lost, nothing is granted before the longest lease of what may be lost has expired (restarts)
/// fence-counted a fence of scope Quorum is one that the cluster counted, above all of its key, whatever became of the server
/// durable       a response that says that something is durable comes behind the sync of its record (restarts)
/// session-gone  no grant follows the news on its connection that the session is over (answers)
/// visit         fences rise though their namespace is removed, and no namespace is removed that is in use (visits)
/// start, log    a server starts on whatever its disk has and restores all of it, and its log takes what it is given (restarts,
///               `node::contents`)
/// ```
///
/// What it does not know it gives the benefit of the doubt: an answer that was never heard may have been any. For each
/// hold it keeps the **floor**, the earliest instant at which the server may have ended it. Every rule about time compares
/// with that.
#[derive(Debug)]
pub(crate) struct Auditor {
    settings: Settings,
    connections: Vec<Listener>,
    lanes: Vec<LaneRecord>,
    requests: Vec<Asked>,
    sessions: BTreeMap<SessionId, Session>,
    holds: BTreeMap<LockId, Hold>,
    /// Claims that are known to wait, and their acquires.
    waiters: BTreeMap<LockId, usize>,
    /// Claims whose end the server reported before their grant, and when: it kept the grant for a repetition.
    ended_unheard: BTreeMap<LockId, u64>,
    /// What was asked of ids before it was known that they are held.
    tampered: BTreeMap<LockId, Tampering>,
    crowds: Crowds,
    keys: BTreeMap<Key, KeyHistory>,
    sure: SureHolds,
    guards: Guards,
    heard: Heard,
    chatter: Chatter,
    uncalled: Uncalled,
    pools: PoolRecords,
    buckets: Buckets,
    entries: Entries,
    operators: OperatorRecords,
    namespaces: Namespaces,
    watches: Watches,
    duties: Duties,
    /// When leases were moved for this long, the last time by hold and lease.
    moved: BTreeMap<(LockId, u32), u64>,
    /// Of what is held in a namespace, by client and number.
    walks: BTreeMap<(usize, u32), Walk>,
    /// Of the pools of a namespace, by client and number.
    pool_walks: BTreeMap<(usize, u32), PoolWalk>,
    /// Sessions that were said to be over, and when they might have ended at the earliest.
    ended_sessions: VecDeque<(SessionId, u64)>,
    stalls: Stalls,
    restarts: Restarts,
    counted: Counted,
    visits: Visits,
    /// The server was told then to stop.
    stopping_ms: Option<u64>,
    /// Somebody else judges.
    is_silent: bool,
    /// Responses that were decoded since the trace last took them, if there is a trace to read.
    spoken: Option<Vec<String>>,
    violation: Option<Violation>,
    grant_count: u64,
}

/// One connection as the auditor hears it.
#[derive(Debug, Default)]
struct Listener {
    lane: usize,
    /// It is one of a front end, whose streams take events and responses in their own time, or not at all.
    is_front: bool,
    /// Its requests are judged by themselves (visits).
    is_visitor: bool,
    /// Requests of a visitor that are owed an answer once their last byte arrives, by its place in the stream.
    unarrived_visits: VecDeque<(u64, u32)>,
    /// The beginning of a frame, and the place of that in the stream.
    said: Vec<u8>,
    said_from: u64,
    answered: BTreeSet<u32>,
    /// The watches that were asked for on it.
    asked_watches: BTreeSet<u32>,
    /// Requests whose last byte has not arrived at the server, by its place in the stream.
    unarrived: VecDeque<(u64, usize)>,
    /// Its session is settled since then.
    welcome_ms: Option<u64>,
    /// It heard that its session is over.
    is_session_gone: bool,
    /// When the server decided that, by its clock.
    welcomed_ms: Option<u64>,
    /// Events that it heard and must hear.
    heard: BTreeSet<Word>,
    /// Holds of whose changes it heard.
    heard_of: BTreeSet<LockId>,
    /// When the newest lease was decided that it heard of, by hold.
    moved_ms: BTreeMap<LockId, u64>,
    /// The server has bytes for it that it does not take.
    is_clogged: bool,
    /// It took the last of such bytes then.
    flows_from_us: u64,
    is_lost: bool,
    /// The request behind which its client sent no more.
    last_words: Option<u32>,
    /// Requests that were sent behind a goodbye; `None` before one.
    behind_goodbye: Option<BTreeSet<u32>>,
    /// Its client has said hello, and has no welcome yet.
    is_greeting: bool,
    /// Its goodbye was answered.
    has_farewell: bool,
    /// Acquires of which a front end tells its client what happens to their holds.
    followed: BTreeSet<u32>,
    /// Requests that the client does not listen to any more.
    reset: BTreeSet<u32>,
    /// Holds of whose ends it heard.
    told_over: BTreeSet<LockId>,
    /// The server was done with it then.
    done_us: Option<u64>,
}

/// One lane of a client, over all its connections.
#[derive(Debug, Default)]
struct LaneRecord {
    /// Of the same owner.
    client: usize,
    process: usize,
    session: Option<SessionId>,
    connections: Vec<usize>,
    asked: BTreeMap<u32, usize>,
    losses: Vec<Loss>,
    /// Holds that it was granted.
    granted: BTreeSet<LockId>,
    holds_walk: Walk,
}

/// A connection of a lane was lost.
#[derive(Debug)]
struct Loss {
    connection: usize,
    at_ms: u64,
    /// When the session had the lane back.
    back_ms: Option<u64>,
}

/// One request.
#[derive(Debug)]
struct Asked {
    lane: usize,
    /// It was last sent on this connection.
    connection: usize,
    number: u32,
    operation: Operation,
    first_sent_ms: u64,
    sent_ms: u64,
    /// When it had last arrived whole.
    arrived_ms: Option<u64>,
    /// The newest fence that was said of its key when it was first sent.
    fence_before: u64,
    /// The same of all keys of an acquire.
    fences_before: Vec<(Key, u64)>,
    /// Of what a cluster counts.
    counted_before: Vec<CountedBefore>,
    /// Times that it was sent.
    sent_count: u32,
    /// Whether it was sent, or sent again, without a wait.
    is_try: bool,
    /// Somebody gave a reason why its wait may be over.
    may_be_cancelled: bool,
    /// Its cancellation was acknowledged.
    is_cancelled: bool,
    /// The reset of its stream.
    reset_by: Option<usize>,
    /// It was granted.
    is_granted: bool,
    /// The answer that a repetition must get.
    kept: Option<Vec<u8>>,
    is_answered: bool,
    /// When its grant was decided.
    granted_ms: Option<u64>,
    /// When it last had an answer.
    answered_ms: Option<u64>,
    /// It waited to the end of its wait.
    is_timed_out: bool,
    /// It was refused then.
    refused_ms: Option<u64>,
    /// Told by `QUEUED`: the id, the ticket, and when it was said.
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
            sure: SureHolds::default(),
            guards: Guards::default(),
            heard: Heard::default(),
            chatter: Chatter::default(),
            uncalled: Uncalled::default(),
            pools: PoolRecords::default(),
            buckets: Buckets::default(),
            entries: Entries::default(),
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
            counted: Counted::default(),
            visits: Visits::default(),
            stopping_ms: None,
            is_silent: false,
            spoken: None,
            violation: None,
            grant_count: 0,
        }
    }

    /// A promise was broken. The first one is what counts.
    pub(crate) fn accuse(&mut self, rule: &'static str, text: impl FnOnce() -> String) {
        if self.violation.is_none() && !self.is_silent {
            self.violation = Some(Violation { rule, text: text() });
        }
    }

    /// Says nothing from here on, so that a run goes on whatever happens.
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

    /// A client that shares its owner with no other has another lane.
    #[cfg(test)]
    pub(crate) fn new_lane(&mut self, client: usize) -> usize {
        self.new_lane_of(client, client)
    }

    /// Adds a lane of a process. The auditor counts all processes of one owner as one client, and each knows only its own requests.
    pub(crate) fn new_lane_of(&mut self, client: usize, process: usize) -> usize {
        self.lanes.push(LaneRecord { client, process, ..LaneRecord::default() });
        self.lanes.len() - 1
    }

    /// A connection is opened for a lane. Connections are numbered in the order in which they are opened.
    pub(crate) fn open(&mut self, lane: usize, is_front: bool) {
        self.lanes[lane].connections.push(self.connections.len());
        self.connections.push(Listener { lane, is_front, ..Listener::default() });
    }

    /// Opens a connection for a visitor. Its responses are judged one by one (visits).
    pub(crate) fn open_to_visitor(&mut self, client: usize) {
        let lane = self.new_lane_of(client, client);
        self.open(lane, false);
        self.connections.last_mut().into_iter().for_each(|listener| listener.is_visitor = true);
    }

    /// A client sends a request, whose last byte is at that place in the stream. The same number again is a repetition.
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
                // The server does nothing if a request that it has answered comes again.
                if self.requests[request].kept.is_none() {
                    self.note_if_freeze(request, &operation, now_ms);
                }
                self.requests[request].arrived_ms = None;
                if let Operation::Acquire(acquire) = operation {
                    self.note_in_crowd(request, &acquire);
                }
                // It may wait anew, under another id.
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
        if let Operation::Take(taking) = operation {
            self.note_taking_sent(request, &taking);
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
            | Operation::Register(Registering { key, .. }) => self.newest_fence(key),
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
        self.requests.push(Asked {
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
            Operation::Take(taking) => self.note_taking(request, &taking, now_ms),
            Operation::Register(registering) => self.note_registering(lane, &registering, now_ms),
            Operation::Unregister { key } => self.note_unregistering(request, key, now_ms),
            Operation::Freeze { .. } => self.note_if_freeze(request, &operation, now_ms),
            Operation::ForceRelease { id } => self.note_forced(id, now_ms),
            Operation::Holds { cursor: 0 } => self.lanes[lane].holds_walk = Walk::new(now_ms),
            Operation::List(Listing { cursor: 0, walk, .. })
            | Operation::ListEntries(EntryListing { cursor: 0, walk, .. }) => {
                self.walks.insert((self.lanes[lane].client, walk), Walk::new(now_ms));
            }
            Operation::ListPools(Listing { cursor: 0, walk, .. }) => {
                self.pool_walks.insert((self.lanes[lane].client, walk), PoolWalk::new(now_ms));
            }
            _ => {}
        }
        request
    }

    /// The newest fence of a key that was said.
    pub(crate) fn newest_fence(&self, key: Key) -> u64 {
        let granted = self.keys.get(&key).map_or(0, KeyHistory::newest_said);
        granted.max(self.newest_entry_fence(key))
    }

    /// So many bytes of a connection have arrived at the server.
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

    /// The connection is broken or closed: from here on the server may know.
    pub(crate) fn lost(&mut self, connection: usize, now_ms: u64) {
        if std::mem::replace(&mut self.connections[connection].is_lost, true) {
            return;
        }
        let lane = self.connections[connection].lane;
        self.lanes[lane].losses.push(Loss { connection, at_ms: now_ms, back_ms: None });
        self.note_left(lane, now_ms);
        self.limit_belief_in_lane(lane);
    }

    /// The server says something to a connection, whether or not that arrives.
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
                    self.accuse("answers", || format!("the stream to connection {connection}: {error}"));
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
                        Err(error) => self.accuse("answers", || format!("connection {connection}: {error}")),
                    }
                }
            }
        }
        said.drain(..offset);
        self.connections[connection].said = said;
        self.connections[connection].said_from += offset as u64;
    }

    /// The server could write all that it had for a connection, or not.
    pub(crate) fn note_flow(&mut self, connection: usize, flows: bool, now_us: u64) {
        let listener = &mut self.connections[connection];
        if flows && listener.is_clogged {
            listener.flows_from_us = now_us;
        }
        listener.is_clogged = !flows;
    }

    /// The server is done with a connection: what was read of it and has no effect yet is left to some worker.
    pub(crate) fn done(&mut self, connection: usize, now_us: u64) {
        self.connections[connection].done_us = Some(now_us);
    }

    /// The latest time at which a request without an answer had its effect, if it had one; none where it may have it still.
    fn last_effect_ms(&self, request: usize) -> Option<u64> {
        let lane = &self.lanes[self.requests[request].lane];
        let mut done_us = 0;
        for connection in &lane.connections {
            done_us = done_us.max(self.connections[*connection].done_us?);
        }
        Some(self.settings.server_ms(self.stalls.latest_us(done_us)))
    }

    /// The same in microseconds of the run.
    pub(crate) fn latest_us(&self, from_us: u64) -> u64 {
        self.stalls.latest_us(from_us)
    }

    /// When the workers have surely done what was left to do at that time.
    fn latest_ms(&self, from_ms: u64) -> u64 {
        let from_us = (from_ms + 1).saturating_sub(self.settings.start_ms) * 1000;
        self.settings.server_ms(self.stalls.latest_us(from_us))
    }

    fn key(&mut self, key: Key) -> &mut KeyHistory {
        self.keys.entry(key).or_default()
    }

    /// A client believes in a hold until then; the auditor cuts that short where the client could not know better.
    pub(crate) fn believes(&mut self, id: LockId, until_us: u64, now_us: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        let limit_ms = self.outer_floor_ms(hold);
        let limit_us = limit_ms.saturating_sub(self.settings.start_ms).saturating_mul(1000);
        let until_us = until_us.min(limit_us);
        let until_us = if hold.others_may_end { 0 } else { until_us };
        if let Some(other) = self.sure.believe(hold.key, id, (hold.form, hold.shared), until_us, now_us) {
            let key = hold.key;
            self.accuse("exclusion", || {
                format!("key {key}: holds {id} and {other} conflict, and both are believed at {now_us} us")
            });
        }
    }

    /// A client believes in a hold no more.
    pub(crate) fn doubts(&mut self, id: LockId) {
        self.sure.doubt(id);
    }

    /// Some worker does not run from now on for so long.
    pub(crate) fn note_stall(&mut self, now_us: u64, for_us: u64) {
        self.stalls.note(now_us, for_us);
    }

    /// Judges what can be judged only when all is over: no more fences are missing than grants may be unheard.
    pub(crate) fn finish(&mut self) {
        if self.settings.is_forgetful || self.restarts.has_lost_records() {
            return;
        }
        let mut unheard: BTreeMap<Key, u64> = BTreeMap::new();
        for request in &self.requests {
            if let Operation::Acquire(acquire) = request.operation {
                // Sent several times, it may also have been granted several times, each time after its lane was lost.
                // One that must be durable first may be given up in between, and its fence is spent.
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
        // A key that is new begins above the fences of namespaces that were removed.
        let skipped = self.visits.highest();
        let wrong = counted.find(|(_, missing, unheard)| *missing > unheard + skipped);
        if let Some((key, missing, unheard)) = wrong {
            self.accuse("fence-step", || {
                format!("key {key}: {missing} fences were given to nobody, {unheard} grants are unheard")
            });
        }
    }
}
