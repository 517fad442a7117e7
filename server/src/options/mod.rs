//! Server options. Precedence: flags, environment, configuration file, defaults.
//!
//! [`Options`] and the structs that it flattens define each option once: name, type, default and help. The variable and
//! the key in the file follow from the flag's name. clap parses flags and variables. A value in the file becomes the
//! default of its flag (`read`), so all sources use the same parser.

mod declared;
mod environment;
mod file;
mod form;
mod log;
mod nearest;
mod print;
mod problem;
mod read;
mod secret;
mod tls;
mod values;

pub use environment::unknown_variables;
pub use file::{FileKey, file_key};
pub use log::LogFormat;
pub use problem::OptionsError;
pub use read::Configuration;
pub use tls::TlsFlags;

use crate::access::{AccessOptions, LoginLimits};
use crate::audit::AuditTarget;
use crate::driver::AddressLimits;
use crate::front::{BrowserConfig, FrontOptions, LocketConfig};
use crate::limit_options::LimitOptions;
use crate::memory::MemoryLimit;
use crate::namespaces::DeclaredNamespace;
use crate::option_values::{OrNone, address_or_none, heading, parse_duration, path_or_none};
use crate::peer::Endpoint;
use crate::quorum::options::QuorumOptions;
use crate::traces::{OtlpOptionError, collector_of};
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use clap::{ArgAction, Parser};
use log::{LOG_LEVELS, parse_levels};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;
use tracing_subscriber::filter::Targets;
use values::{parse_segment_len, parse_worker_count};

const BOOL: &str = "true|false";

