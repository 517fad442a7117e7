//! The limits that operators may set with options `--limits-*`. Most other limits are constants in [`crate::limits`].

use crate::limits::{
    CONNECTIONS_SET_MAX, FRAME_MS, GRPC_STREAM_COUNT_MAX, HELLO_MS, IDLE_MAX_MS, IDLE_MIN_MS, LISTS_LEN_MAX,
    LISTS_LEN_SET_MAX, LISTS_LEN_SET_MIN, NAMESPACE_COUNT_MAX, NAMESPACE_IDLE_MS, PING_MS, PING_SET_MAX_MS,
    PING_SET_MIN_MS, SESSION_COUNT_MAX, SESSION_LEASE_DEFAULT_MS, SESSION_LEASE_MAX_MS, SESSION_LEASE_MIN_MS,
    SESSION_VACANT_MS, TIMEOUT_MAX_MS, TIMEOUT_MIN_MS, TLS_HANDSHAKE_MS, WAITING_MAX, WAITING_SET_MAX,
    WRITE_MS,
};
use crate::milliseconds::Milliseconds;
use crate::option_values::{OrNone, heading, number, number_or_none, time};
use clap::builder::Resettable;
use clap::{Args, Command, FromArgMatches as _};
use std::sync::LazyLock;
use waymaker_engine::Limits;
use waymaker_engine::limits::{
    CLAIM_COUNT_MAX, LEASE_DEFAULT_MS, LEASE_MAX_MS, LEASE_MIN_MS, WAITER_COUNT_PER_KEY_MAX,
};

