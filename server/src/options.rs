//! Server options. Precedence: flags, environment, config file, defaults.

use crate::access::{AccessOptions, LoginLimits};
use crate::audit::AuditTarget;
use crate::driver::AddressLimits;
use crate::front::{
    AllowedHost, AllowedOrigin, BrowserConfig, BrowserFlags, LocketCompatibility, LocketConfig,
};
use crate::maximum::Maximum;
use crate::memory::{BadMemoryLimit, MemoryLimit};
use crate::quorum::options::{QuorumFlags, QuorumOptions, QuorumOptionsError};
use crate::tls::{TlsOptions, TlsVersion};
use clap::Parser;
use serde::Deserialize;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use waymaker_engine::log::{BLOCK_LEN, SEGMENT_LEN_DEFAULT, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN, SegmentHeader};

/// Value that disables an option.
const NONE: &str = "none";
const BOOL: &str = "true|false";

/// Headings of `--help`.
mod heading {
    pub(super) const LISTENING: &str = "Listening";
    pub(super) const DURABILITY: &str = "Durability";
    pub(super) const TLS: &str = "TLS";
    pub(super) const ACCESS: &str = "Identities and rights";
    pub(super) const LIMITS: &str = "Limits and performance";
    pub(super) const LIFECYCLE: &str = "Configuration and shutdown";
    pub(super) const AUDIT: &str = "Audit log";
    pub(super) const CONTRACTS: &str = "Contracts of other lock servers";
}

