//! gRPC: HTTP/2 connections, and the routing of requests to services.

use super::FrontConfig;
use super::client::FrontClient;
use super::closing::{Closing, EndingBody};
use super::contracts::{Callers, Contracts};
use super::health::Health;
use super::long_answers::{LongAnswers, Pieces};
use super::rejection::reject;
use super::response::Response;
use super::service_settings::{call, is_compressed, with_compression, with_length_limit};
use super::socket::FrontSocket;
use super::streams::Streams;
use super::timed_body::{OpenBodies, TimedBody};
use super::unread_responses::UnreadResponses;
use crate::driver::Local;
use crate::driver::front_turn::in_turns;
use crate::limits::{
    GRPC_CONNECTION_WINDOW_LEN, GRPC_FRAME_LEN_MAX, GRPC_HEADERS_LEN_MAX, GRPC_LOCAL_RESETS_MAX,
    GRPC_PENDING_RESETS_MAX, GRPC_PIECE_LEN, GRPC_PING_MS, GRPC_SIDE_CALLS_MAX, GRPC_STREAM_WINDOW_LEN,
};
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as _};
use tonic::service::Routes;
use tonic_health::pb::health_server::{self, HealthServer};
use waymaker_proto::FILE_DESCRIPTOR_SET;
use waymaker_proto::locket::locket_server;
use waymaker_proto::v1::{
    limiter_service_server, lock_service_server, operator_service_server, owned_lock_service_server,
    registry_service_server, semaphore_service_server, tree_service_server,
};
use waymaker_proto::waymaker::waymaker_service_server;

/// All services of the gRPC port.
pub(super) const SERVICES: [&str; 12] = [
    waymaker_service_server::SERVICE_NAME,
    locket_server::SERVICE_NAME,
    lock_service_server::SERVICE_NAME,
    tree_service_server::SERVICE_NAME,
    semaphore_service_server::SERVICE_NAME,
    registry_service_server::SERVICE_NAME,
    owned_lock_service_server::SERVICE_NAME,
    limiter_service_server::SERVICE_NAME,
    operator_service_server::SERVICE_NAME,
    health_server::SERVICE_NAME,
    REFLECTION,
    REFLECTION_V1ALPHA,
];
const REFLECTION: &str = "grpc.reflection.v1.ServerReflection";
const REFLECTION_V1ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";
/// Services that reveal nothing about locks, so their clients need no identity.
const SIDE_SERVICES: [&str; 3] = [health_server::SERVICE_NAME, REFLECTION, REFLECTION_V1ALPHA];

static ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// Methods that respond with a stream.
const STREAMS: [&str; 10] = [
    "/waymaker.WaymakerService/Lock",
    "/waymaker.WaymakerService/ReadLock",
    "/waymaker.v1.LockService/Acquire",
    "/waymaker.v1.LockService/Watch",
    "/waymaker.v1.SemaphoreService/Acquire",
    "/waymaker.v1.TreeService/Acquire",
    "/waymaker.v1.RegistryService/Watch",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Returns a router for the health and reflection services, which are called rarely. [`Services`] calls all other
/// services directly, without a router.
pub(super) fn side_services(health: &Health) -> anyhow::Result<Routes> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (v1, v1alpha) = (reflection().build_v1()?, reflection().build_v1alpha()?);
    // Older tools use the previous reflection version.
    let services = Routes::new(with_compression!(with_length_limit!(HealthServer::new(health.clone()))))
        .add_service(with_compression!(with_length_limit!(v1)))
        .add_service(with_compression!(with_length_limit!(v1alpha)));
    Ok(services.prepare())
}

/// Serves one gRPC connection until it closes.
pub(super) async fn serve(fronts: &FrontConfig, local: &Local, socket: FrontSocket, client: FrontClient) {
    let services = Services::new(fronts, client);
    let streams = Streams::default();
    let connection = http2::Builder::new(streams.clone())
        .timer(TokioTimer::new())
        .max_concurrent_streams(local.node.set.grpc_streams)
        .initial_stream_window_size(GRPC_STREAM_WINDOW_LEN)
        .initial_connection_window_size(GRPC_CONNECTION_WINDOW_LEN)
        .max_frame_size(GRPC_FRAME_LEN_MAX)
        // The server limits the bytes of responses that a client has not taken. Bytes that the library has taken no
        // longer count, so keep the library's buffer small.
        .max_send_buf_size(GRPC_PIECE_LEN)
        .max_header_list_size(GRPC_HEADERS_LEN_MAX)
        .max_pending_accept_reset_streams(GRPC_PENDING_RESETS_MAX)
        .max_local_error_reset_streams(GRPC_LOCAL_RESETS_MAX)
        .keep_alive_interval(Duration::from_millis(GRPC_PING_MS))
        .keep_alive_timeout(Duration::from_millis(GRPC_PING_MS))
        .auto_date_header(false)
        .serve_connection(TokioIo::new(socket), services);
    let mut connection = pin!(connection);
    let closing = &fronts.closing;
    let _open = closing.note_open();
    let mut end = pin!(closing.wait());
    let (mut waits_for_end, mut is_ending) = (false, false);
    let mut library = |context: &mut Context<'_>| {
        // The first poll of `end` registers the waker of the library, which is the same in all polls. So `end` need not
        // be polled again until connections must close.
        let polls_end = !is_ending && (!waits_for_end || closing.is_closing());
        waits_for_end = true;
        if polls_end && end.as_mut().poll(context).is_ready() {
            is_ending = true;
            // `graceful_shutdown` sends a GOAWAY. Calls that the client sent before it received the GOAWAY are still
            // served. The client makes later calls on another connection.
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context)
    };
    let ended = in_turns(poll_fn(|context| streams.poll_beside(context, &mut library))).await;
    in_turns(poll_fn(|_| streams.poll_drop())).await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a gRPC connection ended with an error");
    }
}

