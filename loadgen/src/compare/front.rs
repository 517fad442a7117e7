//! Front ends of ours, each against a bare server of the library that it is built on, and what else it is measured by.

use clap::ValueEnum;
use serde::Serialize;

use super::options::RowShape;
use crate::address::System;
use crate::options::WorkloadName;

/// A front end, and how it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Front {
    /// gRPC by calls: MultiLock of one key, which does not wait, and UnLock
    Grpc,
    /// gRPC by streams: Lock until the lock is held, and UnLock until the stream has ended
    GrpcStream,
    /// Locktopus: a lock and its release by a WebSocket
    Locktopus,
}

impl Front {
    /// Our server, as this front end asks it.
    pub fn ours(self) -> System {
        match self {
            Self::Grpc | Self::GrpcStream => System::Grpc,
            Self::Locktopus => System::Locktopus,
        }
    }

    /// Those that ours is compared with; the first is the bare server.
    pub fn references(self) -> &'static [System] {
        match self {
            Self::Grpc | Self::GrpcStream => &[System::GrpcEcho, System::Etcd],
            Self::Locktopus => &[System::WebSocketEcho],
        }
    }

    /// Whether it is measured.
    pub fn includes(self, system: System) -> bool {
        system == self.ours() || self.references().contains(&system)
    }

    /// What is measured of a system.
    pub fn workload_of(self, system: System) -> WorkloadName {
        match self {
            Self::GrpcStream if system != System::Etcd => WorkloadName::Stream,
            _ => WorkloadName::Pair,
        }
    }

    /// What is there many times where it is used: its memory is measured, of ours and of the bare server.
    pub fn footprint(self) -> Option<WorkloadName> {
        match self {
            Self::Grpc => None,
            Self::GrpcStream => Some(WorkloadName::HeldStreams),
            Self::Locktopus => Some(WorkloadName::Idle),
        }
    }

    /// The rows that its goals are about, and one connection alone.
    pub fn rows(self) -> Vec<RowShape> {
        let shapes: &[(u32, u32)] = match self {
            Self::Grpc | Self::GrpcStream => &[(50, 1), (8, 16), (1, 1)],
            Self::Locktopus => &[(50, 1), (1, 1)],
        };
        shapes.iter().map(|&(connections, depth)| RowShape { connections, depth }).collect()
    }

    /// What a pair is, for the head of a table.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Grpc => "gRPC, MultiLock of one key and UnLock",
            Self::GrpcStream => "gRPC, a stream of Lock and UnLock",
            Self::Locktopus => "Locktopus",
        }
    }
}
