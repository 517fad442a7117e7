//! The settings of a run, which its seed chooses: its size, its faults, and the requests of its clients.

use crate::durability::{ClusterSettings, Durability};
use crate::edge::Edge;
use crate::form::Form;
use crate::identities::{Identities, TENANT_KEYS};
use crate::key::{self, Key, TREE, VISITED_KEYS, kind_of};
use crate::mix::Mix;
use crate::operation::{Acquire, Rule};
use crate::processes::ProcessSettings;
use crate::random::Random;
use waymaker_engine::{Limits, Scope};
use waymaker_protocol::{NamespaceKind, PoolOrder};
use waymaker_server::limits::SESSION_VACANT_MS;

/// One of this number of seeds is a short run. The others are long, for every kind of namespace.
const SHORT_EVERY: u64 = 4;
/// One of this number of seeds has a crowd of clients.
const CROWD_EVERY: u64 = 100;
/// Number of clients in a crowd.
const CROWD_CLIENT_COUNT: usize = 200;
const CROWD_OPERATION_COUNT: u32 = 6_000;
/// Number of keys of a crowd that all clients want.
const HOT_KEY_COUNT: u64 = 3;
/// Number of operations in a long run.
const LONG_OPERATION_COUNT: u32 = 2_500;

/// Settings that stay the same for a whole run. A field `..._percent` is a probability in percent.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) operation_count: u32,
    pub(crate) worker_count: usize,
    pub(crate) client_count: usize,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) limits: Limits,
    /// Time after which a session without a connection and without a claim ends.
    pub(crate) session_vacant_ms: u64,
    pub(crate) node_seed: [u8; 32],
    /// Time that the server's clock shows when the run begins, in milliseconds.
    pub(crate) start_ms: u64,
    /// True if the server sometimes forgets the counters of idle keys.
    pub(crate) is_forgetful: bool,
    /// True if some limit is so small that the server refuses requests because of it.
    pub(crate) is_tight: bool,
    /// True if the run has very many clients and very many keys.
    pub(crate) is_crowd: bool,
    /// Mean time between two acts of a client.
    pub(crate) pace_us: u64,
    pub(crate) lease_max_ms: u64,
    pub(crate) wait_max_ms: u64,
    pub(crate) shared_percent: u64,
    pub(crate) session_percent: u64,
    /// Share of clients that use a front end (gRPC or WebSocket), in percent.
    pub(crate) front_percent: u64,
    pub(crate) priority_percent: u64,
    pub(crate) release_after_percent: u64,
    pub(crate) request_id_percent: u64,
    pub(crate) forever_percent: u64,
    /// Share of acts that cause a fault, in percent.
    pub(crate) fault_percent: u64,
    pub(crate) renew_percent: u64,
    pub(crate) latency_us: u64,
    pub(crate) late_percent: u64,
    pub(crate) late_max_us: u64,
    pub(crate) late_notice_percent: u64,
    pub(crate) fragment_percent: u64,
    pub(crate) small_buffer_percent: u64,
    /// Mean time between two interferences with the server's threads.
    pub(crate) interfere_us: u64,
    pub(crate) stall_percent: u64,
    pub(crate) stall_max_us: u64,
    /// Number of remaining operations at which the server begins to stop; `None` without a stop.
    pub(crate) stops_before: Option<u32>,
    /// Kinds of namespaces in the run.
    pub(crate) mix: Mix,
    /// Settings of the log and the cluster; `None` if nothing survives a crash of the server.
    pub(crate) durability: Option<Durability>,
    /// Settings for clients that act at the last moment, half-close connections, or do not read; `None`
    /// without them.
    pub(crate) edge: Option<Edge>,
    /// Settings of real clients; `None` without them.
    pub(crate) processes: Option<ProcessSettings>,
    /// Settings of identities, rights and quotas; `None` if no client has an identity.
    pub(crate) identities: Option<Identities>,
}

