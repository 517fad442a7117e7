//! Our own gRPC contract `waymaker.v1`: locks, trees, semaphores, registries, owned locks, rate limits and requests of
//! operators.
//!
//! There is one file per service. `connection` holds the worker lanes that the services share. `claims` and
//! `registrations` convert between the wire and the contract; `acquire` and `watch` have the streams. `status` is the
//! table of errors. `docs/reference/grpc.md` documents the usage.

mod acquire;
mod claims;
mod connection;
mod limiter;
mod lock;
mod operator;
mod owned_lock;
mod registrations;
mod registry;
mod semaphore;
mod status;
mod tree;
mod watch;

use self::connection::Connection;
pub(super) use self::status::{closed, logins_paused, quota_reached};
use super::client::FrontCaller;
use super::service_settings::{call, with_length_limit};
use super::timed_body::TimedBody;
use http::{Request, Response};
use std::convert::Infallible;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as _};
use waymaker_proto::v1::limiter_service_server::{self, LimiterServiceServer};
use waymaker_proto::v1::lock_service_server::{self, LockServiceServer};
use waymaker_proto::v1::operator_service_server::{self, OperatorServiceServer};
use waymaker_proto::v1::owned_lock_service_server::{self, OwnedLockServiceServer};
use waymaker_proto::v1::registry_service_server::{self, RegistryServiceServer};
use waymaker_proto::v1::semaphore_service_server::{self, SemaphoreServiceServer};
use waymaker_proto::v1::tree_service_server::{self, TreeServiceServer};

/// All services of the contract `waymaker.v1`, for one caller on a gRPC connection.
#[derive(Clone, Debug)]
pub(super) struct V1 {
    locks: LockServiceServer<lock::Locks>,
    trees: TreeServiceServer<tree::Trees>,
    semaphores: SemaphoreServiceServer<semaphore::Semaphores>,
    registries: RegistryServiceServer<registry::Registries>,
    owned_locks: OwnedLockServiceServer<owned_lock::OwnedLocks>,
    limiters: LimiterServiceServer<limiter::Limiters>,
    operators: OperatorServiceServer<operator::Operators>,
}

impl V1 {
    /// Creates the services for calls of this caller on a connection.
    pub(super) fn new(caller: FrontCaller) -> Self {
        let connection = Connection::new(caller);
        let own = || connection.clone();
        Self {
            locks: with_length_limit!(LockServiceServer::new(lock::Locks(own()))),
            trees: with_length_limit!(TreeServiceServer::new(tree::Trees(own()))),
            semaphores: with_length_limit!(SemaphoreServiceServer::new(semaphore::Semaphores(own()))),
            registries: with_length_limit!(RegistryServiceServer::new(registry::Registries(own()))),
            owned_locks: with_length_limit!(OwnedLockServiceServer::new(owned_lock::OwnedLocks(own()))),
            limiters: with_length_limit!(LimiterServiceServer::new(limiter::Limiters(own()))),
            operators: with_length_limit!(OperatorServiceServer::new(operator::Operators(own()))),
        }
    }

    /// Passes a request to the service that its path names. Returns the request unchanged if the path names no service
    /// of this contract.
    #[expect(clippy::result_large_err, reason = "the error is the unchanged request, for the next service")]
    pub(super) fn call(
        &self,
        request: Request<TimedBody>,
    ) -> Result<BoxFuture<Response<Body>, Infallible>, Request<TimedBody>> {
        Ok(match request.uri().path().split('/').nth(1) {
            Some(lock_service_server::SERVICE_NAME) => call!(self.locks, request),
            Some(tree_service_server::SERVICE_NAME) => call!(self.trees, request),
            Some(semaphore_service_server::SERVICE_NAME) => call!(self.semaphores, request),
            Some(registry_service_server::SERVICE_NAME) => call!(self.registries, request),
            Some(owned_lock_service_server::SERVICE_NAME) => call!(self.owned_locks, request),
            Some(limiter_service_server::SERVICE_NAME) => call!(self.limiters, request),
            Some(operator_service_server::SERVICE_NAME) => call!(self.operators, request),
            _ => return Err(request),
        })
    }
}
