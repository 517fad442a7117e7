//! Every front end passes the trace context of its clients on.

use super::collector::Collector;
use super::{CALLER, attributes, server_of};
use crate::abuse::web_socket::WebSocket;
use crate::harness::Server;
use opentelemetry_proto::tonic::trace::v1::Span;
use tonic::Request;
use tonic::transport::Channel;
use waymaker_proto::locket::locket_client::LocketClient;
use waymaker_proto::locket::{LockRequest as LocketRequest, Resource, TypeCode};
use waymaker_proto::v1;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_proto::v1::owned_lock_service_client::OwnedLockServiceClient;
use waymaker_proto::v1::registry_service_client::RegistryServiceClient;
use waymaker_proto::v1::semaphore_service_client::SemaphoreServiceClient;
use waymaker_proto::v1::tree_service_client::TreeServiceClient;
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{LockRequest, MultiLockKey, MultiLockRequest};

/// A call with this metadata `traceparent`.
fn with<T>(message: T, traceparent: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    request
}

async fn channel(server: &Server) -> Channel {
    let url = format!("http://{}", server.address("grpc"));
    Channel::from_shared(url).unwrap().connect().await.expect("the server accepts")
}

fn grpc_server(collector: &Collector) -> Server {
    server_of(collector, &["--grpc-listen", "127.0.0.1:0"])
}

/// Waits for the next span, and returns its namespace, kind, front end and key.
fn place(collector: &Collector, known: &mut usize) -> [String; 4] {
    *known += 1;
    let spans: Vec<Span> = collector.wait_for_spans(*known);
    let attributes = attributes(&spans[*known - 1]);
    assert_eq!(attributes[4], "waymaker.result=granted");
    [0, 1, 2, 3].map(|index| attributes[index].split_once('=').unwrap().1.to_owned())
}

#[tokio::test]
async fn grpc_calls_pass_their_trace_context_on() {
    let collector = Collector::start();
    let server = grpc_server(&collector);
    let channel = channel(&server).await;
    let mut known = 0;

    let keys = |keys: &[&str]| {
        let key = |key: &&str| v1::LockKey { key: (*key).to_owned(), shared: false };
        let keys = keys.iter().map(key).collect();
        v1::AcquireKeysRequest { namespace: "n".to_owned(), keys, ..Default::default() }
    };
    let mut locks = LockServiceClient::new(channel.clone());
    locks.try_acquire(with(keys(&["a"]), CALLER)).await.unwrap();
    assert_eq!(place(&collector, &mut known), ["n", "flat", "grpc", "a"]);
    let stream = locks.acquire(with(keys(&["c", "b"]), CALLER)).await.unwrap();
    assert_eq!(place(&collector, &mut known), ["n", "flat", "grpc", "b"]);
    drop(stream);

    let path = v1::Path { segments: vec!["users".to_owned(), "42".to_owned()] };
    let paths = v1::AcquirePathsRequest {
        namespace: "tree/n".to_owned(),
        paths: vec![v1::LockPath { path: Some(path), shared: false }],
        ..Default::default()
    };
    TreeServiceClient::new(channel.clone()).try_acquire(with(paths, CALLER)).await.unwrap();
    assert_eq!(place(&collector, &mut known)[1..], ["tree", "grpc", "users/42"]);

    let permits = v1::AcquirePermitsRequest {
        namespace: "p".to_owned(),
        name: "pool".to_owned(),
        capacity: 1,
        ..Default::default()
    };
    SemaphoreServiceClient::new(channel.clone()).try_acquire(with(permits, CALLER)).await.unwrap();
    assert_eq!(place(&collector, &mut known)[1..], ["pool", "grpc", "pool"]);

    let register = v1::RegisterRequest {
        namespace: "r".to_owned(),
        key: "entry".to_owned(),
        owner: "me".to_owned(),
        lease: Some(v1::register_request::Lease::LeaseMs(60_000)),
        ..Default::default()
    };
    RegistryServiceClient::new(channel.clone()).register(with(register, CALLER)).await.unwrap();
    assert_eq!(place(&collector, &mut known)[1..], ["registry", "grpc", "entry"]);

    let owned = v1::AcquireLockRequest {
        table: "t".to_owned(),
        key: "owned".to_owned(),
        owner: "me".to_owned(),
        lease: Some(v1::OwnedLease { lease: Some(v1::owned_lease::Lease::DurationMs(60_000)) }),
    };
    OwnedLockServiceClient::new(channel).acquire_lock(with(owned, CALLER)).await.unwrap();
    assert_eq!(place(&collector, &mut known), ["lazy/clever/t", "lazy", "grpc", "owned"]);
}

