//! What the workers of one server share.

use crate::access::AccessControl;
use crate::audit::Audit;
use crate::clock::Clock;
use crate::expiries::Expiries;
use crate::limits::WORKER_COUNT_MAX;
use crate::log::port::LogPort;
use crate::log::restore::Restored;
use crate::mail::{Batch, Mail};
use crate::memory::MemoryUse;
use crate::metrics::NodeMetrics;
use crate::milliseconds::Milliseconds;
use crate::namespaces::{NamespaceUse, Namespaces};
use crate::options::{DeclaredNamespace, LimitOptions};
use crate::quorum::port::QuorumPort;
use crate::traces::Traces;
use crate::unix_time::UnixTime;
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use waymaker_engine::{ClaimId, FreezeList, Limits, Mailbox, Shard, ShardConfig, Time, TurnCell};
use waymaker_protocol::NamespaceKind;

/// What a node is made from. Everything random about it is in here.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// How many workers run it.
    pub worker_count: usize,
    /// How many accept connections for them.
    pub acceptor_count: usize,
    /// What bounds the node as a whole.
    pub limits: Limits,
    /// How long a session lives that has no connection, no hold and no waiter.
    pub session_vacant_ms: u64,
    /// The present.
    pub start: Time,
    /// Seeds of hashes and secrets.
    pub seed: [u8; 32],
    /// For what is finer than the time that workers are handed: rates, and instants that clients name.
    pub clock: Arc<dyn Clock>,
    /// How much memory is used, and its limit.
    pub memory: Arc<MemoryUse>,
    /// Where records go, if there is a durable log. It knows as many shards as [`shard_count`] says.
    pub log: Option<LogPort>,
    /// Where the counters of scope Quorum are, if there is a cluster.
    pub quorum: Option<QuorumPort>,
}

/// How many shards so many workers have. Four for each: enough that two workers rarely want the same one, few enough to
/// enter all of a batch. One worker never meets another, so one shard gives it the longest batches.
pub fn shard_count(worker_count: usize) -> usize {
    if worker_count == 1 { 1 } else { (4 * worker_count).next_power_of_two() }
}

/// A shard, and when somebody will come by for its next deadline.
#[derive(Debug)]
pub struct Hosted {
    /// The shard.
    pub shard: Shard,
    /// A worker has armed a timer for this instant. Whoever makes the next deadline earlier arms another.
    pub armed: Time,
    /// Workers to tell when the turn is given back.
    pub knocks: Vec<u16>,
    /// Batches that were taken and not served yet, because the turn was passed on.
    pub left: VecDeque<Batch>,
}

/// What the workers of one server share: the shards, a mailbox for each worker, and what each worker has read.
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
    /// The shards, a power of two of them.
    pub shards: Box<[TurnCell<Hosted, Batch>]>,
    /// One for each worker.
    pub mailboxes: Box<[Mailbox<Mail>]>,
    drained: Box<[CachePadded<AtomicU64>]>,
    accepted: Box<[AtomicU64]>,
    /// Opened at `HELLO` alone, so a lock does no harm.
    pub namespaces: Mutex<Namespaces>,
    /// Who may do what.
    pub access: Arc<AccessControl>,
    /// Takes the acts of operators. The node discards them until a server sets this.
    pub audit: Audit,
    /// Takes the spans of traced acquires. The node exports none until a server sets this.
    pub traces: Traces,
    /// What operators froze; every shard has a copy.
    pub freezes: Mutex<FreezeList>,
    /// How much memory is used, and its limit.
    pub memory: Arc<MemoryUse>,
    /// Entries of registries that ended with their lease.
    pub expiries: Expiries,
    pub(crate) metrics: NodeMetrics,
    /// Finer than the time that workers are handed.
    pub clock: Arc<dyn Clock>,
    /// Time of the start.
    pub start: Time,
    /// Listeners with their addresses, as the line `ready` shows them. Empty until a server sets this.
    pub addresses: String,
    /// The time of day of what happened here.
    pub unix_time: UnixTime,
    /// The limits that clients are told.
    pub limits: Limits,
    /// Limits that an operator may set. `limits` has the limits of the engine.
    pub set: LimitOptions,
    /// Namespaces that the configuration declares. None until a server sets this.
    pub declared: Vec<DeclaredNamespace>,
    /// Another one for each start of a server.
    pub server_id: u64,
    /// Seed of the secrets in session ids.
    pub session_seed: [u8; 32],
    /// Where records go.
    pub log: Option<LogPort>,
    /// Where the counters of scope Quorum are.
    pub quorum: Option<QuorumPort>,
    /// What an earlier server left in its log.
    pub restored: Restored,
    stopping: AtomicBool,
    /// No new grants before then: holds may have been lost.
    grants_from: Time,
    /// Claims of each shard, counted on the way out.
    claim_counts: Box<[AtomicU64]>,
}

