//! `SemaphoreService`: permits of pools.

use super::acquire::{AcquireParameters, AcquireStream, wire_terms};
use super::claims::{self, times};
use super::connection::Connection;
use super::status;
use crate::front::conversion::text;
use crate::front::trace_context;
use tonic::{Request, Response, Status};
use waymaker_proto::v1;
use waymaker_proto::v1::SemaphoreOrder;
use waymaker_proto::v1::semaphore_service_server::SemaphoreService;
use waymaker_protocol as wire;
use waymaker_protocol::{AcquirePermits, NamespaceKind, PoolDescribed, PoolOrder, TraceParent};

const KIND: NamespaceKind = NamespaceKind::Pool;

/// `SemaphoreService` of the contract `waymaker.v1`, for one caller on a gRPC connection.
#[derive(Debug)]
pub(super) struct Semaphores(pub(super) Connection);

fn pool_order(order: i32) -> Result<PoolOrder, Status> {
    match SemaphoreOrder::try_from(order) {
        Ok(SemaphoreOrder::Unspecified | SemaphoreOrder::Arrival) => Ok(PoolOrder::Arrival),
        Ok(SemaphoreOrder::Timestamp) => Ok(PoolOrder::Timestamp),
        Err(_) => Err(status::bad_input(
            "order",
            0,
            "unknown order; use SEMAPHORE_ORDER_ARRIVAL or SEMAPHORE_ORDER_TIMESTAMP",
        )),
    }
}

fn form<'a>(
    request: &'a v1::AcquirePermitsRequest,
    options: &'a v1::AcquireOptions,
    traceparent: Option<&'a TraceParent>,
) -> Result<(AcquirePermits<'a>, AcquireParameters<'a>), Status> {
    let permits = request.permits.max(1);
    let acquiring = AcquireParameters {
        kind: KIND,
        namespace: &request.namespace,
        options,
        max_wait_ms: request.max_wait_ms,
        cancel_key: request.name.as_bytes(),
        hold: v1::Hold { key: request.name.clone(), permits, ..v1::Hold::default() },
    };
    let acquire = AcquirePermits {
        capacity: request.capacity,
        permits,
        order: pool_order(request.order)?,
        timestamp_us: request.timestamp_us,
        name: request.name.as_bytes(),
        any_capacity: request.any_capacity,
        terms: wire_terms(KIND, options, request.max_wait_ms, traceparent)?,
    };
    Ok((acquire, acquiring))
}

fn described(name: &str, pool: &PoolDescribed<'_>) -> v1::DescribeResponse {
    let holders = pool.holders.iter().map(|holder| {
        let (acquired_at_ms, lease_expires_at_ms) = times(pool.stamp_ms, holder.age_ms, holder.remaining_ms);
        v1::Hold {
            id: holder.id.to_string(),
            key: name.to_owned(),
            fence: holder.fence,
            remaining_ms: holder.remaining_ms,
            lease_expires_at_ms,
            acquired_at_ms,
            permits: holder.permits,
            owner: text(holder.owner),
            ..v1::Hold::default()
        }
    });
    let waiters = pool.waiters.iter().map(|waiter| {
        let (waiting_since_ms, wait_ends_at_ms) = times(pool.stamp_ms, waiter.age_ms, waiter.remaining_ms);
        v1::Waiter {
            id: waiter.id.to_string(),
            key: name.to_owned(),
            ticket: waiter.ticket,
            remaining_ms: waiter.remaining_ms,
            wait_ends_at_ms,
            waiting_since_ms,
            permits: waiter.permits,
            owner: text(waiter.owner),
            ..v1::Waiter::default()
        }
    });
    let order = match pool.order {
        PoolOrder::Arrival => SemaphoreOrder::Arrival,
        PoolOrder::Timestamp => SemaphoreOrder::Timestamp,
    };
    v1::DescribeResponse {
        capacity: pool.capacity,
        held: pool.held,
        fence: pool.fence,
        order: order.into(),
        is_set: pool.is_set,
        holder_count: pool.holder_count,
        waiter_count: pool.waiter_count,
        holders: holders.collect(),
        waiters: waiters.collect(),
    }
}

#[tonic::async_trait]
impl SemaphoreService for Semaphores {
    type AcquireStream = AcquireStream;

    async fn acquire(
        &self,
        request: Request<v1::AcquirePermitsRequest>,
    ) -> Result<Response<AcquireStream>, Status> {
        let traceparent = trace_context::of_metadata(request.metadata());
        let request = request.get_ref();
        let options = request.options.clone().unwrap_or_default();
        let (acquire, acquiring) = form(request, &options, traceparent.as_ref())?;
        acquiring.follow(&self.0, |number, out| acquire.encode(number, out))
    }

    async fn try_acquire(
        &self,
        request: Request<v1::AcquirePermitsRequest>,
    ) -> Result<Response<v1::TryAcquireResponse>, Status> {
        let traceparent = trace_context::of_metadata(request.metadata());
        let request = request.get_ref();
        let options = request.options.clone().unwrap_or_default();
        let (acquire, acquiring) = form(request, &options, traceparent.as_ref())?;
        acquiring.attempt(&self.0, |number, out| acquire.encode(number, out)).await
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        claims::release(&self.0, KIND, request.get_ref()).await
    }

    async fn extend(
        &self,
        request: Request<v1::ExtendRequest>,
    ) -> Result<Response<v1::ExtendResponse>, Status> {
        claims::extend(&self.0, KIND, request.get_ref()).await
    }

    async fn status(
        &self,
        request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        claims::status(&self.0, KIND, request.get_ref()).await
    }

    async fn describe(
        &self,
        request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::DescribeResponse>, Status> {
        let request = request.get_ref();
        let describe = wire::Request::DescribePool(wire::DescribePool { name: request.name.as_bytes() });
        let read = |response: wire::Response<'_>| match response {
            wire::Response::PoolDescribed(pool) => Some(described(&request.name, &pool)),
            _ => None,
        };
        self.0.ask(KIND, &request.namespace, describe, read).await.map(Response::new)
    }

    async fn set_capacity(
        &self,
        request: Request<v1::SetCapacityRequest>,
    ) -> Result<Response<v1::SetCapacityResponse>, Status> {
        let request = request.get_ref();
        // A client that omits `capacity` sends 0. The worker would take 0 as a request to remove a semaphore without
        // claims, so reject it here.
        if request.capacity == 0 {
            return Err(status::bad_input("capacity", 0, "must be at least 1"));
        }
        let set = wire::SetCapacity {
            capacity: request.capacity,
            order: pool_order(request.order)?,
            name: request.name.as_bytes(),
            reason: request.reason.as_bytes(),
        };
        let read = |response: wire::Response<'_>| match response {
            wire::Response::CapacitySet(set) => Some(v1::SetCapacityResponse { previous: set.previous }),
            _ => None,
        };
        let asked = wire::Request::SetCapacity(set);
        self.0.ask(KIND, &request.namespace, asked, read).await.map(Response::new)
    }

    async fn remove(
        &self,
        request: Request<v1::RemoveRequest>,
    ) -> Result<Response<v1::RemoveResponse>, Status> {
        let request = request.get_ref();
        let remove = wire::ForceRelease { id: claims::id(&request.id)?, reason: request.reason.as_bytes() };
        let read = |response: wire::Response<'_>| match response {
            wire::Response::ForceReleased(released) => {
                Some(v1::RemoveResponse { was_waiting: released.was_waiting })
            }
            _ => None,
        };
        let asked = wire::Request::ForceRelease(remove);
        self.0.ask(KIND, &request.namespace, asked, read).await.map(Response::new)
    }
}