/// Limits of a server that operators set with the options `--limits-...`. They are plain values, so that no request
/// waits for a lock to read one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = heading::SET_LIMITS)]
pub struct LimitOptions {
    /// Connections of the server, 1 to 1000000, or `none`: as many as the limit of open files allows. The server never accepts more
    /// than that limit allows
    #[arg(
        id = "limits_connections",
        long = "limits-connections",
        env = "WAYMAKER_LIMITS_CONNECTIONS",
        value_name = "N",
        default_value = "none",
        value_parser = number_or_none(1, CONNECTIONS_SET_MAX),
        hide_short_help = true
    )]
    pub connections: OrNone<u32>,
    /// Sessions of the server, a like share for each worker, 1 to 131072
    #[arg(
        long = "limits-sessions",
        env = "WAYMAKER_LIMITS_SESSIONS",
        value_name = "N",
        default_value_t = SESSION_COUNT_MAX as u32,
        value_parser = number(1, SESSION_COUNT_MAX as u32),
        hide_short_help = true
    )]
    pub sessions: u32,
    /// Namespaces of the server beside the built-in and the declared ones, 1 to 4096
    #[arg(
        long = "limits-namespaces",
        env = "WAYMAKER_LIMITS_NAMESPACES",
        value_name = "N",
        default_value_t = NAMESPACE_COUNT_MAX as u32,
        value_parser = number(1, NAMESPACE_COUNT_MAX as u32),
        hide_short_help = true
    )]
    pub namespaces: u32,
    /// Claims of the server, held or waiting, a like share for each shard, 1 to 16777216
    #[arg(
        long = "limits-claims",
        env = "WAYMAKER_LIMITS_CLAIMS",
        value_name = "N",
        default_value_t = CLAIM_COUNT_MAX,
        value_parser = number(1, CLAIM_COUNT_MAX),
        hide_short_help = true
    )]
    pub claims: u32,
    /// Waiters of one key, pool or tree, 1 to 100000
    #[arg(
        long = "limits-waiters-per-key",
        env = "WAYMAKER_LIMITS_WAITERS_PER_KEY",
        value_name = "N",
        default_value_t = WAITER_COUNT_PER_KEY_MAX,
        value_parser = number(1, WAITER_COUNT_PER_KEY_MAX),
        hide_short_help = true
    )]
    pub waiters_per_key: u32,
    /// Acquires of one connection that may wait, 1 to 100000
    #[arg(
        long = "limits-waiters-per-connection",
        env = "WAYMAKER_LIMITS_WAITERS_PER_CONNECTION",
        value_name = "N",
        default_value_t = WAITING_MAX,
        value_parser = number(1, WAITING_SET_MAX),
        hide_short_help = true
    )]
    pub waiters_per_connection: u32,
    /// Lease of a claim that asks for the default, 10ms to --limits-lease-max
    #[arg(
        long = "limits-lease-default",
        env = "WAYMAKER_LIMITS_LEASE_DEFAULT",
        value_name = "DURATION",
        default_value_t = Milliseconds::new(LEASE_DEFAULT_MS as u64),
        value_parser = time(LEASE_MIN_MS as u64, LEASE_MAX_MS as u64),
        hide_short_help = true
    )]
    pub lease_default: Milliseconds,
    /// Longest lease of a claim, 10ms to 1day. The server grants this lease to clients that ask for a longer one
    #[arg(
        long = "limits-lease-max",
        env = "WAYMAKER_LIMITS_LEASE_MAX",
        value_name = "DURATION",
        default_value_t = Milliseconds::new(LEASE_MAX_MS as u64),
        value_parser = time(LEASE_MIN_MS as u64, LEASE_MAX_MS as u64),
        hide_short_help = true
    )]
    pub lease_max: Milliseconds,
    /// Lease of a session that asks for the default, 100ms to --limits-session-lease-max
    #[arg(
        long = "limits-session-lease-default",
        env = "WAYMAKER_LIMITS_SESSION_LEASE_DEFAULT",
        value_name = "DURATION",
        default_value_t = Milliseconds::new(SESSION_LEASE_DEFAULT_MS as u64),
        value_parser = time(SESSION_LEASE_MIN_MS as u64, SESSION_LEASE_MAX_MS as u64),
        hide_short_help = true
    )]
    pub session_lease_default: Milliseconds,
    /// Longest lease of a session, 100ms to 1day. The server grants this lease to clients that ask for a longer one
    #[arg(
        long = "limits-session-lease-max",
        env = "WAYMAKER_LIMITS_SESSION_LEASE_MAX",
        value_name = "DURATION",
        default_value_t = Milliseconds::new(SESSION_LEASE_MAX_MS as u64),
        value_parser = time(SESSION_LEASE_MIN_MS as u64, SESSION_LEASE_MAX_MS as u64),
        hide_short_help = true
    )]
    pub session_lease_max: Milliseconds,
    /// Longest time for which the server keeps a session without connection, hold and waiter, if its lease is longer, 1s to 1day
    #[arg(
        long = "limits-session-idle",
        env = "WAYMAKER_LIMITS_SESSION_IDLE",
        value_name = "DURATION",
        default_value_t = Milliseconds::new(SESSION_VACANT_MS),
        value_parser = time(IDLE_MIN_MS, IDLE_MAX_MS),
        hide_short_help = true
    )]
    pub session_idle: Milliseconds,
    /// How long a namespace without connections is kept before the server removes it if it is empty, 1s to 1day
    #[arg(
        long = "limits-namespace-idle",
        env = "WAYMAKER_LIMITS_NAMESPACE_IDLE",
        value_name = "DURATION",
        default_value_t = Milliseconds::new(NAMESPACE_IDLE_MS),
        value_parser = time(IDLE_MIN_MS, IDLE_MAX_MS),
        hide_short_help = true
    )]
    pub namespace_idle: Milliseconds,
    /// Time that a TLS handshake may take, 500ms to 10m
    #[arg(
        long = "limits-tls-handshake",
        env = "WAYMAKER_LIMITS_TLS_HANDSHAKE",
        value_name = "DURATION",
        default_value_t = Milliseconds::new(TLS_HANDSHAKE_MS),
        value_parser = time(TIMEOUT_MIN_MS, TIMEOUT_MAX_MS),
        hide_short_help = true
    )]
    pub tls_handshake: Milliseconds,
    /// Time within which a new connection must send HELLO, or the first bytes of gRPC or HTTP, 500ms to 10m
    #[arg(
        long = "limits-hello",
        env = "WAYMAKER_LIMITS_HELLO",
        value_name = "DURATION",
        default_value_t = Milliseconds::new(HELLO_MS),
        value_parser = time(TIMEOUT_MIN_MS, TIMEOUT_MAX_MS),
        hide_short_help = true
    )]
    pub hello: Milliseconds,
    /// Time within which a frame, gRPC request or WebSocket message that has begun must be complete, 500ms to 10m
    #[arg(
        long = "limits-frame",
        env = "WAYMAKER_LIMITS_FRAME",
        value_name = "DURATION",
        default_value_t = Milliseconds::new(FRAME_MS),
        value_parser = time(TIMEOUT_MIN_MS, TIMEOUT_MAX_MS),
        hide_short_help = true
    )]
    pub frame: Milliseconds,
    /// Time after which the server closes a connection whose client takes no output, 500ms to 10m
    #[arg(
        long = "limits-write",
        env = "WAYMAKER_LIMITS_WRITE",
        value_name = "DURATION",
        default_value_t = Milliseconds::new(WRITE_MS),
        value_parser = time(TIMEOUT_MIN_MS, TIMEOUT_MAX_MS),
        hide_short_help = true
    )]
    pub write: Milliseconds,
    /// Silence of a connection of the binary protocol after which the server sends PING, and the time between two PINGs, 1s to 10m. After
    /// three without an answer it closes the connection
    #[arg(
        long = "limits-ping",
        env = "WAYMAKER_LIMITS_PING",
        value_name = "DURATION",
        default_value_t = Milliseconds::new(PING_MS),
        value_parser = time(PING_SET_MIN_MS, PING_SET_MAX_MS),
        hide_short_help = true
    )]
    pub ping: Milliseconds,
    /// Streams that are open at once on one gRPC connection, 1 to 100000. A held lock can be one
    #[arg(
        long = "limits-grpc-streams",
        env = "WAYMAKER_LIMITS_GRPC_STREAMS",
        value_name = "N",
        default_value_t = GRPC_STREAM_COUNT_MAX,
        value_parser = number(1, GRPC_STREAM_COUNT_MAX),
        hide_short_help = true
    )]
    pub grpc_streams: u32,
    /// Bytes of all lists without pages (ListAcquiredLocks, FetchAll) that the server makes and sends, 1048576 to 1073741824
    #[arg(
        long = "limits-lists-memory",
        env = "WAYMAKER_LIMITS_LISTS_MEMORY",
        value_name = "BYTES",
        default_value_t = LISTS_LEN_MAX as u32,
        value_parser = number(LISTS_LEN_SET_MIN, LISTS_LEN_SET_MAX),
        hide_short_help = true
    )]
    pub lists_memory: u32,
}

