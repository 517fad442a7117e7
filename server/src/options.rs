//! What a server is told: flags, then the environment, then a file, then the defaults.

use crate::front::{LocketCompatibility, LocketConfig};
use crate::memory::{BadMemoryLimit, MemoryLimit};
use crate::quorum::options::{QuorumFlags, QuorumOptions, QuorumOptionsError};
use crate::tls::{TlsOptions, TlsVersion};
use clap::Parser;
use serde::Deserialize;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use waymaker_engine::log::SEGMENT_LEN_DEFAULT;

/// What switches something off that is on by default.
const NONE: &str = "none";

/// A lock server: advisory locks, leader election, worker slots, over a fast binary protocol, gRPC and WebSocket.
#[derive(Clone, Debug, Default, Parser)]
#[command(
    name = "waymaker-server",
    version,
    after_help = "\
Every flag can also be set in the environment (WAYMAKER_LISTEN, WAYMAKER_WORKERS, ...) or in the file given by \
--config, by its long name with underscores:

    listen = \"127.0.0.1:7420\"
    workers = 4
    busy_poll = \"50us\"

    [locket]
    compatibility = \"2024\"
    durable = false

    [quorum]
    endpoints = [\"http://10.0.0.1:2379\", \"http://10.0.0.2:2379\", \"http://10.0.0.3:2379\"]

When the server serves it prints one line, `ready`, with every real address. SIGTERM drains: new claims and waiters are \
refused, releases and renewals are served until nothing is held or --drain is over. With a data directory nobody has to \
let go of anything: the next start goes on with every hold. A second SIGTERM ends it at once. SIGHUP reads the files of \
--tls-cert, --tls-key and --tls-client-ca again.

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
    /// TCP address of the binary protocol; port 0 is any free port [default: 127.0.0.1:7420]
    #[arg(long, env = "WAYMAKER_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// TCP address of gRPC, or `none` [default: 127.0.0.1:7421]
    #[arg(long, env = "WAYMAKER_GRPC_LISTEN", value_name = "ADDRESS")]
    pub grpc_listen: Option<String>,
    /// TCP address of HTTP (metrics, health) and WebSocket, or `none` [default: 127.0.0.1:7422]
    #[arg(long, env = "WAYMAKER_HTTP_LISTEN", value_name = "ADDRESS")]
    pub http_listen: Option<String>,
    /// TCP address where Locktopus is spoken alone, or `none`; its own default is port 9009 [default: none]
    #[arg(long, env = "WAYMAKER_LOCKTOPUS_LISTEN", value_name = "ADDRESS")]
    pub locktopus_listen: Option<String>,
    /// Where Locket's published document and its later code differ, which of the two counts [default: documented]
    #[arg(long, env = "WAYMAKER_LOCKET_COMPATIBILITY", value_name = "WHICH")]
    pub locket_compatibility: Option<LocketCompatibility>,
    /// What is locked by Locket's contract outlives the process, where there is a data directory [default: true]
    #[arg(long, env = "WAYMAKER_LOCKET_DURABLE", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub locket_durable: Option<bool>,
    /// How long a Locktopus lock stays whose connection was lost, unless the connection said it itself [default: 60s]
    #[arg(long, env = "WAYMAKER_LOCKTOPUS_ABANDON_TIMEOUT", value_name = "DURATION")]
    pub locktopus_abandon_timeout: Option<humantime::Duration>,
    /// Worker threads [default: one for each core]
    #[arg(long, env = "WAYMAKER_WORKERS", value_name = "N")]
    pub workers: Option<NonZeroUsize>,
    /// Pin worker n to the n-th core that this process may use
    #[arg(long, env = "WAYMAKER_PIN", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub pin: Option<bool>,
    /// How long a worker without work keeps looking for more before it sleeps: faster answers for a busy core
    /// [default: 0s]
    #[arg(long, env = "WAYMAKER_BUSY_POLL", value_name = "DURATION")]
    pub busy_poll: Option<humantime::Duration>,
    /// Memory at which new claims, registrations, watches, sessions and connections are refused: bytes such as 512MiB, a share of the
    /// machine or control group, or `none`. Renewals and releases are served beyond it [default: 75%]
    #[arg(long, env = "WAYMAKER_MEMORY_LIMIT", value_name = "LIMIT")]
    pub memory_limit: Option<MemoryLimit>,
    /// Also listen on a Unix socket
    #[arg(long, env = "WAYMAKER_UNIX", value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Directory of the durable log, made if it is missing, of one server at a time; `none` for no log: then scope local
    /// is refused, and nothing outlives the process [default: waymaker-data]
    #[arg(long, env = "WAYMAKER_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Bytes of one segment of the log: when two are full they are folded into a snapshot [default: 67108864]
    #[arg(long, env = "WAYMAKER_LOG_SEGMENT_LEN", value_name = "BYTES")]
    pub log_segment_len: Option<u64>,
    /// Start from a damaged log. Discards everything after the damage, raises all fences above any ever issued, and refuses
    /// new grants until the longest lease ever granted has expired
    #[arg(long, env = "WAYMAKER_ACCEPT_DAMAGE", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub accept_damage: Option<bool>,
    /// How long to serve releases and renewals after SIGTERM while claims are held [default: 5s]
    #[arg(long, env = "WAYMAKER_DRAIN", value_name = "DURATION")]
    pub drain: Option<humantime::Duration>,
    /// Encrypt every TCP listener; the certificate of the server in PEM, followed by those that lead to a root. SIGHUP
    /// reads it, and the two below, again
    #[arg(long, env = "WAYMAKER_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, env = "WAYMAKER_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Let in only clients with a certificate that one of those in this file has signed
    #[arg(long, env = "WAYMAKER_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// The oldest version of TLS that is spoken [default: 1.3]
    #[arg(long, env = "WAYMAKER_TLS_MIN_VERSION", value_enum, value_name = "VERSION")]
    pub tls_min_version: Option<TlsVersion>,
    /// Listen beyond loopback although what is sent is not encrypted or nobody is asked who they are
    #[arg(long, env = "WAYMAKER_INSECURE", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub insecure: Option<bool>,
    /// Read what is not given here from a TOML file
    #[arg(long, env = "WAYMAKER_CONFIG", value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// The cluster of scope Quorum.
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
    #[serde(default)]
    locket: LocketFile,
    locktopus_abandon_timeout: Option<String>,
    workers: Option<NonZeroUsize>,
    pin: Option<bool>,
    busy_poll: Option<String>,
    memory_limit: Option<String>,
    unix: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    log_segment_len: Option<u64>,
    accept_damage: Option<bool>,
    drain: Option<String>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_client_ca: Option<PathBuf>,
    tls_min_version: Option<TlsVersion>,
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
    /// Encrypt TCP connections.
    pub tls: Option<TlsOptions>,
    /// Listen beyond loopback though strangers can read along or come in.
    pub insecure: bool,
    /// The cluster that keeps the fences of scope Quorum.
    pub quorum: Option<QuorumOptions>,
}

