//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::address::Address;
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
  waymaker-loadgen compare --spawn --markdown table.md
      Starts Waymaker, Redis and an echo server, measures them side by side, prints the table.

One request is one acquire or one release. Every answer is checked; the exit code is 1 if any was wrong.";

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
    Compare(CompareOptions),
    /// Sends back what it gets: what the network alone costs
    #[command(hide = true)]
    EchoServer(EchoServerOptions),
    /// Becomes another program that is pinned to a core and dies with the one who started it
    #[command(hide = true)]
    Pinned(PinnedOptions),
}

/// Options of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunOptions {
    /// What to load: waymaker://HOST:PORT, redis://HOST:PORT or echo://HOST:PORT
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
    /// How long to measure
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub duration: Duration,
    /// How long to load before measuring
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    pub warmup: Duration,
    /// How many keys there are [default: 1M for pair, 1k for rw; hot has one]
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    pub keys: Option<u64>,
    /// Length of each key in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 16, value_parser = clap::value_parser!(u16).range(8..=1024))]
    pub key_size: u16,
    /// Lease of each hold
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    pub lease: Duration,
    /// What the connections do
    #[arg(long, value_enum, default_value_t = WorkloadName::Pair)]
    pub workload: WorkloadName,
    /// Open loop: so many requests a second, whether or not the answers keep up (implies a sliding window)
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// How requests in flight are refilled [default: burst for pair, sliding otherwise]
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
}

/// What the connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadName {
    /// Acquire a random key, release it; nobody is ever in the way
    Pair,
    /// All connections contend for one key
    Hot,
    /// 90 % shared and 10 % exclusive acquires of few keys
    Rw,
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
            Self::Hot => "hot",
            Self::Rw => "rw",
        }
    }
}

/// Options of `compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareOptions {
    /// What to compare: addresses, or with --spawn the names waymaker, redis, echo
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub targets: Vec<String>,
    /// Starts the servers it needs, and stops them
    #[arg(long)]
    pub spawn: bool,
    /// The waymaker-server to start [default: beside this program, then on PATH]
    #[arg(long, value_name = "FILE")]
    pub server_bin: Option<PathBuf>,
    /// Rows to measure, as CONNECTIONSxDEPTH
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "50x1,50x16,50x128,1x1")]
    pub rows: Vec<RowShape>,
    /// Rounds of every row; in each round every target gets one slice
    #[arg(long, value_name = "COUNT", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Length of one slice
    #[arg(long, value_name = "TIME", default_value = "800ms", value_parser = humantime::parse_duration)]
    pub slice: Duration,
    /// How many keys there are
    #[arg(long, value_name = "COUNT", default_value = "1M", value_parser = parse_count)]
    pub keys: u64,
    /// Seed of every random choice [default: drawn and printed]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Core for servers that are started here
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub server_core: usize,
    /// Core for the load
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    pub load_core: usize,
    /// Few short slices and few keys: shows that all of it works, measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Also writes the tables here
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Also writes everything, slice by slice, here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Connections and depth of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RowShape {
    /// Connections.
    pub connections: u32,
    /// Requests in flight on each.
    pub depth: u32,
}

impl std::str::FromStr for RowShape {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shape = text.split_once('x').and_then(|(connections, depth)| {
            Some(Self { connections: connections.parse().ok()?, depth: depth.parse().ok()? })
        });
        match shape {
            Some(shape @ Self { connections: 1..=100_000, depth: 1..=1024 }) => Ok(shape),
            _ => anyhow::bail!("{text:?} is no row, as in 50x16: 1 to 100000 connections, depth 1 to 1024"),
        }
    }
}

impl std::fmt::Display for RowShape {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}x{}", self.connections, self.depth)
    }
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
}

/// Options of `pinned`.
#[derive(Clone, Debug, Args)]
pub struct PinnedOptions {
    /// The core
    #[arg(long)]
    pub core: Option<usize>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<std::ffi::OsString>,
}
