//! State that the workers of a server share.

mod records;
mod restored;

pub(crate) use records::Recorder;
pub use restored::Restored;
pub(crate) use restored::{RestoredLane, RestoredSession};

use crate::access::AccessControl;
use crate::audit::Audit;
use crate::clock::Clock;
use crate::expiries::Expiries;
use crate::limit_options::LimitOptions;
use crate::limits::WORKER_COUNT_MAX;
use crate::log::LogPort;
use crate::mail::{Batch, LaneClosing, Mail};
use crate::memory::MemoryUse;
use crate::metrics::NodeMetrics;
use crate::milliseconds::Milliseconds;
use crate::namespaces::{DeclaredNamespace, NamespaceUse, Namespaces};
use crate::quorum::port::QuorumPort;
use crate::traces::Traces;
use crate::unix_time::UnixTime;
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use waymaker_engine::{
    ClaimId, FreezeList, LaneAddress, Limits, Mailbox, Shard, ShardConfig, Time, TurnCell,
};
use waymaker_protocol::NamespaceKind;

/// The configuration of a node, including the seed of all its random numbers.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Number of workers.
    pub worker_count: usize,
    /// Number of acceptors, which accept connections for the workers.
    pub acceptor_count: usize,
    /// Limits of the whole node.
    pub limits: Limits,
    /// Time for which a session has no connection until the server checks whether it has holds or waiters, in
    /// milliseconds. A session without any ends. The check is repeated after this time.
    pub session_vacant_ms: u64,
    /// Current time.
    pub start: Time,
    /// Seed of all hashes and secrets.
    pub seed: [u8; 32],
    /// Clock that is more precise than the time that the driver passes to workers. Rates and instants in requests need
    /// this precision.
    pub clock: Arc<dyn Clock>,
    /// Memory use and its limit.
    pub memory: Arc<MemoryUse>,
    /// Port of the durable log, if there is one. The log must have as many shards as [`shard_count`] returns.
    pub log: Option<LogPort>,
    /// Port of the quorum thread, if there is a cluster.
    pub quorum: Option<QuorumPort>,
}

/// Returns the number of shards for this many workers: four for each, rounded up to a power of two. With four, two
/// workers rarely want the same shard, and a batch still touches few shards. A single worker gets one shard, which
/// gives it the longest batches.
pub fn shard_count(worker_count: usize) -> usize {
    if worker_count == 1 { 1 } else { (4 * worker_count).next_power_of_two() }
}

/// A shard with the state of its turns.
#[derive(Debug)]
pub struct HostedShard {
    /// The shard.
    pub shard: Shard,
    /// Instant of the timer that a worker last armed for this shard; `Time::NEVER` before the first and after it has
    /// fired. A worker that makes the next deadline of the shard earlier arms another timer.
    pub armed: Time,
    /// Workers that get `Mail::Knocked` when the turn of this shard is free.
    pub knocks: Vec<u16>,
    /// Batches that the worker with the turn must serve before it gives the turn back. Most come from the queue of the
    /// shard (its [`TurnCell`]). Instead of serving all of them, the worker may pass the turn on to another worker,
    /// which then serves the rest.
    pub left: VecDeque<Batch>,
    /// Closed lanes for which later turns must still end claims: the waiters and, if a session ended, the holds on its
    /// lease. Unless the server ends before, the client of a lane learns of the closing only after these claims have
    /// ended.
    pub closings: Vec<(LaneAddress, Arc<LaneClosing>)>,
}