#[tokio::test]
async fn calls_of_published_contracts_pass_their_trace_context_on() {
    let collector = Collector::start();
    let server = grpc_server(&collector);
    let channel = channel(&server).await;
    let mut known = 0;

    let mut waymaker = WaymakerServiceClient::new(channel.clone());
    let lock = LockRequest { key: "one".to_owned(), ..LockRequest::default() };
    let stream = waymaker.lock(with(lock, CALLER)).await.unwrap();
    assert_eq!(place(&collector, &mut known), ["waymaker", "flat", "grpc", "one"]);
    let keys =
        ["two", "three"].map(|key| MultiLockKey { key: key.to_owned(), ..MultiLockKey::default() }).to_vec();
    let several = MultiLockRequest { keys, ..MultiLockRequest::default() };
    assert!(waymaker.multi_lock(with(several, CALLER)).await.unwrap().into_inner().success);
    assert_eq!(place(&collector, &mut known), ["waymaker", "flat", "grpc", "three"]);
    drop(stream);

    let resource = Resource {
        key: "cell".to_owned(),
        owner: "me".to_owned(),
        type_code: TypeCode::Lock.into(),
        ..Resource::default()
    };
    let lock = LocketRequest { resource: Some(resource), ttl_in_seconds: 60 };
    LocketClient::new(channel).lock(with(lock, CALLER)).await.unwrap();
    assert_eq!(place(&collector, &mut known), ["registry/locket", "registry", "grpc", "cell"]);
}

#[tokio::test]
async fn an_invalid_trace_context_is_ignored() {
    let collector = Collector::start();
    let server = grpc_server(&collector);
    let channel = channel(&server).await;
    let mut waymaker = WaymakerServiceClient::new(channel);
    let lock = |key: &str| LockRequest { key: key.to_owned(), ..LockRequest::default() };
    let mut streams = Vec::new();
    for (index, traceparent) in
        ["", "00", &CALLER.to_uppercase(), &CALLER.replacen("00", "ff", 1)].into_iter().enumerate()
    {
        let request = with(lock(&index.to_string()), traceparent);
        streams.push(waymaker.lock(request).await.unwrap());
    }
    let mut twice = with(lock("twice"), CALLER);
    twice.metadata_mut().append("traceparent", CALLER.parse().unwrap());
    streams.push(waymaker.lock(twice).await.unwrap());
    streams.push(waymaker.lock(with(lock("valid"), CALLER)).await.unwrap());
    assert_eq!(place(&collector, &mut 0)[3], "valid");
    assert_eq!(collector.spans().len(), 1);
}

#[test]
fn a_web_socket_has_the_trace_context_of_its_upgrade() {
    let collector = Collector::start();
    let server = server_of(&collector, &["--locktopus-listen", "127.0.0.1:0"]);
    let mut untraced = WebSocket::connect_with(&server, "n", "traceparent: 00-1-2-3\r\n");
    untraced.pair();
    let mut traced = WebSocket::connect_with(&server, "n", &format!("traceparent: {CALLER}\r\n"));
    let mut known = 0;
    for _ in 0..2 {
        traced.pair();
        assert_eq!(place(&collector, &mut known), ["tree/locktopus/n", "tree", "locktopus", "a"]);
    }
    assert_eq!(collector.spans().len(), 2);
}
