//! What an earlier server left in its log becomes part of a node again, before any worker runs.

use super::port::{LogBatch, LogPort};
use crate::declared::DeclarationError;
use crate::limits::LOG_GROUP_LEN_MAX;
use crate::namespaces::NamespaceChange;
use crate::node::Node;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_engine::log::{Hold, Image, Item, Record, SessionTag};
use waymaker_engine::multi_key::key_set_number;
use waymaker_engine::{
    Answer, ClaimId, Effects, Event, Grant, KeyGrant, LaneAddress, LogState, Refusal, Shard, Ticket, Time,
    WhenDurable,
};
use waymaker_protocol::{NamespaceKind, Readable, SessionId};

/// What was restored and does not lie in the shards.
#[derive(Debug, Default)]
pub struct Restored {
    /// The shards of claims that lie in another one than their ids say: there are more shards, or fewer, than when they
    /// were granted.
    pub claims: BTreeMap<ClaimId, u16>,
    /// Sessions for each worker, which takes its own when it is made.
    pub(crate) sessions: Vec<Mutex<Vec<RestoredSession>>>,
    /// The time at which the answers of their lanes are true.
    pub(crate) stamp: Time,
}

/// A session of which some hold was restored.
#[derive(Debug)]
pub(crate) struct RestoredSession {
    pub(crate) id: SessionId,
    pub(crate) lease_ms: u32,
    /// The identity of its client, if the log knows it.
    pub(crate) identity: Option<Arc<str>>,
    /// By their numbers; of some nothing is known but that there was one.
    pub(crate) lanes: BTreeMap<u16, Option<RestoredLane>>,
}

/// One lane of such a session.
#[derive(Debug)]
pub(crate) struct RestoredLane {
    pub(crate) namespace: u16,
    pub(crate) kind: NamespaceKind,
    pub(crate) namespace_shard: u16,
    /// Shards in which it has holds.
    pub(crate) known_to: Vec<u16>,
    /// Answers that it may not have got.
    pub(crate) answers: BTreeMap<u32, Answer>,
}

/// How much was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoredCounts {
    /// Holds.
    pub holds: usize,
    /// Counters of keys.
    pub counters: usize,
}

/// Why an image cannot become part of a node.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A namespace has a kind that this server does not know.
    #[error("log: namespace {0} has a kind unknown to this server; use a newer server")]
    UnknownKind(u16),
    /// The configuration contradicts the log.
    #[error(transparent)]
    Declaration(#[from] DeclarationError),
    /// A hold is in the way of another one.
    #[error("log: the hold with fence {fence} of key \"{key}\" cannot be restored: {refusal:?}")]
    Hold {
        /// Its fence.
        fence: u64,
        /// Its key.
        key: String,
        /// Why not.
        refusal: Refusal,
    },
}

fn known_kind(namespace: u16, kind: u8) -> Result<NamespaceKind, RestoreError> {
    NamespaceKind::ALL.get(usize::from(kind)).copied().ok_or(RestoreError::UnknownKind(namespace))
}

impl Node {
    /// Fails if a namespace has a kind that this server does not know, or another one than the configuration declares.
    pub(super) fn check_kinds(&self, image: &Image) -> Result<(), RestoreError> {
        image.namespaces().try_for_each(|(number, kind, name)| {
            let kind = known_kind(number, kind)?;
            let mut declared = self.declared.iter().filter(|declared| declared.name.as_bytes() == name);
            Ok(declared.try_for_each(|declared| declared.check_kind(kind))?)
        })
    }

    /// Makes what is in an image part of this node, which has not served anybody yet.
    ///
    /// # Errors
    /// If the image contradicts itself.
    pub fn restore(&mut self, image: &Image, now: Time) -> Result<RestoredCounts, RestoreError> {
        let mut restoring = Restoring::new(self, image, now)?;
        restoring.counters(image);
        restoring.holds(image)?;
        let Restoring { effects, sessions, claims, .. } = restoring;
        self.restored = Restored { claims, sessions: self.group_by_worker(sessions), stamp: now };
        if let Some(log) = &self.log
            && !effects.batch.is_empty()
        {
            log.post(effects.batch);
        }
        Ok(RestoredCounts { holds: image.hold_count(), counters: image.counter_count() })
    }

