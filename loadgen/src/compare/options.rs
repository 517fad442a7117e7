//! The command line of `compare`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::front::Front;
use crate::address::System;
use crate::scope::Scope;
use crate::units::parse_count;

/// The end of the help of `compare`.
pub const EXIT_CODES: &str = "\
Exit code:
  0  every answer was right; with --baseline-bin also every row of load passed. --quick judges no row.
  1  an answer was wrong; with --baseline-bin also if a row of load became slower by more than 3 %.
  2  nothing could be measured; with --baseline-bin also if a row stayed inconclusive: fewer than 15 rounds were valid.";

/// Options of `compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareOptions {
    /// What to compare: addresses, or with --spawn the names waymaker, redis, etcd, echo; with --front those of its
    /// systems, such as grpc, grpc-echo, etcd; consul, postgres and slock, or etcd without --scope and --front, make it a
    /// contest of lock servers [default with --html: waymaker,redis,etcd,consul,postgres,slock]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub targets: Vec<String>,
    /// What the locks outlive; local compares durable locks, of servers that write to a disk before they answer
    #[arg(long, value_enum, default_value_t = Scope::Ephemeral)]
    pub scope: Scope,
    /// Compares a front end of ours with a bare server of the same library, and by gRPC with etcd
    #[arg(long, value_enum)]
    pub front: Option<Front>,
    /// Compares our client library with the raw connection of this program, one request at a time
    #[arg(long, conflicts_with_all = ["scope", "front", "rows", "html"])]
    pub library: bool,
    /// Starts the servers it needs, and stops them
    #[arg(long)]
    pub spawn: bool,
    /// The waymaker-server to start [default: beside this program, then on PATH]
    #[arg(long, value_name = "FILE")]
    pub server_bin: Option<PathBuf>,
    /// Checkout of github.com/snower/slock to build slock of, for a contest [default: slock on PATH, then the last one built]
    #[arg(long, value_name = "DIR")]
    pub slock_source: Option<PathBuf>,
    /// An older waymaker-server to compare the one of --server-bin with. Both are started here, and nothing else is measured.
    /// Says which rows of load became slower; goes with --scope local, --front and --quick
    #[arg(long, value_name = "FILE")]
    pub baseline_bin: Option<PathBuf>,
    /// Where the servers of --scope local --spawn, and etcd, write, each into a temporary directory of its own there; it should lie
    /// on a real disk [default: the current directory]
    #[arg(long, value_name = "PATH")]
    pub dir: Option<PathBuf>,
    /// Rows to measure, as CONNECTIONSxDEPTH [default: 50x1,50x16,50x128,1x1; with --scope local 50x1,50x16,1x1;
    /// with --front 50x1,1x1, by gRPC also 8x16]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub rows: Vec<RowShape>,
    /// Rounds of every row; in each round every target gets one slice [default: 7; in a contest 3; with
    /// --baseline-bin 15, the least for a verdict]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Length of one slice [default: 800ms; in a contest 1s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub slice: Option<Duration>,
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
    /// One round of short slices and few keys: shows that everything works, measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Also writes the tables here
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Also writes everything, slice by slice, here; of a contest what each load came to
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Makes it a contest of lock servers, in all shapes of load, and writes its page here: one file, nothing to fetch
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl CompareOptions {
    /// What is measured for these options: defaults filled in, and less of it where they say `--quick`.
    pub fn complete(&self) -> Result<Self> {
        let mut options = self.clone();
        if options.front.is_some() && options.scope != Scope::Ephemeral {
            bail!("--front: front ends are compared with locks in memory; leave out --scope");
        }
        if options.dir.is_some() && !(options.spawn && options.has_disk()) {
            bail!("--dir is where servers write that --scope local or quorum --spawn starts, and etcd");
        }
        if options.rows.is_empty()
            && let Some(front) = options.front
        {
            options.rows = front.rows();
        }
        if options.rows.is_empty() {
            let rows: &[(u32, u32)] = match options.scope {
                Scope::Ephemeral => &[(50, 1), (50, 16), (50, 128), (1, 1)],
                Scope::Local => &[(50, 1), (50, 16), (1, 1)],
                Scope::Quorum => &[(50, 1), (1, 1)],
            };
            options.rows = rows.iter().map(|&(connections, depth)| RowShape { connections, depth }).collect();
        }
        if options.quick {
            options.rounds = Some(1);
            options.slice.get_or_insert(Duration::from_millis(50));
            options.keys = options.keys.min(20_000);
        }
        Ok(options)
    }

    /// Rounds of every row.
    pub fn round_count(&self) -> u32 {
        self.rounds.unwrap_or(7)
    }

    /// Length of one slice.
    pub fn slice_length(&self) -> Duration {
        self.slice.unwrap_or(Duration::from_millis(800))
    }

    /// Where servers write whose disk matters.
    pub fn folder(&self) -> Option<&Path> {
        self.has_disk().then(|| self.dir.as_deref().unwrap_or(Path::new(".")))
    }

    /// Whether the disk of some server matters.
    fn has_disk(&self) -> bool {
        let has_etcd = || self.front.is_some_and(|front| front.includes(System::Etcd));
        self.scope != Scope::Ephemeral || (self.baseline_bin.is_none() && has_etcd())
    }

    /// Whether a system is measured at all. etcd writes all of its locks to a disk, so there is nothing to compare with
    /// locks in memory, but for a front end by the same library.
    pub fn includes(&self, system: System) -> bool {
        match (self.front, self.scope) {
            _ if self.library => system == System::Waymaker,
            (Some(front), _) => front.includes(system),
            (None, Scope::Ephemeral) => matches!(system, System::Waymaker | System::Redis | System::Echo),
            (None, Scope::Local) => {
                matches!(system, System::Waymaker | System::Redis | System::Etcd | System::Echo)
            }
            (None, Scope::Quorum) => matches!(system, System::Waymaker | System::Etcd),
        }
    }
}

/// Connections and depth of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RowShape {
    /// Connections.
    pub connections: u32,
    /// Requests in flight on each.
    pub depth: u32,
}

impl FromStr for RowShape {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shape = text.split_once('x').and_then(|(connections, depth)| {
            Some(Self { connections: connections.parse().ok()?, depth: depth.parse().ok()? })
        });
        match shape {
            Some(shape @ Self { connections: 1..=100_000, depth: 1..=1024 }) => Ok(shape),
            _ => bail!("{text:?} is no row, as in 50x16: 1 to 100000 connections, depth 1 to 1024"),
        }
    }
}

impl fmt::Display for RowShape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}x{}", self.connections, self.depth)
    }
}