impl Settings {
    /// Chooses the settings of a seed. `operation_count` overrides the length of the run.
    pub(crate) fn new(seed: u64, operation_count: Option<u32>, random: &mut Random) -> Self {
        let is_short = seed.is_multiple_of(SHORT_EVERY);
        let is_crowd = operation_count.is_none() && seed % CROWD_EVERY == CROWD_EVERY / 2 + 1;
        let short = random.spread(100, 800) as u32;
        let operation_count = operation_count.unwrap_or(match (is_crowd, is_short) {
            (true, _) => CROWD_OPERATION_COUNT,
            (false, true) => short,
            (false, false) => LONG_OPERATION_COUNT,
        });
        let worker_count = random.between(1, 4) as usize;
        let is_forgetful = random.once_in(8) && !is_crowd;
        let is_tight = random.once_in(8) && !is_crowd;
        let key_count = if is_forgetful { 10 } else { random.between(1, 5) };
        let mix = if is_crowd { Mix::of_crowd(seed) } else { Mix::new(seed) };
        let cluster = ClusterSettings::new(seed).filter(|_| mix.may_begin_anew());
        let key_count = mix.key_count.unwrap_or(key_count);
        let keys = (0..key_count).map(|number| key_name(number, random)).collect();
        let mut limits = Limits {
            claim_count_max: 1 << 14,
            idle_key_count_max: 1 << 10,
            kept_bucket_count: 2,
            lease_default_ms: 700,
            lease_max_ms: 6_000,
            priority_step_ms: 20,
            priority_boost_max_ms: 100,
            // In every other seed even small sets of paths enter over several turns.
            large_set_segment_count: if seed.is_multiple_of(2) { 1024 } else { 2 },
            // A small limit leaves follow-up work for later turns.
            work_per_turn: random.pick(&[4, 5, 8, 16, 1024]).unwrap_or(1024),
            ..Limits::default()
        };
        if is_forgetful {
            limits.idle_key_count_max = random.between(1, 3) as u32;
        }
        if is_tight {
            match random.below(3) {
                0 => limits.claim_count_max = 16 * random.between(2, 6) as u32,
                1 => limits.waiter_count_per_key_max = random.between(1, 3) as u32,
                _ => limits.linked_claim_count_per_lane_max = random.between(1, 3) as u32,
            }
        }
        if let Some(bucket_count_max) = bucket_count_max(seed, &mix) {
            limits.bucket_count_max = bucket_count_max;
        }
        let mut node_seed = [0; 32];
        for chunk in node_seed.chunks_mut(8) {
            chunk.copy_from_slice(&random.any().to_le_bytes());
        }
        let pace_us = random.spread(600, 12_000);
        let edge = Edge::new(seed).filter(|_| !is_crowd);
        Self {
            operation_count,
            worker_count,
            client_count: if is_crowd { CROWD_CLIENT_COUNT } else { random.between(2, 7) as usize },
            keys,
            limits,
            session_vacant_ms: session_vacant_ms(seed, is_crowd),
            node_seed,
            start_ms: random.spread(1, 1 << 40),
            is_forgetful,
            is_tight,
            is_crowd,
            pace_us,
            lease_max_ms: random.spread(60, 7_000),
            wait_max_ms: random.spread(20, 3_000),
            shared_percent: random.pick(&[0, 30, 50, 80]).unwrap_or(30),
            session_percent: random.pick(&[0, 50, 80, 100]).unwrap_or(50),
            front_percent: random
                .pick(&[0, 0, 30, 60])
                .unwrap_or(0)
                .max(edge.map_or(0, |edge| edge.front_percent)),
            priority_percent: random.pick(&[0, 0, 20, 60]).unwrap_or(0),
            release_after_percent: random.pick(&[0, 20, 60]).unwrap_or(20),
            request_id_percent: random.pick(&[0, 20, 60]).unwrap_or(20),
            forever_percent: random.pick(&[0, 10, 30]).unwrap_or(10),
            fault_percent: random.pick(&[0, 2, 5, 10, 20]).unwrap_or(5),
            renew_percent: random.pick(&[20, 50, 90]).unwrap_or(50),
            latency_us: random.spread(40, 4_000),
            late_percent: random.pick(&[0, 1, 5]).unwrap_or(1),
            late_max_us: random.spread(2_000, 2_000_000),
            late_notice_percent: random.pick(&[0, 10, 50]).unwrap_or(10),
            fragment_percent: random.pick(&[0, 5, 40]).unwrap_or(5),
            small_buffer_percent: random.pick(&[0, 0, 20, 60]).unwrap_or(0),
            interfere_us: random.spread(300, 40_000),
            stall_percent: random.pick(&[0, 10, 40]).unwrap_or(10),
            stall_max_us: random.spread(1_000, 4_000_000),
            stops_before: random.once_in(5).then(|| random.below(100) as u32),
            mix,
            // If a restart has other shards than before, a limit that is too small for the restored holds
            // would keep the server from starting.
            durability: Durability::new(seed, cluster).filter(|_| !is_tight),
            edge,
            processes: None,
            identities: None,
        }
    }