/// Lock server: locks, read-write locks, semaphores, leader election, rate limits and a registry over a binary protocol,
/// gRPC and WebSocket.
#[derive(Clone, Debug, Default, Parser)]
#[command(
    name = "waymaker-server",
    version,
    after_help = "\
Configuration:
  A flag wins over its environment variable, the variable over the file of --config, and the file over the default.
  In the file an option has the name of its flag with underscores; --locket-* and --quorum-* are in tables:

    listen = \"127.0.0.1:7420\"
    workers = 4
    busy_poll = \"50us\"

    [locket]
    compatibility = \"2024\"
    durable = false

    [quorum]
    endpoints = [\"http://10.0.0.1:2379\", \"http://10.0.0.2:2379\", \"http://10.0.0.3:2379\"]

  A duration is a number with a unit: 50us, 250ms, 5s, 1m, 1h.

Logging:
  The server logs to stderr. WAYMAKER_LOG sets the level, such as `warn` or `info,waymaker_server::log=debug`
  [default: info].

Start:
  When the server accepts connections it prints one line to stdout: `ready` and the address of each listener.

Signals:
  SIGTERM, SIGINT  drain, then stop; a second signal stops at once (see --drain)
  SIGHUP           read the files of --tls-cert, --tls-key, --tls-client-ca, --tls-client-crl, --tokens and --access again,
                   as the server also does by itself a few seconds after they change, and open the file of --audit again

Exit codes:
  0    stopped by a signal
  1    the server could not start; the error is on stderr
  2    the command line is wrong
  74   the disk failed under a mapped log segment; check the disk, then restart the server
  75   a write or sync of the durable log failed; check the disk, then restart the server
  134  the server found a defect in itself (SIGABRT); please report the panic on stderr

Examples:
  waymaker-server
  waymaker-server --listen 127.0.0.1:0 --unix /run/waymaker.sock
  waymaker-server --data-dir /var/lib/waymaker
  waymaker-server --data-dir none
  waymaker-server --listen 0.0.0.0:7420 --tls-cert server.pem --tls-key server.key --tls-client-ca clients.pem
  waymaker-server --quorum-endpoints 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379
  waymaker-server --workers 8 --pin --busy-poll 50us"
)]
pub struct Flags {
    /// Listen address of the binary protocol; port 0 picks a free port [default: 127.0.0.1:7420]
    #[arg(long, env = "WAYMAKER_LISTEN", value_name = "ADDRESS", help_heading = heading::LISTENING)]
    pub listen: Option<String>,
    /// Unix socket on which the binary protocol is served too; never encrypted [default: none]
    #[arg(long, env = "WAYMAKER_UNIX", value_name = "PATH", help_heading = heading::LISTENING)]
    pub unix: Option<PathBuf>,
    /// Listen address of gRPC, or `none` [default: 127.0.0.1:7421]
    #[arg(long, env = "WAYMAKER_GRPC_LISTEN", value_name = "ADDRESS", help_heading = heading::LISTENING)]
    pub grpc_listen: Option<String>,
    /// Listen address of HTTP (/metrics, /healthz, /readyz) and Locktopus over WebSocket, or `none`
    /// [default: 127.0.0.1:7422]
    #[arg(long, env = "WAYMAKER_HTTP_LISTEN", value_name = "ADDRESS", help_heading = heading::LISTENING)]
    pub http_listen: Option<String>,
    /// Listen address that serves only Locktopus, or `none`; Locktopus itself uses port 9009 [default: none]
    #[arg(long, env = "WAYMAKER_LOCKTOPUS_LISTEN", value_name = "ADDRESS", help_heading = heading::LISTENING)]
    pub locktopus_listen: Option<String>,
    /// Names and web pages that may use the HTTP ports.
    #[command(flatten)]
    pub browsers: BrowserFlags,
    /// Allow listening on an address that is not loopback without TLS, and without tokens or client certificates
    /// [default: false]
    #[arg(
        long,
        env = "WAYMAKER_INSECURE",
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = BOOL,
        help_heading = heading::LISTENING
    )]
    pub insecure: Option<bool>,

    /// Directory of the durable log, created if it is missing; one server at a time can use it. `none` runs without a
    /// log: scope local is refused, and no hold survives a restart [default: waymaker-data]
    #[arg(long, env = "WAYMAKER_DATA_DIR", value_name = "DIR", help_heading = heading::DURABILITY)]
    pub data_dir: Option<PathBuf>,
    /// Length of a log segment in bytes: a multiple of 4096 from 65536 (64 KiB) to 1073741824 (1 GiB). When two segments
    /// are full, the server compacts them into a snapshot [default: 67108864]
    #[arg(
        long,
        env = "WAYMAKER_LOG_SEGMENT_LEN",
        value_name = "BYTES",
        value_parser = parse_byte_count,
        allow_hyphen_values = true,
        help_heading = heading::DURABILITY
    )]
    pub log_segment_len: Option<u64>,
    /// Start from a damaged log. Discards everything after the damage, raises all fences above any ever issued, and
    /// refuses grants until the longest lease ever granted has expired, but for at most 49.7 days. The wait does not
    /// cover registrations with a longer lease, nor holds without a lease [default: false]
    #[arg(
        long,
        env = "WAYMAKER_ACCEPT_DAMAGE",
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = BOOL,
        help_heading = heading::DURABILITY
    )]
    pub accept_damage: Option<bool>,

    /// PEM file with the server certificate, followed by its intermediate certificates. Encrypts every TCP listener;
    /// needs --tls-key [default: none]
    #[arg(long, env = "WAYMAKER_TLS_CERT", value_name = "FILE", help_heading = heading::TLS)]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the private key of --tls-cert [default: none]
    #[arg(long, env = "WAYMAKER_TLS_KEY", value_name = "FILE", help_heading = heading::TLS)]
    pub tls_key: Option<PathBuf>,
    /// PEM file with the CA certificates of clients. Rejects clients without a certificate that one of them signed; needs
    /// --tls-cert [default: none]
    #[arg(long, env = "WAYMAKER_TLS_CLIENT_CA", value_name = "FILE", help_heading = heading::TLS)]
    pub tls_client_ca: Option<PathBuf>,
    /// PEM file with revocation lists, one of each CA in --tls-client-ca. Rejects clients whose certificate is in them; needs
    /// --tls-client-ca [default: none]
    #[arg(long, env = "WAYMAKER_TLS_CLIENT_CRL", value_name = "FILE", help_heading = heading::TLS)]
    pub tls_client_crl: Option<PathBuf>,
    /// Lowest TLS version that is accepted [default: 1.3]
    #[arg(
        long,
        env = "WAYMAKER_TLS_MIN_VERSION",
        value_enum,
        value_name = "VERSION",
        help_heading = heading::TLS
    )]
    pub tls_min_version: Option<TlsVersion>,

    /// File of tokens that `waymaker-ctl tokens create` made, or directory of such files. Clients with a token have its
    /// identity; a token that is not valid is refused. The server reads the files again after SIGHUP [default: none]
    #[arg(long, env = "WAYMAKER_TOKENS", value_name = "PATH", help_heading = heading::ACCESS)]
    pub tokens: Option<PathBuf>,
    /// TOML file with the rules that give identities rights. From the first rule on everything is denied that no rule
    /// allows, also on loopback and on the Unix socket. Without rules a client may do everything. The server reads the
    /// file again after SIGHUP [default: none]
    #[arg(long, env = "WAYMAKER_ACCESS", value_name = "FILE", help_heading = heading::ACCESS)]
    pub access: Option<PathBuf>,

    /// Worker threads, 1 to 1024 [default: one for each core]
    #[arg(
        long,
        env = "WAYMAKER_WORKERS",
        value_name = "N",
        value_parser = parse_worker_count,
        allow_hyphen_values = true,
        help_heading = heading::LIMITS
    )]
    pub workers: Option<usize>,
    /// Pin worker N to the N-th core that the process may use [default: false]
    #[arg(
        long,
        env = "WAYMAKER_PIN",
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = BOOL,
        help_heading = heading::LIMITS
    )]
    pub pin: Option<bool>,
    /// Busy-poll for this long before an idle worker sleeps; trades CPU for latency [default: 0s]
    #[arg(
        long,
        env = "WAYMAKER_BUSY_POLL",
        value_name = "DURATION",
        value_parser = parse_duration,
        allow_hyphen_values = true,
        help_heading = heading::LIMITS
    )]
    pub busy_poll: Option<humantime::Duration>,
    /// Memory limit: bytes such as 512MiB, a percentage of the memory of the control group or machine such as 75%, or
    /// `none`. At the limit the server refuses new claims, registrations, watches and sessions, and 5 % above it new
    /// connections; it still serves renewals and releases [default: 75%]
    #[arg(long, env = "WAYMAKER_MEMORY_LIMIT", value_name = "LIMIT", help_heading = heading::LIMITS)]
    pub memory_limit: Option<MemoryLimit>,
    /// Connections that one source address may have, or `none`. An IPv6 address counts as its /64 network. Loopback and Unix sockets
    /// have no limits per address, but see --limit-loopback [default: 1024]
    #[arg(
        long,
        env = "WAYMAKER_CONNECTIONS_PER_ADDRESS",
        value_name = "N",
        allow_hyphen_values = true,
        help_heading = heading::LIMITS
    )]
    pub connections_per_address: Option<Maximum>,
    /// New connections of one source address in each second, or `none`. As many may come at once after a quiet second
    /// [default: 200]
    #[arg(
        long,
        env = "WAYMAKER_NEW_CONNECTIONS_PER_SECOND",
        value_name = "N",
        allow_hyphen_values = true,
        help_heading = heading::LIMITS
    )]
    pub new_connections_per_second: Option<Maximum>,
    /// Unfinished TLS handshakes that one source address may have, or `none` [default: 64]
    #[arg(
        long,
        env = "WAYMAKER_HANDSHAKES_PER_ADDRESS",
        value_name = "N",
        allow_hyphen_values = true,
        help_heading = heading::LIMITS
    )]
    pub handshakes_per_address: Option<Maximum>,
    /// Failed logins of one source address within a second after which the server refuses its credentials for a while, or
    /// `none`. The pause is 1 s at first, and doubles up to 60 s until no login of the address has failed for 10 minutes
    /// [default: 5]
    #[arg(
        long,
        env = "WAYMAKER_FAILED_LOGINS_PER_SECOND",
        value_name = "N",
        allow_hyphen_values = true,
        help_heading = heading::LIMITS
    )]
    pub failed_logins_per_second: Option<Maximum>,
    /// Apply the limits per address to loopback addresses too [default: false]
    #[arg(
        long,
        env = "WAYMAKER_LIMIT_LOOPBACK",
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = BOOL,
        help_heading = heading::LIMITS
    )]
    pub limit_loopback: Option<bool>,

    /// TOML file with options [default: none]
    #[arg(long, env = "WAYMAKER_CONFIG", value_name = "FILE", help_heading = heading::LIFECYCLE)]
    pub config: Option<PathBuf>,
    /// Longest time from SIGTERM or SIGINT until the server stops. It cancels waiters and refuses new claims and new
    /// connections at once, but serves renewals and releases until no hold remains that the restart would end. With a data
    /// directory holds survive the restart, so the server stops early [default: 5s]
    #[arg(
        long,
        env = "WAYMAKER_DRAIN",
        value_name = "DURATION",
        value_parser = parse_duration,
        allow_hyphen_values = true,
        help_heading = heading::LIFECYCLE
    )]
    pub drain: Option<humantime::Duration>,

    /// Destination of the audit log: `log` (the log of the server, in words), `stdout`, `stderr` or a file (JSON lines), or
    /// `none`. It has a line for each act of an operator, each refused credential or right, and each change of the
    /// configuration. A file that is moved away is created again [default: log]
    #[arg(long, env = "WAYMAKER_AUDIT", value_name = "TARGET", help_heading = heading::AUDIT)]
    pub audit: Option<AuditTarget>,

    /// Behaviour of Locket if its published document and its code since March 2024 differ: `documented` accepts a type
    /// name without a type code and answers a release of a free key with an error; `2024` accepts only type codes and
    /// answers such a release with success [default: documented]
    #[arg(
        long,
        env = "WAYMAKER_LOCKET_COMPATIBILITY",
        value_name = "VERSION",
        hide_possible_values = true,
        help_heading = heading::CONTRACTS
    )]
    pub locket_compatibility: Option<LocketCompatibility>,
    /// Keep Locket locks in the durable log, so that they survive a restart; has no effect with `--data-dir none`
    /// [default: true]
    #[arg(
        long,
        env = "WAYMAKER_LOCKET_DURABLE",
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = BOOL,
        help_heading = heading::CONTRACTS
    )]
    pub locket_durable: Option<bool>,
    /// How long a Locktopus lock is kept after its connection is lost, unless the client set its own timeout
    /// [default: 60s]
    #[arg(
        long,
        env = "WAYMAKER_LOCKTOPUS_ABANDON_TIMEOUT",
        value_name = "DURATION",
        value_parser = parse_duration,
        allow_hyphen_values = true,
        help_heading = heading::CONTRACTS
    )]
    pub locktopus_abandon_timeout: Option<humantime::Duration>,
    /// Cluster of scope quorum.
    #[command(flatten)]
    pub quorum: QuorumFlags,
}

