//! One load, checked: what `run` was asked for, or one slice of `compare`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::address::{Address, Login, System};
use crate::options::{Keys, RedisRelease, RunOptions, Window, WorkloadName};
use crate::scope::Scope;
use crate::shape::Shape;
use crate::tls::TlsConnector;

/// Everything that decides what one load does. Printed with every result.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The target, as an address.
    pub target: String,
    /// What speaks there.
    #[serde(skip)]
    pub system: System,
    /// The same address in numbers.
    #[serde(skip)]
    pub socket_address: SocketAddr,
    /// Whose database it is, where the system has such.
    #[serde(skip)]
    pub login: Login,
    /// How its connections are encrypted, if they are.
    #[serde(skip)]
    pub tls: Option<TlsConnector>,
    /// Connections over all threads.
    pub connections: u32,
    /// Requests in flight on each.
    pub depth: u32,
    /// Threads that share the connections.
    pub threads: u32,
    /// How long to measure.
    #[serde(serialize_with = "as_seconds")]
    pub duration: Duration,
    /// How long to load before.
    #[serde(serialize_with = "as_seconds")]
    pub warmup: Duration,
    /// How many keys there are.
    pub key_count: u32,
    /// Each key is used once; there are as many as it takes.
    pub has_distinct_keys: bool,
    /// Length of each in bytes.
    pub key_size: u16,
    /// Lease of each hold in milliseconds.
    pub lease_ms: u32,
    /// What the connections do.
    pub workload: WorkloadName,
    /// What the locks outlive.
    pub scope: Scope,
    /// How Redis gives up a lock.
    pub redis_release: RedisRelease,
    /// What only some workloads have.
    pub shape: Shape,
    /// Requests a second over all connections; `None` is a closed loop.
    pub rate: Option<u64>,
    /// How requests in flight are refilled.
    pub window: Window,
    /// Seed of every random choice.
    pub seed: u64,
    /// Cores for the threads in turn; empty leaves them to the scheduler.
    pub pin: Vec<usize>,
    /// Never sleep.
    pub spin: bool,
    /// How long a client that was told busy waits before it asks again.
    #[serde(skip)]
    pub poll_interval: Duration,
    /// Every latency is kept, with its time.
    #[serde(skip)]
    pub keeps_samples: bool,
}

fn as_seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// Requests a second of those who notice a storm, where nothing is said.
const STORM_RATE: u64 = 10_000;

impl Plan {
    /// The plan of a `run`; refuses combinations that cannot work.
    pub fn from_options(options: &RunOptions) -> Result<Self> {
        let workload = options.workload;
        let shape = Shape::of(workload, &options.shape)?;
        let (key_count, has_distinct_keys) = key_count(workload, &shape, options.keys)?;
        let lease_default = Duration::from_secs(match workload {
            WorkloadName::ExpiryStorm => 10,
            WorkloadName::HeldStreams => 600,
            _ => 30,
        });
        let Ok(lease_ms @ 1..) = u32::try_from(options.lease.unwrap_or(lease_default).as_millis()) else {
            bail!("--lease: 1 ms to {} ms", u32::MAX);
        };
        if options.duration.is_zero() {
            bail!("--duration: nothing can be measured in no time");
        }
        let is_storm = matches!(workload, WorkloadName::ExpiryStorm | WorkloadName::ReadersStorm);
        if workload == WorkloadName::Churn && (options.rate.is_some() || options.depth > 1) {
            bail!("--workload churn opens one connection after the other: leave out --rate and --depth");
        }
        let window = match (options.window, options.rate) {
            (Some(Window::Burst), Some(_)) => bail!(
                "--rate sends each request when it is due, which no burst does: leave out --window burst"
            ),
            (_, Some(_)) => Window::Sliding,
            (Some(window), None) => window,
            (None, None) if options.target.system.is_grpc() => Window::Sliding,
            (None, None)
                if matches!(workload, WorkloadName::Pair | WorkloadName::Throttle | WorkloadName::Renew) =>
            {
                Window::Burst
            }
            (None, None) => Window::Sliding,
        };
        let plan = Self {
            target: options.target.to_string(),
            system: options.target.system,
            socket_address: options.target.resolve()?,
            login: options.target.login.clone(),
            tls: options.tls.connector(&options.target)?,
            connections: options.connections,
            depth: options.depth,
            threads: options.threads.min(options.connections),
            duration: options.duration,
            warmup: options.warmup,
            key_count,
            has_distinct_keys,
            key_size: options.key_size,
            lease_ms,
            workload,
            scope: options.scope,
            redis_release: options.redis_release,
            shape,
            rate: options.rate.or(is_storm.then_some(STORM_RATE)),
            window,
            seed: options.seed.unwrap_or_else(draw_seed),
            pin: options.pin.clone().map(|cores| cores.0).unwrap_or_default(),
            spin: options.spin,
            poll_interval: Duration::ZERO,
            keeps_samples: false,
        };
        plan.check()?;
        plan.check_scope()?;
        Ok(plan)
    }

