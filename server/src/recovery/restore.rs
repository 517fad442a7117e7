//! Restores the state of an earlier server from its log into a node, before any worker runs.

use super::declared::{DeclarationError, check_kind, open_declared};
use crate::namespaces::NamespaceChange;
use crate::node::{Node, Recorder, Restored, RestoredLane, RestoredSession};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use waymaker_engine::multi_key::key_set_hash;
use waymaker_engine::{
    Answer, ClaimId, Grant, KeyGrant, LaneAddress, LaneSlot, LogState, Refusal, Shard, Time,
};
use waymaker_log::{Hold, Image, Item, SessionTag};
use waymaker_protocol::{NamespaceKind, Readable, SessionId};

/// Counts of restored items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoredCounts {
    /// Number of holds.
    pub holds: usize,
    /// Number of counters of keys.
    pub counters: usize,
}

/// Reason for which the image of a log, its replayed contents, cannot be restored into a node.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A namespace has a kind that this server does not know.
    #[error("log: namespace {0} has a kind unknown to this server; use a newer server")]
    UnknownKind(u16),
    /// The configuration contradicts the log.
    #[error(transparent)]
    Declaration(#[from] DeclarationError),
    /// A shard refuses a hold, because it conflicts with another hold of its key or its key has holds of another kind.
    #[error("log: the hold with fence {fence} of key \"{key}\" cannot be restored: {refusal:?}")]
    Hold {
        /// Fence of the hold.
        fence: u64,
        /// Key of the hold.
        key: String,
        /// Refusal of the shard.
        refusal: Refusal,
    },
}

fn known_kind(namespace: u16, kind: u8) -> Result<NamespaceKind, RestoreError> {
    NamespaceKind::ALL.get(usize::from(kind)).copied().ok_or(RestoreError::UnknownKind(namespace))
}

/// Fails if a namespace has a kind that this server does not know, or another kind than the configuration
/// declares.
pub(super) fn check_kinds(node: &Node, image: &Image) -> Result<(), RestoreError> {
    image.namespaces().try_for_each(|(number, kind, name)| {
        let kind = known_kind(number, kind)?;
        let mut declared = node.declared.iter().filter(|declared| declared.name.as_bytes() == name);
        Ok(declared.try_for_each(|declared| check_kind(declared, kind))?)
    })
}

/// Restores the state of an image into a node that has not served any client yet.
///
/// # Errors
/// If a namespace has a kind that this server does not know, the configuration contradicts the image, or a hold
/// contradicts another one.
pub fn restore(node: &mut Node, image: &Image, now: Time) -> Result<RestoredCounts, RestoreError> {
    let mut restoration = Restoration::new(node, image, now)?;
    restoration.counters(image);
    restoration.holds(image)?;
    let Restoration { effects, sessions, claims, .. } = restoration;
    node.restored = Restored { claims, sessions: group_by_worker(node, sessions), stamp: now };
    if let Some(log) = &node.log
        && !effects.batch.is_empty()
    {
        log.post(effects.batch);
    }
    Ok(RestoredCounts { holds: image.hold_count(), counters: image.counter_count() })
}

fn group_by_worker(node: &Node, sessions: BTreeMap<SessionId, Session>) -> Vec<Mutex<Vec<RestoredSession>>> {
    let mut by_worker: Vec<Vec<RestoredSession>> = (0..node.worker_count()).map(|_| Vec::new()).collect();
    for (id, Session { worker, lease_ms, identity, lanes, .. }) in sessions {
        by_worker[usize::from(worker)].push(RestoredSession { id, lease_ms, identity, lanes });
    }
    by_worker.into_iter().map(Mutex::new).collect()
}

/// A session while its holds are collected.
struct Session {
    worker: u16,
    /// Slot of the session's first lane; the slots of its other lanes follow.
    first_slot: LaneSlot,
    lease_ms: u32,
    /// Identity of the client of the session; `None` if no hold of the session contains an identity.
    identity: Option<Arc<str>>,
    lanes: BTreeMap<u16, Option<RestoredLane>>,
}

impl Session {
    fn slot_of(&self, lane: u16) -> LaneSlot {
        LaneSlot(self.first_slot.0 + self.lanes.range(..lane).count() as u32)
    }
}

struct Restoration<'a> {
    node: &'a Node,
    now: Time,
    /// Kind of each namespace by its number, and the shard to which its name hashes. A tree namespace is in that shard
    /// as a whole.
    namespaces: BTreeMap<u16, (NamespaceKind, u16)>,
    sessions: BTreeMap<SessionId, Session>,
    claims: BTreeMap<ClaimId, u16>,
    /// Hashes of the key sets of multi-key acquires, from the log. The map key is the session, the lane, and the number
    /// of the acquire. `drop_partial_answers` compares each hash with the keys whose holds were restored.
    key_sets: BTreeMap<(SessionId, u16, u32), u64>,
    effects: Recorder<'static>,
}