    /// Adds the real clients of this seed. They slow down the rest of the run, because their renewals and
    /// outages take seconds.
    pub(crate) fn add_processes(&mut self, seed: u64) {
        self.processes = ProcessSettings::new(seed, &self.mix);
        let Some(processes) = &self.processes else { return };
        let acts_per_client = u64::from(self.operation_count) / self.client_count as u64 + 1;
        self.pace_us = self.pace_us.max(processes.lasts_us / acts_per_client);
        self.interfere_us = self.interfere_us.max(20_000);
        self.stall_max_us = self.stall_max_us.min(1_000_000);
        if let Some(durability) = &mut self.durability {
            durability.disaster_us = durability.disaster_us.map(|mean_us| mean_us * 8);
        }
    }

    /// Adds the identities of this seed.
    pub(crate) fn add_identities(&mut self, seed: u64) {
        // Tenants would take the room of other clients if a limit is small.
        let has_room = !self.is_tight && !self.is_forgetful && !self.is_crowd;
        self.identities = Identities::new(seed).filter(|_| has_room);
    }

    /// Returns the settings of the log; `None` if the server has no log.
    pub(crate) fn log(&self) -> Option<Durability> {
        self.durability.filter(|durability| durability.has_log)
    }

    /// Returns whether some clients create and remove namespaces of their own.
    pub(crate) fn has_visitors(&self) -> bool {
        self.durability.is_some_and(|durability| durability.visitor_count > 0)
    }

    /// Returns the settings of the cluster; `None` if there is no cluster.
    pub(crate) fn cluster(&self) -> Option<ClusterSettings> {
        self.durability?.cluster
    }

    /// Returns whether sessions without a connection and without a claim end before their leases.
    pub(crate) fn ends_vacant_sessions(&self) -> bool {
        self.session_vacant_ms < SESSION_VACANT_MS
    }

    /// Returns the name of a key on the wire.
    pub(crate) fn name_of(&self, key: Key) -> Vec<u8> {
        match self.keys.get(usize::from(key)) {
            Some(name) if kind_of(key) == NamespaceKind::Flat => name.clone(),
            _ => key::name_of(key),
        }
    }

    /// Returns the keys that can be inspected, which are all keys except buckets.
    pub(crate) fn inspected_keys(&self) -> Vec<Key> {
        let flat = (0..self.keys.len() as Key).chain([TREE]);
        flat.chain(self.mix.named_keys()).filter(|key| kind_of(*key) != NamespaceKind::Limit).collect()
    }

    pub(crate) fn pool_order(&self, pool: Key) -> PoolOrder {
        self.mix.order_of(pool)
    }

    pub(crate) fn rule_of(&self, bucket: Key) -> Rule {
        self.mix.rule_of(bucket)
    }

