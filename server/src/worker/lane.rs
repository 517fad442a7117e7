//! The lanes of one worker: its connections, and the places in sessions that outlive them.

use super::awaited::Awaited;
use super::rights::Barriers;
use super::window::Window;
use crate::access::Evidence;
use crate::metrics::{AcquireCounts, AcquireResult};
use crate::namespaces::NamespaceUse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use waymaker_access::Identity;
use waymaker_engine::log::SessionTag;
use waymaker_engine::{Access, Counted, LaneAddress, LaneIx, Time};
use waymaker_protocol::NamespaceKind;

/// The namespace of a restored lane that held nothing, so that nothing is known of it.
pub(crate) const NO_NAMESPACE: u16 = u16::MAX;

/// Names one connection of a worker. It stays unique when its lane passes to another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey {
    /// The lane.
    pub slot: u32,
    /// Which of the connections that the lane has had.
    pub epoch: u32,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Stage {
    /// It has not said `HELLO`.
    #[default]
    Hello,
    /// It may ask.
    Open,
    /// Its session has ended, and shards still know the lane.
    SessionEnds,
    /// Its client has heard that the session has ended: every request is refused.
    SessionGone,
    /// Nothing more is read; `GOODBYE` is answered under this number once its session has ended in all shards.
    Leaving(u32),
    /// Nothing more is read; it is closed once its answers are written.
    Closing,
    /// The same, and `FAREWELL` was its last frame: later answers and events are dropped.
    Left,
}

impl Stage {
    /// Whether nothing more is read.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Leaving(_)) || self.is_closing()
    }

    /// Returns true if the connection is closed after the last of its output.
    pub(crate) fn is_closing(self) -> bool {
        matches!(self, Self::Closing | Self::Left)
    }
}

/// Who is on the other side of a connection, and how it got here.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Who it is.
    pub known_as: KnownAs,
    /// What its connection shows. `None` for the server itself, which may do everything.
    pub evidence: Option<Arc<Evidence>>,
    /// The address of the client, as people read it.
    pub address: Option<Arc<str>>,
    /// The protocol of the connection.
    pub front_end: Option<&'static str>,
}

/// Who a client is, as far as the server has asked.
#[derive(Clone, Debug)]
pub enum KnownAs {
    /// Not asked yet. `HELLO` may bring credentials.
    Unidentified,
    /// Identified. `None`: the client has no identity and may do everything.
    Identified(Option<Arc<Identity>>),
}

impl Default for KnownAs {
    fn default() -> Self {
        Self::Identified(None)
    }
}

