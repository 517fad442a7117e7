//! Durability of locks and their fences.

use clap::ValueEnum;
use serde::Serialize;
use waymaker_protocol::AcquireOptions;

/// Scope of the acquires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Kept in memory; lost if the server crashes
    #[default]
    Ephemeral,
    /// Synced to the server's disk before each response; survives a crash of the server
    Local,
    /// Fence counted by an etcd cluster before each response; survives the loss of the machine
    Quorum,
}

impl Scope {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ephemeral => "ephemeral",
            Self::Local => "local",
            Self::Quorum => "quorum",
        }
    }

    /// Returns the optional fields of an acquire; none for the default scope.
    pub fn acquire_options<'a>(self) -> AcquireOptions<'a> {
        let scope = match self {
            Self::Ephemeral => None,
            Self::Local => Some(2),
            Self::Quorum => Some(3),
        };
        AcquireOptions { scope, ..AcquireOptions::default() }
    }

    /// Returns the number of bytes that the scope adds to an acquire.
    pub fn wire_len(self) -> usize {
        usize::from(self.acquire_options().scope.is_some())
    }
}
