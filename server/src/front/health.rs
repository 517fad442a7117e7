//! `grpc.health.v1.Health`: whether the services of this server serve.

use futures_core::Stream;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health as Contract;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// The health of all services of a server. They are healthy together: until the server begins to stop.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// The empty name is the server as a whole.
    services: Arc<BTreeSet<&'static str>>,
    is_stopping: Arc<watch::Sender<bool>>,
}

impl Health {
    /// Every one of these services serves.
    pub(super) fn new(services: impl IntoIterator<Item = &'static str>) -> Self {
        let services = services.into_iter().chain([""]).collect();
        Self { services: Arc::new(services), is_stopping: Arc::default() }
    }

    /// From here on nothing serves.
    pub(super) fn stop(&self) {
        self.is_stopping.send_replace(true);
    }
}

fn status_of(is_stopping: bool) -> ServingStatus {
    if is_stopping { ServingStatus::NotServing } else { ServingStatus::Serving }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Contract for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let name = &*request.get_ref().service;
        if !self.services.contains(name) {
            return Err(Status::not_found(format!("unknown service {name}")));
        }
        Ok(Response::new(response(status_of(*self.is_stopping.borrow()))))
    }

    type WatchStream = Statuses;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Statuses>, Status> {
        let is_known = self.services.contains(&*request.get_ref().service);
        Ok(Response::new(Statuses::new(is_known, self.is_stopping.subscribe())))
    }
}

/// The statuses of one service: at once, and when it changes. An unknown service may be known one day, so its watch goes on.
pub(super) struct Statuses {
    first: Option<ServingStatus>,
    change: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Statuses {
    fn new(is_known: bool, mut is_stopping: watch::Receiver<bool>) -> Self {
        if !is_known {
            return Self { first: Some(ServingStatus::ServiceUnknown), change: None };
        }
        let now = *is_stopping.borrow();
        let change = async move {
            let _ = is_stopping.wait_for(|is_stopping| *is_stopping).await;
        };
        Self { first: Some(status_of(now)), change: (!now).then(|| Box::pin(change) as _) }
    }
}

impl Stream for Statuses {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let own = self.get_mut();
        if let Some(status) = own.first.take() {
            return Poll::Ready(Some(Ok(response(status))));
        }
        if let Some(change) = &mut own.change
            && change.as_mut().poll(context).is_ready()
        {
            own.change = None;
            return Poll::Ready(Some(Ok(response(status_of(true)))));
        }
        Poll::Pending
    }
}
