//! Validated parameters of one load: of `run`, or of one slice of `compare`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use waymaker_client::Credentials;

use crate::address::{Address, Login};
use crate::options::{Keys, RedisRelease, RunOptions, Window, WorkloadName};
use crate::scope::Scope;
use crate::shape::Shape;
use crate::system::System;
use crate::tls::TlsConnector;

/// All parameters of one load. Printed with every result.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Address of the target.
    pub target: String,
    /// System at that address.
    #[serde(skip)]
    pub system: System,
    /// Resolved socket address of the target.
    #[serde(skip)]
    pub socket_address: SocketAddr,
    /// User and database, for systems that have them.
    #[serde(skip)]
    pub login: Login,
    /// TLS settings; `None` without encryption.
    #[serde(skip)]
    pub tls: Option<TlsConnector>,
    /// Token of the clients.
    #[serde(skip)]
    pub credentials: Credentials,
    /// Number of connections, over all threads.
    pub connections: u32,
    /// Number of requests in flight on each connection.
    pub depth: u32,
    /// Number of threads that share the connections.
    pub threads: u32,
    /// Length of the measurement.
    #[serde(serialize_with = "as_seconds")]
    pub duration: Duration,
    /// Length of the load before the measurement.
    #[serde(serialize_with = "as_seconds")]
    pub warmup: Duration,
    /// Number of keys.
    pub key_count: u32,
    /// Whether each key is used once; the number of keys is then unlimited.
    pub has_distinct_keys: bool,
    /// Length of each key, in bytes.
    pub key_size: u16,
    /// Lease of each hold, in milliseconds.
    pub lease_ms: u32,
    /// Workload of the connections.
    pub workload: WorkloadName,
    /// Durability of the locks.
    pub scope: Scope,
    /// Command that releases a lock in Redis.
    pub redis_release: RedisRelease,
    /// Parameters that only some workloads have.
    pub shape: Shape,
    /// Requests per second, over all connections; `None` is a closed loop.
    pub rate: Option<u64>,
    /// How each connection refills its requests in flight.
    pub window: Window,
    /// Seed of all random choices.
    pub seed: u64,
    /// Cores for the threads in turn; if empty, the scheduler chooses.
    pub pin: Vec<usize>,
    /// Whether the workers busy-poll.
    pub spin: bool,
    /// Time that a client waits after a busy response before it tries again.
    #[serde(skip)]
    pub poll_interval: Duration,
    /// Whether every latency is kept, with its time.
    #[serde(skip)]
    pub keeps_samples: bool,
}

fn as_seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// Default request rate of the bystanders of a storm, per second.
const STORM_RATE: u64 = 10_000;

