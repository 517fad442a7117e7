//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::address::{Address, System};
use crate::compare::{self, options::CompareOptions};
use crate::scope::Scope;
use crate::tls::TlsOptions;
use crate::units::{Cores, parse_cores, parse_count, parse_rate};

const EXAMPLES: &str = "\
Examples:
  waymaker-loadgen
      The canonical workload against a server on this machine: 50 connections, one request each at a time.
  waymaker-loadgen --target redis://127.0.0.1:6379 --depth 16
      The same against Redis, 16 requests in flight on each connection.
  waymaker-loadgen --rate 100k --duration 10s
      Open loop: 100,000 requests a second; latency counts from when each should have been sent.
  waymaker-loadgen --workload hot --connections 64
      All contend for one key; shows how long one holder's release takes to become the next one's grant.
  waymaker-loadgen --scope local
      Durable locks: a server with a data directory writes each to its disk before it answers.
  waymaker-loadgen --target etcd://127.0.0.1:2379
      Lock and Unlock of etcd, which are always durable.
  waymaker-loadgen --target postgres://postgres@127.0.0.1:5432/postgres --workload rw
      Advisory locks of PostgreSQL, shared and exclusive.
  waymaker-loadgen --target consul://127.0.0.1:8500
      Keys of Consul, each connection with a session of its own.
  waymaker-loadgen --target waymaker+tls://locks.example:7420 --tls-ca ca.pem
      Through TLS. A server whose certificate that CA did not sign is refused.
  waymaker-loadgen compare --spawn --markdown table.md
      Starts Waymaker, Redis and an echo server, measures them side by side, prints the table.
  waymaker-loadgen compare --scope local --spawn --dir /var/tmp
      The same of durable locks, with etcd too, and an echo that syncs; the servers write to the disk of that directory.
  waymaker-loadgen compare --scope quorum --spawn --dir /var/tmp
      Acquires whose fences an etcd cluster counts, against puts of the same etcd.
  waymaker-loadgen compare --front grpc --spawn
      A front end of ours against a bare server of the same library, and against etcd; also grpc-stream and locktopus.
  waymaker-loadgen compare --library --spawn
      Our client library against the raw connection of this program.
  waymaker-loadgen compare --baseline-bin old/waymaker-server
      An older build of waymaker-server against the one beside this program: says which rows of load became slower.
  waymaker-loadgen compare --spawn --html report.html
      A contest of lock servers (waymaker,redis,etcd,consul,postgres,slock; --targets chooses): pairs, hand-over, readers,
      waiters, renewals and memory of each, as a page with plots. Says who is absent and why; takes ten minutes.