/// One lane: what a connection is to the rest of the server. A lane with a session outlives its connection.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Where answers find it.
    pub(crate) address: LaneAddress,
    /// Its connection; 0 without one.
    pub(crate) epoch: u32,
    pub(crate) stage: Stage,
    /// It came from another worker, so it is not sent on.
    pub(crate) moved: bool,
    /// Its connection has a place in a reserve.
    pub(crate) is_reserved: bool,
    /// It is on the list of those with something to write.
    pub(crate) dirty: bool,
    pub(crate) namespace: u16,
    /// Keeps the namespace; `None` before HELLO and for a restored lane without one.
    pub(crate) namespace_use: Option<NamespaceUse>,
    pub(crate) kind: NamespaceKind,
    /// Who is on the other side.
    pub(crate) client: Client,
    /// Counts the results of its acquires; `None` before `HELLO`.
    pub(crate) acquires: Option<Arc<AcquireCounts>>,
    /// Acquires that were granted at once and are not counted there yet.
    pub(crate) uncounted_grants: u32,
    /// What its client may do in its namespace. `None`: everything.
    pub(crate) access: Option<Arc<Access>>,
    /// Counts its connection in the accounts of its client.
    pub(crate) counted: Option<Counted>,
    /// Requests that are not served without a closer look. Follows from `kind` and `access`.
    pub(crate) barriers: Barriers,
    /// The shard of a namespace that lies in one.
    pub(crate) namespace_shard: u16,
    /// Its number in its session.
    pub(crate) number: u16,
    pub(crate) session: Option<u32>,
    /// The session as the durable log names it.
    pub(crate) session_tag: Option<SessionTag>,
    /// An earlier server knew it, and nobody has resumed it since. Its namespace may be [`NO_NAMESPACE`].
    pub(crate) is_restored: bool,
    /// Which attempt to take it up was the last to succeed, as far as its client says.
    pub(crate) attempt: Option<u32>,
    /// Its connection wants to be told where a repeated request id takes up a hold.
    pub(crate) notify_taken_up: bool,
    /// The session lives at least until then.
    pub(crate) session_end: Time,
    /// Of a lane with a session.
    pub(crate) window: Option<Box<Window>>,
    pub(crate) owner: Arc<[u8]>,
    /// Requests without an answer, without those that wait in a queue.
    pub(crate) in_flight: i32,
    /// Requests in flight that all shards serve. `None` before the first.
    pub(crate) everywhere_count: Option<Arc<AtomicU32>>,
    /// Cost of its requests that wait for the turn of a shard. `None` before the first.
    pub(crate) left_cost: Option<Arc<AtomicU32>>,
    /// Acquires that wait in a queue. Below zero for a moment where an answer overtakes the word that it waits.
    pub(crate) waiting: i32,
    /// The lane's number in each shard that it has asked, `NONE` where it has not. Empty before `HELLO`.
    pub(crate) shard_lanes: Vec<LaneIx>,
    /// Shards that know this lane, also those that others asked on its behalf.
    pub(crate) known_to: Vec<u16>,
    /// Bytes that were read and not served yet.
    pub(crate) input: Vec<u8>,
    /// Answers and events on their way out.
    pub(crate) output: Vec<u8>,
    /// How much of `output` has been written.
    pub(crate) written: usize,
    /// Watches of which events were dropped while the output was full, each told so once.
    pub(crate) overrun: BTreeSet<u32>,
    /// The wait of the server for this client.
    pub(crate) awaited: Awaited,
    /// True if its client answers `PING`.
    pub(crate) answers_ping: bool,
    /// When it last took some of its output, while it has some.
    pub(crate) output_since: Option<Time>,
}

impl Lane {
    pub(crate) fn key(&self) -> ConnectionKey {
        ConnectionKey { slot: self.address.slot, epoch: self.epoch }
    }

    /// Returns true if a connection may hear answers and events of the lane.
    pub(crate) fn is_heard(&self) -> bool {
        self.epoch != 0 && self.stage != Stage::Left
    }

    /// Counts the result of an acquire.
    #[inline]
    pub(crate) fn count_acquire(&self, result: AcquireResult) {
        if let Some(acquires) = &self.acquires {
            acquires.add(result, 1);
        }
    }

    /// Counts the acquires that were granted at once. To be called before their answers are written.
    #[inline]
    pub(crate) fn count_grants(&mut self) {
        let count = std::mem::take(&mut self.uncounted_grants);
        if count > 0
            && let Some(acquires) = &self.acquires
        {
            acquires.add(AcquireResult::Granted, count.into());
        }
    }

