//! The lanes of one worker: its connections, and the lanes of sessions, which survive the loss of a connection.

use super::expectation::Expectation;
use super::rights::Barriers;
use super::window::Window;
use crate::access::Evidence;
use crate::mail::ConnectionKey;
use crate::metrics::{AcquireCounts, AcquireResult};
use crate::namespaces::NamespaceUse;
use crate::worker::sessions::SessionSlot;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use waymaker_access::Identity;
use waymaker_engine::{Access, Counted, LaneAddress, LaneIx, LaneSlot, Time};
use waymaker_log::SessionTag;
use waymaker_protocol::NamespaceKind;

/// Namespace number of a restored lane whose namespace the log does not contain, usually because the lane held nothing.
pub(crate) const NO_NAMESPACE: u16 = u16::MAX;

/// Progress of a connection from `HELLO` to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Stage {
    /// No `HELLO` of the connection has been accepted.
    #[default]
    Hello,
    /// Requests are served.
    Open,
    /// The session has ended, and shards may still know the lane. The server refuses every request, and ignores `PONG`.
    SessionEnds,
    /// The server has told the client that its session has ended. It refuses every request, and ignores `PONG`.
    SessionGone,
    /// The server reads nothing more. It answers `GOODBYE`, which has this number, once all shards have closed the lane
    /// and the other lanes of its session, or when the server ends.
    Leaving(u32),
    /// The server reads nothing more, and closes the connection once all answers are written.
    Closing,
    /// `FAREWELL` was the last frame: the server reads nothing more, drops later answers and events, and closes the
    /// connection once `FAREWELL` is written.
    Left,
}

impl Stage {
    /// Whether the server reads nothing more from the connection.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Leaving(_)) || self.is_closing()
    }

    /// Returns true if the server closes the connection after the last of its output.
    pub(crate) fn is_closing(self) -> bool {
        matches!(self, Self::Closing | Self::Left)
    }
}

/// The client of a connection.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Identity of the client, if it is identified.
    pub identification: Identification,
    /// Evidence that the connection provides about its client. `None` for the server itself, which has all rights.
    pub evidence: Option<Arc<Evidence>>,
    /// Address of the client as readable text.
    pub address: Option<Arc<str>>,
    /// Name of the front end whose port accepted the connection; `binary` for the binary protocol. `None` for a
    /// connection that the server itself opened.
    pub front_end: Option<&'static str>,
}

/// Result of identifying a client.
#[derive(Clone, Debug)]
pub enum Identification {
    /// The client is not identified yet. `HELLO` may contain credentials.
    Unidentified,
    /// The client is identified. `None`: it has no identity and has all rights.
    Identified(Option<Arc<Identity>>),
}

impl Default for Identification {
    fn default() -> Self {
        Self::Identified(None)
    }
}