/// Lock server: locks, read-write locks, semaphores, leader election, rate limits and a registry over a binary protocol,
/// gRPC and WebSocket.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "waymaker-server",
    version,
    after_help = "\
Configuration:
  A flag wins over its environment variable, the variable over the file of --config, and the file over the default.
  In the file an option has the name of its flag with underscores; --limits-*, --locket-* and --quorum-* are in tables. Only the
  file can declare namespaces:

    listen = \"127.0.0.1:7420\"
    workers = 4
    busy_poll = \"50us\"

    [locket]
    compatibility = \"2024\"
    durable = false

    [quorum]
    endpoints = [\"http://10.0.0.1:2379\", \"http://10.0.0.2:2379\", \"http://10.0.0.3:2379\"]

    [[namespace]]
    name = \"jobs\"
    kind = \"flat\"
    default_lease = \"45s\"

  A duration is a number with a unit: 50us, 250ms, 5s, 1m, 1h.
  --print-config prints all options with their sources, as such a file. --check-config checks them without a start.

Start:
  When the server accepts connections it prints one line to stdout: `ready` and the address of each listener.

Signals:
  SIGTERM, SIGINT  drain, then stop; a second signal stops at once (see --drain)
  SIGHUP           read the files of --tls-cert, --tls-key, --tls-client-ca, --tls-client-crl, --tokens, --dynamodb-keys and
                   --access again, as the server also does by itself a few seconds after they change, and open the file of
                   --audit again

Exit codes:
  0    stopped by a signal
  1    the server could not start, or --check-config found an error; the error is on stderr
  2    the command line is wrong
  69   an address cannot be used now: its port is taken, or its name does not resolve; a later start may succeed
  74   the disk failed under a mapped log segment; check the disk, then restart the server
  75   a write or sync of the durable log failed; check the disk, then restart the server
  134  the server found a defect in itself (SIGABRT); please report the panic on stderr

Examples:
  waymaker-server
  waymaker-server --listen 127.0.0.1:0 --unix /run/waymaker.sock
  waymaker-server --data-dir /var/lib/waymaker/data
  waymaker-server --data-dir none
  waymaker-server --listen 0.0.0.0:7420 --tls-cert server.pem --tls-key server.key --tls-client-ca clients.pem
  waymaker-server --quorum-endpoints 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379
  waymaker-server --workers 8 --pin --busy-poll 50us"
)]
pub struct Options {
    /// Listen address of the binary protocol; port 0 picks a free port
    #[arg(
        long,
        env = "WAYMAKER_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:7420",
        help_heading = heading::LISTENING
    )]
    pub listen: String,
    /// Unix socket on which the binary protocol is served too; never encrypted
    #[arg(
        long,
        env = "WAYMAKER_UNIX",
        value_name = "PATH",
        default_value = "none",
        value_parser = PathBufValueParser::new().map(path_or_none),
        help_heading = heading::LISTENING
    )]
    pub unix: OrNone<PathBuf>,
    /// Listen address of gRPC, or `none`
    #[arg(
        long,
        env = "WAYMAKER_GRPC_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:7421",
        value_parser = address_or_none,
        help_heading = heading::LISTENING
    )]
    pub grpc_listen: OrNone<String>,
    /// Listen address of HTTP (/console, /metrics, /healthz, /readyz) and Locktopus over WebSocket, or `none`
    #[arg(
        long,
        env = "WAYMAKER_HTTP_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:7422",
        value_parser = address_or_none,
        help_heading = heading::LISTENING
    )]
    pub http_listen: OrNone<String>,
    /// Listen address that serves only Locktopus, or `none`; Locktopus itself uses port 9009
    #[arg(
        long,
        env = "WAYMAKER_LOCKTOPUS_LISTEN",
        value_name = "ADDRESS",
        default_value = "none",
        value_parser = address_or_none,
        help_heading = heading::LISTENING
    )]
    pub locktopus_listen: OrNone<String>,
    /// Listen address for clients of DynamoDB that use it for locks as Clever's `lock` does, or `none`; such clients use port 8000 of
    /// local servers
    #[arg(
        long,
        env = "WAYMAKER_DYNAMODB_LISTEN",
        value_name = "ADDRESS",
        default_value = "none",
        value_parser = address_or_none,
        help_heading = heading::LISTENING
    )]
    pub dynamodb_listen: OrNone<String>,
    /// Options for the hosts and web pages that may use the HTTP ports.
    #[command(flatten)]
    pub browsers: BrowserConfig,
    /// Allow listening on an address that is not loopback without TLS, and without tokens or client certificates
    #[arg(
        long,
        env = "WAYMAKER_INSECURE",
        value_name = BOOL,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        default_value = "false",
        help_heading = heading::LISTENING
    )]
    pub insecure: bool,

    /// Directory of the durable log, created if it is missing; one server at a time can use it. `none` runs without a log:
    /// scope local is refused, and no hold survives a restart
    #[arg(
        long,
        env = "WAYMAKER_DATA_DIR",
        value_name = "DIR",
        default_value = "waymaker-data",
        value_parser = PathBufValueParser::new().map(path_or_none),
        help_heading = heading::DURABILITY
    )]
    pub data_dir: OrNone<PathBuf>,
    /// Length of a log segment in bytes: a multiple of 4096 from 65536 (64 KiB) to 1073741824 (1 GiB). When two segments are
    /// full, the server compacts them into a snapshot
    #[arg(
        long,
        env = "WAYMAKER_LOG_SEGMENT_LEN",
        value_name = "BYTES",
        default_value = "67108864",
        value_parser = parse_segment_len,
        allow_hyphen_values = true,
        help_heading = heading::DURABILITY
    )]
    pub log_segment_len: u64,
    /// Start from a damaged log. Discards everything after the damage, raises all fences above any ever issued, and refuses
    /// grants until the longest lease ever granted has expired, but for at most 49.7 days. The wait does not cover
    /// registrations with a longer lease, nor holds without a lease
    #[arg(
        long,
        env = "WAYMAKER_ACCEPT_DAMAGE",
        value_name = BOOL,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        default_value = "false",
        help_heading = heading::DURABILITY
    )]
    pub accept_damage: bool,

    /// TLS options.
    #[command(flatten)]
    pub tls: TlsFlags,
    /// Options for the files that define access.
    #[command(flatten)]
    pub access: AccessOptions,

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
    /// Pin worker N to the N-th core that the process may use; further workers begin again with the first core
    #[arg(
        long,
        env = "WAYMAKER_PIN",
        value_name = BOOL,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        default_value = "false",
        help_heading = heading::LIMITS
    )]
    pub pin: bool,
    /// Busy-poll for this long before an idle worker sleeps; trades CPU for latency
    #[arg(
        long,
        env = "WAYMAKER_BUSY_POLL",
        value_name = "DURATION",
        default_value = "0s",
        value_parser = parse_duration,
        allow_hyphen_values = true,
        help_heading = heading::LIMITS
    )]
    pub busy_poll: Duration,
    /// Memory limit: bytes such as 512MiB, a percentage of the memory of the control group or machine such as 75%, or
    /// `none`. At the limit the server refuses new claims, registrations, watches and sessions, and 5 % above it new
    /// connections; it still serves renewals and releases
    #[arg(
        long,
        env = "WAYMAKER_MEMORY_LIMIT",
        value_name = "LIMIT",
        default_value = "75%",
        help_heading = heading::LIMITS
    )]
    pub memory_limit: MemoryLimit,
    /// Limits per source address.
    #[command(flatten)]
    pub address_limits: AddressLimits,
    /// Limit of failed logins per source address.
    #[command(flatten)]
    pub login_limits: LoginLimits,
    /// Apply the limits per address to loopback addresses too
    #[arg(
        long,
        env = "WAYMAKER_LIMIT_LOOPBACK",
        value_name = BOOL,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        default_value = "false",
        help_heading = heading::LIMITS
    )]
    pub limit_loopback: bool,

    /// Limits of the server.
    #[command(flatten)]
    pub limits: LimitOptions,

    /// TOML file with options [default: none]
    #[arg(long, env = "WAYMAKER_CONFIG", value_name = "FILE", help_heading = heading::LIFECYCLE)]
    pub config: Option<PathBuf>,
    /// Check the options and the files that they name, print the errors or `configuration is valid`, and exit. Opens no port and does
    /// not use the data directory
    #[arg(long, conflicts_with = "print_config", help_heading = heading::LIFECYCLE)]
    pub check_config: bool,
    /// Print all options as a configuration file, each with its source, and exit. Secrets are left out
    #[arg(long, help_heading = heading::LIFECYCLE)]
    pub print_config: bool,
    /// Longest time from SIGTERM or SIGINT until the server stops. It cancels waiters and refuses new claims and new
    /// connections at once, but serves renewals and releases until no hold remains that the restart would end. With a data
    /// directory holds survive the restart, so the server stops early
    #[arg(
        long,
        env = "WAYMAKER_DRAIN",
        value_name = "DURATION",
        default_value = "5s",
        value_parser = parse_duration,
        allow_hyphen_values = true,
        help_heading = heading::LIFECYCLE
    )]
    pub drain: Duration,

    /// Level of the log, which goes to stderr: `error`, `warn`, `info`, `debug` or `trace`. A list such as
    /// `info,waymaker_server::driver=debug` sets the level of single modules. The default leaves out the warnings of the HTTP/2 library
    /// h2: it warns of each reset stream, so clients could fill the log
    #[arg(
        long,
        env = "WAYMAKER_LOG",
        value_name = "LEVELS",
        default_value = LOG_LEVELS,
        value_parser = parse_levels,
        help_heading = heading::LOG
    )]
    pub log: Targets,
    /// Format of the log: lines of text, or JSON lines with the time, level, target, message and fields of each event
    #[arg(
        long,
        env = "WAYMAKER_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        hide_possible_values = true,
        help_heading = heading::LOG
    )]
    pub log_format: LogFormat,
    /// Destination of the audit log: `log` (the log of the server, in words), `stdout`, `stderr` or a file (JSON lines), or
    /// `none`. It has a line for each act of an operator, each refused credential or right, and each change of the
    /// configuration. A file that is moved away is created again
    #[arg(long, env = "WAYMAKER_AUDIT", value_name = "TARGET", default_value = "log", help_heading = heading::LOG)]
    pub audit: AuditTarget,

    /// Collector of OpenTelemetry to which spans of traced acquires are exported by OTLP over gRPC: http://HOST:PORT or
    /// https://HOST:PORT, or `none`. Without a port it is 4317
    #[arg(
        long,
        env = "WAYMAKER_OTLP_ENDPOINT",
        value_name = "URL",
        default_value = "none",
        value_parser = address_or_none,
        help_heading = heading::TRACES
    )]
    pub otlp_endpoint: OrNone<String>,

    /// Options of Locket's contract.
    #[command(flatten)]
    pub locket: LocketConfig,
    /// How long a Locktopus lock is kept after its connection is lost, unless the client set its own timeout
    #[arg(
        long,
        env = "WAYMAKER_LOCKTOPUS_ABANDON_TIMEOUT",
        value_name = "DURATION",
        default_value = "60s",
        value_parser = parse_duration,
        allow_hyphen_values = true,
        help_heading = heading::CONTRACTS
    )]
    pub locktopus_abandon_timeout: Duration,

    /// Options of the etcd cluster, which counts the fences of scope quorum.
    #[command(flatten)]
    pub quorum: QuorumOptions,

    /// Namespaces that the configuration file declares.
    #[arg(skip)]
    pub namespaces: Vec<DeclaredNamespace>,
}

