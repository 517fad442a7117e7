//! Options of the subcommands, except `compare`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use crate::address::Address;
use crate::credentials::TokenOptions;
use crate::scope::Scope;
use crate::system::System;
use crate::tls::TlsOptions;
use crate::units::{Cores, parse_cores, parse_count, parse_rate};

/// Options of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunOptions {
    /// Address of the server: waymaker://, grpc:// or locktopus://HOST:PORT (each also with TLS, such as
    /// waymaker+tls://HOST:PORT), redis://, etcd://, consul:// or slock://HOST:PORT,
    /// postgres://USER@HOST:PORT/DATABASE, or a bare server, echo://, grpc-echo:// or websocket-echo://HOST:PORT
    #[arg(help_heading = "Load")]
    #[arg(long, value_name = "ADDRESS", default_value = "waymaker://127.0.0.1:7420")]
    pub target: Address,
    /// Number of connections, over all threads
    #[arg(help_heading = "Load")]
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Number of requests in flight on each connection
    #[arg(help_heading = "Load")]
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,
    /// Number of threads that share the connections
    #[arg(help_heading = "Load")]
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Length of the measurement; in the storm workloads, the length before the storm and again after it
    #[arg(help_heading = "Measurement")]
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
    /// Length of the load before the measurement
    #[arg(help_heading = "Measurement")]
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    pub warmup: Duration,
    /// Number of keys, pools or buckets. With pair, stream and churn, `distinct` never uses a key twice [default: 1M
    /// for pair, stream, guard, churn and expiry-storm, 100k for multi and held-guards, 1k for rw, semaphore and
    /// throttle]
    #[arg(help_heading = "Locks")]
    #[arg(long, value_name = "COUNT", value_parser = parse_keys)]
    pub keys: Option<Keys>,
    /// Length of each key, in bytes
    #[arg(help_heading = "Locks")]
    #[arg(long, value_name = "BYTES", default_value_t = 16, value_parser = clap::value_parser!(u16).range(8..=1024))]
    pub key_size: u16,
    /// Lease of each hold [default: 30s; 10s for expiry-storm, where it is the time until the storm; 600s for
    /// held-streams]
    #[arg(help_heading = "Locks")]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub lease: Option<Duration>,
    /// Workload to run
    #[arg(help_heading = "Load")]
    #[arg(long, value_enum, default_value_t = WorkloadName::Pair)]
    pub workload: WorkloadName,
    /// Durability of the locks. local needs a server with a data directory. For Redis and etcd this option sends
    /// nothing; durability is a setting of the server
    #[arg(help_heading = "Locks")]
    #[arg(long, value_enum, default_value_t = Scope::Ephemeral)]
    pub scope: Scope,
    /// Command that releases a lock in Redis
    #[arg(help_heading = "Locks")]
    #[arg(long, value_enum, default_value_t = RedisRelease::Script)]
    pub redis_release: RedisRelease,
    /// Open loop: send this many requests per second, even if responses lag behind; implies a sliding window. In the
    /// storm workloads, the rate of the bystanders [default there: 10k]
    #[arg(help_heading = "Load")]
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// How each connection refills its requests in flight [default: burst for pair and throttle, sliding otherwise]
    #[arg(help_heading = "Load")]
    #[arg(long, value_enum)]
    pub window: Option<Window>,
    /// Seed of all random choices [default: random, printed with the result]
    #[arg(help_heading = "Measurement")]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Pin the threads to these cores in turn, such as 1 or 1,3 or 2-5
    #[arg(help_heading = "Measurement")]
    #[arg(long, value_name = "CORES", value_parser = parse_cores)]
    pub pin: Option<Cores>,
    /// Busy-poll instead of sleeping while waiting for responses
    #[arg(help_heading = "Measurement")]
    #[arg(long)]
    pub spin: bool,
    /// Write the result to this file as JSON too
    #[arg(help_heading = "Measurement")]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Options for encrypted targets.
    #[command(flatten)]
    pub tls: TlsOptions,
    /// Options for targets with tokens.
    #[command(flatten)]
    pub token: TokenOptions,
    /// Options for single workloads.
    #[command(flatten)]
    pub shape: ShapeOptions,
}

/// Options that only some workloads have.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Options for single workloads")]
pub struct ShapeOptions {
    /// rw, tree, multi: percentage of shared acquires [default: 90 for rw, 0 otherwise]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub read_share: Option<u8>,
    /// tree, multi: number of paths in each set, or of keys in each claim [default: 1 for tree, 4 for multi]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub items: Option<u16>,
    /// tree: number of segments in each path [default: 4]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=24))]
    pub tree_depth: Option<u8>,
    /// tree: number of children of each node; the tree has fan-out ^ tree-depth paths [default: 32]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub fan_out: Option<u32>,
    /// semaphore: capacity of each pool, in permits [default: 10]
    #[arg(long, value_name = "PERMITS", value_parser = clap::value_parser!(u32).range(1..))]
    pub capacity: Option<u32>,
    /// semaphore: permits of each hold [default: 1]
    #[arg(long, value_name = "PERMITS", value_parser = clap::value_parser!(u32).range(1..))]
    pub permits: Option<u32>,
    /// throttle: tokens that each bucket regains per second [default: 1000]
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u32).range(1..))]
    pub bucket_rate: Option<u32>,
    /// throttle: tokens in a full bucket [default: 100]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub burst: Option<u32>,
    /// churn: open a session on each connection, which owns the lock; held-guards: let the session own the guards
    #[arg(long)]
    pub sessions: bool,
    /// guard: open a connection to every worker of the server and send each request to the worker that owns its key
    #[arg(long)]
    pub per_worker: bool,
    /// readers-storm: number of waiting readers [default: 100k]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub readers: Option<u64>,
    /// held-streams: number of held locks [default: 100k]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub streams: Option<u64>,
    /// expiry-storm: number of leases that another client waits for [default: 0]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub waiters: Option<u64>,
}