/// A default is above its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {default} is above {max_option}, which is {max}")]
pub struct DefaultAboveMaximum {
    option: &'static str,
    default: Milliseconds,
    max_option: &'static str,
    max: Milliseconds,
}

impl LimitOptions {
    /// Checks that the default leases of claims and sessions are at most their maxima.
    ///
    /// # Errors
    /// Returns an error if a default lease is longer than the longest lease.
    pub fn check(&self) -> Result<(), DefaultAboveMaximum> {
        for (option, default, max_option, max) in [
            ("--limits-lease-default", self.lease_default, "--limits-lease-max", self.lease_max),
            (
                "--limits-session-lease-default",
                self.session_lease_default,
                "--limits-session-lease-max",
                self.session_lease_max,
            ),
        ] {
            if default > max {
                return Err(DefaultAboveMaximum { option, default, max_option, max });
            }
        }
        Ok(())
    }

    /// Returns the limits of the engine.
    pub fn engine(&self) -> Limits {
        Limits {
            claim_count_max: self.claims,
            waiter_count_per_key_max: self.waiters_per_key,
            lease_default_ms: self.lease_default.get(),
            lease_max_ms: self.lease_max.get(),
            ..Limits::default()
        }
    }
}

impl Default for LimitOptions {
    fn default() -> Self {
        static DEFAULT: LazyLock<LimitOptions> = LazyLock::new(|| {
            let command = LimitOptions::augment_args(Command::new(""));
            let command = command.mut_args(|option| option.env(Resettable::Reset));
            let matches = command.no_binary_name(true).get_matches_from([""; 0]);
            LimitOptions::from_arg_matches(&matches).expect("the defaults are valid")
        });
        *DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_limits_are_those_of_the_engine() {
        assert_eq!(LimitOptions::default().engine(), Limits::default());
        assert_eq!(LimitOptions::default().check(), Ok(()));
    }

    #[test]
    fn a_default_lease_above_the_longest_is_refused() {
        let limits = LimitOptions { lease_max: Milliseconds::new(1_000), ..LimitOptions::default() };
        let error = limits.check().unwrap_err().to_string();
        assert_eq!(error, "--limits-lease-default: 30s is above --limits-lease-max, which is 1s");
        let limits = LimitOptions { session_lease_max: Milliseconds::new(1_000), ..LimitOptions::default() };
        assert!(limits.check().is_err());
    }
}