Workloads, what they measure, and an example of each:
  pair           acquire a random key, release it, nobody in the way: the cost of the server itself
      waymaker-loadgen --workload pair --keys distinct     (never a key twice: idle keys fold into the floor)
  hot            one key that all want: how long one's release takes to become the next one's grant
      waymaker-loadgen --workload hot --connections 64
  rw             readers and writers over few keys: how long each waits for its grant
      waymaker-loadgen --workload rw --read-share 50 --keys 100
  tree           sets of paths, each held as a whole
      waymaker-loadgen --workload tree --tree-depth 4 --fan-out 32 --items 3 --read-share 50
  multi          several keys granted at one instant or not at all, released one by one
      waymaker-loadgen --workload multi --items 8 --keys 1k --depth 4
  semaphore      permits of pools
      waymaker-loadgen --workload semaphore --keys 100 --capacity 10 --permits 3 --depth 16
  throttle       requests to the limiter, one each; no bucket may give more than its rate and its burst
      waymaker-loadgen --workload throttle --keys 1k --bucket-rate 1000 --burst 10 --depth 16
  renew          leases that are held all the time, as many as keys, and renewed in turn; Redis too
      waymaker-loadgen --workload renew --keys 10k --rate 1000 --connections 8
  churn          connections that are opened, take one lock and leave with it: the cost of coming and going
      waymaker-loadgen --workload churn --connections 8 --sessions
  expiry-storm   leases that all end in one tick, and what others notice of it
      waymaker-loadgen --workload expiry-storm --keys 1M --waiters 100k
  readers-storm  readers that wait behind one writer, who then leaves, and what others notice of it
      waymaker-loadgen --workload readers-storm --readers 100k --rate 10k
  put            puts of keys to etcd, which are what its locks are made of: how many commits it has in a second
      waymaker-loadgen --target etcd://127.0.0.1:2379 --workload put
  stream         pairs by gRPC whose lock is a stream, from the first event that it is held until its end
      waymaker-loadgen --target grpc://127.0.0.1:7421 --workload stream
  guard          pairs by our client library, whose guards renew themselves: what it costs beside the raw connection of pair
      waymaker-loadgen --workload guard --connections 1
  held-guards    guards of our client library that are held and kept, each with a lease of its own or (--sessions) all on that
                 of their session: how much of a core that takes on both sides
      waymaker-loadgen --workload held-guards --connections 1 --keys 100k --warmup 12s --duration 20s
  idle           connections that do nothing: how much memory of the server each takes
      waymaker-loadgen --target locktopus://127.0.0.1:7422 --workload idle --connections 18000
  held-streams   locks that are held by gRPC, each by a stream: the same of each
      waymaker-loadgen --target grpc://127.0.0.1:7421 --workload held-streams --streams 100k --connections 250

What can be loaded with what:
  waymaker               all but put, stream and held-streams; guard and held-guards without TLS
  grpc                   pair, stream, held-streams
  locktopus              pair, hot, rw, idle; one request at a time on each connection
  redis                  pair, hot (which polls), idle
  etcd                   pair, put
  consul                 pair, hot (which polls; one request at a time on each connection), idle
  postgres               pair, hot, rw, idle; one request at a time on each connection
  slock                  pair, hot, rw, idle
  echo                   pair, idle
  grpc-echo              pair, stream, held-streams
  websocket-echo         pair, idle

One request is one acquire or one release, however many keys it names, or one question to the limiter. Every answer is
checked; the exit code is 1 if any was wrong. Neither throttle nor churn nor a storm has durable locks.";

/// Measures acquire latency and throughput of Waymaker and of others.
#[derive(Debug, Parser)]
#[command(name = "waymaker-loadgen", version, about, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Options {
    /// What to do; `run` if nothing is said.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The options of `run`.
    #[command(flatten)]
    pub run: RunOptions,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Loads one target and reports its latencies and throughput (the default)
    Run(RunOptions),
    /// Measures several targets side by side, in short slices that take turns
    #[command(after_help = compare::options::EXIT_CODES)]
    Compare(CompareOptions),
    /// Sends back what it gets: what the network alone costs
    #[command(hide = true)]
    EchoServer(EchoServerOptions),
    /// Says the same to all calls of our gRPC contract: what the library alone costs
    #[command(hide = true)]
    GrpcEchoServer(BareServerOptions),
    /// Says the same to all messages of WebSockets: what the library alone costs
    #[command(hide = true)]
    WebsocketEchoServer(BareServerOptions),
    /// Installs or builds other lock servers, as `compare --spawn` does when it needs them
    Obtain(ObtainOptions),
    /// Becomes another program that is pinned to a core and dies with the one who started it
    #[command(hide = true)]
    Pinned(PinnedOptions),
}