/// State that the workers share: the shards, a mailbox for each worker, and the time up to which each worker has read
/// its sockets.
///
/// ```text
///   worker 0          worker 1                 worker n
///   connections       connections              connections     each alone with its own
///      |   \             /  |                      |
///      |    +-- turns --+   |                      |
///      v         v          v                      v
///   [shard 0] [shard 1] [shard 2] ...          [shard m]       any worker, one at a time
///
///   mailbox 0         mailbox 1                mailbox n       answers for lanes of other workers
/// ```
pub struct Node {
    /// The shards; their number is a power of two.
    pub shards: Box<[TurnCell<HostedShard, Batch>]>,
    /// Mailboxes, one for each worker.
    pub mailboxes: Box<[Mailbox<Mail>]>,
    drained: Box<[CachePadded<AtomicU64>]>,
    accepted: Box<[AtomicU64]>,
    /// All namespaces. A mutex suffices, because only rare work such as `HELLO` locks it.
    pub namespaces: Mutex<Namespaces>,
    /// Identities and rights.
    pub access: Arc<AccessControl>,
    /// Audit log. A new node discards its events until the server sets this field.
    pub audit: Audit,
    /// Spans of traced acquires. A new node exports none until the server sets this field.
    pub traces: Traces,
    /// Frozen prefixes; every shard has a copy.
    pub freezes: Mutex<FreezeList>,
    /// Memory use and its limit.
    pub memory: Arc<MemoryUse>,
    /// Counters of expired registrations.
    pub expiries: Expiries,
    pub(crate) metrics: NodeMetrics,
    /// Clock for work that needs the present time, such as measured durations, rates, logins and displayed times. Its
    /// reading is more precise and more recent than the time that the driver (the code that does a worker's I/O) passes
    /// to the worker.
    pub clock: Arc<dyn Clock>,
    /// Time of the start.
    pub start: Time,
    /// Listeners with their addresses, as in the line `ready` that the server prints when it is ready. Empty until the
    /// server sets this field.
    pub addresses: String,
    /// Conversion of instants to the time of day.
    pub unix_time: UnixTime,
    /// Limits of the engine, for the whole node. The response to `HELLO` tells clients the default, shortest and
    /// longest lease. A namespace may have its own default.
    pub limits: Limits,
    /// Limits that an operator may set. Use `limits` for those of the engine.
    pub set: LimitOptions,
    /// Declared namespaces. Empty until the server sets this field.
    pub declared: Vec<DeclaredNamespace>,
    /// Random number that differs for each start of a server.
    pub server_id: u64,
    /// Seed of the secrets in session ids.
    pub session_seed: [u8; 32],
    /// Port of the durable log.
    pub log: Option<LogPort>,
    /// Port of the quorum thread.
    pub quorum: Option<QuorumPort>,
    /// State restored from the log of an earlier server.
    pub restored: Restored,
    stopping: AtomicBool,
    /// Time from which grants are allowed; `Time::ZERO` unless the log may have lost holds.
    grants_from: Time,
    /// Number of claims in each shard whose end a draining server awaits before it stops: all claims, or with a log
    /// only waiting ones, because holds survive a restart. Workers count them at each [`Mail::Count`]. Before the first
    /// count of a shard, the number is 2^32 - 1.
    claim_counts: Box<[AtomicU64]>,
}

impl Node {
    /// Returns a node without connections.
    pub fn new(config: &NodeConfig) -> Self {
        use rand::rngs::StdRng;
        use rand::{Rng, SeedableRng};
        assert!(config.worker_count > 0 && config.worker_count <= WORKER_COUNT_MAX);
        let mut random = StdRng::from_seed(config.seed);
        let shard_count = shard_count(config.worker_count);
        let share = |limit: u32| (limit / shard_count as u32).max(1);
        let limits = Limits {
            claim_count_max: share(config.limits.claim_count_max),
            idle_key_count_max: share(config.limits.idle_key_count_max),
            set_pool_count_max: share(config.limits.set_pool_count_max),
            bucket_count_max: share(config.limits.bucket_count_max),
            kept_bucket_count: share(config.limits.kept_bucket_count),
            ..config.limits
        };
        let hash_seeds = [random.next_u64(), random.next_u64(), random.next_u64(), random.next_u64()];
        let mut secret_seed = || {
            let mut seed = [0; 32];
            random.fill_bytes(&mut seed);
            seed
        };
        let shards = (0..shard_count)
            .map(|number| {
                let (number, secret_seed, start) = (number as u16, secret_seed(), config.start);
                let config = ShardConfig { number, limits, hash_seeds, secret_seed, start };
                TurnCell::new(HostedShard {
                    shard: Shard::new(&config),
                    armed: Time::NEVER,
                    knocks: Vec::new(),
                    left: VecDeque::new(),
                    closings: Vec::new(),
                })
            })
            .collect();
        let session_seed = secret_seed();
        let set = LimitOptions {
            session_idle: Milliseconds::new(config.session_vacant_ms),
            ..LimitOptions::default()
        };
        let start = config.start.as_millis();
        Self {
            shards,
            mailboxes: (0..config.worker_count).map(|_| Mailbox::default()).collect(),
            accepted: (0..config.acceptor_count).map(|_| AtomicU64::new(start)).collect(),
            drained: (0..config.worker_count).map(|_| CachePadded::new(AtomicU64::new(start))).collect(),
            namespaces: Mutex::default(),
            access: Arc::default(),
            audit: Audit::default(),
            traces: Traces::default(),
            freezes: Mutex::default(),
            unix_time: UnixTime::new(&*config.clock),
            memory: Arc::clone(&config.memory),
            expiries: Expiries::default(),
            metrics: NodeMetrics::new(config.worker_count, shard_count),
            clock: Arc::clone(&config.clock),
            start: config.start,
            addresses: String::new(),
            limits: config.limits,
            set,
            declared: Vec::new(),
            server_id: random.next_u64(),
            session_seed,
            log: config.log.clone(),
            quorum: config.quorum.clone(),
            restored: Restored::default(),
            stopping: AtomicBool::new(false),
            grants_from: Time::ZERO,
            claim_counts: (0..shard_count).map(|_| AtomicU64::new(u64::MAX >> 32)).collect(),
        }
    }

    /// Sets the limits that an operator may set, except those of the engine. Must be called before any worker runs.
    pub fn set_limits(&mut self, set: LimitOptions) {
        let namespaces = self.namespaces.get_mut().unwrap_or_else(PoisonError::into_inner);
        namespaces.limit(set.namespaces as usize, set.namespace_idle.as_u64());
        self.set = set;
    }