/// The part of a file that is about Locket.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LocketFile {
    compatibility: Option<LocketCompatibility>,
    durable: Option<bool>,
}

/// The same in a file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<String>,
    grpc_listen: Option<String>,
    http_listen: Option<String>,
    locktopus_listen: Option<String>,
    http_hosts: Option<Vec<AllowedHost>>,
    http_origins: Option<Vec<AllowedOrigin>>,
    #[serde(default)]
    locket: LocketFile,
    locktopus_abandon_timeout: Option<String>,
    workers: Option<usize>,
    pin: Option<bool>,
    busy_poll: Option<String>,
    memory_limit: Option<String>,
    connections_per_address: Option<Maximum>,
    new_connections_per_second: Option<Maximum>,
    handshakes_per_address: Option<Maximum>,
    failed_logins_per_second: Option<Maximum>,
    limit_loopback: Option<bool>,
    unix: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    log_segment_len: Option<u64>,
    accept_damage: Option<bool>,
    drain: Option<String>,
    audit: Option<AuditTarget>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_client_ca: Option<PathBuf>,
    tls_client_crl: Option<PathBuf>,
    tls_min_version: Option<TlsVersion>,
    tokens: Option<PathBuf>,
    access: Option<PathBuf>,
    insecure: Option<bool>,
    #[serde(default)]
    quorum: QuorumFlags,
}

