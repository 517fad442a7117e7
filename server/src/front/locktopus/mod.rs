//! Locktopus front end: locks on sets of tree paths over a WebSocket. `docs/reference/compatibility.md` lists the
//! differences from the original.
//!
//! `message` and `session` implement the protocol without I/O. `connection` connects a WebSocket to the worker;
//! `handshake` and `cors` handle the requests before it. `statistics` and `status_page` serve plain HTTP.

mod connection;
mod cors;
mod framing;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod handshake;
mod message;
#[cfg(test)]
mod message_tests;
mod namespaces;
mod parameters;
mod session;
#[cfg(test)]
mod session_tests;
mod statistics;
mod status_page;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::any;
use http::StatusCode;
use namespaces::Namespaces;
use std::sync::Arc;
use std::time::Duration;

/// State shared by all Locktopus connections.
#[derive(Debug)]
pub(super) struct Locktopus {
    namespaces: Namespaces,
    /// Time for which a held lock stays held after its connection has ended, unless the client set its own timeout.
    abandon_timeout: Duration,
}

impl Locktopus {
    /// Creates the state without namespaces.
    pub(super) fn new(abandon_timeout: Duration) -> Self {
        Self { namespaces: Namespaces::default(), abandon_timeout }
    }
}

/// Returns the router of a port that serves Locktopus only.
pub(super) fn router(locktopus: &Arc<Locktopus>) -> Router {
    paths(locktopus).fallback(not_found).layer(from_fn(cors::apply))
}

/// Returns the Locktopus routes for a port that also serves other front ends.
pub(super) fn routes(locktopus: &Arc<Locktopus>) -> Router {
    paths(locktopus).layer(from_fn(cors::apply))
}

fn paths(locktopus: &Arc<Locktopus>) -> Router {
    Router::new()
        .route("/", any(status_page::show))
        .route("/v1", any(handshake::connect))
        .route("/stats_v1", any(statistics::show))
        .route("/stats", any(statistics::show))
        .with_state(Arc::clone(locktopus))
}

/// Answers requests for unknown paths.
pub(super) async fn not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Returns the name of a Locktopus namespace in the binary protocol. It equals the name that Waymaker's own clients use
/// for the tree `locktopus/NAME`.
fn tree_namespace(name: &str) -> Vec<u8> {
    format!("tree/locktopus/{name}").into_bytes()
}