    /// Records all that only a clean stop carries over. No worker runs any more.
    pub fn record_ephemeral(&self) {
        let Some(log) = &self.log else { return };
        for hosted in &self.shards {
            let mut turn = hosted.enter().expect("all workers have ended");
            let mut effects = Recorder { log: Some(log), batch: LogBatch::default() };
            turn.shard.record_ephemeral(&mut effects);
            log.post(effects.batch);
            let left = turn.leave();
            assert!(left.is_none(), "no worker leaves a batch after its end");
        }
        self.record(&Record::Stopped);
    }

    /// Hands out records that make everything in the log from nothing, ephemeral holds too, behind the start of a server. No worker runs
    /// any more.
    ///
    /// # Panics
    /// If a worker still runs.
    pub fn write_contents(&self, put: &mut dyn FnMut(&Record<'_>)) {
        let namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, name, kind) in namespaces.by_number(0) {
            put(&Record::Namespace { number, kind: kind.number(), name });
        }
        for hosted in &self.shards {
            let turn = hosted.enter().expect("all workers have ended");
            turn.shard.write_contents(put);
            let left = turn.leave();
            assert!(left.is_none(), "no worker leaves a batch after its end");
        }
        let freezes = self.freezes.lock().unwrap_or_else(PoisonError::into_inner);
        for (namespace, prefix) in freezes.all() {
            put(&Record::Frozen { namespace, frozen: true, prefix });
        }
    }

    /// Records that a namespace came or went. The caller has the lock of the namespaces, so changes are recorded in their order.
    pub(crate) fn record_namespace(&self, change: NamespaceChange<'_>) {
        self.record(&match change {
            NamespaceChange::Made { number, kind, name } => {
                Record::Namespace { number, kind: kind.number(), name }
            }
            NamespaceChange::Removed(number) => Record::NamespaceRemoved { number },
        });
    }

    /// Records what is no matter of one shard.
    pub(crate) fn record(&self, record: &Record<'_>) {
        if let Some(log) = &self.log {
            let mut batch = LogBatch::default();
            batch.add(record);
            log.post(batch);
        }
    }

    fn group_by_worker(&self, sessions: BTreeMap<SessionId, Session>) -> Vec<Mutex<Vec<RestoredSession>>> {
        let mut by_worker: Vec<Vec<RestoredSession>> = (0..self.worker_count()).map(|_| Vec::new()).collect();
        for (id, Session { worker, lease_ms, identity, lanes, .. }) in sessions {
            by_worker[usize::from(worker)].push(RestoredSession { id, lease_ms, identity, lanes });
        }
        by_worker.into_iter().map(Mutex::new).collect()
    }
}

impl Restored {
    /// The sessions of this worker, once.
    pub(crate) fn take_sessions(&self, worker: u16) -> Vec<RestoredSession> {
        let sessions = self.sessions.get(usize::from(worker));
        sessions
            .map(|own| std::mem::take(&mut *own.lock().unwrap_or_else(PoisonError::into_inner)))
            .unwrap_or_default()
    }
}

/// A session while its holds are gathered.
struct Session {
    worker: u16,
    /// The slot of its first lane; the others follow.
    first_slot: u32,
    lease_ms: u32,
    /// The identity of its client, if a hold has it.
    identity: Option<Arc<str>>,
    lanes: BTreeMap<u16, Option<RestoredLane>>,
}

impl Session {
    fn slot_of(&self, lane: u16) -> u32 {
        self.first_slot + self.lanes.range(..lane).count() as u32
    }
}

struct Restoring<'a> {
    node: &'a Node,
    now: Time,
    /// Kind of each namespace, and the shard of its name.
    namespaces: BTreeMap<u16, (NamespaceKind, u16)>,
    sessions: BTreeMap<SessionId, Session>,
    claims: BTreeMap<ClaimId, u16>,
    /// The sets of keys of claims over several keys, as the log has them, by the session, lane and number of each claim.
    key_sets: BTreeMap<(SessionId, u16, u32), u64>,
    effects: Recorder<'static>,
}