/// Services of one gRPC connection.
#[derive(Clone)]
struct Services {
    callers: Arc<Callers>,
    side_services: Routes,
    /// Permits for calls of the health and reflection services. Such calls may stay open indefinitely, so their number
    /// is limited.
    side_calls: Arc<Semaphore>,
    bodies: OpenBodies,
    long_answers: LongAnswers,
    unread: Arc<UnreadResponses>,
    closing: Arc<Closing>,
}

impl Services {
    fn new(config: &FrontConfig, client: FrontClient) -> Self {
        Self {
            callers: Arc::new(Callers::new(client)),
            side_services: config.side_services.clone(),
            side_calls: Arc::new(Semaphore::new(GRPC_SIDE_CALLS_MAX)),
            bodies: OpenBodies::default(),
            long_answers: LongAnswers::new(),
            unread: Arc::default(),
            closing: Arc::clone(&config.closing),
        }
    }

    fn call_contract(
        &self,
        service: &str,
        contracts: &Contracts,
        request: http::Request<TimedBody>,
    ) -> BoxFuture<http::Response<Body>, Infallible> {
        match service {
            waymaker_service_server::SERVICE_NAME => call!(contracts.waymaker, request),
            locket_server::SERVICE_NAME => call!(contracts.locket, request),
            _ => contracts.v1.call(request).unwrap_or_else(|request| self.call_side_service(request)),
        }
    }

    fn call_side_service(
        &self,
        mut request: http::Request<TimedBody>,
    ) -> BoxFuture<http::Response<Body>, Infallible> {
        let Ok(permit) = Arc::clone(&self.side_calls).try_acquire_owned() else {
            let limit = format!(
                "the connection has {GRPC_SIDE_CALLS_MAX} open calls of health and reflection, the maximum"
            );
            return Box::pin(ready(Ok(
                reject("health and reflection calls per connection", limit).into_http()
            )));
        };
        if !is_compressed(request.headers()) {
            request.headers_mut().remove(&ACCEPT_ENCODING);
        }
        // A reflection client keeps its request stream open, so its body has no time limit.
        let is_conversation = request.uri().path().starts_with("/grpc.reflection.");
        let request = request
            .map(|body| if is_conversation { Body::new(body.without_limit()) } else { Body::new(body) });
        let call = self.side_services.clone().call(request);
        Box::pin(async move { Ok(call.await?.map(|body| Body::new(Pieces::new(body, Some(permit))))) })
    }
}

impl hyper::service::Service<http::Request<Incoming>> for Services {
    type Response = http::Response<EndingBody>;
    type Error = h2::Error;
    type Future = Response;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let request = request.map(|body| TimedBody::new(body, &self.bodies, &self.unread));
        let service = path.path().split('/').nth(1).unwrap_or_default();
        let answer = if !is_grpc(request.headers()) {
            Box::pin(ready(Ok(refuse_media_type())))
        } else if SIDE_SERVICES.contains(&service) {
            self.call_side_service(request)
        } else {
            match self.callers.contracts(request.headers()) {
                Ok(contracts) => self.call_contract(service, &contracts, request),
                Err(status) => Box::pin(ready(Ok(status.into_http()))),
            }
        };
        let is_one_message = is_one_message(path.path());
        let answer = if is_one_message { answer } else { self.long_answers.queue(path.path(), answer) };
        Response::new(path, answer, is_one_message, &self.closing, &self.unread)
    }
}

/// Returns whether the content type is that of gRPC. A browser page of another origin may send this type only after an
/// OPTIONS response that allows it, and no response does. If `text/plain` were accepted, any web page could make calls
/// to a server with TLS. Without TLS, browsers do not use HTTP/2.
fn is_grpc(headers: &HeaderMap) -> bool {
    // Compare the name of each header with the wanted name: a call has few headers, and a hash lookup takes longer.
    let mut types = headers.iter().filter(|(name, _)| *name == CONTENT_TYPE);
    types.next().is_some_and(|(_, value)| value.as_bytes().starts_with(b"application/grpc"))
}

/// Returns the response to a request that is not a gRPC call.
fn refuse_media_type() -> http::Response<Body> {
    let status = Status::invalid_argument("the content type of a gRPC call must begin with application/grpc");
    let mut response = status.into_http();
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// Returns whether a method responds with a single short message. The server encodes it as soon as the response is
/// ready, and counts its bytes until the HTTP/2 library takes them to send them. Streams and the long responses of
/// [`LongAnswers`] are sent part by part instead.
fn is_one_message(path: &str) -> bool {
    !STREAMS.contains(&path) && !LongAnswers::has(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    #[test]
    fn the_streaming_methods_match_the_contracts() {
        let of_contracts = [FILE_DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET]
            .into_iter()
            .flat_map(|set| FileDescriptorSet::decode(set).expect("a set of files").file)
            .flat_map(|file| {
                let package = file.package().to_owned();
                file.service.into_iter().map(move |service| (package.clone(), service))
            })
            .flat_map(|(package, service)| {
                let name = format!("{package}.{}", service.name());
                service.method.into_iter().map(move |method| (name.clone(), method))
            })
            .filter(|(service, method)| method.server_streaming() && SERVICES.contains(&&**service))
            .map(|(service, method)| format!("/{service}/{}", method.name()))
            .collect::<std::collections::BTreeSet<_>>();
        let ours = STREAMS.iter().filter(|path| !path.starts_with("/grpc.reflection."));
        assert_eq!(of_contracts, ours.map(|path| (*path).to_owned()).collect());
    }
}