    /// Returns the number of workers.
    pub fn worker_count(&self) -> usize {
        self.mailboxes.len()
    }

    /// Returns the number and the kind of the namespace with this name, if it exists.
    pub fn find_namespace(&self, name: &[u8]) -> Option<(u16, NamespaceKind)> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).find(name)
    }

    /// Starts a use of the namespace with this name, if it exists.
    pub fn use_namespace(&self, name: &[u8]) -> Option<NamespaceUse> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).use_named(name)
    }

    /// Returns the number of acceptors.
    pub fn acceptor_count(&self) -> usize {
        self.accepted.len()
    }

    /// Returns the shard of a key.
    #[inline]
    pub fn shard_of_key(&self, key: &[u8]) -> u16 {
        waymaker_protocol::slot::slot_of_key(key) & (self.shards.len() - 1) as u16
    }

    /// Returns the shard of the claim with this id. If the id is invalid, this node may not have the returned shard.
    #[inline]
    pub fn shard_of_claim(&self, id: ClaimId) -> u16 {
        let shard = ClaimId::shard_of(id.place);
        if self.restored.claims.is_empty() {
            return shard;
        }
        self.restored.claims.get(&id).copied().unwrap_or(shard)
    }

    /// Notes that this worker has served all bytes that had arrived in its sockets by this instant. The exceptions are
    /// connections that used up their time, and those whose clients do not read their answers. The caller must already
    /// have posted all mail and work that resulted from these bytes.
    pub fn publish_drained(&self, worker: usize, at: Time) {
        // `Release` ordering: a thread that reads this value also sees the mail that was posted before it was stored.
        self.drained[worker].store(at.as_millis(), Ordering::Release);
    }

    /// Returns the latest instant that this worker has passed to [`Self::publish_drained`].
    pub fn drained_by(&self, worker: usize) -> Time {
        Time::from_millis(self.drained[worker].load(Ordering::Acquire))
    }

    /// Returns the time up to which every worker has served its sockets: the earliest of the instants that the workers
    /// last passed to [`Self::publish_drained`]. Leases that were due by then may expire.
    #[inline]
    pub fn drained(&self) -> Time {
        (0..self.drained.len()).map(|worker| self.drained_by(worker)).min().unwrap_or(Time::ZERO)
    }

    /// Publishes that this acceptor has accepted all connections that were waiting at this instant and for which the
    /// system had resources. It has refused those above a limit and has handed the others to workers. Workers read the
    /// instant ([`Self::accepted`]) before they end sessions, because a new connection may resume one.
    pub fn publish_accepted(&self, acceptor: usize, at: Time) {
        // `Release` ordering: a thread that reads this value also sees the connections that were handed over before it
        // was stored.
        self.accepted[acceptor].store(at.as_millis(), Ordering::Release);
    }

    /// Returns the time up to which all connections have been accepted; `Time::NEVER` without acceptors.
    pub fn accepted(&self) -> Time {
        let accepted = self.accepted.iter().map(|at| Time::from_millis(at.load(Ordering::Acquire)));
        accepted.min().unwrap_or(Time::NEVER)
    }

    /// Returns whether the server is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Marks the server as stopping. The caller also sends [`Mail::Stop`] to the workers.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Refuses new grants for `wait`, because the log may have lost holds. Must be called before any worker runs.
    ///
    /// # Panics
    /// Panics if a worker has the turn of a shard.
    pub fn refuse_grants_for(&mut self, wait: Duration) {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.grants_from = self.clock.now().after_ms(wait_ms);
        for hosted in &self.shards {
            let mut turn = hosted.enter().expect("no worker has started");
            turn.shard.refuse_grants_until(self.grants_from);
            let left = turn.leave();
            assert!(left.is_none(), "no worker leaves a batch before its start");
        }
    }

    /// Returns whether the log may have lost records with holds before the server started.
    pub fn has_losses(&self) -> bool {
        self.grants_from > Time::ZERO
    }

    /// Returns the time of day in seconds since 1970.
    pub fn unix_seconds(&self) -> u64 {
        u64::try_from(self.clock.unix_micros() / 1_000_000).unwrap_or(0)
    }

    /// Returns the time until grants resume after lost records, in milliseconds; 0 if grants are allowed.
    pub fn grants_refused_ms(&self) -> u64 {
        self.grants_from.ms_since(self.clock.now())
    }

    /// Returns the number of claims whose end a draining server awaits, at the last count of each shard. With a log
    /// these are only waiting claims, because holds survive a restart.
    pub fn claim_count(&self) -> u64 {
        self.claim_counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Sets the number of claims of a shard whose end a draining server awaits.
    pub(crate) fn note_claim_count(&self, shard: u16, count: u32) {
        self.claim_counts[usize::from(shard)].store(u64::from(count), Ordering::Relaxed);
    }
}
