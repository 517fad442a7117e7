//! gRPC: one HTTP/2 connection, and which service each of its requests is for.

use super::FrontConfig;
use super::closing::{Closing, EndingBody};
use super::locket::Locket;
use super::long_answers::LongAnswers;
use super::socket::FrontSocket;
use super::timed_body::{Awaited, TimedBody};
use super::unserved;
use super::v1::V1;
use super::waymaker::Waymaker;
use crate::driver::Local;
use crate::limits::{
    GRPC_CONNECTION_WINDOW_LEN, GRPC_FRAME_LEN_MAX, GRPC_HEADERS_LEN_MAX, GRPC_LOCAL_RESETS_MAX,
    GRPC_MESSAGE_LEN_MAX, GRPC_PENDING_RESETS_MAX, GRPC_PING_MS, GRPC_STREAM_COUNT_MAX,
    GRPC_STREAM_WINDOW_LEN,
};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as _};
use tonic::service::Routes;
use waymaker_proto::FILE_DESCRIPTOR_SET;
use waymaker_proto::locket::locket_server::{self, LocketServer};
use waymaker_proto::waymaker::waymaker_service_server::{self, WaymakerServiceServer};

/// Health and reflection, which are asked now and then.
pub(super) fn side_services() -> anyhow::Result<Routes> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (_, health) = tonic_health::server::health_reporter();
    // Older tools ask for the version before.
    let services =
        Routes::new(health).add_service(reflection().build_v1()?).add_service(reflection().build_v1alpha()?);
    Ok(services.prepare())
}

/// Serves one connection to its end.
pub(super) async fn serve(local: &Local, socket: FrontSocket, peer: &str) {
    let services = Services::new(&local.fronts, peer);
    let connection = http2::Builder::new(LocalExecutor)
        .timer(TokioTimer::new())
        .max_concurrent_streams(GRPC_STREAM_COUNT_MAX)
        .initial_stream_window_size(GRPC_STREAM_WINDOW_LEN)
        .initial_connection_window_size(GRPC_CONNECTION_WINDOW_LEN)
        .max_frame_size(GRPC_FRAME_LEN_MAX)
        .max_header_list_size(GRPC_HEADERS_LEN_MAX)
        .max_pending_accept_reset_streams(GRPC_PENDING_RESETS_MAX)
        .max_local_error_reset_streams(GRPC_LOCAL_RESETS_MAX)
        .keep_alive_interval(Duration::from_millis(GRPC_PING_MS))
        .keep_alive_timeout(Duration::from_millis(GRPC_PING_MS))
        .auto_date_header(false)
        .serve_connection(TokioIo::new(socket), services);
    let mut connection = pin!(connection);
    let closing = &local.fronts.closing;
    let _open = closing.note_open();
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.wait() => {
            // Calls that cross the GOAWAY are served; the client makes later ones on another connection.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a gRPC connection ended with an error");
    }
}

/// Runs what a connection begins on the thread of its worker.
#[derive(Clone, Copy, Debug)]
struct LocalExecutor;

impl<F> hyper::rt::Executor<F> for LocalExecutor
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// The services of one connection.
#[derive(Clone)]
struct Services {
    waymaker: WaymakerServiceServer<Waymaker>,
    locket: LocketServer<Locket>,
    v1: V1,
    side_services: Routes,
    awaited: Awaited,
    long_answers: LongAnswers,
    closing: Arc<Closing>,
}

impl Services {
    fn new(config: &FrontConfig, peer: &str) -> Self {
        let locket = Locket::new(config.locket, Arc::clone(&config.metrics.locket));
        // A list is as long as it is: neither contract has pages.
        let locket = LocketServer::new(locket)
            .max_decoding_message_size(GRPC_MESSAGE_LEN_MAX)
            .max_encoding_message_size(usize::MAX);
        let waymaker = WaymakerServiceServer::new(Waymaker::new())
            .max_decoding_message_size(GRPC_MESSAGE_LEN_MAX)
            .max_encoding_message_size(usize::MAX);
        Self {
            waymaker,
            locket,
            v1: V1::new(peer),
            side_services: config.side_services.clone(),
            awaited: Awaited::new(),
            long_answers: LongAnswers::new(),
            closing: Arc::clone(&config.closing),
        }
    }

    /// Lets a response end with its connection, and resets a stream that was not served: clients of gRPC make such a call
    /// again by themselves.
    fn finish(
        &self,
        answer: BoxFuture<http::Response<Body>, Infallible>,
    ) -> BoxFuture<http::Response<Body>, h2::Error> {
        let closing = Arc::clone(&self.closing);
        Box::pin(async move {
            let Ok(response) = answer.await;
            if response.extensions().get::<Status>().is_some_and(unserved::is_unserved) {
                closing.wait().await;
                return Err(h2::Reason::REFUSED_STREAM.into());
            }
            Ok(response.map(|body| Body::new(EndingBody::new(body, &closing))))
        })
    }

    fn call_side_service(
        &self,
        request: http::Request<TimedBody>,
    ) -> BoxFuture<http::Response<Body>, Infallible> {
        // Whoever asks for descriptions keeps a stream of questions open.
        let is_conversation = request.uri().path().starts_with("/grpc.reflection.");
        let request = request
            .map(|body| if is_conversation { Body::new(body.without_limit()) } else { Body::new(body) });
        Box::pin(self.side_services.clone().call(request))
    }
}

impl hyper::service::Service<http::Request<Incoming>> for Services {
    type Response = http::Response<Body>;
    type Error = h2::Error;
    type Future = BoxFuture<Self::Response, h2::Error>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let may_be_long = LongAnswers::may_come_of(request.uri().path());
        let request = request.map(|body| TimedBody::new(body, &self.awaited));
        let answer = match request.uri().path().split('/').nth(1) {
            Some(waymaker_service_server::SERVICE_NAME) => self.waymaker.clone().call(request),
            Some(locket_server::SERVICE_NAME) => self.locket.clone().call(request),
            _ => self.v1.call(request).unwrap_or_else(|request| self.call_side_service(request)),
        };
        self.finish(if may_be_long { self.long_answers.queue(answer) } else { answer })
    }
}