impl Node {
    /// A node without connections.
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
                TurnCell::new(Hosted {
                    shard: Shard::new(&config),
                    armed: Time::NEVER,
                    knocks: Vec::new(),
                    left: VecDeque::new(),
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

    /// Sets the limits of connections, sessions and namespaces. Must be called before any worker runs.
    pub fn set_limits(&mut self, set: LimitOptions) {
        let namespaces = self.namespaces.get_mut().unwrap_or_else(PoisonError::into_inner);
        namespaces.limit(set.namespaces as usize, set.namespace_idle.as_u64());
        self.set = set;
    }

    /// How many workers there are.
    pub fn worker_count(&self) -> usize {
        self.mailboxes.len()
    }

    /// The number and the kind of the namespace with this name, if there is one.
    pub fn find_namespace(&self, name: &[u8]) -> Option<(u16, NamespaceKind)> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).find(name)
    }

    /// Begins a use of the namespace with this name, if there is one.
    pub fn use_namespace(&self, name: &[u8]) -> Option<NamespaceUse> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).use_named(name)
    }

    /// How many acceptors there are.
    pub fn acceptor_count(&self) -> usize {
        self.accepted.len()
    }

    /// The shard of a key.
    #[inline]
    pub fn shard_of_key(&self, key: &[u8]) -> u16 {
        waymaker_protocol::slot::slot_of_key(key) & (self.shards.len() - 1) as u16
    }

    /// The shard of the claim with this id; there may be no such shard.
    #[inline]
    pub fn shard_of_claim(&self, id: ClaimId) -> u16 {
        let shard = ClaimId::shard_of(id.place);
        if self.restored.claims.is_empty() {
            return shard;
        }
        self.restored.claims.get(&id).copied().unwrap_or(shard)
    }

    /// This worker had read its sockets empty at that instant, and whatever it mailed or handed over because of that is
    /// where it belongs.
    pub fn publish_drained(&self, worker: usize, at: Time) {
        // Release: who reads this finds the mail that was posted before.
        self.drained[worker].store(at.as_millis(), Ordering::Release);
    }

    /// Up to when this worker is known to have read its sockets.
    pub fn drained_by(&self, worker: usize) -> Time {
        Time::from_millis(self.drained[worker].load(Ordering::Acquire))
    }

    /// Up to when every worker is known to have read its sockets: what was due by then may end.
    #[inline]
    pub fn drained(&self) -> Time {
        (0..self.drained.len()).map(|worker| self.drained_by(worker)).min().unwrap_or(Time::ZERO)
    }

    /// This acceptor had accepted everything that had connected by that instant, and handed it to workers.
    pub fn publish_accepted(&self, acceptor: usize, at: Time) {
        // Release: who reads this finds what was handed over before.
        self.accepted[acceptor].store(at.as_millis(), Ordering::Release);
    }

    /// Up to when whoever connected was accepted; always where the node has no acceptors.
    pub fn accepted(&self) -> Time {
        let accepted = self.accepted.iter().map(|at| Time::from_millis(at.load(Ordering::Acquire)));
        accepted.min().unwrap_or(Time::NEVER)
    }

    /// The server is on its way out.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Sends the server on its way out; the workers are told by mail.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Refuses new grants for this time, because holds may have been lost. Must be called before any worker runs.
    ///
    /// # Panics
    /// If a worker has a turn.
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

    /// Returns whether the log had lost records when the server started.
    pub fn has_losses(&self) -> bool {
        self.grants_from > Time::ZERO
    }

    /// Returns the time of day in seconds since 1970.
    pub fn unix_seconds(&self) -> u64 {
        u64::try_from(self.clock.unix_micros() / 1_000_000).unwrap_or(0)
    }

    /// Returns the time until new grants resume after losses, in milliseconds; 0 if they are served.
    pub fn grants_refused_ms(&self) -> u64 {
        self.grants_from.ms_since(self.clock.now())
    }

    /// How many claims there were when each shard was last counted.
    pub fn claim_count(&self) -> u64 {
        self.claim_counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Notes how many claims a shard has.
    pub(crate) fn note_claim_count(&self, shard: u16, count: u32) {
        self.claim_counts[usize::from(shard)].store(u64::from(count), Ordering::Relaxed);
    }
}