/// What the server does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// TCP address of the binary protocol.
    pub listen: String,
    /// TCP address of gRPC.
    pub grpc_listen: Option<String>,
    /// TCP address of HTTP and WebSocket.
    pub http_listen: Option<String>,
    /// TCP address where Locktopus is spoken alone.
    pub locktopus_listen: Option<String>,
    /// Names and web pages that may use the HTTP ports.
    pub browsers: BrowserConfig,
    /// How Locket's contract is served.
    pub locket: LocketConfig,
    /// How long a Locktopus lock stays whose connection was lost.
    pub locktopus_abandon_timeout: Duration,
    /// Worker threads.
    pub worker_count: usize,
    /// Pin worker n to the n-th core.
    pub pin: bool,
    /// How long a worker without work keeps looking for more.
    pub busy_poll: Duration,
    /// Memory at which nothing new is begun.
    pub memory_limit: MemoryLimit,
    /// Limits of each source address.
    pub address_limits: AddressLimits,
    /// Limit of failed logins of each source address.
    pub login_limits: LoginLimits,
    /// Path of the Unix socket.
    pub unix: Option<PathBuf>,
    /// Directory of the durable log.
    pub data_dir: Option<PathBuf>,
    /// Bytes of one segment of the log.
    pub log_segment_len: u64,
    /// Start though the log is damaged.
    pub accept_damage: bool,
    /// How long to serve releases and renewals after SIGTERM.
    pub drain: Duration,
    /// Destination of the audit log.
    pub audit: AuditTarget,
    /// Encrypt TCP connections.
    pub tls: Option<TlsOptions>,
    /// Which files say who may do what.
    pub access: AccessOptions,
    /// Listen beyond loopback though strangers can read along or come in.
    pub insecure: bool,
    /// The cluster that keeps the fences of scope Quorum.
    pub quorum: Option<QuorumOptions>,
}