/// Why options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The file cannot be read.
    #[error("config: cannot read {path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("config: {path}: {error}")]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its line.
        error: Box<toml::de::Error>,
    },
    /// A duration in the file is none.
    #[error("config: {field}: {error}")]
    BadDuration {
        /// Which.
        field: &'static str,
        /// What is wrong.
        error: humantime::DurationError,
    },
    /// More workers than there can be.
    #[error("workers: {count} are too many, the limit is {limit}")]
    TooManyWorkers {
        /// What was asked for.
        count: usize,
        /// The most.
        limit: usize,
    },
    /// The limit of memory in the file is none.
    #[error("config: memory_limit: {0}")]
    BadMemoryLimit(#[from] BadMemoryLimit),
    /// An option that does nothing without another.
    #[error("{given}: needs {missing} too")]
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
        let duration =
            |flag: Option<humantime::Duration>, text: Option<String>, field, default| match (flag, text) {
                (Some(flag), _) => Ok(*flag),
                (None, Some(text)) => humantime::parse_duration(&text)
                    .map_err(|error| OptionsError::BadDuration { field, error }),
                (None, None) => Ok(default),
            };
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let worker_count = self.workers.or(file.workers).map_or_else(cores, NonZeroUsize::get);
        let limit = crate::limits::WORKER_COUNT_MAX;
        if worker_count > limit {
            return Err(OptionsError::TooManyWorkers { count: worker_count, limit });
        }
        Ok(Options {
            listen: self.listen.or(file.listen).unwrap_or_else(|| "127.0.0.1:7420".to_owned()),
            grpc_listen: address(self.grpc_listen.or(file.grpc_listen), "127.0.0.1:7421"),
            http_listen: address(self.http_listen.or(file.http_listen), "127.0.0.1:7422"),
            locktopus_listen: address(self.locktopus_listen.or(file.locktopus_listen), NONE),
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
                (None, Some(text)) => text.parse()?,
                (None, None) => MemoryLimit::default(),
            },
            unix: self.unix.or(file.unix),
            data_dir: Some(self.data_dir.or(file.data_dir).unwrap_or_else(|| "waymaker-data".into()))
                .filter(|path| path != Path::new(NONE)),
            log_segment_len: self.log_segment_len.or(file.log_segment_len).unwrap_or(SEGMENT_LEN_DEFAULT),
            accept_damage: self.accept_damage.or(file.accept_damage).unwrap_or(false),
            drain: duration(self.drain, file.drain, "drain", Duration::from_secs(5))?,
            tls: tls_options(
                self.tls_cert.or(file.tls_cert),
                self.tls_key.or(file.tls_key),
                self.tls_client_ca.or(file.tls_client_ca),
                self.tls_min_version.or(file.tls_min_version),
            )?,
            insecure: self.insecure.or(file.insecure).unwrap_or(false),
            quorum: self.quorum.resolve(file.quorum)?,
        })
    }
}