    /// Refuses a scope where there is nothing that it could be of.
    fn check_scope(&self) -> Result<()> {
        let name = self.workload.name();
        match self.workload {
            _ if self.scope == Scope::Ephemeral => Ok(()),
            WorkloadName::Throttle => {
                bail!("--scope local: a bucket is no lock; leave it out with the workload {name}")
            }
            workload if workload.is_scenario() => {
                bail!(
                    "--scope local: the workload {name} is about locks that end with their lease or connection"
                )
            }
            _ if self.system == System::Locktopus => {
                bail!("--scope local: Locktopus has no durable locks")
            }
            _ if self.system == System::Postgres => {
                bail!("--scope local: an advisory lock of PostgreSQL ends with its connection")
            }
            _ if self.system == System::Slock => {
                bail!(
                    "--scope local: slock grants a lock before it writes it to its file, and never syncs that"
                )
            }
            _ if self.system.is_echo() => bail!(
                "--scope local: an echo holds no locks; start it with --sync FILE and leave out --scope to see what a \
                 durable server costs at least"
            ),
            _ => Ok(()),
        }
    }

    /// Refuses what would deadlock or could not be checked.
    pub fn check(&self) -> Result<()> {
        let in_flight = u64::from(self.connections) * u64::from(self.depth);
        let name = self.workload.name();
        if self.system.is_grpc() {
            self.check_grpc()?;
        }
        if matches!(self.system, System::Locktopus | System::WebSocketEcho) && self.depth > 1 {
            bail!("--depth: a WebSocket of Locktopus has one lock at a time; use more connections");
        }
        if self.system == System::Postgres && self.depth > 1 {
            bail!(
                "--depth: PostgreSQL gives a connection a lock that it holds already once more, so it has one request at a \
                 time; use more connections"
            );
        }
        if self.system == System::Consul {
            self.check_consul()?;
        }
        match self.workload {
            // Each request in flight has keys of its own, so that none is ever in the way of another.
            WorkloadName::Pair | WorkloadName::Put | WorkloadName::Stream | WorkloadName::Guard
                if u64::from(self.key_count) < in_flight =>
            {
                bail!(
                    "--keys: {} keys are too few, the workload {name} needs one for each of the {} x {} requests in flight",
                    self.key_count,
                    self.connections,
                    self.depth
                )
            }
            workload if workload.contends() && self.window == Window::Burst && self.depth > 1 => bail!(
                "--window burst: it would keep some keys while it waits for others, and two connections could wait \
                 for each other for ever; use --window sliding with the workload {name}"
            ),
            WorkloadName::Renew | WorkloadName::HeldGuards if self.key_count < self.connections => bail!(
                "--keys: {} keys are too few, each of the {} connections renews at least one",
                self.key_count,
                self.connections
            ),
            WorkloadName::Guard | WorkloadName::HeldGuards => self.check_library(),
            WorkloadName::Pair | WorkloadName::Idle => Ok(()),
            WorkloadName::Stream | WorkloadName::HeldStreams if !self.system.is_grpc() => {
                bail!("--workload {name}: only gRPC has streams; use --target grpc://HOST:PORT")
            }
            WorkloadName::Put if self.system != System::Etcd => {
                bail!(
                    "--workload {name}: it is there to see what a commit of etcd costs; use --target etcd://HOST:PORT"
                )
            }
            WorkloadName::Hot | WorkloadName::Rw if self.system == System::Locktopus => Ok(()),
            _ if self.system == System::Locktopus => {
                bail!("--workload {name}: Locktopus is loaded with pair, hot, rw and idle only")
            }
            WorkloadName::Rw if matches!(self.system, System::Redis | System::Consul) => bail!(
                "--workload rw: {} has no shared locks, so there is nothing to compare with; use pair or hot",
                self.system.title()
            ),
            WorkloadName::Hot | WorkloadName::Renew
                if matches!(self.system, System::Redis | System::Consul) =>
            {
                Ok(())
            }
            _ if matches!(self.system, System::Redis | System::Consul) => {
                bail!(
                    "--workload {name}: {} has no single command for it; use pair or hot",
                    self.system.title()
                )
            }
            WorkloadName::Hot | WorkloadName::Rw
                if matches!(self.system, System::Postgres | System::Slock) =>
            {
                Ok(())
            }
            _ if matches!(self.system, System::Postgres | System::Slock) => {
                bail!("--workload {name}: {} is loaded with pair, hot and rw only", self.system.title())
            }
            _ if matches!(self.system, System::Echo | System::WebSocketEcho) => {
                bail!("--workload {name}: an echo holds no locks, so nobody waits; use pair")
            }
            _ => Ok(()),
        }
    }

