//! A server that follows the orders of a test, for events that the real server does not send.

use std::pin::Pin;

use futures_util::{Stream, stream};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use waymaker_proto::waymaker as contract;
use waymaker_proto::waymaker::waymaker_service_server::{WaymakerService, WaymakerServiceServer};

use super::soon;

type Said = Result<contract::LockEvent, Status>;
type Events = Pin<Box<dyn Stream<Item = Said> + Send>>;

/// A received `Lock` and the sender of its events. The stream ends when this is dropped.
pub(super) type ReceivedRequest = (contract::LockRequest, mpsc::UnboundedSender<Said>);

/// The answer to an extension by more than this comes late.
pub(super) const LEASE_ANSWERED_AT_ONCE_MAX_MS: u32 = 3_600_000;

/// Header `authorization` that `Lock` refuses. `ListAcquiredLocks` refuses every header and repeats it.
const REFUSED: &str = "Bearer wm_refused";

pub(super) struct FakeServer {
    pub(super) address: String,
    asked: mpsc::UnboundedReceiver<ReceivedRequest>,
    unlocked: mpsc::UnboundedReceiver<String>,
}

impl FakeServer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let ((ask, asked), (unlock, unlocked)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let service = WaymakerServiceServer::new(Service { ask, unlock });
        let serving = Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener));
        tokio::spawn(serving);
        Self { address, asked, unlocked }
    }

    /// The next attempt.
    pub(super) async fn asked(&mut self) -> ReceivedRequest {
        soon(self.asked.recv()).await.unwrap()
    }

    /// Returns the id of the next unlock.
    pub(super) async fn unlocked(&mut self) -> String {
        soon(self.unlocked.recv()).await.unwrap()
    }
}

struct Service {
    ask: mpsc::UnboundedSender<ReceivedRequest>,
    unlock: mpsc::UnboundedSender<String>,
}

#[tonic::async_trait]
impl WaymakerService for Service {
    type LockStream = Events;
    type ReadLockStream = Events;

    async fn lock(&self, request: Request<contract::LockRequest>) -> Result<Response<Events>, Status> {
        if authorization(&request) == REFUSED {
            return Err(Status::unauthenticated("the token is unknown"));
        }
        let (say, said) = mpsc::unbounded_channel();
        let _ = self.ask.send((request.into_inner(), say));
        let events = stream::unfold(said, async |mut said| Some((said.recv().await?, said)));
        Ok(Response::new(Box::pin(events)))
    }

    async fn read_lock(&self, _: Request<contract::LockRequest>) -> Result<Response<Events>, Status> {
        Err(Status::unimplemented("only Lock"))
    }

    async fn un_lock(
        &self,
        request: Request<contract::UnLockRequest>,
    ) -> Result<Response<contract::UnLockResponse>, Status> {
        let _ = self.unlock.send(request.into_inner().id);
        let answer =
            contract::UnLockResponse { success: true, result_code: "ok".to_owned(), ..Default::default() };
        Ok(Response::new(answer))
    }

    async fn lease_status(
        &self,
        _: Request<contract::LeaseStatusRequest>,
    ) -> Result<Response<contract::LeaseStatusResponse>, Status> {
        Err(Status::unimplemented("only Lock"))
    }

    async fn extend_lease(
        &self,
        request: Request<contract::ExtendLeaseRequest>,
    ) -> Result<Response<contract::ExtendLeaseResponse>, Status> {
        let contract::ExtendLeaseRequest { key, id, lease_timeout } = request.into_inner();
        if lease_timeout > LEASE_ANSWERED_AT_ONCE_MAX_MS {
            // It is served before every later call, and its answer is on its way for a while.
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        let lease = contract::Lease { id, key, lease_expires_at: lease_timeout.into(), ..Default::default() };
        let result_code = "ok".to_owned();
        let lease = Some(lease);
        Ok(Response::new(contract::ExtendLeaseResponse {
            success: true,
            result_code,
            lease,
            ..Default::default()
        }))
    }

    async fn multi_lock(
        &self,
        _: Request<contract::MultiLockRequest>,
    ) -> Result<Response<contract::MultiLockResponse>, Status> {
        Err(Status::unimplemented("only Lock"))
    }

    async fn list_acquired_locks(
        &self,
        request: Request<contract::ListAcquiredLocksRequest>,
    ) -> Result<Response<contract::ListAcquiredLocksResponse>, Status> {
        Err(Status::unauthenticated(authorization(&request)))
    }
}

/// Returns the header `authorization` of a call; empty without one.
fn authorization<T>(request: &Request<T>) -> &str {
    request.metadata().get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default()
}