    /// Its answers are written and not kept: it is connected and has no session.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_heard() && self.window.is_none()
    }

    /// Returns the cost of its requests that wait for the turn of a shard.
    pub(crate) fn left_cost(&self) -> u32 {
        self.left_cost.as_ref().map_or(0, |cost| cost.load(Ordering::Relaxed))
    }

    /// Bytes that are still to be written.
    #[inline]
    pub(crate) fn pending_len(&self) -> usize {
        self.output.len() - self.written
    }

    pub(crate) fn clear_output(&mut self) {
        self.output.clear();
        self.overrun.clear();
        self.written = 0;
        self.output_since = None;
    }

    /// The identity of its client, if it is known.
    pub(crate) fn identity(&self) -> Option<&Arc<Identity>> {
        match &self.client.known_as {
            KnownAs::Identified(identity) => identity.as_ref(),
            KnownAs::Unidentified => None,
        }
    }

    /// Sets what its client may do from here on, on a server that exports traces or does not.
    pub(crate) fn set_access(&mut self, access: Option<Arc<Access>>, is_traced: bool) {
        let barriers = Barriers::of_lane(self.kind, access.as_deref());
        self.barriers = if is_traced { barriers.tracing() } else { barriers };
        self.access = access;
    }

    /// The shard knows this lane from here on.
    #[inline]
    pub(crate) fn note_known_to(&mut self, shard: u16) {
        if !self.known_to.contains(&shard) {
            self.note_namespace_known();
            self.known_to.push(shard);
        }
    }

    /// A shard is about to hear of the lane's namespace.
    pub(crate) fn note_namespace_known(&self) {
        if let Some(namespace) = &self.namespace_use {
            namespace.note_known();
        }
    }
}

/// The lanes of a worker, by slot.
#[derive(Debug)]
pub(crate) struct Lanes {
    worker: u16,
    slots: Vec<Lane>,
    free: Vec<u32>,
    next_epoch: u32,
}

impl Lanes {
    pub(crate) fn new(worker: u16) -> Self {
        Self { worker, slots: Vec::new(), free: Vec::new(), next_epoch: 0 }
    }

    /// A lane for a new connection.
    pub(crate) fn open(&mut self, peer: &[u8], now: Time) -> ConnectionKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Lane::default());
            self.slots.len() as u32 - 1
        });
        let epoch = self.new_epoch();
        let generation = self.slots[slot as usize].address.generation.wrapping_add(1);
        let address = LaneAddress { worker: self.worker, slot, generation };
        let (owner, awaited) = (Arc::from(peer), Awaited::Frame(now));
        self.slots[slot as usize] = Lane { address, epoch, owner, awaited, ..Lane::default() };
        ConnectionKey { slot, epoch }
    }

    pub(crate) fn new_epoch(&mut self) -> u32 {
        self.next_epoch = self.next_epoch.wrapping_add(1).max(1);
        self.next_epoch
    }

    /// Frees a lane. Answers that are still on their way to it find another generation.
    pub(crate) fn free(&mut self, slot: u32) {
        let lane = &mut self.slots[slot as usize];
        lane.count_grants();
        let address = lane.address;
        *lane = Lane { address, ..Lane::default() };
        lane.address.generation = address.generation.wrapping_add(1);
        self.free.push(slot);
    }

    /// The lane of this connection, unless the connection is over.
    #[inline]
    pub(crate) fn of(&mut self, key: ConnectionKey) -> Option<&mut Lane> {
        self.slots.get_mut(key.slot as usize).filter(|lane| lane.epoch == key.epoch)
    }

    /// The lane at this address, unless it is gone.
    #[inline]
    pub(crate) fn at(&mut self, address: LaneAddress) -> Option<&mut Lane> {
        self.slots.get_mut(address.slot as usize).filter(|lane| lane.address.generation == address.generation)
    }

    /// Number of slots, of lanes that are free too.
    pub(crate) fn slot_count(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.slots.iter_mut().filter(|lane| lane.epoch != 0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.slots.iter().filter(|lane| lane.epoch != 0)
    }
}

impl std::ops::Index<u32> for Lanes {
    type Output = Lane;

    #[inline]
    fn index(&self, slot: u32) -> &Lane {
        &self.slots[slot as usize]
    }
}

impl std::ops::IndexMut<u32> for Lanes {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Lane {
        &mut self.slots[slot as usize]
    }
}

/// A lane's numbers in shards that it has not asked yet.
pub(crate) fn no_shard_lanes(shard_count: usize) -> Vec<LaneIx> {
    vec![LaneIx::NONE; shard_count]
}
