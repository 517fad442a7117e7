//! What every service on the port for gRPC has in common: health, compression, limits and unknown methods.

use crate::harness::Server;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use waymaker_proto::locket::locket_client::LocketClient;
use waymaker_proto::locket::{FetchAllRequest, LockRequest, Resource};
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{LockRequest as Lock, UnLockRequest};

const SERVICES: [&str; 11] = [
    "",
    "waymaker.WaymakerService",
    "models.Locket",
    "waymaker.v1.LockService",
    "waymaker.v1.TreeService",
    "waymaker.v1.SemaphoreService",
    "waymaker.v1.RegistryService",
    "waymaker.v1.OwnedLockService",
    "waymaker.v1.LimiterService",
    "waymaker.v1.OperatorService",
    "grpc.health.v1.Health",
];
const MIB: usize = 1 << 20;

async fn server() -> (Server, Channel) {
    let server = Server::start(&["--grpc-listen", "127.0.0.1:0", "--workers", "1", "--drain", "1h"]);
    let url = format!("http://{}", server.address("grpc"));
    let channel = Endpoint::from_shared(url).expect("a URL").connect().await.expect("the server accepts");
    (server, channel)
}

fn asked(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

fn status(response: &HealthCheckResponse) -> ServingStatus {
    response.status()
}

#[tokio::test]
async fn every_service_is_healthy_and_unknown_ones_are_unknown() {
    let (_server, channel) = server().await;
    let mut health = HealthClient::new(channel);
    for service in SERVICES {
        let answer = health.check(asked(service)).await.expect("a known service").into_inner();
        assert_eq!(status(&answer), ServingStatus::Serving, "{service:?}");
    }
    let refused = health.check(asked("no.Service")).await.expect_err("an unknown service");
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "unknown service no.Service"));
    let mut unknown = health.watch(asked("no.Service")).await.expect("a watch").into_inner();
    let first = unknown.message().await.unwrap().expect("a status");
    assert_eq!(status(&first), ServingStatus::ServiceUnknown);
}

#[tokio::test]
async fn a_health_watch_reports_the_drain_before_its_stream_ends() {
    let (mut server, channel) = server().await;
    let mut published = WaymakerServiceClient::new(channel.clone());
    // So that the drain goes on.
    let mut held = published.lock(Lock { key: "k".into(), ..Lock::default() }).await.unwrap().into_inner();
    let id = held.message().await.unwrap().expect("an event").id;
    let mut health = HealthClient::new(channel);
    let mut watches = Vec::new();
    for service in SERVICES {
        let mut watch = health.watch(asked(service)).await.expect("a watch").into_inner();
        assert_eq!(status(&watch.message().await.unwrap().expect("a status")), ServingStatus::Serving);
        watches.push(watch);
    }
    server.signal("TERM");
    for watch in &mut watches {
        assert_eq!(status(&watch.message().await.unwrap().expect("a status")), ServingStatus::NotServing);
    }
    let answer = health.check(asked("models.Locket")).await.expect("a drain serves checks").into_inner();
    assert_eq!(status(&answer), ServingStatus::NotServing);
    published.un_lock(UnLockRequest { key: "k".into(), id }).await.expect("a drain serves releases");
    for watch in &mut watches {
        let end = watch.message().await.expect_err("the stream ends in order");
        assert_eq!(end.code(), Code::Unavailable);
    }
    let status = tokio::task::spawn_blocking(move || server.wait()).await.expect("it ends");
    assert!(status.success());
}

fn lock(value_len: usize) -> LockRequest {
    let (key, owner, value) = ("key".to_owned(), "owner".to_owned(), "v".repeat(value_len));
    LockRequest { resource: Some(Resource { key, owner, value, ..Resource::default() }), ttl_in_seconds: 60 }
}

#[tokio::test]
async fn compressed_requests_are_served_and_answered_compressed() {
    let (_server, channel) = server().await;
    let mut compressing = LocketClient::new(channel.clone()).send_compressed(Gzip).accept_compressed(Gzip);
    let answer = compressing.lock(lock(4_000)).await.expect("gzip is understood");
    assert_eq!(answer.metadata().get("grpc-encoding").expect("it is compressed"), "gzip");
    let found = compressing.fetch_all(FetchAllRequest { type_code: 1, ..FetchAllRequest::default() }).await;
    found.expect("the answer is understood");
    let mut plain = LocketClient::new(channel).accept_compressed(Gzip);
    let answer = plain.lock(lock(4_000)).await.expect("a plain request");
    let plainly = "a client that sends plainly is answered plainly";
    assert_eq!(answer.metadata().get("grpc-encoding"), None, "{plainly}");
    let mut request = tonic::Request::new(lock(4_000));
    request.metadata_mut().insert("grpc-encoding", "identity".parse().expect("text"));
    let answer = plain.lock(request).await.expect("a plain request");
    assert_eq!(answer.metadata().get("grpc-encoding"), None, "{plainly}, also if it says so");
}

#[tokio::test]
async fn an_oversized_message_is_resource_exhausted_even_if_compressed() {
    let (server, channel) = server().await;
    let code =
        |result: Result<_, Status>| result.map(drop::<tonic::Response<_>>).map_err(|status| status.code());
    let mut plain = LocketClient::new(channel.clone());
    assert_eq!(code(plain.lock(lock(5 * MIB)).await), Err(Code::ResourceExhausted));
    // A hundred kilobytes on the wire.
    let mut compressing = LocketClient::new(channel.clone()).send_compressed(Gzip);
    assert_eq!(code(compressing.lock(lock(100 * MIB)).await), Err(Code::ResourceExhausted));
    let mut published = WaymakerServiceClient::new(channel).max_encoding_message_size(usize::MAX);
    let long = Lock { key: "k".repeat(5 * MIB), ..Lock::default() };
    let refused = published.lock(long).await.expect_err("too long");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    server.assert_serves();
}

#[tokio::test]
async fn unimplemented_methods_are_named_in_the_error() {
    let (_server, channel) = server().await;
    for (path, message) in [
        ("/models.Locket/Nothing", "unknown method Nothing for service models.Locket"),
        ("/waymaker.v1.TreeService/No", "unknown method No for service waymaker.v1.TreeService"),
        ("/grpc.health.v1.Health/No", "unknown method No for service grpc.health.v1.Health"),
        ("/no.Service/Method", "unknown service no.Service"),
    ] {
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.expect("a connection");
        let codec = tonic_prost::ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
        let refused = client.unary(Request::new(asked("")), path.parse().expect("a path"), codec).await;
        let refused = refused.map(drop::<tonic::Response<HealthCheckResponse>>).expect_err("no such method");
        assert_eq!((refused.code(), refused.message()), (Code::Unimplemented, message), "{path}");
    }
}
