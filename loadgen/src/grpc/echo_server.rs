//! Minimum cost of a server of `waymaker.WaymakerService`: the library alone, configured as in waymaker-server,
//! with constant responses of the same length.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Result;
use futures_core::Stream;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tonic::codegen::Service;
use tonic::{Request, Response, Status};
use waymaker_proto::waymaker::waymaker_service_server::{WaymakerService, WaymakerServiceServer};
use waymaker_proto::waymaker::{
    ExtendLeaseRequest, ExtendLeaseResponse, Lease, LeaseStatusRequest, LeaseStatusResponse,
    ListAcquiredLocksRequest, ListAcquiredLocksResponse, LockEvent, LockEventType, LockRequest,
    MultiLockRequest, MultiLockResponse, UnLockRequest, UnLockResponse,
};

use crate::bare_server::BareServer;
use crate::options::BareServerOptions;
use crate::system::System;

/// Settings of waymaker-server; a test compares them.
const STREAM_COUNT_MAX: u32 = 100_000;
const STREAM_WINDOW_LEN: u32 = 64 << 10;
const CONNECTION_WINDOW_LEN: u32 = 1 << 20;
const FRAME_LEN_MAX: u32 = 16 << 10;
const HEADERS_LEN_MAX: u32 = 16 << 10;
const MESSAGE_LEN_MAX: usize = 2 << 20;
const PENDING_RESETS_MAX: usize = 20;
const LOCAL_RESETS_MAX: usize = 128;
const PING: Duration = Duration::from_secs(10);

/// A key as long as the keys of the load.
const KEY: &str = "waymaker00000000";
/// A time in Unix milliseconds; all times of this century have the same encoded length.
const TIME_MS: i64 = 1_800_000_000_000;
/// Fence of a key that was granted a few times.
const FENCE: u64 = 5;

/// Serves until it is killed.
pub fn run(options: &BareServerOptions) -> Result<()> {
    let server = BareServer { name: System::GrpcEcho.ready_name(), listen: &options.listen, spin: false };
    server.run(serve)
}

async fn serve(stream: TcpStream) {
    let echo = WaymakerServiceServer::new(Echo::default())
        .max_decoding_message_size(MESSAGE_LEN_MAX)
        .max_encoding_message_size(usize::MAX);
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAM_COUNT_MAX)
        .initial_stream_window_size(STREAM_WINDOW_LEN)
        .initial_connection_window_size(CONNECTION_WINDOW_LEN)
        .max_frame_size(FRAME_LEN_MAX)
        .max_header_list_size(HEADERS_LEN_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(LOCAL_RESETS_MAX)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service_fn(|request| echo.clone().call(request)));
    // The client closed the connection or speaks another protocol.
    let _ = connection.await;
}

/// The service, for one connection.
#[derive(Debug, Default)]
struct Echo {
    streams: Arc<Mutex<Streams>>,
}

/// Open streams, each with the sender that ends it.
#[derive(Debug, Default)]
struct Streams {
    begun_count: u64,
    open: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Streams {
    /// Returns the id of a new stream, with the length of a Waymaker lock id, and the receiver that signals its
    /// end.
    fn begin(&mut self) -> (String, oneshot::Receiver<()>) {
        self.begun_count += 1;
        let (end, ended) = oneshot::channel();
        self.open.insert(self.begun_count, end);
        (id_of(self.begun_count), ended)
    }

    /// Ends a stream. Ids of unary calls have no stream.
    fn end(&mut self, id: &str) {
        if let Some(end) = u64::from_str_radix(id, 16).ok().and_then(|number| self.open.remove(&number)) {
            // The client may have cancelled the stream.
            let _ = end.send(());
        }
    }
}

fn id_of(number: u64) -> String {
    format!("{number:032x}")
}

/// A stream with one event, which then stays open until the lock is released.
#[derive(Debug)]
struct EchoStream {
    event: Option<LockEvent>,
    ended: oneshot::Receiver<()>,
}

impl Stream for EchoStream {
    type Item = Result<LockEvent, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let own = self.get_mut();
        if let Some(event) = own.event.take() {
            return Poll::Ready(Some(Ok(event)));
        }
        // A signal and a dropped sender both end the stream.
        let _ = ready!(Pin::new(&mut own.ended).poll(context));
        Poll::Ready(None)
    }
}

