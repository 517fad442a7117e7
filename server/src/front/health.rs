//! `grpc.health.v1.Health`: reports whether the services of this server accept new claims. It agrees with `/readyz`.

use futures_core::Stream;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health as Contract;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// Health of all services of a server. All services share the same status.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// Names of the services; the empty name stands for the whole server.
    services: Arc<BTreeSet<&'static str>>,
    phase: Arc<watch::Sender<Phase>>,
}

/// Phase in the life of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// New claims are refused for the time being.
    Waiting,
    /// New claims are served.
    #[default]
    Serving,
    /// The server is draining. No other phase follows.
    Stopping,
}

impl Health {
    /// Creates the health of a server with these services, all serving.
    pub(super) fn new(services: impl IntoIterator<Item = &'static str>) -> Self {
        let services = services.into_iter().chain([""]).collect();
        Self { services: Arc::new(services), phase: Arc::default() }
    }

    /// Sets whether the services are reported as serving. Has no effect after [`Self::stop`].
    pub(super) fn set_ready(&self, is_ready: bool) {
        let next = if is_ready { Phase::Serving } else { Phase::Waiting };
        self.phase.send_if_modified(|phase| {
            let is_change = *phase != Phase::Stopping && *phase != next;
            if is_change {
                *phase = next;
            }
            is_change
        });
    }

    /// Reports from now on that no service accepts claims.
    pub(super) fn stop(&self) {
        self.phase.send_replace(Phase::Stopping);
    }
}

fn status_of(phase: Phase) -> ServingStatus {
    if phase == Phase::Serving { ServingStatus::Serving } else { ServingStatus::NotServing }
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
        Ok(Response::new(response(status_of(*self.phase.borrow()))))
    }

    type WatchStream = Statuses;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Statuses>, Status> {
        let is_known = self.services.contains(&*request.get_ref().service);
        Ok(Response::new(Statuses::new(is_known, self.phase.subscribe())))
    }
}

/// Status stream of one service: the current status, then the new status after each change. If the status changes twice
/// before it is read, the stream may omit both changes. For an unknown service, the stream reports that status once and
/// stays open, as the health protocol requires.
pub(super) struct Statuses {
    /// Status to report next.
    next: Option<ServingStatus>,
    change: Option<Change>,
}

type Change = Pin<Box<dyn Future<Output = (ServingStatus, watch::Receiver<Phase>)> + Send>>;

impl Statuses {
    fn new(is_known: bool, mut phases: watch::Receiver<Phase>) -> Self {
        if !is_known {
            let unknown = ServingStatus::ServiceUnknown;
            return Self { next: Some(unknown), change: None };
        }
        let now = status_of(*phases.borrow_and_update());
        Self { next: Some(now), change: Some(change_from(now, phases)) }
    }
}

/// Waits until the status of the service differs from `last`.
fn change_from(last: ServingStatus, mut phases: watch::Receiver<Phase>) -> Change {
    Box::pin(async move {
        let changed = phases.wait_for(|phase| status_of(*phase) != last).await.map(|phase| status_of(*phase));
        match changed {
            Ok(status) => (status, phases),
            // The sender is gone, so the server has ended and no status follows.
            Err(_) => std::future::pending().await,
        }
    })
}

impl Stream for Statuses {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let own = self.get_mut();
        if let Some(status) = own.next.take() {
            return Poll::Ready(Some(Ok(response(status))));
        }
        let Some(change) = &mut own.change else { return Poll::Pending };
        let (status, phases) = ready!(change.as_mut().poll(context));
        own.change = Some(change_from(status, phases));
        Poll::Ready(Some(Ok(response(status))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt as _;

    fn asked() -> Request<HealthCheckRequest> {
        Request::new(HealthCheckRequest { service: String::new() })
    }

    #[tokio::test]
    async fn a_watch_reports_every_change_of_readiness_once() {
        let health = Health::new(["a.Service"]);
        health.set_ready(false);
        let mut watch = health.watch(asked()).await.unwrap().into_inner();
        let mut next = async || watch.next().await.unwrap().unwrap().status();
        assert_eq!(next().await, ServingStatus::NotServing);
        health.set_ready(false);
        health.set_ready(true);
        assert_eq!(next().await, ServingStatus::Serving);
        health.stop();
        assert_eq!(next().await, ServingStatus::NotServing);
        health.set_ready(true);
        let status = health.check(asked()).await.unwrap().into_inner().status();
        assert_eq!(status, ServingStatus::NotServing, "a stopping server is not ready again");
    }
}