impl<'a> Restoring<'a> {
    fn new(node: &'a Node, image: &Image, now: Time) -> Result<Self, RestoreError> {
        let mut namespaces = BTreeMap::new();
        for (number, kind, name) in image.namespaces() {
            let kind = known_kind(number, kind)?;
            let mut known = node.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            let renamed = known.restore(number, name, kind);
            if let Some(renamed) = &renamed {
                let (old, new) = (Readable(name), Readable(renamed));
                let kind_name = kind.name();
                tracing::warn!(
                    "the name of the namespace {old} (kind {kind_name}) in the log is now reserved for a front end; the namespace is renamed to {new}"
                );
                node.record_namespace(NamespaceChange::Made { number, kind, name: renamed });
            }
            namespaces.insert(number, (kind, node.shard_of_key(renamed.as_deref().unwrap_or(name))));
        }
        // The terms of a namespace apply to the holds that are restored in it.
        node.open_declared()?;
        let mut restoring = Self {
            node,
            now,
            namespaces,
            sessions: BTreeMap::new(),
            claims: BTreeMap::new(),
            key_sets: BTreeMap::new(),
            effects: Recorder::default(),
        };
        restoring.place_sessions(image);
        Ok(restoring)
    }

    /// Gives every session its worker, and its lanes their slots there: those that the worker will give them.
    fn place_sessions(&mut self, image: &Image) {
        for hold in image.holds() {
            let Some(SessionTag { place, secret, lease_ms, lane }) = hold.session else { continue };
            let worker = (place >> 48) as u16 % self.node.worker_count() as u16;
            let new = || Session { worker, first_slot: 0, lease_ms, identity: None, lanes: BTreeMap::new() };
            let session = self.sessions.entry(SessionId { place, secret }).or_insert_with(new);
            session.lanes.insert(lane, None);
            if session.identity.is_none() {
                session.identity = hold.identity.map(Arc::from);
            }
        }
        let mut next_slots = vec![0; self.node.worker_count()];
        for session in self.sessions.values_mut() {
            let next = &mut next_slots[usize::from(session.worker)];
            session.first_slot = *next;
            *next += session.lanes.len() as u32;
        }
    }

