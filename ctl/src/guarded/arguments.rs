//! Options of the commands that run a command while they hold something.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use waymaker_client::{AcquireBuilder, FenceScope};

use crate::{traceparent, values};

#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// Longest wait after the server is reached; 0s does not wait [default: no limit]
    #[arg(long, value_parser = values::time, value_name = "TIME", help_heading = "Lock")]
    pub(crate) wait: Option<Duration>,
}

impl WaitArguments {
    /// Applies these options to an acquire.
    pub(crate) fn apply<G>(&self, acquire: AcquireBuilder<G>) -> AcquireBuilder<G> {
        match self.wait {
            Some(wait) => acquire.wait(wait),
            None => acquire,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ScopeArguments {
    /// Durability: with local, the lock and its fence survive a crash of the server or its machine; with quorum, the fence also survives
    /// the loss of the server's disk [default: ephemeral, or the earlier scope of the key if that is more durable]
    #[arg(long, value_enum, value_name = "SCOPE", help_heading = "Lock")]
    pub(crate) scope: Option<Scope>,
}

impl ScopeArguments {
    /// Applies these options to an acquire.
    pub(crate) fn apply<G>(&self, acquire: AcquireBuilder<G>) -> AcquireBuilder<G> {
        match self.scope {
            Some(scope) => acquire.scope(scope.into()),
            None => acquire,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct GuardedArguments {
    /// Lease: time until the server frees the lock if this machine fails; at most 24h [default: 30s, set by the server]
    #[arg(long, value_parser = values::lease, value_name = "TIME", help_heading = "Lock")]
    pub(crate) lease: Option<Duration>,
    #[command(flatten)]
    pub(crate) scope: ScopeArguments,
    /// Time between SIGTERM and SIGKILL for CMD if the lock is lost; shortened to a third of the lease
    #[arg(long, default_value = "5s", value_parser = values::time, value_name = "TIME", help_heading = "Command")]
    pub(crate) grace: Duration,
    /// Command to run, with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl GuardedArguments {
    /// Applies these options to an acquire.
    pub(crate) fn apply<G>(&self, mut acquire: AcquireBuilder<G>) -> AcquireBuilder<G> {
        if let Some(lease) = self.lease {
            acquire = acquire.lease(lease);
        }
        self.scope.apply(traceparent::apply(acquire))
    }
}

/// Durability of a fence and of its hold. All scopes survive a clean stop of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    Ephemeral,
    Local,
    Quorum,
}

impl Scope {
    /// Name of the scope.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ephemeral => "ephemeral",
            Self::Local => "local",
            Self::Quorum => "quorum",
        }
    }
}

impl From<Scope> for FenceScope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Ephemeral => Self::Ephemeral,
            Scope::Local => Self::Local,
            Scope::Quorum => Self::Quorum,
        }
    }
}
