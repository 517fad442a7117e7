//! A server that answers when the test says so.

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use waymaker_proto::locket as contract;
use waymaker_proto::locket::locket_server::{Locket as Contract, LocketServer};

use super::{Locket, Resource, soon};

/// A call that waits for its answer. It is never answered if that is kept, and is UNAVAILABLE if it is dropped.
#[derive(Debug)]
pub(super) enum Call {
    Lock { request: contract::LockRequest, uuid: String, answer: oneshot::Sender<Result<(), Status>> },
    Fetch { key: String, answer: oneshot::Sender<Result<Resource, Status>> },
    Release { resource: Resource, answer: oneshot::Sender<Result<(), Status>> },
}

pub(super) struct FakeServer {
    pub(super) address: String,
    pub(super) locket: Locket,
    calls: mpsc::UnboundedReceiver<Call>,
}

impl FakeServer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (call, calls) = mpsc::unbounded_channel();
        let service = LocketServer::new(Service(call));
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)));
        Self { locket: Locket::connect(&address).await.unwrap(), address, calls }
    }

    /// The next call, which is to lock: what, under which name, and how to answer.
    pub(super) async fn lock(
        &mut self,
    ) -> (contract::LockRequest, String, oneshot::Sender<Result<(), Status>>) {
        match soon(self.calls.recv()).await.unwrap() {
            Call::Lock { request, uuid, answer } => (request, uuid, answer),
            other => panic!("it should lock: {other:?}"),
        }
    }

    /// The next call is to lock, and is answered so.
    pub(super) async fn answer_lock(&mut self, answer: Result<(), Status>) {
        self.lock().await.2.send(answer).unwrap();
    }

    /// The next call is to fetch, and finds this.
    pub(super) async fn answer_fetch(&mut self, found: Resource) {
        match soon(self.calls.recv()).await.unwrap() {
            Call::Fetch { key, answer } => {
                assert_eq!(key, found.key);
                answer.send(Ok(found)).unwrap();
            }
            other => panic!("it should fetch: {other:?}"),
        }
    }

    /// The next call is to release this.
    pub(super) async fn answer_release(&mut self, answer: Result<(), Status>) -> Resource {
        match soon(self.calls.recv()).await.unwrap() {
            Call::Release { resource, answer: answering } => {
                answering.send(answer).unwrap();
                resource
            }
            other => panic!("it should release: {other:?}"),
        }
    }
}

pub(super) fn collision() -> Status {
    Status::already_exists("lock-collision")
}

struct Service(mpsc::UnboundedSender<Call>);

impl Service {
    async fn call<T>(
        &self,
        call: impl FnOnce(oneshot::Sender<Result<T, Status>>) -> Call,
    ) -> Result<T, Status> {
        let (answer, answered) = oneshot::channel();
        let _ = self.0.send(call(answer));
        answered.await.unwrap_or_else(|_| Err(Status::unavailable("not answered")))
    }
}

#[tonic::async_trait]
impl Contract for Service {
    async fn lock(
        &self,
        request: Request<contract::LockRequest>,
    ) -> Result<Response<contract::LockResponse>, Status> {
        let uuid =
            request.metadata().get("uuid").and_then(|uuid| uuid.to_str().ok()).unwrap_or_default().to_owned();
        let request = request.into_inner();
        self.call(|answer| Call::Lock { request, uuid, answer }).await?;
        Ok(Response::new(contract::LockResponse {}))
    }

    async fn fetch(
        &self,
        request: Request<contract::FetchRequest>,
    ) -> Result<Response<contract::FetchResponse>, Status> {
        let key = request.into_inner().key;
        let resource = Some(self.call(|answer| Call::Fetch { key, answer }).await?);
        Ok(Response::new(contract::FetchResponse { resource }))
    }

    async fn release(
        &self,
        request: Request<contract::ReleaseRequest>,
    ) -> Result<Response<contract::ReleaseResponse>, Status> {
        let resource = request.into_inner().resource.unwrap_or_default();
        self.call(|answer| Call::Release { resource, answer }).await?;
        Ok(Response::new(contract::ReleaseResponse {}))
    }

    async fn fetch_all(
        &self,
        request: Request<contract::FetchAllRequest>,
    ) -> Result<Response<contract::FetchAllResponse>, Status> {
        // No runner lists. The refusal repeats the header.
        let header = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        Err(Status::unauthenticated(header.unwrap_or_default()))
    }
}
