//! Front ends of Waymaker. Each is compared with a bare server of the same library, and gRPC also with etcd.

use clap::ValueEnum;
use serde::Serialize;

use super::options::RowShape;
use crate::options::WorkloadName;
use crate::system::System;

/// A front end and its kind of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Front {
    /// gRPC calls: MultiLock of one key, which does not wait, and UnLock
    Grpc,
    /// gRPC streams: Lock until the lock is held, and UnLock until the stream has ended
    GrpcStream,
    /// Locktopus: a lock and its release over a WebSocket
    Locktopus,
}

impl Front {
    /// Returns the system that measures this front end of Waymaker.
    pub fn ours(self) -> System {
        match self {
            Self::Grpc | Self::GrpcStream => System::Grpc,
            Self::Locktopus => System::Locktopus,
        }
    }

    /// Returns the systems that the front end is compared with; the first is the bare server.
    pub fn references(self) -> &'static [System] {
        match self {
            Self::Grpc | Self::GrpcStream => &[System::GrpcEcho, System::Etcd],
            Self::Locktopus => &[System::WebSocketEcho],
        }
    }

    /// Whether the system is measured.
    pub fn includes(self, system: System) -> bool {
        system == self.ours() || self.references().contains(&system)
    }

    /// Returns the workload for a system.
    pub fn workload_of(self, system: System) -> WorkloadName {
        match self {
            Self::GrpcStream if system != System::Etcd => WorkloadName::Stream,
            _ => WorkloadName::Pair,
        }
    }

    /// Returns the workload that measures memory per item, for the front end and for the bare server.
    pub fn footprint(self) -> Option<WorkloadName> {
        match self {
            Self::Grpc => None,
            Self::GrpcStream => Some(WorkloadName::HeldStreams),
            Self::Locktopus => Some(WorkloadName::Idle),
        }
    }

    /// Returns the rows that the goals need, and the row of a single connection.
    pub fn rows(self) -> Vec<RowShape> {
        let shapes: &[(u32, u32)] = match self {
            Self::Grpc | Self::GrpcStream => &[(50, 1), (8, 16), (1, 1)],
            Self::Locktopus => &[(50, 1), (1, 1)],
        };
        shapes.iter().map(|&(connections, depth)| RowShape { connections, depth }).collect()
    }

    /// Describes a pair for the head of a table.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC, MultiLock of one key and UnLock",
            Self::GrpcStream => "gRPC, a stream of Lock and UnLock",
            Self::Locktopus => "Locktopus",
        }
    }
}
