//! HTTP/1 connections: routing of requests, and upgrades to other protocols.

use super::client::{FrontCaller, FrontClient, bearer};
use super::console;
use super::locktopus::{self, Locktopus};
use super::long_text::LongText;
use super::metrics::{self, Metrics};
use super::probes::{healthz, readyz};
use super::socket::FrontSocket;
use crate::access::{NotIdentified, NotSigned};
use crate::driver::Local;
use crate::driver::front_turn::next_turn;
use crate::limits::{
    DYNAMODB_HEAD_MS, HTTP_BUFFER_LEN, HTTP_HEAD_MS, HTTP_REQUESTS_PER_TURN, RESERVED_HEAD_MS,
};
use crate::port::Port;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use http::HeaderMap;
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Parts};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::Cell;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tonic::codegen::Service as _;
use waymaker_access::SignedRequest;

/// Connection after its upgrade from HTTP.
#[derive(Debug)]
pub(super) struct UpgradedConnection {
    pub(super) socket: FrontSocket,
    /// Bytes that were already read from the socket.
    pub(super) read: Vec<u8>,
}

impl UpgradedConnection {
    fn of(parts: Parts<TokioIo<FrontSocket>>) -> Self {
        // Copy the bytes: as a part of the library's shared buffer, they would keep all of it in memory.
        Self { socket: parts.io.into_inner(), read: parts.read_buf.to_vec() }
    }
}

/// Future that serves an upgraded connection until it closes.
pub(super) type Afterwards = Pin<Box<dyn Future<Output = ()> + Send>>;

type After = Box<dyn FnOnce(UpgradedConnection) -> Afterwards + Send>;

/// Returns the routes of the HTTP port.
pub(super) fn router(locktopus: &Arc<Locktopus>, metrics: &Arc<Metrics>) -> Router {
    Router::new()
        .route("/metrics", get(show_metrics))
        .with_state(Arc::clone(metrics))
        .route("/healthz", any(healthz))
        .route("/readyz", any(readyz))
        .merge(console::routes(metrics))
        .merge(locktopus::routes(locktopus))
        .fallback(locktopus::not_found)
}

/// Returns the routes for connections that the HTTP port accepts although the server has reached its connection or
/// memory limit: health checks and metrics. All other paths get 503.
pub(super) fn reserved_router(metrics: &Arc<Metrics>) -> Router {
    Router::new()
        .route("/metrics", get(show_metrics))
        .with_state(Arc::clone(metrics))
        .route("/healthz", any(healthz))
        .route("/readyz", any(readyz))
        .fallback(full)
}

async fn full() -> (StatusCode, &'static str) {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "the server has reached its connection or memory limit: only /healthz, /readyz and /metrics are served",
    )
}

async fn show_metrics(
    State(metrics): State<Arc<Metrics>>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
) -> Response {
    let caller = match connection.identify(&headers, None) {
        Ok(caller) => caller,
        Err(refusal) => return *refusal,
    };
    if let Err(message) = caller.check_metrics_right() {
        return (StatusCode::FORBIDDEN, format!("{message}\n")).into_response();
    }
    let text = Body::new(LongText::new(metrics.render().await));
    ([(CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response()
}

/// Connection of a request, attached to each request as an extension.
#[derive(Clone)]
pub(super) struct Connection {
    client: FrontClient,
    /// Requested upgrade, and the function that serves the connection after it.
    after: Arc<Mutex<Option<(OnUpgrade, After)>>>,
}

impl Connection {
    /// Returns a description of the client, for people.
    pub(super) fn peer(&self) -> &str {
        self.client.peer()
    }

    /// Identifies the caller of a request by its headers.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<FrontCaller, NotIdentified> {
        self.client.identify(bearer(headers))
    }

    /// Identifies the caller of a request by its signature.
    pub(super) fn identify_signed(&self, request: &SignedRequest<'_>) -> Result<FrontCaller, NotSigned> {
        self.client.identify_signed(request)
    }

    /// Identifies the caller of a request by the token in its headers or, if they have none, by the token in its URL.
    ///
    /// # Errors
    /// Returns the HTTP response that refuses the request: its credentials are missing or not valid, or its address is
    /// paused.
    pub(super) fn identify(
        &self,
        headers: &HeaderMap,
        token: Option<&str>,
    ) -> Result<FrontCaller, Box<Response>> {
        let of_headers = bearer(headers);
        let of_url = token.map(str::as_bytes).filter(|_| of_headers.is_empty());
        self.client.identify(of_url.unwrap_or(of_headers)).map_err(|refusal| {
            let text = format!("{refusal}\n");
            Box::new(match refusal {
                NotIdentified::Unauthenticated { .. } => {
                    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], text).into_response()
                }
                NotIdentified::Paused { retry_ms } => {
                    let seconds = retry_ms.div_ceil(1000).to_string();
                    (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, seconds)], text).into_response()
                }
            })
        })
    }

    /// Registers a function that serves the connection after the response to the upgrade request.
    pub(super) fn go_on<F>(
        &self,
        upgrade: OnUpgrade,
        after: impl FnOnce(UpgradedConnection) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let after: After = Box::new(move |upgraded| Box::pin(after(upgraded)));
        *self.after.lock().unwrap_or_else(PoisonError::into_inner) = Some((upgrade, after));
    }

    fn take_after(&self) -> Option<(OnUpgrade, After)> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connection").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Serves the HTTP requests of a connection. If a request has upgraded the connection, returns the future that serves