/// Number of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// A fixed number of keys.
    Count(u64),
    /// An unlimited number of keys, none of them used twice.
    Distinct,
}

fn parse_keys(text: &str) -> anyhow::Result<Keys> {
    if text == "distinct" { Ok(Keys::Distinct) } else { parse_count(text).map(Keys::Count) }
}

/// Workload of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadName {
    /// Acquire and release random keys without contention
    Pair,
    /// Put random keys
    Put,
    /// Acquire and release pairs, each with a stream that is open while the lock is held
    Stream,
    /// All connections contend for one key
    Hot,
    /// Shared and exclusive acquires of few keys
    Rw,
    /// Acquires of sets of paths
    Tree,
    /// Acquires of several keys at once
    Multi,
    /// Acquires of permits
    Semaphore,
    /// Requests to the rate limiter
    Throttle,
    /// Renewals of leases that stay held
    Renew,
    /// Connections and sessions that open, take a lock and close
    Churn,
    /// Many leases that expire in one timer tick
    ExpiryStorm,
    /// Many readers that wait behind one writer
    ReadersStorm,
    /// Idle connections
    Idle,
    /// Held locks, each with its own gRPC stream
    HeldStreams,
    /// Acquire and release pairs through the Rust client library
    Guard,
    /// Guards of the Rust client library that stay held and renew themselves
    HeldGuards,
}

/// Command that releases a lock in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RedisRelease {
    /// A script that deletes the key only if it still has the owner's value, as a careful client does
    Script,
    /// DEL without a check of the owner; the lower bound of the cost
    Del,
}

/// How a connection refills its requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// Send `depth` requests at once, then wait for all responses
    Burst,
    /// Send the next request as soon as a response arrives
    Sliding,
}

impl Window {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Sliding => "sliding",
        }
    }
}

impl WorkloadName {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Put => "put",
            Self::Stream => "stream",
            Self::Hot => "hot",
            Self::Rw => "rw",
            Self::Tree => "tree",
            Self::Multi => "multi",
            Self::Semaphore => "semaphore",
            Self::Throttle => "throttle",
            Self::Renew => "renew",
            Self::Churn => "churn",
            Self::ExpiryStorm => "expiry-storm",
            Self::ReadersStorm => "readers-storm",
            Self::Idle => "idle",
            Self::HeldStreams => "held-streams",
            Self::Guard => "guard",
            Self::HeldGuards => "held-guards",
        }
    }

    /// Whether the workload is a scenario with several phases instead of one steady load.
    pub fn is_scenario(self) -> bool {
        matches!(
            self,
            Self::Churn
                | Self::ExpiryStorm
                | Self::ReadersStorm
                | Self::Idle
                | Self::HeldStreams
                | Self::HeldGuards
        )
    }

    /// Whether acquires of this workload conflict with each other, so that some have to wait.
    pub fn contends(self) -> bool {
        matches!(self, Self::Hot | Self::Rw | Self::Tree | Self::Multi | Self::Semaphore)
    }
}

/// Options of `grpc-echo-server` and `websocket-echo-server`.
#[derive(Clone, Debug, Args)]
pub struct BareServerOptions {
    /// Listen address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub listen: String,
}

/// Options of `echo-server`.
#[derive(Clone, Debug, Args)]
pub struct EchoServerOptions {
    /// Listen address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// Busy-poll instead of sleeping while waiting for requests
    #[arg(long)]
    pub spin: bool,
    /// Write 4 KiB to this file and sync it, once per batch of requests read from one connection, before answering.
    /// The file must not exist; it takes 64 MiB
    #[arg(long, value_name = "FILE")]
    pub sync: Option<PathBuf>,
}

/// Options of `obtain`.
#[derive(Clone, Debug, Args)]
pub struct ObtainOptions {
    /// Lock servers to install: redis, etcd and postgres come from Debian packages; consul and slock are built with
    /// Go, which takes minutes
    #[arg(required = true, value_name = "NAME", value_parser = obtainable())]
    pub systems: Vec<System>,
    /// Checkout of github.com/snower/slock to build slock from; the Go module proxy does not serve it
    #[arg(long, value_name = "DIR")]
    pub slock_source: Option<PathBuf>,
}

/// Parses the name of a system that `obtain` can install.
fn obtainable() -> impl TypedValueParser<Value = System> {
    const SYSTEMS: [System; 5] =
        [System::Redis, System::Etcd, System::Postgres, System::Consul, System::Slock];
    PossibleValuesParser::new(SYSTEMS.map(System::name)).map(|name| {
        SYSTEMS.into_iter().find(|system| system.name() == name).expect("the parser accepts only these names")
    })
}

/// Options of `pinned`.
#[derive(Clone, Debug, Args)]
pub struct PinnedOptions {
    /// Core to pin the program to
    #[arg(long)]
    pub core: Option<usize>,
    /// User to run the program as
    #[arg(long)]
    pub user: Option<String>,
    /// Send SIGQUIT instead of SIGKILL when the parent ends, so that the program can end its own child processes
    #[arg(long)]
    pub quit: bool,
    /// Program and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<std::ffi::OsString>,
}