/// Why options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The file cannot be read.
    #[error("--config: cannot read {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("--config: {path}: {error}")]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its line.
        error: Box<toml::de::Error>,
    },
    /// A duration in the file is none.
    #[error("--config: {path}: {field}: {text:?} is not a duration such as 50us, 250ms or 5s: {error}")]
    BadDuration {
        /// The file.
        path: PathBuf,
        /// Which.
        field: &'static str,
        /// What the file says.
        text: String,
        /// What is wrong.
        error: humantime::DurationError,
    },
    /// A number of workers that there cannot be.
    #[error("--workers: {count} is out of range; use 1 to {limit}")]
    BadWorkerCount {
        /// What was asked for.
        count: usize,
        /// The most.
        limit: usize,
    },
    /// A length that no segment can have.
    #[error(
        "--log-segment-len: {0} is not a segment length; use a multiple of {BLOCK_LEN} from {SEGMENT_LEN_MIN} (64 KiB) to \
         {SEGMENT_LEN_MAX} (1 GiB)"
    )]
    BadSegmentLen(u64),
    /// The limit of memory in the file is none.
    #[error("--config: {path}: memory_limit: {text:?} is not a memory limit; {error}")]
    BadMemoryLimit {
        /// The file.
        path: PathBuf,
        /// What the file says.
        text: String,
        /// What is wrong.
        error: BadMemoryLimit,
    },
    /// An option that does nothing without another.
    #[error("{given} needs {missing}")]
    Incomplete {
        /// What was given.
        given: &'static str,
        /// What was not.
        missing: &'static str,
    },
    /// What was said of the cluster of scope Quorum cannot be used.
    #[error(transparent)]
    Quorum(#[from] QuorumOptionsError),
}