impl<'a> Restoration<'a> {
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
        // Open the namespaces that the configuration declares before any hold is restored. A declared namespace may
        // have quotas, and a restored hold counts for them only if they are set before.
        open_declared(node)?;
        let mut restoration = Self {
            node,
            now,
            namespaces,
            sessions: BTreeMap::new(),
            claims: BTreeMap::new(),
            key_sets: BTreeMap::new(),
            effects: Recorder::default(),
        };
        restoration.place_sessions(image);
        Ok(restoration)
    }

    /// Assigns a worker to each session, and slots to its lanes. When the worker is created, it takes its sessions in
    /// the same order, so their lanes get the same slots.
    fn place_sessions(&mut self, image: &Image) {
        for hold in image.holds() {
            let Some(SessionTag { place, secret, lease_ms, lane }) = hold.session else { continue };
            let worker = (place >> 48) as u16 % self.node.worker_count() as u16;
            let new = || Session {
                worker,
                first_slot: LaneSlot::default(),
                lease_ms,
                identity: None,
                lanes: BTreeMap::new(),
            };
            let session = self.sessions.entry(SessionId { place, secret }).or_insert_with(new);
            session.lanes.insert(lane, None);
            if session.identity.is_none() {
                session.identity = hold.identity.map(Arc::from);
            }
        }
        let mut next_slots = vec![LaneSlot::default(); self.node.worker_count()];
        for session in self.sessions.values_mut() {
            let next = &mut next_slots[usize::from(session.worker)];
            session.first_slot = *next;
            next.0 += session.lanes.len() as u32;
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
            // The earlier server accepted these frozen prefixes within `FREEZE_COUNT_MAX`. The same maximum applies
            // here, so `change` refuses none of them.
            let _ = freezes.change(namespace, prefix, true);
        }
        let freezes = freezes.clone();
        for shard in 0..self.node.shards.len() as u16 {
            self.in_shard(shard, |shard, _| shard.set_freezes(&freezes));
        }
    }

    fn holds(&mut self, image: &Image) -> Result<(), RestoreError> {
        let mut holds: Vec<Hold<'_>> = image.holds().collect();
        // Sort by fences, because a shard expects the newest holder of a key last.
        holds.sort_unstable_by_key(|hold| (hold.fence, hold.id));
        for hold in holds {
            let key = hold.item.counter_name();
            let shard = self.shard_of(hold.namespace, key);
            let lane = self.lane_of(&hold, shard);
            let restored = self.in_shard(shard, |shard, effects| shard.restore_hold(&hold, lane, effects));
            restored.map_err(|refusal| {
                let key = Readable(key).to_string();
                RestoreError::Hold { fence: hold.fence.get(), key, refusal }
            })?;
            if ClaimId::shard_of(hold.id.place) != shard {
                self.claims.insert(hold.id, shard);
            }
            self.keep_answer(&hold, key);
        }
        self.drop_partial_answers();
        Ok(())
    }

    /// Returns the lane of a hold. Returns `None` if the hold has no session, or if the log does not contain its
    /// namespace.
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
        // The first lane in a slot of a worker has generation 1.
        Some(LaneAddress { worker: session.worker, slot, generation: 1 })
    }

    /// Keeps the answer that granted a hold in the restored lane of its session, except for registrations. The client
    /// may not have received the answer, and may repeat the request under the same number. The server then sends the
    /// kept answer.
    fn keep_answer(&mut self, hold: &Hold<'_>, key: &[u8]) {
        let lane = hold.session.and_then(|tag| {
            let session = self.sessions.get_mut(&SessionId { place: tag.place, secret: tag.secret })?;
            session.lanes.get_mut(&tag.lane)?.as_mut()
        });
        let (Some(lane), false) = (lane, matches!(hold.item, Item::Registration { .. })) else { return };
        if hold.number == 0 {
            // The log has no request number for this hold (0), so a repeated request cannot be recognized and needs no
            // kept answer.
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

    /// Drops the kept answers to multi-key acquires of which some holds have ended. If the client repeats such an
    /// acquire, the server treats it as a new request.
    fn drop_partial_answers(&mut self) {
        for ((session, lane, number), key_set) in std::mem::take(&mut self.key_sets) {
            let lane =
                self.sessions.get_mut(&session).and_then(|session| session.lanes.get_mut(&lane)?.as_mut());
            if let Some(lane) = lane
                && let Some(Answer::GrantedMultiKey(grants)) = lane.answers.get(&number)
                && key_set_hash(grants.iter().map(|key_grant| &*key_grant.key)) != key_set
            {
                lane.answers.remove(&number);
            }
        }
    }
}
