//! Clients with a connection to a real server.

use waymaker_client::Client;

use crate::manual_clock::ManualClock;
use crate::patience::{patient, soon};
use crate::real::RealServer;

pub(crate) async fn connect(server: &RealServer, owner: &str) -> Client {
    soon(patient().owner(owner).connect(server.url())).await.unwrap()
}

/// Connects a client that reads its time from `clock`.
pub(crate) async fn connect_by(server: &RealServer, clock: &ManualClock) -> Client {
    soon(patient().clock(clock.shared()).connect(server.url())).await.unwrap()
}