    fn in_shard<R>(&mut self, shard: u16, act: impl FnOnce(&mut Shard, &mut Recorder<'static>) -> R) -> R {
        let mut turn = self.node.shards[usize::from(shard)].enter().expect("no worker has started");
        turn.shard.set_log_state(LogState::Ready, 0);
        let result = act(&mut turn.shard, &mut self.effects);
        let left = turn.leave();
        assert!(left.is_none(), "no worker leaves a batch before its start");
        result
    }

    fn shard_of(&self, namespace: u16, key: &[u8]) -> u16 {
        match self.namespaces.get(&namespace) {
            Some((NamespaceKind::Tree, shard)) => *shard,
            _ => self.node.shard_of_key(key),
        }
    }

    fn counters(&mut self, image: &Image) {
        for shard in 0..self.node.shards.len() as u16 {
            self.in_shard(shard, |shard, _| shard.restore_floor(image.floor()));
        }
        for counter in image.counters() {
            let shard = self.shard_of(counter.namespace, counter.key);
            self.in_shard(shard, |shard, _| shard.restore_counter(&counter));
        }
        for (namespace, name, capacity, by_timestamp) in image.pools() {
            let shard = self.shard_of(namespace, name);
            self.in_shard(shard, |shard, _| shard.restore_pool(namespace, name, capacity, by_timestamp));
        }
        let mut freezes = self.node.freezes.lock().unwrap_or_else(PoisonError::into_inner);
        for (namespace, prefix) in image.frozen() {
            // There are no more of them than there could be.
            let _ = freezes.change(namespace, prefix, true);
        }
        let freezes = freezes.clone();
        for shard in 0..self.node.shards.len() as u16 {
            self.in_shard(shard, |shard, _| shard.set_freezes(&freezes));
        }
    }

    fn holds(&mut self, image: &Image) -> Result<(), RestoreError> {
        let mut holds: Vec<Hold<'_>> = image.holds().collect();
        // The newest holder of a key comes last.
        holds.sort_unstable_by_key(|hold| (hold.fence, hold.id));
        for hold in holds {
            let key = hold.item.counter_name();
            let shard = self.shard_of(hold.namespace, key);
            let lane = self.lane_of(&hold, shard);
            let restored = self.in_shard(shard, |shard, effects| shard.restore_hold(&hold, lane, effects));
            restored.map_err(|refusal| {
                let key = Readable(key).to_string();
                RestoreError::Hold { fence: hold.fence, key, refusal }
            })?;
            if ClaimId::shard_of(hold.id.place) != shard {
                self.claims.insert(hold.id, shard);
            }
            self.keep_answer(&hold, key);
        }
        self.drop_partial_answers();
        Ok(())
    }

    /// The lane of a hold in its session, if that was restored.
    fn lane_of(&mut self, hold: &Hold<'_>, shard: u16) -> Option<LaneAddress> {
        let tag = hold.session?;
        let (kind, namespace_shard) = *self.namespaces.get(&hold.namespace)?;
        let session = self.sessions.get_mut(&SessionId { place: tag.place, secret: tag.secret })?;
        let slot = session.slot_of(tag.lane);
        let lane = session.lanes.entry(tag.lane).or_default().get_or_insert_with(|| RestoredLane {
            namespace: hold.namespace,
            kind,
            namespace_shard,
            known_to: Vec::new(),
            answers: BTreeMap::new(),
        });
        if !lane.known_to.contains(&shard) {
            lane.known_to.push(shard);
        }
        // The first generation that a lane of a worker has.
        Some(LaneAddress { worker: session.worker, slot, generation: 1 })
    }

    /// Its client may not have got the answer, and ask again under the same number.
    fn keep_answer(&mut self, hold: &Hold<'_>, key: &[u8]) {
        let lane = hold.session.and_then(|tag| {
            let session = self.sessions.get_mut(&SessionId { place: tag.place, secret: tag.secret })?;
            session.lanes.get_mut(&tag.lane)?.as_mut()
        });
        let (Some(lane), false) = (lane, matches!(hold.item, Item::Registration { .. })) else { return };
        if hold.number == 0 {
            // Memory had forgotten the number of its request.
            return;
        }
        // The image gives every hold a deadline.
        let deadline = hold.deadline_ms.filter(|_| !hold.endless).map(Time::from_millis);
        let grant = Grant {
            id: hold.id,
            fence: hold.fence,
            remaining_ms: deadline.map_or(u32::MAX, |deadline| deadline.remaining_ms_since(self.now)),
            clamped: hold.clamped,
            waited: hold.waited,
            repeated: hold.repeated,
            session_lease: hold.session_lease,
        };
        let (Some(tag), Some(key_set), Item::Key(_)) = (hold.session, hold.set_hash, &hold.item) else {
            lane.answers.insert(hold.number, Answer::Granted(grant));
            return;
        };
        let session = SessionId { place: tag.place, secret: tag.secret };
        self.key_sets.insert((session, tag.lane, hold.number), key_set);
        let key_grant = KeyGrant { grant, shared: hold.shared, key: key.into() };
        let answer = lane.answers.entry(hold.number).or_insert_with(|| Answer::GrantedMultiKey(Box::new([])));
        if let Answer::GrantedMultiKey(grants) = answer {
            let mut all = std::mem::take(grants).into_vec();
            all.push(key_grant);
            all.sort_unstable_by(|one, other| one.key.cmp(&other.key));
            *grants = all.into();
        }
    }

    /// Drops the answers to requests for several keys of which some holds are over. Asked again, such a request is a new one.
    fn drop_partial_answers(&mut self) {
        for ((session, lane, number), key_set) in std::mem::take(&mut self.key_sets) {
            let lane =
                self.sessions.get_mut(&session).and_then(|session| session.lanes.get_mut(&lane)?.as_mut());
            if let Some(lane) = lane
                && let Some(Answer::GrantedMultiKey(grants)) = lane.answers.get(&number)
                && key_set_number(grants.iter().map(|key_grant| &*key_grant.key)) != key_set
            {
                lane.answers.remove(&number);
            }
        }
    }
}

/// Keeps what restoring, or stopping, records. Nobody is there to be told anything.
#[derive(Debug, Default)]
struct Recorder<'a> {
    /// Where to leave what becomes much.
    log: Option<&'a LogPort>,
    batch: LogBatch,
}

impl Effects for Recorder<'_> {
    fn answer(&mut self, _: Ticket, _: Answer) {}

    fn event(&mut self, _: LaneAddress, _: Event) {}

    fn record(&mut self, shard: u16, number: u64, record: &Record<'_>) {
        self.batch.push(shard, number, record);
        if let Some(log) = self.log
            && self.batch.records.len() > LOG_GROUP_LEN_MAX / 2
        {
            log.post(std::mem::take(&mut self.batch));
        }
    }

    fn when_durable(&mut self, _: WhenDurable) {}
}