/// Options of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunOptions {
    /// What to load: waymaker://HOST:PORT, grpc://HOST:PORT, locktopus://HOST:PORT, redis://HOST:PORT, etcd://HOST:PORT,
    /// consul://HOST:PORT, postgres://USER@HOST:PORT/DATABASE, slock://HOST:PORT, echo://HOST:PORT,
    /// grpc-echo://HOST:PORT or websocket-echo://HOST:PORT; the first three also through TLS, as
    /// waymaker+tls://HOST:PORT, grpc+tls://HOST:PORT and locktopus+tls://HOST:PORT
    #[arg(long, value_name = "ADDRESS", default_value = "waymaker://127.0.0.1:7420")]
    pub target: Address,
    /// Connections, over all threads
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,
    /// Requests in flight on each connection
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,
    /// Threads that share the connections
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// How long to measure; in storms how long before and again after
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
    /// How long to load before measuring
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    pub warmup: Duration,
    /// How many keys, pools or buckets there are, or with pair, stream and churn `distinct`: none is used twice [default: 1M
    /// for pair, stream, guard, churn and expiry-storm, 100k for multi and held-guards, 1k for rw, semaphore and throttle]
    #[arg(long, value_name = "COUNT", value_parser = parse_keys)]
    pub keys: Option<Keys>,
    /// Length of each key in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 16, value_parser = clap::value_parser!(u16).range(8..=1024))]
    pub key_size: u16,
    /// Lease of each hold [default: 30s; 10s for expiry-storm, where it is until the leases end]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub lease: Option<Duration>,
    /// What the connections do
    #[arg(long, value_enum, default_value_t = WorkloadName::Pair)]
    pub workload: WorkloadName,
    /// What the locks outlive; local needs a server with a data directory. Redis and etcd are told nothing: there it is a
    /// setting of the server
    #[arg(long, value_enum, default_value_t = Scope::Ephemeral)]
    pub scope: Scope,
    /// How Redis gives up a lock
    #[arg(long, value_enum, default_value_t = RedisRelease::Script)]
    pub redis_release: RedisRelease,
    /// Open loop: so many requests a second, whether or not the answers keep up (implies a sliding window); in storms
    /// the rate of the others [default there: 10k]
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// How requests in flight are refilled [default: burst for pair and throttle, sliding otherwise]
    #[arg(long, value_enum)]
    pub window: Option<Window>,
    /// Seed of every random choice [default: drawn and printed]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Pins the threads to these cores in turn, as in 1 or 1,3 or 2-5
    #[arg(long, value_name = "CORES", value_parser = parse_cores)]
    pub pin: Option<Cores>,
    /// Never sleep while waiting for answers
    #[arg(long)]
    pub spin: bool,
    /// Also writes the result here as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Options of encrypted targets.
    #[command(flatten)]
    pub tls: TlsOptions,
    /// Options of single workloads.
    #[command(flatten)]
    pub shape: ShapeOptions,
}

/// What only some workloads have.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Options of single workloads")]
pub struct ShapeOptions {
    /// rw, tree, multi: shared acquires of each hundred [default: 90 for rw, 0 otherwise]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub read_share: Option<u8>,
    /// tree, multi: paths of each set, keys of each claim [default: 1 for tree, 4 for multi]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub items: Option<u16>,
    /// tree: segments of each path [default: 4]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=24))]
    pub tree_depth: Option<u8>,
    /// tree: children of each node; fan-out to the power of depth is the number of paths [default: 32]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub fan_out: Option<u32>,
    /// semaphore: permits of each pool [default: 10]
    #[arg(long, value_name = "PERMITS", value_parser = clap::value_parser!(u32).range(1..))]
    pub capacity: Option<u32>,
    /// semaphore: permits of each hold [default: 1]
    #[arg(long, value_name = "PERMITS", value_parser = clap::value_parser!(u32).range(1..))]
    pub permits: Option<u32>,
    /// throttle: tokens that each bucket gets back in a second [default: 1000]
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u32).range(1..))]
    pub bucket_rate: Option<u32>,
    /// throttle: tokens in a full bucket [default: 100]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub burst: Option<u32>,
    /// churn: each connection also opens a session, and its lock is the session's; held-guards: the guards are the session's
    #[arg(long)]
    pub sessions: bool,
    /// guard: each client has a connection to every worker of the server, and each request goes to where its key lives
    #[arg(long)]
    pub per_worker: bool,
    /// readers-storm: readers that wait [default: 100k]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub readers: Option<u64>,
    /// held-streams: locks that are held [default: 100k]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub streams: Option<u64>,
    /// expiry-storm: how many of the leases have somebody who waits for their key [default: none]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub waiters: Option<u64>,
}