impl Options {
    /// Returns the number of worker threads.
    pub fn worker_count(&self) -> usize {
        self.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// Returns the collector for spans, if there is one.
    ///
    /// # Errors
    /// Returns an error if its URL cannot be used.
    pub fn collector(&self) -> Result<Option<Endpoint>, OtlpOptionError> {
        self.otlp_endpoint.as_deref().map(collector_of).transpose()
    }

    /// Returns the options of the front ends.
    pub fn fronts(&self) -> FrontOptions {
        FrontOptions {
            browsers: self.browsers.clone(),
            locket: self.locket,
            locktopus_abandon_timeout: self.locktopus_abandon_timeout,
            is_encrypted: self.tls.cert.is_some(),
            http_listen: self.http_listen.clone(),
            locktopus_listen: self.locktopus_listen.clone(),
            dynamodb_listen: self.dynamodb_listen.clone(),
            lists_len_max: self.limits.lists_memory as usize,
        }
    }

    /// Returns the limits per source address.
    pub fn address_limits(&self) -> AddressLimits {
        AddressLimits { include_loopback: self.limit_loopback, ..self.address_limits }
    }

    /// Returns the limit of failed logins per source address.
    pub fn login_limits(&self) -> LoginLimits {
        LoginLimits { include_loopback: self.limit_loopback, ..self.login_limits }
    }
}

#[cfg(test)]
mod tests;
