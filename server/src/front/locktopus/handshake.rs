//! WebSocket handshake of Locktopus connections.

use super::connection;
use super::parameters::Parameters;
use super::{Locktopus, tree_namespace};
use crate::driver::{Inlet, Local, Reply};
use crate::front::FrontCaller;
use crate::front::http::Connection;
use crate::front::trace_context;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, StatusCode};
use std::sync::Arc;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use waymaker_protocol::{ErrorCode, NamespaceKind};

/// Opens a WebSocket in the namespace that the URL names.
pub(super) async fn connect(
    State(locktopus): State<Arc<Locktopus>>,
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Response {
    open(&locktopus, &connection, request).unwrap_or_else(|refusal| *refusal)
}

fn open(
    locktopus: &Locktopus,
    connection: &Connection,
    mut request: Request,
) -> Result<Response, Box<Response>> {
    let parameters = Parameters::of(request.uri());
    let bad_request = |text: &'static str| Box::new((StatusCode::BAD_REQUEST, text).into_response());
    let name = parameters.namespace().map_err(bad_request)?;
    let abandon_timeout_ms = parameters.abandon_timeout_ms().map_err(bad_request)?;
    let accept = judge_upgrade(&request).map_err(|status| Box::new(not_a_handshake(status)))?;
    let caller = connection.identify(request.headers(), parameters.access_token())?;
    let counted = Local::with(|local| caller.count_connection(local))
        .map_err(|reached| Box::new((StatusCode::TOO_MANY_REQUESTS, reached.to_string()).into_response()))?;
    let inlet =
        open_inlet(name, connection.peer(), &caller).map_err(|refusal| Box::new(refusal.into_response()))?;
    let default_ms = u32::try_from(locktopus.abandon_timeout.as_millis()).unwrap_or(u32::MAX);
    let lane = connection::Lane {
        inlet,
        namespace: locktopus.namespaces.open(name),
        abandon_timeout_ms: abandon_timeout_ms.unwrap_or(default_ms),
        traceparent: trace_context::of_headers(request.headers()),
        peer: connection.peer().into(),
        _counted: counted,
    };
    tracing::debug!(target: "locktopus::clients", peer = connection.peer(), namespace = name, "connected");
    connection.go_on(hyper::upgrade::on(&mut request), |upgraded| connection::serve(upgraded, lane));
    let headers = [
        (UPGRADE, HeaderValue::from_static("websocket")),
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (SEC_WEBSOCKET_ACCEPT, accept),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

/// Validates the upgrade request. Returns the value of `Sec-WebSocket-Accept` for the response, or the status of the
/// rejection.
fn judge_upgrade(request: &Request) -> Result<HeaderValue, StatusCode> {
    let headers = request.headers();
    if !has_token(headers, &CONNECTION, "upgrade") || !has_token(headers, &UPGRADE, "websocket") {
        return Err(StatusCode::BAD_REQUEST);
    }
    if request.method() != Method::GET {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    if !has_token(headers, &SEC_WEBSOCKET_VERSION, "13") {
        return Err(StatusCode::BAD_REQUEST);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty()).ok_or(StatusCode::BAD_REQUEST)?;
    HeaderValue::try_from(derive_accept_key(key.as_bytes())).map_err(|_| StatusCode::BAD_REQUEST)
}

/// Returns whether the comma-separated values of this header contain a token, ignoring case.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).into_iter();
    values
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

fn not_a_handshake(status: StatusCode) -> Response {
    let text = format!("{}\n", status.canonical_reason().unwrap_or_default());
    (status, [(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"))], text).into_response()
}

/// Opens an inlet for this client in the tree namespace of a Locktopus namespace.
pub(super) fn open_inlet(
    name: &str,
    owner: &str,
    caller: &FrontCaller,
) -> Result<Inlet, (StatusCode, String)> {
    let opened =
        Inlet::open(NamespaceKind::Tree, &tree_namespace(name), owner.as_bytes(), caller.lane_client());
    opened.map_err(|reply| refusal(&reply))
}

/// Converts a refusal of the worker to an HTTP status and message.
fn refusal(reply: &Reply) -> (StatusCode, String) {
    let (code, message) = connection::refusal_of(reply);
    let status = match code {
        ErrorCode::BadInput => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthorized => StatusCode::FORBIDDEN,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, message)
}