impl Plan {
    /// Returns the plan of a `run`, or an error for combinations that cannot work.
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
            bail!("--lease is out of range; it must be 1 ms to {} ms", u32::MAX);
        };
        if options.duration.is_zero() {
            bail!("--duration is 0s; it must be longer than 0s");
        }
        let is_storm = matches!(workload, WorkloadName::ExpiryStorm | WorkloadName::ReadersStorm);
        if workload == WorkloadName::Churn && (options.rate.is_some() || options.depth > 1) {
            bail!("--workload churn opens one connection after the other; leave out --rate and --depth");
        }
        let window = match (options.window, options.rate) {
            (Some(Window::Burst), Some(_)) => bail!(
                "--rate needs a sliding window, which sends each request when it is due; leave out --window burst"
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
            credentials: options.token.credentials(&options.target)?,
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

    /// Rejects scopes that the system or the workload does not support.
    fn check_scope(&self) -> Result<()> {
        let name = self.workload.name();
        match self.workload {
            _ if self.scope == Scope::Ephemeral => Ok(()),
            WorkloadName::Throttle => {
                bail!("--scope local: the workload {name} takes no locks; leave out --scope")
            }
            workload if workload.is_scenario() => {
                bail!("--scope local: the workload {name} supports locks in memory only; leave out --scope")
            }
            _ if self.system == System::Locktopus => {
                bail!("--scope local: Locktopus has no durable locks; leave out --scope")
            }
            _ if self.system == System::Postgres => {
                bail!(
                    "--scope local: advisory locks of PostgreSQL are not durable, they end with their \
                     connection; leave out --scope"
                )
            }
            _ if self.system == System::Slock => {
                bail!(
                    "--scope local: slock has no durable locks, it grants a lock before it writes the lock to \
                     its file; leave out --scope"
                )
            }
            _ if self.system.is_echo() => bail!(
                "--scope local: an echo server holds no locks; to measure the minimum cost of a durable server, \
                 start the \
                 echo server with --sync FILE and leave out --scope"
            ),
            _ => Ok(()),
        }
    }

    /// Rejects plans that would deadlock, and plans whose grants could not be checked.
    pub fn check(&self) -> Result<()> {
        let in_flight = u64::from(self.connections) * u64::from(self.depth);
        let name = self.workload.name();
        if self.system.is_grpc() {
            self.check_grpc()?;
        }
        if matches!(self.system, System::Locktopus | System::WebSocketEcho) && self.depth > 1 {
            bail!(
                "--depth must be 1, because a WebSocket of Locktopus has one lock at a time; use more connections"
            );
        }
        if self.system == System::Postgres && self.depth > 1 {
            bail!(
                "--depth must be 1, because PostgreSQL grants a lock again to the connection that holds it; use more \
                 connections"
            );
        }
        if self.system == System::Consul {
            self.check_consul()?;
        }
        match self.workload {
            // Each request in flight uses its own keys, so that no request waits for another.
            WorkloadName::Pair | WorkloadName::Put | WorkloadName::Stream | WorkloadName::Guard
                if u64::from(self.key_count) < in_flight =>
            {
                bail!(
                    "--keys is {}, which is too few; the workload {name} needs one key for each of the {} x {} \
                     requests in flight",
                    self.key_count,
                    self.connections,
                    self.depth
                )
            }
            workload if workload.contends() && self.window == Window::Burst && self.depth > 1 => bail!(
                "--window burst could deadlock, because connections would hold some keys while they wait for \
                 others; use --window sliding with the workload {name}"
            ),
            WorkloadName::Renew | WorkloadName::HeldGuards if self.key_count < self.connections => bail!(
                "--keys is {}, which is too few; each of the {} connections needs at least one key",
                self.key_count,
                self.connections
            ),
            WorkloadName::Guard | WorkloadName::HeldGuards => self.check_library(),
            WorkloadName::Pair | WorkloadName::Idle => Ok(()),
            WorkloadName::Stream | WorkloadName::HeldStreams if !self.system.is_grpc() => {
                bail!("--workload {name}: only gRPC targets have streams; use --target grpc://HOST:PORT")
            }
            WorkloadName::Put if self.system != System::Etcd => {
                bail!("--workload {name}: it measures commits of etcd only; use --target etcd://HOST:PORT")
            }
            WorkloadName::Hot | WorkloadName::Rw if self.system == System::Locktopus => Ok(()),
            _ if self.system == System::Locktopus => {
                bail!("--workload {name}: Locktopus supports pair, hot, rw and idle only")
            }
            WorkloadName::Rw if matches!(self.system, System::Redis | System::Consul) => {
                bail!("--workload rw: {} has no shared locks; use pair or hot", self.system.title())
            }
            WorkloadName::Hot | WorkloadName::Renew
                if matches!(self.system, System::Redis | System::Consul) =>
            {
                Ok(())
            }
            _ if matches!(self.system, System::Redis | System::Consul) => {
                bail!(
                    "--workload {name}: {} has no single command for this workload; use pair or hot",
                    self.system.title()
                )
            }
            WorkloadName::Hot | WorkloadName::Rw
                if matches!(self.system, System::Postgres | System::Slock) =>
            {
                Ok(())
            }
            _ if matches!(self.system, System::Postgres | System::Slock) => {
                bail!("--workload {name}: {} supports pair, hot and rw only", self.system.title())
            }
            _ if matches!(self.system, System::Echo | System::WebSocketEcho) => {
                bail!("--workload {name}: an echo server holds no locks; use pair")
            }
            _ => Ok(()),
        }
    }

    /// Rejects plans that Consul sessions cannot support.
    fn check_consul(&self) -> Result<()> {
        if self.workload.contends() && self.depth > 1 {
            bail!(
                "--depth must be 1 with the workload {}, because Consul grants a lock again to the session that \
                 holds it; \
                 use more connections",
                self.workload.name()
            );
        }
        Ok(())
    }

    /// Rejects plans that only the raw connection supports.
    fn check_library(&self) -> Result<()> {
        let name = self.workload.name();
        if self.system != System::Waymaker || self.tls.is_some() {
            bail!(
                "--workload {name}: the client library supports unencrypted targets only; use --target \
                 waymaker://HOST:PORT"
            );
        }
        if self.rate.is_some() || self.spin {
            bail!(
                "--workload {name}: the client library supports neither --rate nor --spin; leave out --rate and \
                 --spin"
            );
        }
        if self.scope != Scope::Ephemeral {
            bail!(
                "--workload {name}: the client library is measured with locks in memory only; leave out --scope"
            );
        }
        Ok(())
    }

    /// Rejects plans that gRPC targets do not support.
    fn check_grpc(&self) -> Result<()> {
        let name = self.system.name();
        if self.window == Window::Burst && self.depth > 1 {
            bail!("--window burst: {name} supports a sliding window only");
        }
        if self.spin {
            bail!("--spin is not supported for {name}; leave out --spin");
        }
        match self.workload {
            WorkloadName::Pair => Ok(()),
            WorkloadName::Put | WorkloadName::Hot | WorkloadName::Renew if self.system == System::Etcd => {
                Ok(())
            }
            WorkloadName::Stream | WorkloadName::HeldStreams if self.system != System::Etcd => Ok(()),
            workload if self.system == System::Etcd => {
                bail!("--workload {}: etcd supports pair, put, hot and renew only", workload.name())
            }
            workload => {
                bail!("--workload {}: {name} supports pair, stream and held-streams only", workload.name())
            }
        }
    }

    /// Returns all parameters in one line, such as `50 connections x depth 16, ...`.
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
            Scope::Quorum => "quorum, ",
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

    /// Returns the seed of one thread, so that each thread has its own random numbers.
    pub fn thread_seed(&self, thread: u32) -> u64 {
        self.seed.wrapping_add(u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the target as an address.
    pub fn address(&self) -> Address {
        Address {
            system: self.system,
            is_encrypted: self.tls.is_some(),
            host_and_port: self.socket_address.to_string(),
            login: self.login.clone(),
        }
    }
}

/// Returns the number of keys of a workload, and whether it uses each key once.
fn key_count(workload: WorkloadName, shape: &Shape, keys: Option<Keys>) -> Result<(u32, bool)> {
    let name = workload.name();
    let count = match (workload, keys) {
        (WorkloadName::Hot, None | Some(Keys::Count(1)))
        | (WorkloadName::ReadersStorm | WorkloadName::Idle, None) => return Ok((1, false)),
        (WorkloadName::HeldStreams, None) => return Ok((shape.stream_count, false)),
        (WorkloadName::HeldStreams, Some(_)) => {
            bail!("--keys: the workload {name} uses one key for each of its --streams; leave out --keys")
        }
        (WorkloadName::Idle, Some(_)) => {
            bail!("--keys: the workload {name} takes no locks; leave out --keys")
        }
        (WorkloadName::Tree, None) => return Ok((shape.path_count()?, false)),
        (WorkloadName::Hot | WorkloadName::ReadersStorm, Some(_)) => {
            bail!("--keys: the workload {name} has one key; leave out --keys")
        }
        (WorkloadName::Tree, Some(_)) => {
            bail!("--keys: the number of paths of the workload tree follows from --fan-out and --tree-depth")
        }
        (
            WorkloadName::Pair | WorkloadName::Put | WorkloadName::Stream | WorkloadName::Churn,
            Some(Keys::Distinct),
        ) => {
            return Ok((u32::MAX, true));
        }
        (_, Some(Keys::Distinct)) => {
            bail!("--keys distinct: only the workloads pair, stream and churn support distinct keys")
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
        bail!("--keys is {count}; it must be 1 to {}", u32::MAX);
    };
    if key_count < u32::from(shape.item_count) {
        bail!("--items is {}, but there are only {key_count} keys", shape.item_count);
    }
    if key_count < shape.waiter_count {
        bail!("--waiters is {}, but there are only {key_count} leases", shape.waiter_count);
    }
    Ok((key_count, false))
}

/// Returns a random seed.
pub fn draw_seed() -> u64 {
    // 32 bits, so that people can type the seed again.
    u64::from(rand::random::<u32>())
}