impl Flags {
    /// The flags, completed by the file they name and by the defaults.
    ///
    /// # Errors
    /// If the file or a value is unusable; the error names it.
    pub fn resolve(self) -> Result<Options, OptionsError> {
        let file = self.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        self.complete(file)
    }

    /// The flags, completed by a file with this text and by the defaults.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn resolve_text(self, text: &str) -> Result<Options, OptionsError> {
        self.complete(parse_file(Path::new(""), text)?)
    }

    fn complete(self, file: File) -> Result<Options, OptionsError> {
        // Only the file has options as text.
        let path = || self.config.clone().unwrap_or_default();
        let duration =
            |flag: Option<humantime::Duration>, text: Option<String>, field, default| match (flag, text) {
                (Some(flag), _) => Ok(*flag),
                (None, Some(text)) => humantime::parse_duration(&text)
                    .map_err(|error| OptionsError::BadDuration { path: path(), field, text, error }),
                (None, None) => Ok(default),
            };
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let worker_count = self.workers.or(file.workers).unwrap_or_else(cores);
        let limit = crate::limits::WORKER_COUNT_MAX;
        if !(1..=limit).contains(&worker_count) {
            return Err(OptionsError::BadWorkerCount { count: worker_count, limit });
        }
        let log_segment_len = self.log_segment_len.or(file.log_segment_len).unwrap_or(SEGMENT_LEN_DEFAULT);
        if !SegmentHeader::is_len_valid(log_segment_len) {
            return Err(OptionsError::BadSegmentLen(log_segment_len));
        }
        let include_loopback = self.limit_loopback.or(file.limit_loopback).unwrap_or(false);
        Ok(Options {
            listen: self.listen.or(file.listen).unwrap_or_else(|| "127.0.0.1:7420".to_owned()),
            grpc_listen: address(self.grpc_listen.or(file.grpc_listen), "127.0.0.1:7421"),
            http_listen: address(self.http_listen.or(file.http_listen), "127.0.0.1:7422"),
            locktopus_listen: address(self.locktopus_listen.or(file.locktopus_listen), NONE),
            browsers: BrowserConfig {
                hosts: self.browsers.http_hosts.or(file.http_hosts).unwrap_or_default(),
                origins: self.browsers.http_origins.or(file.http_origins).unwrap_or_default(),
            },
            locket: LocketConfig {
                compatibility: self.locket_compatibility.or(file.locket.compatibility).unwrap_or_default(),
                durable: self.locket_durable.or(file.locket.durable).unwrap_or(true),
            },
            locktopus_abandon_timeout: duration(
                self.locktopus_abandon_timeout,
                file.locktopus_abandon_timeout,
                "locktopus_abandon_timeout",
                Duration::from_secs(60),
            )?,
            worker_count,
            pin: self.pin.or(file.pin).unwrap_or(false),
            busy_poll: duration(self.busy_poll, file.busy_poll, "busy_poll", Duration::ZERO)?,
            memory_limit: match (self.memory_limit, file.memory_limit) {
                (Some(limit), _) => limit,
                (None, Some(text)) => text.parse().map_err(|error| OptionsError::BadMemoryLimit {
                    path: path(),
                    text,
                    error,
                })?,
                (None, None) => MemoryLimit::default(),
            },
            address_limits: {
                let default = AddressLimits::default();
                AddressLimits {
                    connections: self
                        .connections_per_address
                        .or(file.connections_per_address)
                        .unwrap_or(default.connections),
                    new_per_second: self
                        .new_connections_per_second
                        .or(file.new_connections_per_second)
                        .unwrap_or(default.new_per_second),
                    handshakes: self
                        .handshakes_per_address
                        .or(file.handshakes_per_address)
                        .unwrap_or(default.handshakes),
                    include_loopback,
                }
            },
            login_limits: LoginLimits {
                failed_per_second: self
                    .failed_logins_per_second
                    .or(file.failed_logins_per_second)
                    .unwrap_or(LoginLimits::default().failed_per_second),
                include_loopback,
            },
            unix: self.unix.or(file.unix).filter(|path| path != Path::new(NONE)),
            data_dir: Some(self.data_dir.or(file.data_dir).unwrap_or_else(|| "waymaker-data".into()))
                .filter(|path| path != Path::new(NONE)),
            log_segment_len,
            accept_damage: self.accept_damage.or(file.accept_damage).unwrap_or(false),
            drain: duration(self.drain, file.drain, "drain", Duration::from_secs(5))?,
            audit: self.audit.or(file.audit).unwrap_or_default(),
            tls: tls_options(
                self.tls_cert.or(file.tls_cert),
                self.tls_key.or(file.tls_key),
                self.tls_client_ca.or(file.tls_client_ca),
                self.tls_client_crl.or(file.tls_client_crl),
                self.tls_min_version.or(file.tls_min_version),
            )?,
            access: AccessOptions {
                access: self.access.or(file.access).filter(|path| path != Path::new(NONE)),
                tokens: self.tokens.or(file.tokens).filter(|path| path != Path::new(NONE)),
            },
            insecure: self.insecure.or(file.insecure).unwrap_or(false),
            quorum: self.quorum.resolve(file.quorum)?,
        })
    }
}