/// One lane: the server's state of a connection. A lane with a session survives the loss of its connection.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Address for answers and events.
    pub(crate) address: LaneAddress,
    /// Number of the current connection; 0 without a connection.
    pub(crate) epoch: u32,
    pub(crate) stage: Stage,
    /// Whether the connection came from another worker. It then stays at this worker.
    pub(crate) moved: bool,
    /// Whether the connection has one of the places that a full server reserves for operators and health checks.
    pub(crate) is_reserved: bool,
    /// Whether the connection is on the list of connections that have output or must be closed.
    pub(crate) dirty: bool,
    pub(crate) namespace: u16,
    /// Counts the lane as a user of its namespace, which is not removed as long as a lane uses it. `None` before
    /// `HELLO`, and for a restored lane whose namespace the log does not contain.
    pub(crate) namespace_use: Option<NamespaceUse>,
    pub(crate) kind: NamespaceKind,
    /// Client of the connection.
    pub(crate) client: Client,
    /// Counters for the results of acquires of the lane; `None` before `HELLO`, and for a restored lane until a client
    /// resumes it.
    pub(crate) acquires: Option<Arc<AcquireCounts>>,
    /// Number of acquires granted without waiting that are not counted in `acquires` yet. `count_grants` adds them
    /// there before the worker writes their answers.
    pub(crate) uncounted_grants: u32,
    /// Rights of the client in the namespace. `None`: all rights, or no `HELLO` was accepted yet.
    pub(crate) access: Option<Arc<Access>>,
    /// Counts the connection for the quotas of its client until this value is dropped. `None` without a connection,
    /// before `HELLO`, without an identity, and if a front end counts the connection. For a client without quotas, it
    /// may also be `None`.
    pub(crate) counted: Option<Counted>,
    /// Properties of this lane that may require checks of a request: the rights that the client lacks, the kind of the
    /// namespace, and tracing.
    pub(crate) barriers: Barriers,
    /// Shard to which the name of the namespace hashes. A tree namespace is in that shard as a whole; other kinds do
    /// not use it.
    pub(crate) namespace_shard: u16,
    /// Number of the lane in its session.
    pub(crate) number: u16,
    pub(crate) session: Option<SessionSlot>,
    /// Identification of the session and the lane in the durable log.
    pub(crate) session_tag: Option<SessionTag>,
    /// Whether the lane was restored from the log and has not been resumed since. Its namespace may be
    /// [`NO_NAMESPACE`].
    pub(crate) is_restored: bool,
    /// Number of the last successful attempt to resume the lane, if the client numbers its attempts.
    pub(crate) attempt: Option<u32>,
    /// Whether the connection wants an event if a repeated request id takes over an existing hold.
    pub(crate) notify_taken_up: bool,
    /// Earliest end of the session.
    pub(crate) session_end: Time,
    /// Kept answers of a lane with a session, also after the session has ended; `None` without one.
    pub(crate) window: Option<Box<Window>>,
    pub(crate) owner: Arc<[u8]>,
    /// Number of admitted requests that have no answer, except acquires that wait in a queue.
    pub(crate) in_flight: i32,
    /// Number of broadcasts in flight. `None` before the first.
    pub(crate) everywhere_count: Option<Arc<AtomicU32>>,
    /// Total cost of the lane's requests that wait until the turn of their shard is free. The unit is an acquire of one
    /// key. `None` before the first such request.
    pub(crate) left_cost: Option<Arc<AtomicU32>>,
    /// Number of acquires that wait in a queue. It is below zero for a moment if the answer arrives before the notice
    /// of the wait.
    pub(crate) waiting: i32,
    /// Number of the lane in each shard; `NONE` for a shard in which this worker has served no request of the lane.
    /// Empty before the first such request.
    pub(crate) shard_lanes: Vec<LaneIx>,
    /// Shards that know this lane, including shards in which another worker serves its requests now or later.
    pub(crate) known_to: Vec<u16>,
    /// Bytes that were read and not served yet.
    pub(crate) input: Vec<u8>,
    /// Answers and events that are not fully written yet.
    pub(crate) output: Vec<u8>,
    /// Number of bytes of `output` that are written.
    pub(crate) written: usize,
    /// Numbers of the watches that lost events since the output last had room. Each of them got one `OVERRUN`.
    pub(crate) overrun: BTreeSet<u32>,
    /// Input that the server waits for from this client.
    pub(crate) expectation: Expectation,
    /// Whether the client answers `PING`.
    pub(crate) answers_ping: bool,
    /// Time at which the client last took a part of the output, or at which housekeeping first found output that it had
    /// not taken. Time in which the server did not run moves it forward. `None` if no output is known to be pending.
    pub(crate) output_since: Option<Time>,
}

impl Lane {
    pub(crate) fn key(&self) -> ConnectionKey {
        ConnectionKey { slot: self.address.slot, epoch: self.epoch }
    }

    /// Returns true if answers and events of the lane go to a connection.
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

    /// Counts the acquires that were granted at once. Must be called before their answers are written.
    #[inline]
    pub(crate) fn count_grants(&mut self) {
        let count = std::mem::take(&mut self.uncounted_grants);
        if count > 0
            && let Some(acquires) = &self.acquires
        {
            acquires.add(AcquireResult::Granted, count.into());
        }
    }

