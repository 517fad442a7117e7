//! Holders that renew while the server is stopped in order and started again on the same ports.

use crate::durable::Place;
use crate::harness::{Client, Server, WATCHDOG, default_hello, own_host};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::transport::Endpoint;
use tonic::{Code, ConnectError, Status};
use waymaker_proto::locket::locket_client::LocketClient;
use waymaker_proto::locket::{LockRequest, Resource, TypeCode};
use waymaker_proto::v1::owned_lock_service_client::OwnedLockServiceClient;
use waymaker_proto::v1::registry_service_client::RegistryServiceClient;
use waymaker_proto::v1::{AcquireLockRequest, OwnedLease, RegisterRequest, owned_lease, register_request};
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{self, ExtendLeaseRequest, LockEventType};
use waymaker_protocol::{
    ErrorCode, Extend, Hello, NamespaceKind, Register, Request as Frame, Response, SessionRequest,
};

/// Time between two renewals: so short that renewals arrive at every step of a stop.
const RENEWAL: Duration = Duration::from_millis(10);
const HOLDER_COUNT: usize = 100;
const RESTART_COUNT: usize = 2;

/// A port that a server keeps over a restart.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind((own_host(), 0)).expect("a free port");
    listener.local_addr().expect("an address").to_string()
}

/// One who holds a lock as a `LockRunner` does: a renewal that fails is a loss. As its library does, it asks again if the
/// request is known not to have been served, and waits for a server that it cannot reach.
async fn run_lock(address: String, number: usize, renewals: Arc<AtomicU64>) -> Result<(), Status> {
    let channel = Endpoint::from_shared(format!("http://{address}")).expect("a URL").connect_lazy();
    let mut client = LocketClient::new(channel);
    let resource = Resource {
        key: format!("key {number}"),
        owner: format!("owner {number}"),
        type_code: TypeCode::Lock.into(),
        ..Resource::default()
    };
    loop {
        let request = LockRequest { resource: Some(resource.clone()), ttl_in_seconds: 60 };
        match client.lock(request).await {
            Ok(_) => {
                renewals.fetch_add(1, Ordering::Relaxed);
                sleep(RENEWAL).await;
            }
            Err(status) if is_unserved(&status) => sleep(Duration::from_millis(10)).await,
            Err(status) => return Err(status),
        }
    }
}

/// Whether the server cannot have served the call: libraries of gRPC then make it again by themselves.
fn is_unserved(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        let is_unsent = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
        if error.is::<ConnectError>() || is_unsent {
            return true;
        }
        if let Some(error) = error.downcast_ref::<h2::Error>()
            && error.is_remote()
        {
            let reason = error.reason();
            return error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)
                || error.is_go_away() && reason == Some(h2::Reason::NO_ERROR);
        }
        source = error.source();
    }
    false
}