    /// Returns the names that determine shards: keys of all kinds, and the names of tree namespaces.
    pub(crate) fn sharded_names(&self) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        for kind in NamespaceKind::ALL.into_iter().filter(|kind| self.mix.kinds().contains(kind)) {
            match kind {
                NamespaceKind::Flat => names.extend(self.keys.iter().cloned()),
                NamespaceKind::Tree => names.push(kind.name().as_bytes().to_vec()),
                _ => {
                    let keys = self.mix.named_keys();
                    names.extend(keys.into_iter().filter(|key| kind_of(*key) == kind).map(key::name_of));
                }
            }
        }
        if self.has_visitors() {
            names.extend(VISITED_KEYS.iter().map(|key| key.to_vec()));
        }
        if self.identities.is_some() {
            names.extend(TENANT_KEYS.iter().map(|key| key.to_vec()));
        }
        names
    }

    /// Converts a time of the run to milliseconds on the server's clock. The conversion holds until the
    /// machine is rebooted.
    pub(crate) fn server_ms(&self, now_us: u64) -> u64 {
        self.start_ms + now_us / 1000
    }

    /// Returns the lease that the server grants for a requested lease.
    pub(crate) fn given_lease_ms(&self, asked_ms: u32) -> u32 {
        if asked_ms == 0 { self.limits.lease_default_ms } else { asked_ms.min(self.limits.lease_max_ms) }
    }

    /// Returns the time by which this priority moves a waiter ahead.
    pub(crate) fn boost_ms(&self, priority: u32) -> u64 {
        let Limits { priority_step_ms, priority_boost_max_ms, .. } = self.limits;
        u64::from(priority.saturating_mul(priority_step_ms).min(priority_boost_max_ms))
    }

    pub(crate) fn choose_key(&self, random: &mut Random) -> Key {
        let count = self.keys.len() as u64;
        let is_hot = self.is_crowd && random.once_in(2);
        random.below(if is_hot { HOT_KEY_COUNT } else { count }) as Key
    }

    /// Chooses the lease that a client asks for.
    pub(crate) fn choose_lease_ms(&self, random: &mut Random) -> u32 {
        match random.below(40) {
            0..=1 => 0,
            // More than the server grants.
            2 => 2 * self.limits.lease_max_ms,
            _ => random.spread(10, self.lease_max_ms) as u32,
        }
    }

    /// Chooses an acquire for a client of this kind.
    pub(crate) fn choose_acquire(
        &self,
        random: &mut Random,
        kind: NamespaceKind,
        has_session: bool,
        unix_us: u64,
    ) -> Acquire {
        let session_lease = has_session && random.percent(30);
        let wait_ms = match random.below(100) {
            0..=19 => 0,
            dice if dice < 20 + self.forever_percent => u32::MAX,
            _ => random.spread(1, self.wait_max_ms) as u32,
        };
        let release_after_ms = random
            .percent(self.release_after_percent)
            .then(|| if random.once_in(3) { 0 } else { random.spread(1, 1_500) as u32 });
        let priority = random
            .percent(self.priority_percent)
            .then(|| if random.once_in(4) { random.spread(10, 1_000) } else { random.below(5) } as u32);
        let acquire = Acquire {
            key: self.choose_key(random),
            shared: random.percent(self.shared_percent),
            wait_ms,
            lease_ms: if session_lease { 0 } else { self.choose_lease_ms(random) },
            session_lease,
            notify_queued: random.percent(70),
            release_after_ms,
            priority,
            request_id: random.percent(self.request_id_percent).then(|| random.below(3) as u8),
            label: None,
            form: Form::One,
            scope: self.choose_scope(random),
        };
        // A request id names only claims of its own owner.
        let is_labelled = acquire.request_id.is_none() && random.once_in(5);
        let acquire = Acquire { label: is_labelled.then(|| random.below(1_000) as u32), ..acquire };
        self.formed(acquire, random, kind, unix_us)
    }

    pub(crate) fn choose_scope(&self, random: &mut Random) -> Scope {
        let Some(Durability { local_percent, cluster, has_log, .. }) = self.durability else {
            return Scope::Ephemeral;
        };
        if cluster.is_some_and(|cluster| random.percent(cluster.quorum_percent)) {
            Scope::Quorum
        } else if has_log && random.percent(local_percent) {
            Scope::Local
        } else {
            Scope::Ephemeral
        }
    }

    /// Changes an acquire so that it fits this kind of namespace.
    fn formed(&self, acquire: Acquire, random: &mut Random, kind: NamespaceKind, unix_us: u64) -> Acquire {
        if let Some((key, form)) = self.mix.choose_form(kind, unix_us, random) {
            let shared = matches!(form, Form::Paths(paths) if paths.is_shared());
            let endless = key == TREE
                && acquire.release_after_ms.is_some()
                && !acquire.session_lease
                && random.once_in(4);
            let lease_ms = if endless { u32::MAX } else { acquire.lease_ms };
            return Acquire { key, shared, lease_ms, priority: None, form, ..acquire };
        }
        let keys = self.mix.choose_keys(self.keys.len() as u64, self.shared_percent, random);
        let Some((keys, (key, shared))) = keys.and_then(|keys| Some((keys, *keys.items().first()?))) else {
            return acquire;
        };
        let is_patient = self.mix.is_philosophical() && random.percent(90);
        let wait_ms = if is_patient { u32::MAX } else { acquire.wait_ms };
        Acquire { key, shared, wait_ms, form: Form::Keys(keys), ..acquire }
    }
}

/// Chooses the lifetime of a session without a connection and a claim. In half of the seeds it is shorter
/// than the leases of sessions. It has its own random source, so that the other choices of the seed do not
/// depend on it.
fn session_vacant_ms(seed: u64, is_crowd: bool) -> u64 {
    let random = &mut Random::new(seed ^ 0x7661_6361_6e63_7900);
    if is_crowd || random.once_in(2) { SESSION_VACANT_MS } else { random.spread(50, 1_500) }
}

/// Chooses the size of the bucket table. In half of the seeds with buckets, the table of each shard has room
/// for one bucket, or the table of the only shard has room for one or two.
fn bucket_count_max(seed: u64, mix: &Mix) -> Option<u32> {
    let random = &mut Random::new(seed ^ 0x6275_636b_6574_7300);
    let is_small = mix.kinds().contains(&NamespaceKind::Limit) && random.once_in(2);
    is_small.then(|| random.between(1, 2) as u32)
}

/// Chooses a short or a long name, because the server stores short and long keys in different ways.
fn key_name(number: u64, random: &mut Random) -> Vec<u8> {
    let mut name = format!("key-{number}-{}", random.below(1_000));
    if random.once_in(4) {
        name.push_str("-which-is-longer-than-what-fits-in-place");
    }
    name.into_bytes()
}