/// An address, unless it says that there is none.
/// Parses a number of workers. [`Flags::resolve`] checks the range.
fn parse_worker_count(text: &str) -> Result<usize, String> {
    let limit = crate::limits::WORKER_COUNT_MAX;
    text.parse().map_err(|_| format!("use a number from 1 to {limit}"))
}

/// Parses a number of bytes. [`Flags::resolve`] checks the range.
fn parse_byte_count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "use a number of bytes without a unit, such as 67108864".to_owned())
}

fn parse_duration(text: &str) -> Result<humantime::Duration, String> {
    text.parse().map_err(|_| "use a duration such as 50us, 250ms, 5s or 1m".to_owned())
}

fn address(given: Option<String>, default: &str) -> Option<String> {
    Some(given.unwrap_or_else(|| default.to_owned())).filter(|address| address != NONE)
}

/// All that TLS needs, or nothing.
fn tls_options(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    client_crl: Option<PathBuf>,
    min_version: Option<TlsVersion>,
) -> Result<Option<TlsOptions>, OptionsError> {
    let incomplete = |given, missing| Err(OptionsError::Incomplete { given, missing });
    if client_crl.is_some() && client_ca.is_none() {
        return incomplete("--tls-client-crl", "--tls-client-ca");
    }
    match (cert, key) {
        (Some(cert), Some(key)) => {
            let min_version = min_version.unwrap_or_default();
            Ok(Some(TlsOptions { cert, key, client_ca, client_crl, min_version }))
        }
        (Some(_), None) => incomplete("--tls-cert", "--tls-key"),
        (None, Some(_)) => incomplete("--tls-key", "--tls-cert"),
        (None, None) if client_ca.is_some() => incomplete("--tls-client-ca", "--tls-cert"),
        (None, None) if min_version.is_some() => incomplete("--tls-min-version", "--tls-cert"),
        (None, None) => Ok(None),
    }
}

fn read_file(path: &Path) -> Result<File, OptionsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| OptionsError::Unreadable { path: path.to_owned(), error })?;
    parse_file(path, &text)
}