#[tonic::async_trait]
impl WaymakerService for Echo {
    type LockStream = EchoStream;
    type ReadLockStream = EchoStream;

    async fn lock(&self, _: Request<LockRequest>) -> Result<Response<EchoStream>, Status> {
        let (id, ended) = self.streams.lock().unwrap_or_else(PoisonError::into_inner).begin();
        let event = LockEvent {
            success: true,
            event_type: LockEventType::Acquired.into(),
            id,
            key: KEY.to_owned(),
            lease_expires_at: TIME_MS,
            acquired_at: TIME_MS,
            fence_token: FENCE,
            ..LockEvent::default()
        };
        Ok(Response::new(EchoStream { event: Some(event), ended }))
    }

    async fn un_lock(&self, request: Request<UnLockRequest>) -> Result<Response<UnLockResponse>, Status> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).end(&request.get_ref().id);
        let result_code = "ok".to_owned();
        Ok(Response::new(UnLockResponse { success: true, result_code, message: String::new() }))
    }

    async fn multi_lock(&self, _: Request<MultiLockRequest>) -> Result<Response<MultiLockResponse>, Status> {
        let lease = Lease {
            id: id_of(0),
            key: KEY.to_owned(),
            acquired: true,
            created_at: TIME_MS,
            lease_expires_at: TIME_MS,
            fence_token: FENCE,
            ..Lease::default()
        };
        let result_code = "ok".to_owned();
        let message = String::new();
        Ok(Response::new(MultiLockResponse { success: true, result_code, message, leases: vec![lease] }))
    }

    async fn read_lock(&self, _: Request<LockRequest>) -> Result<Response<EchoStream>, Status> {
        Err(no_answer())
    }

    async fn lease_status(
        &self,
        _: Request<LeaseStatusRequest>,
    ) -> Result<Response<LeaseStatusResponse>, Status> {
        Err(no_answer())
    }

    async fn extend_lease(
        &self,
        _: Request<ExtendLeaseRequest>,
    ) -> Result<Response<ExtendLeaseResponse>, Status> {
        Err(no_answer())
    }

    async fn list_acquired_locks(
        &self,
        _: Request<ListAcquiredLocksRequest>,
    ) -> Result<Response<ListAcquiredLocksResponse>, Status> {
        Err(no_answer())
    }
}

fn no_answer() -> Status {
    Status::unimplemented("this bare server does not implement the method")
}

#[cfg(test)]
mod tests {
    use waymaker_server::limits;

    use super::*;

    #[test]
    fn settings_match_waymaker_server() {
        assert_eq!(STREAM_COUNT_MAX, limits::GRPC_STREAM_COUNT_MAX);
        assert_eq!(STREAM_WINDOW_LEN, limits::GRPC_STREAM_WINDOW_LEN);
        assert_eq!(CONNECTION_WINDOW_LEN, limits::GRPC_CONNECTION_WINDOW_LEN);
        assert_eq!(FRAME_LEN_MAX, limits::GRPC_FRAME_LEN_MAX);
        assert_eq!(HEADERS_LEN_MAX, limits::GRPC_HEADERS_LEN_MAX);
        assert_eq!(MESSAGE_LEN_MAX, limits::GRPC_MESSAGE_LEN_MAX);
        assert_eq!(PENDING_RESETS_MAX, limits::GRPC_PENDING_RESETS_MAX);
        assert_eq!(LOCAL_RESETS_MAX, limits::GRPC_LOCAL_RESETS_MAX);
        assert_eq!(PING, Duration::from_millis(limits::GRPC_PING_MS));
    }
}