    /// Refuses what the session of a connection makes meaningless or impossible.
    fn check_consul(&self) -> Result<()> {
        if self.workload.contends() && self.depth > 1 {
            bail!(
                "--depth: Consul gives a session a lock that it holds already once more, so with the workload {} each \
                 connection has one request at a time; use more connections",
                self.workload.name()
            );
        }
        Ok(())
    }

    /// Refuses what is done by the raw connection only.
    fn check_library(&self) -> Result<()> {
        let name = self.workload.name();
        if self.system != System::Waymaker || self.tls.is_some() {
            bail!("--workload {name}: our client library is loaded as waymaker://HOST:PORT only");
        }
        if self.rate.is_some() || self.spin {
            bail!("--workload {name}: leave out --rate and --spin, which our client library does not have");
        }
        if self.scope != Scope::Ephemeral {
            bail!("--workload {name}: our client library is loaded with locks in memory; leave out --scope");
        }
        Ok(())
    }

    /// Refuses what only the loop that drives all others can do.
    fn check_grpc(&self) -> Result<()> {
        let name = self.system.name();
        if self.window == Window::Burst && self.depth > 1 {
            bail!("--window burst: {name} is loaded with a sliding window only");
        }
        if self.spin {
            bail!("--spin: the client of {name} sleeps");
        }
        match self.workload {
            WorkloadName::Pair => Ok(()),
            WorkloadName::Put | WorkloadName::Hot | WorkloadName::Renew if self.system == System::Etcd => {
                Ok(())
            }
            WorkloadName::Stream | WorkloadName::HeldStreams if self.system != System::Etcd => Ok(()),
            workload if self.system == System::Etcd => {
                bail!("--workload {}: etcd is loaded with pair, put, hot and renew only", workload.name())
            }
            workload => {
                bail!(
                    "--workload {}: {name} is loaded with pair, stream and held-streams only",
                    workload.name()
                )
            }
        }
    }

