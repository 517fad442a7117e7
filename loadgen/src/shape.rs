//! Parameters that only some workloads have: sets, pools, buckets, storms.

use anyhow::{Result, bail};
use serde::Serialize;

use crate::options::{ShapeOptions, WorkloadName};

/// Maximum number of paths in a tree, because state is kept for each path.
const PATH_COUNT_MAX: u32 = 1 << 24;

/// Parameters of one workload beyond connections and keys; 0 if the workload has no such parameter.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Shape {
    /// Percentage of shared acquires.
    pub read_percent: u8,
    /// Number of paths in each set, or of keys in each claim.
    pub item_count: u16,
    /// Number of segments in each path.
    pub tree_depth: u8,
    /// Number of children of each node.
    pub fan_out: u32,
    /// Capacity of each pool, in permits.
    pub capacity: u32,
    /// Permits of each hold.
    pub permits: u32,
    /// Tokens that each bucket regains per second.
    pub bucket_rate: u32,
    /// Tokens in a full bucket.
    pub burst: u32,
    /// Whether each connection opens a session.
    pub has_sessions: bool,
    /// Whether each client has a connection to every worker of the server.
    pub per_worker: bool,
    /// Number of readers behind the writer.
    pub reader_count: u32,
    /// Number of leases that another client waits for.
    pub waiter_count: u32,
    /// Number of held locks, each with its own stream.
    pub stream_count: u32,
}

impl Shape {
    /// Returns the parameters of this workload, or an error for options that it does not have.
    pub fn of(workload: WorkloadName, options: &ShapeOptions) -> Result<Self> {
        use WorkloadName::{
            Churn, ExpiryStorm, Guard, HeldGuards, HeldStreams, Multi, ReadersStorm, Rw, Semaphore, Throttle,
            Tree,
        };
        for (option, is_given, workloads) in [
            ("--read-share", options.read_share.is_some(), &[Rw, Tree, Multi][..]),
            ("--items", options.items.is_some(), &[Tree, Multi]),
            ("--tree-depth", options.tree_depth.is_some(), &[Tree]),
            ("--fan-out", options.fan_out.is_some(), &[Tree]),
            ("--capacity", options.capacity.is_some(), &[Semaphore]),
            ("--permits", options.permits.is_some(), &[Semaphore]),
            ("--bucket-rate", options.bucket_rate.is_some(), &[Throttle]),
            ("--burst", options.burst.is_some(), &[Throttle]),
            ("--sessions", options.sessions, &[Churn, HeldGuards]),
            ("--per-worker", options.per_worker, &[Guard]),
            ("--readers", options.readers.is_some(), &[ReadersStorm]),
            ("--waiters", options.waiters.is_some(), &[ExpiryStorm]),
            ("--streams", options.streams.is_some(), &[HeldStreams]),
        ] {
            if is_given && !workloads.contains(&workload) {
                let names: Vec<_> = workloads.iter().map(|workload| workload.name()).collect();
                bail!(
                    "{option} has no effect with the workload {}; it applies only to {}",
                    workload.name(),
                    names.join(", ")
                );
            }
        }
        let count = |option: &str, count: Option<u64>, default: u32| match count.map(u32::try_from) {
            None => Ok(default),
            Some(Ok(count)) => Ok(count),
            Some(Err(_)) => bail!("{option} is too large; the maximum is {}", u32::MAX),
        };
        let nothing = Self::default();
        let shape = match workload {
            Rw => Self { read_percent: options.read_share.unwrap_or(90), item_count: 1, ..nothing },
            Tree => Self {
                read_percent: options.read_share.unwrap_or(0),
                item_count: options.items.unwrap_or(1),
                tree_depth: options.tree_depth.unwrap_or(4),
                fan_out: options.fan_out.unwrap_or(32),
                ..nothing
            },
            Multi => Self {
                read_percent: options.read_share.unwrap_or(0),
                item_count: options.items.unwrap_or(4),
                ..nothing
            },
            Semaphore => {
                let (capacity, permits) = (options.capacity.unwrap_or(10), options.permits.unwrap_or(1));
                if permits > capacity {
                    bail!("--permits is {permits}, but each pool has a --capacity of {capacity}");
                }
                Self { capacity, permits, ..nothing }
            }
            Throttle => Self {
                bucket_rate: options.bucket_rate.unwrap_or(1000),
                burst: options.burst.unwrap_or(100),
                ..nothing
            },
            Churn | HeldGuards => Self { has_sessions: options.sessions, ..nothing },
            Guard => Self { per_worker: options.per_worker, ..nothing },
            ReadersStorm => {
                let reader_count = count("--readers", options.readers, 100_000)?;
                if reader_count == 0 {
                    bail!("--readers is 0; it must be at least 1");
                }
                Self { reader_count, ..nothing }
            }
            ExpiryStorm => Self { waiter_count: count("--waiters", options.waiters, 0)?, ..nothing },
            HeldStreams => {
                let stream_count = count("--streams", options.streams, 100_000)?;
                if stream_count == 0 {
                    bail!("--streams is 0; it must be at least 1");
                }
                Self { stream_count, ..nothing }
            }
            WorkloadName::Pair
            | WorkloadName::Put
            | WorkloadName::Stream
            | WorkloadName::Hot
            | WorkloadName::Renew
            | WorkloadName::Idle => nothing,
        };
        Ok(shape)
    }

    /// Returns the number of paths at the deepest level of the tree.
    pub fn path_count(&self) -> Result<u32> {
        match self.fan_out.checked_pow(u32::from(self.tree_depth)) {
            Some(count @ 1..=PATH_COUNT_MAX) => Ok(count),
            _ => bail!(
                "--fan-out is {}, which gives too many paths with --tree-depth {}; the maximum is {PATH_COUNT_MAX}",
                self.fan_out,
                self.tree_depth
            ),
        }
    }

    /// Describes the parameters that apply, as the beginning of a list; empty if none apply.
    pub fn describe(&self) -> String {
        let mut words = Vec::new();
        let mut say = |is_there: bool, text: String| words.extend(is_there.then_some(text));
        say(self.item_count > 0, format!("{} per claim, {} % shared", self.item_count, self.read_percent));
        say(self.tree_depth > 0, format!("paths of {} segments, fan-out {}", self.tree_depth, self.fan_out));
        say(self.capacity > 0, format!("{} of {} permits", self.permits, self.capacity));
        say(
            self.burst > 0,
            format!("buckets of {} tokens that regain {} per second", self.burst, self.bucket_rate),
        );
        say(self.has_sessions, "with sessions".to_owned());
        say(self.reader_count > 0, format!("{} readers", self.reader_count));
        say(self.waiter_count > 0, format!("{} waiters", self.waiter_count));
        say(self.stream_count > 0, format!("{} streams", self.stream_count));
        words.iter().map(|word| format!("{word}, ")).collect()
    }
}