/// it from then on.
pub(super) async fn serve(
    local: &Local,
    socket: FrontSocket,
    client: FrontClient,
    router: &Router,
) -> Option<Afterwards> {
    let connection = Connection { client, after: Arc::default() };
    if let Err(error) = serve_requests(local, socket, &connection, router).await {
        let peer = connection.peer();
        tracing::debug!(%error, peer, "an HTTP connection ended with an error");
    }
    let (upgrade, after) = connection.take_after()?;
    let parts = upgrade.await.ok()?.downcast::<TokioIo<FrontSocket>>().ok()?;
    Some(after(UpgradedConnection::of(parts)))
}

/// Serves the single request of a connection that was accepted although the server has reached its connection or memory
/// limit.
pub(super) async fn serve_reserved(socket: FrontSocket, client: FrontClient, router: &Router) {
    let connection = Connection { client, after: Arc::default() };
    let service = service_fn(|mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        router.clone().call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(RESERVED_HEAD_MS))
        .max_buf_size(HTTP_BUFFER_LEN)
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = serving.await {
        let peer = connection.peer();
        tracing::debug!(%error, peer, "an HTTP connection ended with an error");
    }
}

/// Number of requests that a connection began in its latest turn.
#[derive(Clone, Copy, Debug, Default)]
struct RequestCount {
    turn: u64,
    count: u32,
}

impl RequestCount {
    /// Counts another request in this turn. Returns the new count, and whether the request must wait for the next turn.
    fn one_more(self, turn: u64) -> (Self, bool) {
        let count = if turn == self.turn { self.count + 1 } else { 1 };
        (Self { turn, count }, count > HTTP_REQUESTS_PER_TURN)
    }
}

async fn serve_requests(
    local: &Local,
    socket: FrontSocket,
    connection: &Connection,
    router: &Router,
) -> hyper::Result<()> {
    let head_ms = if connection.client.port() == Port::Dynamodb { DYNAMODB_HEAD_MS } else { HTTP_HEAD_MS };
    let count = Cell::new(RequestCount::default());
    let service = service_fn(|mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        let (now, waits) = count.get().one_more(Local::with(|local| local.front_turn.borrow().number()));
        count.set(now);
        let mut router = router.clone();
        async move {
            if waits {
                next_turn().await;
            }
            router.call(request).await
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(head_ms))
        .max_buf_size(HTTP_BUFFER_LEN)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    let mut serving = pin!(serving);
    let mut finishing = local.finishing();
    tokio::select! {
        ended = serving.as_mut() => ended,
        _ = finishing.wait_for(|finishing| *finishing) => {
            // The server stops. Answer the request in progress before the connection ends.
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Evidence;
    use crate::driver::front_turn::in_turns;
    use crate::driver::test_local::{enter_crowded, in_runtime};
    use crate::front::socket::test_socket;
    use crate::port::Port;
    use std::io::{ErrorKind, Read};
    use std::task::{Context, Waker};

    const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    const ANSWER_BEGIN: &[u8] = b"HTTP/1.1 200 OK";

    /// Without a limit, the library serves all pipelined requests before other connections read their sockets.
    #[test]
    fn a_client_that_pipelines_many_requests_yields_after_a_few() {
        in_runtime(async {
            let local = enter_crowded();
            let (mut client, socket) = test_socket(&REQUEST.repeat(100)).await;
            let peer = FrontClient::new(Port::Http, "peer".to_owned(), Evidence::default());
            let router = Router::new().route("/healthz", any(healthz));
            let mut connection = pin!(in_turns(serve(&local, socket, peer, &router)));
            let mut context = Context::from_waker(Waker::noop());
            let mut poll_count = 0;
            while local.late.is_empty() {
                assert!(connection.as_mut().poll(&mut context).is_pending());
                poll_count += 1;
                assert!(poll_count < 1_000, "the connection does not give way");
                tokio::task::yield_now().await;
            }
            let mut answers = Vec::new();
            assert_eq!(client.read_to_end(&mut answers).unwrap_err().kind(), ErrorKind::WouldBlock);
            let count = answers.windows(ANSWER_BEGIN.len()).filter(|bytes| *bytes == ANSWER_BEGIN).count();
            // Expect at most the maximum, because the time limit of a turn may end the turn earlier.
            assert!(count <= HTTP_REQUESTS_PER_TURN as usize, "{count} answers");
        });
    }
}
