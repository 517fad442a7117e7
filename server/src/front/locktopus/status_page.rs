//! Text page for people that lists the URL paths and the namespaces.

use super::{Locktopus, tree_namespace};
use crate::driver::Local;
use crate::front::http::Connection;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use std::fmt::Write;
use std::sync::Arc;
use waymaker_engine::Rights;

/// Answers with the URL paths and the namespaces that the client may list.
pub(super) async fn show(
    State(locktopus): State<Arc<Locktopus>>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
) -> Response {
    let caller = match connection.identify(&headers, None) {
        Ok(caller) => caller,
        Err(refusal) => return *refusal,
    };
    let policy = Local::with(|local| local.node.access.policy());
    let may_list = policy.allowing(caller.identity.as_ref(), Rights::LIST);
    let mut page = "\
Waymaker, speaking Locktopus

/v1        locks, over a WebSocket, e.g. ws://host:port/v1?namespace=default&abandon-timeout-ms=60000
/stats_v1  numbers of a namespace, e.g. http://host:port/stats_v1?namespace=default

"
    .to_owned();
    let timeout_ms = locktopus.abandon_timeout.as_millis();
    let mut names = locktopus.namespaces.names();
    names.retain(|name| may_list(&tree_namespace(name)));
    let heading = if names.is_empty() { "No open namespaces" } else { "Open namespaces:" };
    let _ = writeln!(page, "Default abandon timeout: {timeout_ms} ms\n\n{heading}");
    for name in names {
        // A name may contain line breaks, so escape it.
        let _ = writeln!(page, "{}", name.escape_debug());
    }
    page.into_response()
}
