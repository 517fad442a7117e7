//! Statistics of a Locktopus namespace as JSON.

use super::handshake::open_inlet;
use super::parameters::Parameters;
use super::{Locktopus, connection, tree_namespace};
use crate::driver::{Inlet, Local};
use crate::front::http::Connection;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use std::sync::Arc;
use waymaker_access::Identity;
use waymaker_engine::Rights;
use waymaker_protocol::{NamespaceKind, Request as Question, Response as Answer, TreeStatistics};

/// Statistics with the member names of the original server.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Statistics {
    #[serde(rename = "LastGroupID")]
    last_group_id: u64,
    groups_pending: u64,
    groups_acquired: u64,
    locks_pending: u64,
    locks_acquired: u64,
    lockref_count: u64,
    tokens_total: u64,
    tokens_unique: u64,
    path_count: u64,
}

/// Answers with the statistics of the namespace that the URL names.
pub(super) async fn show(
    State(locktopus): State<Arc<Locktopus>>,
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Response {
    let parameters = Parameters::of(request.uri());
    let name = match parameters.namespace() {
        Ok(name) => name,
        Err(text) => return (StatusCode::BAD_REQUEST, text).into_response(),
    };
    let caller = match connection.identify(request.headers(), None) {
        Ok(caller) => caller,
        Err(refusal) => return *refusal,
    };
    // Check the right before the lookup: a client without it must not learn whether the namespace exists.
    if !may_see(name, caller.identity.as_ref()) {
        let message = "no rule gives this identity the right `inspect` here";
        caller.note_denied(&tree_namespace(name), message);
        return (StatusCode::FORBIDDEN, format!("{message}\n")).into_response();
    }
    let Some(namespace) = locktopus.namespaces.get(name) else {
        return (StatusCode::NOT_FOUND, "Namespace not found").into_response();
    };
    let inlet = match open_inlet(name, "", &caller) {
        Ok(inlet) => inlet,
        Err(refusal) => return refusal.into_response(),
    };
    match count(&inlet).await {
        Ok(counted) => {
            let statistics = Statistics { last_group_id: namespace.last_id(), ..counted };
            match serde_json::to_string(&statistics) {
                Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
            }
        }
        Err(message) => (StatusCode::SERVICE_UNAVAILABLE, message).into_response(),
    }
}

/// Returns whether a client may read the statistics of a namespace: it needs the right to inspect every key of the
/// namespace.
fn may_see(name: &str, identity: Option<&Arc<Identity>>) -> bool {
    let policy = Local::with(|local| local.node.access.policy());
    let access = policy.access(identity, &tree_namespace(name), NamespaceKind::Tree);
    access.is_none_or(|access| access.everywhere().contains(Rights::INSPECT))
}

/// Reads the tree statistics from the worker. `last_group_id` is 0.
async fn count(inlet: &Inlet) -> Result<Statistics, String> {
    let asked = inlet.ask(|number, out| Question::TreeStatistics(TreeStatistics).encode(number, out));
    let reply = asked.await.map_err(|_| "the server is stopping".to_owned())?;
    let Answer::TreeStatistics(tree) = reply.response() else { return Err(connection::refusal_of(&reply).1) };
    Ok(Statistics {
        last_group_id: 0,
        groups_pending: tree.waiting_sets,
        groups_acquired: tree.held_sets,
        locks_pending: tree.waiting_paths,
        locks_acquired: tree.held_paths,
        lockref_count: tree.waiting_paths + tree.held_paths,
        tokens_total: tree.segments,
        tokens_unique: tree.distinct_segments,
        path_count: tree.distinct_paths,
    })
}