/// How many keys there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// So many.
    Count(u64),
    /// No end of them: none is used twice.
    Distinct,
}

fn parse_keys(text: &str) -> anyhow::Result<Keys> {
    if text == "distinct" { Ok(Keys::Distinct) } else { parse_count(text).map(Keys::Count) }
}

/// What the connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadName {
    /// Acquire a random key, release it; nobody is ever in the way
    Pair,
    /// Put a random key
    Put,
    /// Pairs with a stream that is open for as long as the lock is held
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
    /// Questions to the limiter
    Throttle,
    /// Leases that are held and renewed
    Renew,
    /// Connections and sessions that come, take a lock and go
    Churn,
    /// Many leases end in one tick
    ExpiryStorm,
    /// Many readers wait behind one writer
    ReadersStorm,
    /// Connections that do nothing
    Idle,
    /// Locks that are held, each by a stream
    HeldStreams,
    /// Pairs by our client library
    Guard,
    /// Guards of our client library that are held and kept
    HeldGuards,
}

/// How Redis gives up a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RedisRelease {
    /// A script that deletes the key only if it is still its owner's, as a careful client does
    Script,
    /// DEL, whoever holds the key: the least that it can cost
    Del,
}

/// How the requests in flight of one connection are refilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// Sends all of depth at once, waits for all answers
    Burst,
    /// Sends the next request as soon as one is answered
    Sliding,
}

impl Window {
    /// The name as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Sliding => "sliding",
        }
    }
}

impl WorkloadName {
    /// The name as it is typed.
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

    /// A story with a beginning and an end, instead of one load.
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

    /// What one acquire asks for is granted to nobody else meanwhile, so others wait for it.
    pub fn contends(self) -> bool {
        matches!(self, Self::Hot | Self::Rw | Self::Tree | Self::Multi | Self::Semaphore)
    }
}

/// Options of `grpc-echo-server` and `websocket-echo-server`.
#[derive(Clone, Debug, Args)]
pub struct BareServerOptions {
    /// Where to listen
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub listen: String,
}

/// Options of `echo-server`.
#[derive(Clone, Debug, Args)]
pub struct EchoServerOptions {
    /// Where to listen
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// Never sleep while waiting for requests
    #[arg(long)]
    pub spin: bool,
    /// Writes 4 KiB here and syncs, once for every batch of requests read from one connection, before it answers. The
    /// file must not be there yet; it takes 64 MiB
    #[arg(long, value_name = "FILE")]
    pub sync: Option<PathBuf>,
}

/// Options of `obtain`.
#[derive(Clone, Debug, Args)]
pub struct ObtainOptions {
    /// Lock servers to get: redis, etcd and postgres from Debian's packages, consul and slock built with Go in minutes
    #[arg(required = true, value_name = "NAME", value_parser = obtainable())]
    pub systems: Vec<System>,
    /// Checkout of github.com/snower/slock to build slock of; the module proxy of Go does not serve it
    #[arg(long, value_name = "DIR")]
    pub slock_source: Option<PathBuf>,
}

/// Reads the name of a system that `obtain` can get.
fn obtainable() -> impl TypedValueParser<Value = System> {
    const SYSTEMS: [System; 5] =
        [System::Redis, System::Etcd, System::Postgres, System::Consul, System::Slock];
    PossibleValuesParser::new(SYSTEMS.map(System::name)).map(|name| {
        SYSTEMS.into_iter().find(|system| system.name() == name).expect("a possible value is one of them")
    })
}

/// Options of `pinned`.
#[derive(Clone, Debug, Args)]
pub struct PinnedOptions {
    /// The core
    #[arg(long)]
    pub core: Option<usize>,
    /// Who it runs as
    #[arg(long)]
    pub user: Option<String>,
    /// Dies by SIGQUIT, on which a program with processes of its own ends them
    #[arg(long)]
    pub quit: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<std::ffi::OsString>,
}
