//! A page for people who look what is there.

use super::Locktopus;
use axum::extract::State;
use std::fmt::Write;
use std::sync::Arc;

/// Lists what can be asked, and the namespaces.
pub(super) async fn show(State(locktopus): State<Arc<Locktopus>>) -> String {
    let mut page = "\
Waymaker, speaking Locktopus

/v1        locks, over a WebSocket, e.g. ws://host:port/v1?namespace=default&abandon-timeout-ms=60000
/stats_v1  numbers of a namespace, e.g. http://host:port/stats_v1?namespace=default

"
    .to_owned();
    let timeout_ms = locktopus.abandon_timeout.as_millis();
    let names = locktopus.namespaces.names();
    let heading = if names.is_empty() { "No open namespaces" } else { "Open namespaces:" };
    let _ = writeln!(page, "Default abandon timeout: {timeout_ms} ms\n\n{heading}");
    for name in names {
        // A name may have lines of its own.
        let _ = writeln!(page, "{}", name.escape_debug());
    }
    page
}