    /// `50 connections x depth 16` and the rest, in one line.
    pub fn describe(&self) -> String {
        let loop_kind = match self.rate {
            Some(rate) => format!("open loop at {rate} requests/s"),
            None => format!("{} window", self.window.name()),
        };
        let pin = if self.pin.is_empty() { String::new() } else { format!(", pinned to {:?}", self.pin) };
        let spin = if self.spin { ", spinning" } else { "" };
        let key_count =
            if self.has_distinct_keys { "distinct".to_owned() } else { self.key_count.to_string() };
        let scope = match self.scope {
            Scope::Ephemeral => "",
            Scope::Local => "durable, ",
            Scope::Quorum => "counted by a cluster, ",
        };
        let shape = self.shape.describe();
        format!(
            "{} on {}: {scope}{shape}{} connections x depth {}, {loop_kind}, {} threads{pin}{spin}, {key_count} keys of {} bytes, \
             lease {} ms, seed {}",
            self.workload.name(),
            self.target,
            self.connections,
            self.depth,
            self.threads,
            self.key_size,
            self.lease_ms,
            self.seed
        )
    }

    /// Every thread draws from a stream of its own.
    pub fn thread_seed(&self, thread: u32) -> u64 {
        self.seed.wrapping_add(u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The target again as an address.
    pub fn address(&self) -> Address {
        Address {
            system: self.system,
            is_encrypted: self.tls.is_some(),
            host_and_port: self.socket_address.to_string(),
            login: self.login.clone(),
        }
    }
}

/// How many keys a workload has, and whether it uses each once.
fn key_count(workload: WorkloadName, shape: &Shape, keys: Option<Keys>) -> Result<(u32, bool)> {
    let name = workload.name();
    let count = match (workload, keys) {
        (WorkloadName::Hot, None | Some(Keys::Count(1)))
        | (WorkloadName::ReadersStorm | WorkloadName::Idle, None) => return Ok((1, false)),
        (WorkloadName::HeldStreams, None) => return Ok((shape.stream_count, false)),
        (WorkloadName::HeldStreams, Some(_)) => {
            bail!("--keys: each of the --streams of the workload {name} has a key of its own")
        }
        (WorkloadName::Idle, Some(_)) => bail!("--keys: the workload {name} takes no locks"),
        (WorkloadName::Tree, None) => return Ok((shape.path_count()?, false)),
        (WorkloadName::Hot | WorkloadName::ReadersStorm, Some(_)) => {
            bail!("--keys: the workload {name} has one key")
        }
        (WorkloadName::Tree, Some(_)) => {
            bail!("--keys: the paths of the workload tree follow from --fan-out and --tree-depth")
        }
        (
            WorkloadName::Pair | WorkloadName::Put | WorkloadName::Stream | WorkloadName::Churn,
            Some(Keys::Distinct),
        ) => {
            return Ok((u32::MAX, true));
        }
        (_, Some(Keys::Distinct)) => {
            bail!("--keys distinct: only the workloads pair, stream and churn can do so")
        }
        (
            WorkloadName::Pair
            | WorkloadName::Put
            | WorkloadName::Stream
            | WorkloadName::Guard
            | WorkloadName::Churn
            | WorkloadName::ExpiryStorm,
            None,
        ) => 1_000_000,
        (WorkloadName::Multi | WorkloadName::HeldGuards, None) => 100_000,
        (_, None) => 1_000,
        (_, Some(Keys::Count(count))) => count,
    };
    let Ok(key_count @ 1..) = u32::try_from(count) else {
        bail!("--keys: {count} keys; there may be 1 to {}", u32::MAX);
    };
    if key_count < u32::from(shape.item_count) {
        bail!("--items: {} different keys of {key_count} cannot be", shape.item_count);
    }
    if key_count < shape.waiter_count {
        bail!("--waiters: {} of {key_count} leases cannot have a waiter", shape.waiter_count);
    }
    Ok((key_count, false))
}

/// A seed nobody chose.
pub fn draw_seed() -> u64 {
    // Short enough to type again.
    u64::from(rand::random::<u32>())
}
