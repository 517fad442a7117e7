//! Command-line options of `compare`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::front::Front;
use crate::scope::Scope;
use crate::system::System;
use crate::units::parse_count;

/// Section at the end of the help of `compare`.
pub const EXIT_CODES: &str = "\
Exit code:
  0  All responses were correct. With --baseline-bin or --rights, all rows also passed. --quick compares no rows.
  1  A response was wrong. With --baseline-bin or --rights, also: a row is slower by more than 3 %.
  2  The measurement failed. With --baseline-bin or --rights, also: a row is inconclusive (fewer than 15 valid
     rounds).

Examples:
  waymaker-loadgen compare --spawn --markdown table.md
  waymaker-loadgen compare --scope local --spawn --dir /var/tmp
  waymaker-loadgen compare --front grpc --spawn
  waymaker-loadgen compare --baseline-bin old/waymaker-server
  waymaker-loadgen compare --rights
  waymaker-loadgen compare --spawn --html report.html";

/// Options of `compare`.
#[derive(Clone, Debug, Args)]
pub struct CompareOptions {
    /// Targets to compare: addresses, or with --spawn the names waymaker, redis, etcd and echo; with --front the
    /// names of its systems, such as grpc, grpc-echo, etcd. The names consul, postgres and slock, or etcd without
    /// --scope and --front, select the contest of lock servers [default with --html:
    /// waymaker,redis,etcd,consul,postgres,slock]
    #[arg(help_heading = "What to compare")]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub targets: Vec<String>,
    /// Durability of the locks; local compares servers that write each lock to a disk before they answer
    #[arg(help_heading = "What to compare")]
    #[arg(long, value_enum, default_value_t = Scope::Ephemeral)]
    pub scope: Scope,
    /// Compare a front end of Waymaker with a bare server of the same library; for gRPC, also with etcd
    #[arg(help_heading = "What to compare")]
    #[arg(long, value_enum)]
    pub front: Option<Front>,
    /// Compare the Rust client library with the raw connection of this program, one request at a time
    #[arg(help_heading = "What to compare")]
    #[arg(long, conflicts_with_all = ["scope", "front", "rows", "html"])]
    pub library: bool,
    /// Start the required servers, and stop them at the end
    #[arg(help_heading = "Servers")]
    #[arg(long)]
    pub spawn: bool,
    /// waymaker-server to start [default: beside this program, then on PATH]
    #[arg(help_heading = "Servers")]
    #[arg(long, value_name = "FILE")]
    pub server_bin: Option<PathBuf>,
    /// Checkout of github.com/snower/slock to build slock from, for a contest [default: slock on PATH, then the last
    /// one built]
    #[arg(help_heading = "Servers")]
    #[arg(long, value_name = "DIR")]
    pub slock_source: Option<PathBuf>,
    /// Older waymaker-server to compare with the server of --server-bin. Starts both, measures nothing else, and
    /// reports the rows that became slower; combines with --scope local, --front and --quick
    #[arg(help_heading = "What to compare")]
    #[arg(long, value_name = "FILE")]
    pub baseline_bin: Option<PathBuf>,
    /// Compare the server with tokens and rights for its clients with the same server without. Starts both, and
    /// reports the rows that are slower; combines with --scope local, --front and --quick
    #[arg(help_heading = "What to compare")]
    #[arg(long, conflicts_with = "baseline_bin")]
    pub rights: bool,
    /// Directory in which servers of --scope local --spawn, and etcd, create their temporary directories; choose a
    /// real disk [default: the current directory]
    #[arg(help_heading = "Servers")]
    #[arg(long, value_name = "PATH")]
    pub dir: Option<PathBuf>,
    /// Rows to measure, as CONNECTIONSxDEPTH [default: 50x1,50x16,50x128,1x1; with --scope local 50x1,50x16,1x1; with
    /// --front 50x1,1x1, for gRPC also 8x16]
    #[arg(help_heading = "Measurement")]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub rows: Vec<RowShape>,
    /// Number of rounds of each row; in each round every target gets one slice [default: 7; in a contest 3; with
    /// --baseline-bin or --rights 15, the minimum for a verdict]
    #[arg(help_heading = "Measurement")]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Length of one slice [default: 800ms; in a contest 1s]
    #[arg(help_heading = "Measurement")]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub slice: Option<Duration>,
    /// Number of keys
    #[arg(help_heading = "Measurement")]
    #[arg(long, value_name = "COUNT", default_value = "1M", value_parser = parse_count)]
    pub keys: u64,
    /// Seed of all random choices [default: random, printed with the result]
    #[arg(help_heading = "Measurement")]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Core for the servers that this program starts
    #[arg(help_heading = "Servers")]
    #[arg(long, value_name = "CORE", default_value_t = 0)]
    pub server_core: usize,
    /// Core for the load generator
    #[arg(help_heading = "Measurement")]
    #[arg(long, value_name = "CORE", default_value_t = 1)]
    pub load_core: usize,
    /// Run one round of short slices with few keys; checks that everything works, but the numbers mean nothing
    #[arg(help_heading = "Measurement")]
    #[arg(long)]
    pub quick: bool,
    /// Write the tables to this file as Markdown too
    #[arg(help_heading = "Output")]
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write the results to this file as JSON too: every slice; for a contest, the result of each load
    #[arg(help_heading = "Output")]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Run the contest of lock servers with all its loads, and write its page to this file; the page loads no other
    /// files
    #[arg(help_heading = "Output")]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl CompareOptions {
    /// Returns the options with their defaults filled in, and with the shortened settings of `--quick`.
    pub fn complete(&self) -> Result<Self> {
        let mut options = self.clone();
        if options.front.is_some() && options.scope != Scope::Ephemeral {
            bail!("--front compares locks in memory only; leave out --scope");
        }
        if options.dir.is_some() && !(options.spawn && options.has_disk()) {
            bail!(
                "--dir has no effect: no server that writes to a disk is started; use it with --spawn and \
                 --scope local or quorum"
            );
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

    /// Number of rounds of each row.
    pub fn round_count(&self) -> u32 {
        self.rounds.unwrap_or(7)
    }

    /// Length of one slice.
    pub fn slice_length(&self) -> Duration {
        self.slice.unwrap_or(Duration::from_millis(800))
    }

    /// Directory for servers that write to a disk.
    pub fn folder(&self) -> Option<&Path> {
        self.has_disk().then(|| self.dir.as_deref().unwrap_or(Path::new(".")))
    }

    /// Length of the keys. With rights, keys have a beginning that a rule names.
    pub fn key_size(&self) -> u16 {
        if self.rights { 24 } else { 16 }
    }

    /// True if two servers of Waymaker are compared, with a verdict on each row.
    pub fn has_verdict(&self) -> bool {
        self.rights || self.baseline_bin.is_some()
    }

    /// Whether a measured server writes to a disk.
    fn has_disk(&self) -> bool {
        let has_etcd = || self.front.is_some_and(|front| front.includes(System::Etcd));
        self.scope != Scope::Ephemeral || (!self.has_verdict() && has_etcd())
    }

    /// Whether a system is measured. etcd writes all its locks to a disk, so it is not compared with locks in memory,
    /// except with a gRPC front end.
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
            _ => bail!(
                "{text:?} is not a row such as 50x16; a row has 1 to 100000 connections and a depth of 1 to 1024"
            ),
        }
    }
}

impl fmt::Display for RowShape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}x{}", self.connections, self.depth)
    }
}