/// An address, unless it says that there is none.
fn address(given: Option<String>, default: &str) -> Option<String> {
    Some(given.unwrap_or_else(|| default.to_owned())).filter(|address| address != NONE)
}

/// All that TLS needs, or nothing.
fn tls_options(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    min_version: Option<TlsVersion>,
) -> Result<Option<TlsOptions>, OptionsError> {
    let incomplete = |given, missing| Err(OptionsError::Incomplete { given, missing });
    match (cert, key) {
        (Some(cert), Some(key)) => {
            Ok(Some(TlsOptions { cert, key, client_ca, min_version: min_version.unwrap_or_default() }))
        }
        (Some(_), None) => incomplete("tls-cert", "tls-key"),
        (None, Some(_)) => incomplete("tls-key", "tls-cert"),
        (None, None) if client_ca.is_some() => incomplete("tls-client-ca", "tls-cert"),
        (None, None) if min_version.is_some() => incomplete("tls-min-version", "tls-cert"),
        (None, None) => Ok(None),
    }
}

fn read_file(path: &Path) -> Result<File, OptionsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| OptionsError::Unreadable { path: path.to_owned(), error })?;
    toml::from_str(&text)
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
    fn flags_go_before_the_file_and_the_file_before_defaults() {
        let file = file("listen = \"127.0.0.1:9\"\nworkers = 3\nbusy_poll = \"50us\"\n");
        let config = Some(file.path().to_owned());
        let flags = Flags { workers: NonZeroUsize::new(5), config, ..Flags::default() };
        let options = flags.resolve().unwrap();
        assert_eq!(options.listen, "127.0.0.1:9");
        assert_eq!(options.worker_count, 5);
        assert_eq!(options.busy_poll, Duration::from_micros(50));
        assert_eq!(options.drain, Duration::from_secs(5));
    }

    #[test]
    fn a_wrong_file_is_refused_by_field() {
        for (text, field) in [
            ("lisen = \"x\"", "lisen"),
            ("busy_poll = \"soon\"", "busy_poll"),
            ("locktopus_abandon_timeout = \"1\"", "locktopus_abandon_timeout"),
            ("workers = 0", "workers"),
            ("memory_limit = \"much\"", "memory_limit"),
            ("[quorum]\nuser = \"me\"", "quorum.endpoints"),
            ("[quorum]\nendpoint = \"x:1\"", "endpoint"),
        ] {
            let file = file(text);
            let flags = Flags { config: Some(file.path().to_owned()), ..Flags::default() };
            let error = flags.resolve().unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }

    #[test]
    fn what_tls_needs_may_come_from_flags_and_file_together() {
        let file = file("tls_key = \"server.key\"\ntls_min_version = \"1.2\"\n");
        let config = Some(file.path().to_owned());
        let flags = Flags { tls_cert: Some("server.pem".into()), config, ..Flags::default() };
        let expected = TlsOptions {
            cert: "server.pem".into(),
            key: "server.key".into(),
            client_ca: None,
            min_version: TlsVersion::V1_2,
        };
        assert_eq!(flags.resolve().unwrap().tls, Some(expected));
    }

    #[test]
    fn the_flags_are_well_formed() {
        use clap::CommandFactory;
        Flags::command().debug_assert();
    }
}
