//! What others speak: gRPC, HTTP and WebSocket, each translated into the binary protocol.
//!
//! A connection of a front end lives on a worker's thread, as every connection does. A library reads and writes it, the
//! files here say what its requests mean, and an [`Inlet`](crate::driver::Inlet) asks the worker. So nothing here knows a
//! shard, and nothing in the worker knows a front end.

mod grpc;
mod lazy_inlet;
mod locket;
mod metrics;
mod socket;
mod timed_body;
mod waymaker;

pub use locket::{LocketCompatibility, LocketConfig};

use crate::driver::{Intake, Local, Port};
use metrics::Metrics;
use socket::FrontSocket;
use std::rc::Rc;
use tonic::service::Routes;

/// How many tasks, one after the other, a request passes through between being read from its socket and reaching the worker:
/// the connection, its stream, and those that a library may put between.
pub(crate) const HOPS_MAX: usize = 8;

/// What front ends are told.
#[derive(Debug)]
pub struct FrontConfig {
    locket: LocketConfig,
    metrics: Metrics,
    /// Services beside those of locks: health and reflection.
    side_services: Routes,
}

impl FrontConfig {
    /// For a server that is about to start.
    ///
    /// # Errors
    /// If a contract that was compiled in cannot be described.
    pub fn new(locket: LocketConfig) -> anyhow::Result<Self> {
        Ok(Self { locket, metrics: Metrics::new(), side_services: grpc::side_services()? })
    }
}

/// Serves a connection of a front end to its end.
pub(crate) async fn serve(local: Rc<Local>, intake: Intake) {
    let Intake { port, socket, peer, .. } = intake;
    local.note_front();
    match FrontSocket::begin(socket).await {
        Ok(socket) => match port {
            Port::Grpc => grpc::serve(&local, socket).await,
            Port::Binary | Port::Http | Port::Locktopus => drop(socket),
        },
        Err(error) => tracing::debug!(%error, peer, "a connection did not begin"),
    }
    local.note_front_ended();
}
