//! `LimiterService`: tokens of buckets.

use super::connection::Connection;
use super::status;
use tonic::{Request, Response, Status};
use waymaker_proto::v1;
use waymaker_proto::v1::limiter_service_server::LimiterService;
use waymaker_protocol as wire;
use waymaker_protocol::{Bucket, Items, NamespaceKind, Throttle, ThrottleAll};

/// `LimiterService` of the contract `waymaker.v1`, for one caller on a gRPC connection.
#[derive(Debug)]
pub(super) struct Limiters(pub(super) Connection);

fn bucket(bucket: &v1::Bucket) -> Bucket<'_> {
    Bucket {
        rate: bucket.rate,
        burst: bucket.burst,
        cost: bucket.cost.unwrap_or(1),
        period_ns: bucket.period_ns,
        name: bucket.name.as_bytes(),
    }
}

#[tonic::async_trait]
impl LimiterService for Limiters {
    async fn throttle(
        &self,
        request: Request<v1::ThrottleRequest>,
    ) -> Result<Response<v1::ThrottleResponse>, Status> {
        let request = request.get_ref();
        let refund = request.refund;
        let mut buffer = Vec::new();
        let asked = if let [one] = &request.buckets[..] {
            wire::Request::Throttle(Throttle { bucket: bucket(one), refund })
        } else {
            let buckets = Items::new(request.buckets.iter().map(bucket), &mut buffer)
                .map_err(|error| status::of_decode(&error))?;
            wire::Request::ThrottleAll(ThrottleAll { buckets, refund })
        };
        let read = |response: wire::Response<'_>| match response {
            wire::Response::Throttled(throttled) => Some(v1::ThrottleResponse {
                allowed: throttled.allowed,
                remaining: throttled.remaining,
                retry_after_ns: throttled.retry_after_ns,
                reset_after_ns: throttled.reset_after_ns,
            }),
            _ => None,
        };
        self.0.ask(NamespaceKind::Limit, &request.namespace, asked, read).await.map(Response::new)
    }
}