fn parse_file(path: &Path, text: &str) -> Result<File, OptionsError> {
    toml::from_str(text)
        .map_err(|error| OptionsError::BadFile { path: path.to_owned(), error: Box::new(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn flags_override_the_file_and_the_file_overrides_defaults() {
        let file = file("listen = \"127.0.0.1:9\"\nworkers = 3\nbusy_poll = \"50us\"\n");
        let config = Some(file.path().to_owned());
        let flags = Flags { workers: Some(5), config, ..Flags::default() };
        let options = flags.resolve().unwrap();
        assert_eq!(options.listen, "127.0.0.1:9");
        assert_eq!(options.worker_count, 5);
        assert_eq!(options.busy_poll, Duration::from_micros(50));
        assert_eq!(options.drain, Duration::from_secs(5));
    }

    #[test]
    fn an_invalid_config_file_is_rejected_by_field() {
        for (text, field) in [
            ("lisen = \"x\"", "lisen"),
            ("busy_poll = \"soon\"", "busy_poll"),
            ("locktopus_abandon_timeout = \"1\"", "locktopus_abandon_timeout"),
            ("workers = 0", "workers"),
            ("memory_limit = \"much\"", "memory_limit"),
            ("connections_per_address = 0", "connections_per_address"),
            ("handshakes_per_address = \"few\"", "handshakes_per_address"),
            ("[quorum]\nuser = \"me\"", "--quorum-endpoints"),
            ("log_segment_len = 5", "--log-segment-len"),
            ("http_hosts = [\"http://a\"]", "--http-hosts"),
            ("http_origins = [\"a\"]", "--http-origins"),
            ("[quorum]\nendpoint = \"x:1\"", "endpoint"),
        ] {
            let file = file(text);
            let flags = Flags { config: Some(file.path().to_owned()), ..Flags::default() };
            let error = flags.resolve().unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }

    #[test]
    fn tls_options_may_be_combined_from_flags_and_file() {
        let file = file("tls_key = \"server.key\"\ntls_min_version = \"1.2\"\n");
        let config = Some(file.path().to_owned());
        let flags = Flags { tls_cert: Some("server.pem".into()), config, ..Flags::default() };
        let expected = TlsOptions {
            cert: "server.pem".into(),
            key: "server.key".into(),
            client_ca: None,
            client_crl: None,
            min_version: TlsVersion::V1_2,
        };
        assert_eq!(flags.resolve().unwrap().tls, Some(expected));
    }

    #[test]
    fn a_value_of_the_wrong_form_is_named_with_the_right_form() {
        for (flag, value, form) in [
            ("--workers", "x", "use a number from 1 to 1024"),
            ("--workers", "-1", "use a number from 1 to 1024"),
            ("--log-segment-len", "64KiB", "use a number of bytes without a unit, such as 67108864"),
            ("--drain", "x", "use a duration such as 50us, 250ms, 5s or 1m"),
            ("--busy-poll", "-1s", "use a duration such as 50us, 250ms, 5s or 1m"),
            ("--connections-per-address", "-1", "use a number from 1 to 1000000, or `none`"),
            ("--new-connections-per-second", "0", "use a number from 1 to 1000000, or `none`"),
            ("--locktopus-abandon-timeout", "7", "use a duration such as 50us, 250ms, 5s or 1m"),
        ] {
            let error = Flags::try_parse_from(["waymaker-server", flag, value]).unwrap_err().to_string();
            assert!(error.contains(&format!("'{value}' for '{flag}")) && error.contains(form), "{error}");
        }
    }

    #[test]
    fn limits_per_address_may_be_combined_from_flags_and_file() {
        let file = file(
            "connections_per_address = 7\nnew_connections_per_second = \"none\"\nfailed_logins_per_second = 7\n\
             limit_loopback = true\n",
        );
        let file = file.path().to_str().unwrap();
        let flags = ["waymaker-server", "--config", file, "--connections-per-address", "none"];
        let options = Flags::parse_from(flags).resolve().unwrap();
        let expected = AddressLimits {
            connections: Maximum::NONE,
            new_per_second: Maximum::NONE,
            include_loopback: true,
            ..AddressLimits::default()
        };
        assert_eq!(options.address_limits, expected);
        let expected = LoginLimits { failed_per_second: Maximum::new(7), include_loopback: true };
        assert_eq!(options.login_limits, expected);
    }

    #[test]
    fn none_switches_the_unix_socket_off() {
        let config = file("unix = \"/run/waymaker.sock\"");
        let config = config.path().to_str().unwrap();
        let flags = ["waymaker-server", "--config", config, "--unix", "none"];
        assert_eq!(Flags::parse_from(flags).resolve().unwrap().unix, None);
    }

    #[test]
    fn the_flags_are_well_formed() {
        use clap::CommandFactory;
        Flags::command().debug_assert();
    }
}
