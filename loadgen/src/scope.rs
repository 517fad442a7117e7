//! What the fences of the grants outlive, and with them the holds.

use clap::ValueEnum;
use serde::Serialize;
use waymaker_protocol::AcquireOptions;

/// The scope that acquires ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Nothing: they are in memory
    #[default]
    Ephemeral,
    /// The process of the server: they are on its disk before they are answered
    Local,
    /// The machine of the server: an etcd cluster has counted them before they are answered
    Quorum,
}

impl Scope {
    /// The name as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ephemeral => "ephemeral",
            Self::Local => "local",
            Self::Quorum => "quorum",
        }
    }

    /// The optional fields of an acquire; none where it says nothing new.
    pub fn acquire_options<'a>(self) -> AcquireOptions<'a> {
        let scope = match self {
            Self::Ephemeral => None,
            Self::Local => Some(2),
            Self::Quorum => Some(3),
        };
        AcquireOptions { scope, ..AcquireOptions::default() }
    }

    /// Bytes that it adds to the end of an acquire.
    pub fn wire_len(self) -> usize {
        usize::from(self.acquire_options().scope.is_some())
    }
}