    /// Whether answers are written without being kept: the lane is connected and has never had a session.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_heard() && self.window.is_none()
    }

    /// Returns the cost of the requests that wait for the turn of a shard.
    pub(crate) fn left_cost(&self) -> u32 {
        self.left_cost.as_ref().map_or(0, |cost| cost.load(Ordering::Relaxed))
    }

    /// Returns the number of bytes that are still to be written.
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

    /// Returns the identity of the client, if it is known.
    pub(crate) fn identity(&self) -> Option<&Arc<Identity>> {
        match &self.client.identification {
            Identification::Identified(identity) => identity.as_ref(),
            Identification::Unidentified => None,
        }
    }

    /// Sets the rights of the client from now on. `is_traced` says whether the server exports traces.
    pub(crate) fn set_access(&mut self, access: Option<Arc<Access>>, is_traced: bool) {
        let barriers = Barriers::of_lane(self.kind, access.as_deref());
        self.barriers = if is_traced { barriers.tracing() } else { barriers };
        self.access = access;
    }

    /// Notes that the shard knows this lane from now on.
    #[inline]
    pub(crate) fn note_known_to(&mut self, shard: u16) {
        if !self.known_to.contains(&shard) {
            self.note_namespace_known();
            self.known_to.push(shard);
        }
    }

    /// Marks the lane's namespace as known to shards. Must be called before a shard learns of the namespace. From then
    /// on the namespace is removed only after all shards have checked that it is empty.
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
    free: Vec<LaneSlot>,
    next_epoch: u32,
}

impl Lanes {
    pub(crate) fn new(worker: u16) -> Self {
        Self { worker, slots: Vec::new(), free: Vec::new(), next_epoch: 0 }
    }

    /// Opens a lane for a new connection.
    pub(crate) fn open(&mut self, peer: &[u8], now: Time) -> ConnectionKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Lane::default());
            LaneSlot(self.slots.len() as u32 - 1)
        });
        let epoch = self.new_epoch();
        let generation = self.slots[slot.index()].address.generation.wrapping_add(1);
        let address = LaneAddress { worker: self.worker, slot, generation };
        let (owner, expectation) = (Arc::from(peer), Expectation::Frame(now));
        self.slots[slot.index()] = Lane { address, epoch, owner, expectation, ..Lane::default() };
        ConnectionKey { slot, epoch }
    }

    pub(crate) fn new_epoch(&mut self) -> u32 {
        self.next_epoch = self.next_epoch.wrapping_add(1).max(1);
        self.next_epoch
    }

    /// Frees a lane, and increments the generation of its slot. Answers that are still on their way to the lane have
    /// the old generation and are dropped.
    pub(crate) fn free(&mut self, slot: LaneSlot) {
        let lane = &mut self.slots[slot.index()];
        lane.count_grants();
        let address = lane.address;
        *lane = Lane { address, ..Lane::default() };
        lane.address.generation = address.generation.wrapping_add(1);
        self.free.push(slot);
    }

    /// Returns the lane of this connection, unless the connection has ended.
    #[inline]
    pub(crate) fn of(&mut self, key: ConnectionKey) -> Option<&mut Lane> {
        self.slots.get_mut(key.slot.index()).filter(|lane| lane.epoch == key.epoch)
    }

    /// Returns the lane at this address, unless the lane is gone.
    #[inline]
    pub(crate) fn at(&mut self, address: LaneAddress) -> Option<&mut Lane> {
        self.slots.get_mut(address.slot.index()).filter(|lane| lane.address.generation == address.generation)
    }

    /// Returns the number of slots, including free ones.
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

impl std::ops::Index<LaneSlot> for Lanes {
    type Output = Lane;

    #[inline]
    fn index(&self, slot: LaneSlot) -> &Lane {
        &self.slots[slot.index()]
    }
}

impl std::ops::IndexMut<LaneSlot> for Lanes {
    #[inline]
    fn index_mut(&mut self, slot: LaneSlot) -> &mut Lane {
        &mut self.slots[slot.index()]
    }
}

/// Returns the initial value of a lane's `shard_lanes`: for each shard `NONE`, because no shard has given the lane a
/// number yet.
pub(crate) fn no_shard_lanes(shard_count: usize) -> Vec<LaneIx> {
    vec![LaneIx::NONE; shard_count]
}