/// Waits until as many renewals as there are holders were served twice over, so that each was served.
async fn wait_for_renewals(renewals: &AtomicU64, holders: &mut JoinSet<Result<(), Status>>) {
    let target = renewals.load(Ordering::Relaxed) + 3 * HOLDER_COUNT as u64;
    let begun = Instant::now();
    while renewals.load(Ordering::Relaxed) < target {
        if let Some(lost) = holders.try_join_next() {
            panic!("a holder is lost: {:?}", lost.expect("no holder panics"));
        }
        assert!(begun.elapsed() < WATCHDOG, "renewals are missing");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Runs holders over some restarts in order; none of them is lost.
async fn assert_nobody_is_lost(start: impl Fn(&[&str]) -> Server) {
    let grpc = free_port();
    let arguments = ["--workers", "2", "--grpc-listen", &grpc, "--drain", "300ms"];
    let mut server = start(&arguments);
    let renewals = Arc::new(AtomicU64::new(0));
    let mut holders = JoinSet::new();
    for number in 0..HOLDER_COUNT {
        holders.spawn(run_lock(grpc.clone(), number, Arc::clone(&renewals)));
    }
    for _ in 0..RESTART_COUNT {
        wait_for_renewals(&renewals, &mut holders).await;
        server.signal("TERM");
        let status = tokio::task::spawn_blocking(move || server.wait()).await.expect("it ends");
        assert!(status.success());
        server = start(&arguments);
        wait_for_renewals(&renewals, &mut holders).await;
    }
}

#[tokio::test]
async fn a_hundred_holders_survive_graceful_restarts_on_one_data_directory() {
    let place = Place::new();
    assert_nobody_is_lost(|arguments| place.start(arguments)).await;
}

/// Nobody else asks for their keys, so each of them gets its own again.
#[tokio::test]
async fn a_hundred_holders_survive_graceful_restarts_without_a_data_directory() {
    assert_nobody_is_lost(Server::start).await;
}

/// A server without a data directory waits for its holders, who have to be able to renew meanwhile: also by calls that they
/// make for the first time, and on connections that have said nothing yet.
#[tokio::test]
async fn a_draining_server_serves_renewals_of_every_contract() {
    let mut server = Server::start(&["--workers", "2", "--grpc-listen", "127.0.0.1:0", "--drain", "1h"]);
    let url = format!("http://{}", server.address("grpc"));
    let channel = Endpoint::from_shared(url).expect("a URL").connect().await.expect("the server accepts");
    let mut published = WaymakerServiceClient::new(channel.clone());
    let request = waymaker::LockRequest { key: "published".into(), ..Default::default() };
    let mut events = published.lock(request).await.unwrap().into_inner();
    let acquired = events.message().await.unwrap().expect("an event");
    assert_eq!(acquired.event_type(), LockEventType::Acquired);
    let mut registry = RegistryServiceClient::new(channel.clone());
    let register = RegisterRequest {
        key: "registered".into(),
        owner: "jim".into(),
        lease: Some(register_request::Lease::LeaseMs(60_000)),
        ..Default::default()
    };
    registry.register(register.clone()).await.unwrap();
    let mut owned = OwnedLockServiceClient::new(channel.clone());
    let lease = Some(OwnedLease { lease: Some(owned_lease::Lease::DurationMs(60_000)) });
    let own = AcquireLockRequest { table: "table".into(), key: "owned".into(), owner: "jim".into(), lease };
    owned.acquire_lock(own.clone()).await.unwrap();
    let (mut binary, mut registrar) = (server.client("a"), server.client_of(NamespaceKind::Registry, "a"));
    let held = binary.acquire(b"binary", 60_000);
    let entry = Register { key: b"entry", owner: b"jim", lease_ms: 60_000, ..Register::default() };
    assert!(!is_renewed(&mut registrar, &entry));
    let mut strangers = [server.stranger(), server.stranger()];
    // The server accepts connections in order, so an answer to this client says that it has accepted both strangers.
    let mut waiter = server.client("b");
    waiter.wait_for(b"binary", 600_000);

    server.signal("TERM");
    assert_eq!(waiter.receive().error().code, ErrorCode::Shutdown, "the drain has begun");
    let extend = ExtendLeaseRequest { key: acquired.key, id: acquired.id, lease_timeout: 60_000 };
    let extended = published.extend_lease(extend).await.unwrap().into_inner();
    assert!(extended.success, "{}", extended.message);
    registry.register(register.clone()).await.expect("its owner renews");
    owned.acquire_lock(own.clone()).await.expect("its owner renews");
    assert!(is_renewed(&mut registrar, &entry));
    strangers[0].hello("late", SessionRequest::None);
    let extended =
        strangers[0].ask(Frame::Extend(Extend { id: held.id, key: None, lease_ms: 60_000, own: false }));
    assert!(matches!(extended.response(), Response::Extended(_)), "{:?}", extended.response());

    // Nothing new begins.
    let other = Register { key: b"another", ..entry };
    assert_eq!(registrar.ask(Frame::Register(other)).error().code, ErrorCode::Shutdown);
    let new_session = SessionRequest::New { lease_ms: 60_000 };
    strangers[1].send(Frame::Hello(Hello { session: new_session, ..default_hello() }));
    assert_eq!(strangers[1].receive().error().code, ErrorCode::Shutdown);
    let registered = registry.register(RegisterRequest { key: "another".into(), ..register }).await;
    assert_eq!(registered.expect_err("a new key").code(), Code::Unavailable);
    let resource = Some(Resource { key: "new".into(), owner: "jim".into(), ..Resource::default() });
    let mut locket = LocketClient::new(channel);
    let locking =
        tokio::spawn(async move { locket.lock(LockRequest { resource, ttl_in_seconds: 60 }).await });
    // An answer to a later call: the server has the one before it.
    owned.acquire_lock(own).await.expect("its owner renews");
    assert!(!locking.is_finished(), "a client of Locket asks again at once if it hears of the drain");
    server.signal("TERM");
    let refused = locking.await.expect("no panic").expect_err("a new key");
    assert!(is_unserved(&refused), "{refused:?}");
    let end = events.message().await.expect_err("the stream ends in order");
    assert_eq!(end.code(), Code::Unavailable);
    let status = tokio::task::spawn_blocking(move || server.wait()).await.expect("it ends");
    assert!(status.success());
}

/// Whether the server says that what is registered was renewed; it must be accepted.
fn is_renewed(client: &mut Client<TcpStream>, register: &Register<'_>) -> bool {
    match client.ask(Frame::Register(*register)).response() {
        Response::Registered(registered) => registered.renewed,
        other => panic!("the answer to REGISTER is {other:?}"),
    }
}
