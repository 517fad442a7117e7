//! Locktopus: sets of paths of a tree, locked over a WebSocket. `docs/reference/compatibility.md` says where it differs from the
//! original.
//!
//! `message` and `session` are the protocol without I/O, `connection` is between a WebSocket and the worker, `handshake`
//! and `cors` are what comes before it, `statistics` and `status_page` what can be asked beside it.

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

/// What all connections share.
#[derive(Debug)]
pub(super) struct Locktopus {
    namespaces: Namespaces,
    /// How long a lock stays whose connection was lost, unless the connection said it.
    abandon_timeout: Duration,
}

impl Locktopus {
    /// Without namespaces yet.
    pub(super) fn new(abandon_timeout: Duration) -> Self {
        Self { namespaces: Namespaces::default(), abandon_timeout }
    }
}

/// The port of Locktopus alone.
pub(super) fn router(locktopus: &Arc<Locktopus>) -> Router {
    paths(locktopus).fallback(not_found).layer(from_fn(cors::apply))
}

/// Its part of a port that serves others as well.
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

/// For every other path.
pub(super) async fn not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "404 page not found\n")
}

/// What a namespace is called in the binary protocol: what our own clients make of `locktopus/NAME` where they mean a tree.
fn tree_namespace(name: &str) -> Vec<u8> {
    format!("tree/locktopus/{name}").into_bytes()
}
