//! The same rights on every front end: each operation is served with its right and refused with any other.

use super::Office;
use super::policy::hang_up;
use crate::harness::{Client, Server, WATCHDOG, Watchdog, default_hello, wait_until};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::client;
use tokio_tungstenite::tungstenite::{Message, WebSocket};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use waymaker_proto::locket::locket_client::LocketClient;
use waymaker_proto::locket::{self, FetchAllRequest, FetchRequest, Resource};
use waymaker_proto::v1;
use waymaker_proto::v1::limiter_service_client::LimiterServiceClient;
use waymaker_proto::v1::lock_service_client::LockServiceClient;
use waymaker_proto::v1::operator_service_client::OperatorServiceClient;
use waymaker_proto::v1::owned_lock_service_client::OwnedLockServiceClient;
use waymaker_proto::v1::registry_service_client::RegistryServiceClient;
use waymaker_proto::v1::semaphore_service_client::SemaphoreServiceClient;
use waymaker_proto::v1::tree_service_client::TreeServiceClient;
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{ListAcquiredLocksRequest, LockRequest, MultiLockKey, MultiLockRequest};
use waymaker_protocol::{Hello, Inspect, KeepAlive, Response};

const RIGHTS: [&str; 10] = [
    "acquire_shared",
    "acquire",
    "inspect",
    "list",
    "release_others",
    "force_release",
    "freeze",
    "resize",
    "admin",
    "metrics",
];

pub(super) const PORTS: [&str; 6] =
    ["--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--locktopus-listen", "127.0.0.1:0"];

/// A request of an identity with this token.
pub(super) fn by<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse().expect("tokens are ASCII");
    request.metadata_mut().insert("authorization", value);
    request
}

/// Whether a call was refused for want of a right.
fn is_denied<T>(result: Result<T, Status>) -> bool {
    match result {
        Err(status) => status.code() == Code::PermissionDenied,
        Ok(_) => false,
    }
}

/// What was denied to a client with one right: for each operation that some right allows, whether this one does.
type Denials = BTreeMap<&'static str, bool>;

/// The rights of which each alone suffices for an operation.
type NeededFor = fn(&str) -> &'static [&'static str];

pub(super) fn key(name: &str) -> v1::LockKey {
    v1::LockKey { key: name.to_owned(), shared: false }
}

async fn v1_denials(channel: &Channel, token: &str) -> Denials {
    let mut locks = LockServiceClient::new(channel.clone());
    let mut operators = OperatorServiceClient::new(channel.clone());
    let mut pools = SemaphoreServiceClient::new(channel.clone());
    let mut trees = TreeServiceClient::new(channel.clone());
    let mut registries = RegistryServiceClient::new(channel.clone());
    let mut owned = OwnedLockServiceClient::new(channel.clone());
    let mut limiters = LimiterServiceClient::new(channel.clone());
    let acquire = v1::AcquireKeysRequest { keys: vec![key("key")], ..Default::default() };
    let shared = v1::LockKey { shared: true, ..key("key") };
    let acquire_shared = v1::AcquireKeysRequest { keys: vec![shared], ..Default::default() };
    let verify = v1::VerifyRequest { key: "key".to_owned(), fence: 1, ..Default::default() };
    let watch = v1::WatchRequest { key: "key".to_owned(), ..Default::default() };
    let inspect = v1::InspectRequest { key: "key".to_owned(), ..Default::default() };
    let force =
        v1::ForceReleaseRequest { id: "0".repeat(32), reason: "test".to_owned(), ..Default::default() };
    let permits =
        v1::AcquirePermitsRequest { name: "pool".to_owned(), capacity: 5, permits: 1, ..Default::default() };
    let capacity = v1::SetCapacityRequest { name: "pool".to_owned(), capacity: 5, ..Default::default() };
    let paths = v1::AcquirePathsRequest {
        paths: vec![v1::LockPath { path: Some(v1::Path { segments: vec!["a".to_owned()] }), shared: false }],
        ..Default::default()
    };
    let entry = v1::RegisterRequest {
        key: "key".to_owned(),
        owner: "owner".to_owned(),
        lease: Some(v1::register_request::Lease::LeaseMs(60_000)),
        ..Default::default()
    };
    let throttle = v1::ThrottleRequest {
        buckets: vec![v1::Bucket {
            name: "bucket".to_owned(),
            rate: 5,
            burst: 5,
            period_ns: 1_000_000_000,
            cost: None,
        }],
        ..Default::default()
    };
    let owned_lock = v1::AcquireLockRequest {
        key: "key".to_owned(),
        owner: "owner".to_owned(),
        lease: Some(v1::OwnedLease { lease: Some(v1::owned_lease::Lease::DurationMs(60_000)) }),
        ..Default::default()
    };
    BTreeMap::from([
        ("acquire", is_denied(locks.try_acquire(by(token, acquire.clone())).await)),
        ("acquire shared", is_denied(locks.try_acquire(by(token, acquire_shared)).await)),
        ("acquire on a stream", {
            match locks.acquire(by(token, acquire)).await {
                Ok(mut stream) => {
                    is_denied(timeout(WATCHDOG, stream.get_mut().message()).await.expect("an event"))
                }
                refused => is_denied(refused),
            }
        }),
        ("verify", is_denied(locks.verify(by(token, verify)).await)),
        ("watch", {
            match locks.watch(by(token, watch)).await {
                Ok(mut stream) => {
                    is_denied(timeout(WATCHDOG, stream.get_mut().message()).await.expect("an event"))
                }
                refused => is_denied(refused),
            }
        }),
        ("inspect", is_denied(operators.inspect(by(token, inspect)).await)),
        ("list", is_denied(operators.list(by(token, v1::ListRequest::default())).await)),
        ("list waiters", {
            let waiters = v1::ListRequest { waiting: true, ..Default::default() };
            is_denied(operators.list(by(token, waiters)).await)
        }),
        ("list frozen", is_denied(operators.list_frozen(by(token, v1::ListFrozenRequest::default())).await)),
        ("force a release", is_denied(operators.force_release(by(token, force)).await)),
        ("freeze", {
            let freeze = v1::FreezeRequest { prefix: "frozen".to_owned(), ..Default::default() };
            is_denied(operators.freeze(by(token, freeze)).await)
        }),
        ("thaw", {
            let thaw = v1::ThawRequest { prefix: "frozen".to_owned(), ..Default::default() };
            is_denied(operators.thaw(by(token, thaw)).await)
        }),
        ("remove a namespace", {
            let remove = v1::RemoveNamespaceRequest { namespace: "nowhere".to_owned() };
            is_denied(operators.remove_namespace(by(token, remove)).await)
        }),
        ("acquire permits", is_denied(pools.try_acquire(by(token, permits)).await)),
        ("set a capacity", is_denied(pools.set_capacity(by(token, capacity)).await)),
        ("describe a pool", {
            let describe = v1::DescribeRequest { name: "pool".to_owned(), ..Default::default() };
            is_denied(pools.describe(by(token, describe)).await)
        }),
        ("acquire paths", is_denied(trees.try_acquire(by(token, paths)).await)),
        ("register", is_denied(registries.register(by(token, entry)).await)),
        ("look up", {
            let look_up = v1::LookUpRequest { key: "key".to_owned(), ..Default::default() };
            is_denied(registries.look_up(by(token, look_up)).await)
        }),
        ("list entries", {
            is_denied(registries.list_entries(by(token, v1::ListEntriesRequest::default())).await)
        }),
        ("acquire an owned lock", is_denied(owned.acquire_lock(by(token, owned_lock)).await)),
        ("look up an owned lock", {
            let current = v1::GetCurrentLockRequest { key: "key".to_owned(), ..Default::default() };
            is_denied(owned.get_current_lock(by(token, current)).await)
        }),
        ("throttle", is_denied(limiters.throttle(by(token, throttle)).await)),
    ])
}

fn v1_right(operation: &str) -> &'static [&'static str] {
    match operation {
        "acquire shared" => &["acquire", "acquire_shared"],
        "inspect" | "verify" | "watch" | "describe a pool" | "look up" | "look up an owned lock" => {
            &["inspect"]
        }
        "list" | "list waiters" | "list frozen" | "list entries" => &["list"],
        "force a release" => &["force_release"],
        "freeze" | "thaw" => &["freeze"],
        "remove a namespace" => &["admin"],
        "set a capacity" => &["resize"],
        _ => &["acquire"],
    }
}

async fn waymaker_denials(channel: &Channel, token: &str) -> Denials {
    let mut client = WaymakerServiceClient::new(channel.clone());
    let lock = LockRequest { key: "key".to_owned(), ..Default::default() };
    let several = MultiLockRequest {
        keys: vec![MultiLockKey { key: "key".to_owned(), write_lock: true }],
        ..Default::default()
    };
    let refused = |message: &str| message.contains("no rule gives");
    BTreeMap::from([
        ("lock", {
            let mut stream = client.lock(by(token, lock.clone())).await.expect("a stream").into_inner();
            let event = timeout(WATCHDOG, stream.message()).await.expect("an event").expect("no error");
            refused(&event.expect("an event").message)
        }),
        ("read lock", {
            let mut stream = client.read_lock(by(token, lock)).await.expect("a stream").into_inner();
            let event = timeout(WATCHDOG, stream.message()).await.expect("an event").expect("no error");
            refused(&event.expect("an event").message)
        }),
        ("several", {
            let answer = client.multi_lock(by(token, several)).await;
            refused(&answer.expect("the refusal is in the answer").into_inner().message)
        }),
        ("list", {
            is_denied(client.list_acquired_locks(by(token, ListAcquiredLocksRequest::default())).await)
        }),
    ])
}

fn waymaker_right(operation: &str) -> &'static [&'static str] {
    match operation {
        "read lock" => &["acquire", "acquire_shared"],
        "list" => &["list"],
        _ => &["acquire"],
    }
}

async fn locket_denials(channel: &Channel, token: &str) -> Denials {
    let mut client = LocketClient::new(channel.clone());
    let resource = || {
        Some(Resource {
            key: "key".to_owned(),
            owner: "owner".to_owned(),
            value: "value".to_owned(),
            r#type: "lock".to_owned(),
            type_code: 1,
        })
    };
    let denied = |code: Code, message: &str| code == Code::PermissionDenied && message.contains("no rule");
    let refused =
        |result: Result<(), Status>| result.is_err_and(|status| denied(status.code(), status.message()));
    BTreeMap::from([
        ("lock", {
            let lock = locket::LockRequest { resource: resource(), ttl_in_seconds: 60 };
            refused(client.lock(by(token, lock)).await.map(drop))
        }),
        ("fetch", {
            refused(client.fetch(by(token, FetchRequest { key: "key".to_owned() })).await.map(drop))
        }),
        ("fetch all", {
            let all = FetchAllRequest { r#type: "lock".to_owned(), type_code: 1 };
            refused(client.fetch_all(by(token, all)).await.map(drop))
        }),
        ("release", {
            let release = locket::ReleaseRequest { resource: resource() };
            refused(client.release(by(token, release)).await.map(drop))
        }),
    ])
}

fn locket_right(operation: &str) -> &'static [&'static str] {
    match operation {
        "fetch" => &["inspect"],
        "fetch all" => &["list"],
        _ => &["acquire"],
    }
}

/// The status of a request to this port with this token.
fn http_status(server: &Server, port: &str, path: &str, token: Option<&str>) -> u16 {
    let mut socket = TcpStream::connect(server.address(port)).expect("the server accepts");
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let text = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{authorization}\r\n");
    socket.write_all(text.as_bytes()).expect("it is read");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

fn http_denials(server: &Server, token: &str) -> Denials {
    let is_denied = |port, path| http_status(server, port, path, Some(token)) == 403;
    BTreeMap::from([
        ("metrics", is_denied("http", "/metrics")),
        ("statistics", is_denied("http", "/stats_v1?namespace=nowhere")),
        ("statistics of locktopus", is_denied("locktopus", "/stats_v1?namespace=nowhere")),
    ])
}

fn http_right(operation: &str) -> &'static [&'static str] {
    match operation {
        "metrics" => &["metrics"],
        _ => &["inspect"],
    }
}

async fn assert_each_front_end_needs_the_right_of_an_operation(start: fn(&Office) -> Server) {
    let rule = |right: &&str| format!("[[rule]]\nidentity = \"{right}\"\nallow = [\"{right}\"]\n");
    let office = Office::new(&RIGHTS.iter().map(rule).collect::<String>());
    let tokens = RIGHTS.map(|right| (right, office.token(right)));
    let server = start(&office);
    let url = format!("http://{}", server.address("grpc"));
    // All identities share one connection, as behind a proxy.
    let channel = Channel::from_shared(url).expect("a url").connect().await.expect("the server accepts");
    // There is a default namespace, so that operators have something to ask about.
    server.client_with(waymaker_protocol::NamespaceKind::Flat, &tokens[1].1);
    for (right, token) in &tokens {
        let checks: [(&str, Denials, NeededFor); 4] = [
            ("waymaker.v1", v1_denials(&channel, token).await, v1_right),
            ("Waymaker", waymaker_denials(&channel, token).await, waymaker_right),
            ("Locket", locket_denials(&channel, token).await, locket_right),
            ("HTTP", http_denials(&server, token), http_right),
        ];
        for (front_end, denials, needed) in checks {
            for (operation, is_denied) in denials {
                let expected = !needed(operation).contains(right);
                assert_eq!(is_denied, expected, "{front_end}: {operation} with the right {right}");
            }
        }
    }
}

#[tokio::test]
async fn each_front_end_serves_an_operation_with_its_right_alone() {
    assert_each_front_end_needs_the_right_of_an_operation(|office| office.server(&PORTS)).await;
}

#[tokio::test]
async fn over_tls_each_front_end_serves_an_operation_with_its_right_alone() {
    let start = |office: &Office| office.encrypted_server(&PORTS, &["binary", "grpc", "http", "locktopus"]);
    assert_each_front_end_needs_the_right_of_an_operation(start).await;
}

#[tokio::test]
async fn an_operator_of_some_namespaces_lists_and_removes_these_alone() {
    let office = Office::new(
        "[[rule]]\nidentity = \"root\"\nallow = [\"all\"]\n\
         [[rule]]\nidentity = \"olga\"\nnamespace = \"team*\"\nallow = [\"list\", \"admin\"]\n\
         [[rule]]\neveryone = true\nallow = [\"metrics\"]\n",
    );
    let (root, olga) = (office.token("root"), office.token("olga"));
    let server = office.server(&PORTS);
    // A namespace in which she has no right comes first.
    for namespace in [&b"hidden"[..], b"team-a", b"team-b"] {
        server.stranger().open(Hello { namespace, credentials: root.as_bytes(), ..default_hello() });
    }
    let url = format!("http://{}", server.address("grpc"));
    let channel = Channel::from_shared(url).expect("a url").connect().await.expect("the server accepts");
    let mut operators = OperatorServiceClient::new(channel);
    let list = v1::ListNamespacesRequest::default();
    let listed = operators.list_namespaces(by(&olga, list)).await.expect("she may list").into_inner();
    assert_eq!(listed.namespaces.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["team-a", "team-b"]);
    for (namespace, code) in [("hidden", Code::PermissionDenied), ("team-b", Code::Ok)] {
        let mut watchdog = Watchdog::start();
        let removed = loop {
            let remove = v1::RemoveNamespaceRequest { namespace: namespace.to_owned() };
            let removed = operators.remove_namespace(by(&olga, remove)).await;
            let removed = removed.map_or_else(|status| status.code(), |_| Code::Ok);
            // The server may have yet to notice that the client has left, which used the namespace.
            if removed != Code::InvalidArgument {
                break removed;
            }
            watchdog.look_again(|| format!("nobody uses {namespace}"));
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert_eq!(removed, code, "{namespace}");
    }
}

#[tokio::test]
async fn no_front_end_serves_a_client_without_an_identity() {
    let office = Office::new("[[rule]]\nidentity = \"alice\"\nallow = [\"all\"]\n");
    let (alice, gone) = (office.token("alice"), office.token("alice"));
    office.revoke(&gone);
    let server = office.server(&PORTS);
    let url = format!("http://{}", server.address("grpc"));
    let channel = Channel::from_shared(url).expect("a url").connect().await.expect("the server accepts");
    let mut locks = LockServiceClient::new(channel.clone());
    let acquire = || v1::AcquireKeysRequest { keys: vec![key("key")], ..Default::default() };
    let code = |result: Result<_, Status>| result.map(drop).expect_err("no identity").code();
    assert_eq!(code(locks.try_acquire(acquire()).await), Code::Unauthenticated);
    assert_eq!(code(locks.try_acquire(by(&gone, acquire())).await), Code::Unauthenticated);
    assert_eq!(code(locks.try_acquire(by("nonsense", acquire())).await), Code::Unauthenticated);
    locks.try_acquire(by(&alice, acquire())).await.expect("alice is known");
    // Whether the server is healthy is no secret.
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    health.check(tonic_health::pb::HealthCheckRequest::default()).await.expect("health is open");

    for (port, path) in [
        ("http", "/metrics"),
        ("http", "/"),
        ("http", "/stats_v1?namespace=a"),
        ("http", "/console/api/namespaces"),
        ("locktopus", "/"),
    ] {
        assert_eq!(http_status(&server, port, path, None), 401, "{path}");
        assert_eq!(http_status(&server, port, path, Some(&gone)), 401, "{path}");
        let with_token = http_status(&server, port, path, Some(&alice));
        assert!(with_token == 200 || with_token == 404, "{path}: {with_token}");
    }
    assert_eq!(http_status(&server, "http", "/healthz", None), 200);
    assert_eq!(http_status(&server, "http", "/readyz", None), 200);
}

#[test]
fn a_web_socket_takes_its_token_from_the_header_or_the_url() {
    let office = Office::new(
        "[[rule]]\nidentity = \"alice\"\nnamespace = \"tree/locktopus/mine\"\nallow = [\"acquire\"]\n",
    );
    let alice = office.token("alice");
    let server = office.server(&PORTS);
    let connect = |parameters: &str| {
        let url = format!("ws://{}/v1?{parameters}", server.address("locktopus"));
        let socket = TcpStream::connect(server.address("locktopus")).expect("the server accepts");
        client(url, socket).map(drop).map_err(|error| error.to_string())
    };
    connect(&format!("namespace=mine&access_token={alice}")).expect("the token is in the URL");
    let refused = connect("namespace=mine").expect_err("there is no token");
    assert!(refused.contains("401"), "{refused}");
    let refused = connect(&format!("namespace=other&access_token={alice}")).expect_err("no right there");
    assert!(refused.contains("403"), "{refused}");
}

const MAY_ACQUIRE: &str = "[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\", \"inspect\"]\n";

/// Streams and a WebSocket of one client, which has a lock on each.
struct Streams {
    acquire: tonic::Streaming<v1::AcquireResponse>,
    watch: tonic::Streaming<v1::WatchResponse>,
    lock: tonic::Streaming<waymaker_proto::waymaker::LockEvent>,
    web_socket: WebSocket<TcpStream>,
}

impl Streams {
    async fn open(server: &Server, token: &str) -> Self {
        let url = format!("http://{}", server.address("grpc"));
        let channel = Channel::from_shared(url).expect("a url").connect().await.expect("the server accepts");
        let mut locks = LockServiceClient::new(channel.clone());
        let acquire = v1::AcquireKeysRequest { keys: vec![key("acquired")], ..Default::default() };
        let acquire = locks.acquire(by(token, acquire)).await.expect("a stream").into_inner();
        let watch = v1::WatchRequest { key: "acquired".to_owned(), ..Default::default() };
        let watch = locks.watch(by(token, watch)).await.expect("a stream").into_inner();
        let request =
            LockRequest { key: "locked".to_owned(), max_lease_period: 60_000, ..Default::default() };
        let mut waymaker = WaymakerServiceClient::new(channel);
        let lock = waymaker.lock(by(token, request)).await.expect("a stream").into_inner();
        let url = format!("ws://{}/v1?namespace=mine&access_token={token}", server.address("locktopus"));
        let socket = TcpStream::connect(server.address("locktopus")).expect("the server accepts");
        let mut web_socket = client(url, socket).expect("a WebSocket").0;
        let text = r#"{"action":"lock","resources":[{"type":"write","path":["a"]}]}"#;
        web_socket.send(Message::text(text)).expect("the server reads");
        web_socket.read().expect("the lock is held");
        Self { acquire, watch, lock, web_socket }
    }

    /// Asserts that each ends with this status, and the WebSocket with a text that has these words.
    async fn assert_end(self, code: Code, words: &str) {
        async fn end<T>(mut stream: tonic::Streaming<T>) -> Status {
            loop {
                match timeout(WATCHDOG, stream.message()).await.expect("the stream ends") {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("no status"),
                    Err(status) => return status,
                }
            }
        }
        for status in [end(self.acquire).await, end(self.watch).await, end(self.lock).await] {
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(words), "{status}");
        }
        let mut web_socket = self.web_socket;
        web_socket.get_ref().set_read_timeout(Some(WATCHDOG)).expect("a timeout");
        let Message::Close(Some(frame)) = web_socket.read().expect("a last frame") else {
            panic!("no close")
        };
        assert_eq!(u16::from(frame.code), 1008);
        assert!(frame.reason.contains(words), "{frame}");
    }
}

#[tokio::test]
async fn streams_and_web_sockets_end_with_the_reason_when_their_client_loses_its_identity_or_a_right() {
    let office = Office::new(MAY_ACQUIRE);
    let alice = office.token("alice");
    let server = office.server(&PORTS);
    let streams = Streams::open(&server, &alice).await;
    office.set_rules("[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\"]\n");
    hang_up(&server);
    streams.assert_end(Code::PermissionDenied, "rights").await;

    let office = Office::new(MAY_ACQUIRE);
    let alice = office.token("alice");
    let server = office.server(&PORTS);
    let streams = Streams::open(&server, &alice).await;
    office.revoke(&alice);
    hang_up(&server);
    streams.assert_end(Code::Unauthenticated, "revoked").await;
}

/// Waits until a client is queued for this key.
fn wait_for_waiter(client: &mut Client<TcpStream>, key: &[u8]) {
    wait_until("a waiter", || {
        let answer = client.ask(waymaker_protocol::Request::Inspect(Inspect { key }));
        let Response::Inspected(inspected) = answer.response() else { panic!("{:?}", answer.response()) };
        inspected.waiter_count > 0
    });
}

#[tokio::test]
async fn a_call_that_waits_ends_with_the_reason_when_its_client_loses_its_identity_or_a_right() {
    for (keys, loses_identity, words) in [
        (&["held"][..], false, "rights of the client have changed"),
        (&["held", "other"], false, "rights of the client have changed"),
        (&["held"], true, "expired or was revoked"),
    ] {
        let bob = "[[rule]]\nidentity = \"bob\"\nallow = [\"all\"]\n";
        let office = Office::new(&format!("{MAY_ACQUIRE}{bob}"));
        let (alice, bobs_token) = (office.token("alice"), office.token("bob"));
        let server = office.server(&PORTS);
        let mut holder = server.stranger();
        let credentials = bobs_token.as_bytes();
        holder.open(Hello { namespace: b"waymaker", credentials, ..default_hello() });
        holder.acquire(b"held", 0);
        let url = format!("http://{}", server.address("grpc"));
        let channel = Channel::from_shared(url).expect("a url").connect().await.expect("the server accepts");
        let request = MultiLockRequest {
            keys: keys.iter().map(|key| MultiLockKey { key: (*key).to_owned(), write_lock: true }).collect(),
            max_wait_period: 600_000,
            max_lease_period: 60_000,
            ..Default::default()
        };
        let request = by(&alice, request);
        let call = tokio::spawn(async move { WaymakerServiceClient::new(channel).multi_lock(request).await });
        let mut holder = tokio::task::spawn_blocking(move || {
            wait_for_waiter(&mut holder, b"held");
            holder
        })
        .await
        .expect("the call is queued");
        if loses_identity {
            office.revoke(&alice);
        } else {
            office.set_rules(&format!("[[rule]]\nidentity = \"alice\"\nallow = [\"acquire\"]\n{bob}"));
        }
        hang_up(&server);
        let answer = timeout(WATCHDOG, call).await.expect("the call ends").expect("it does not panic");
        let answer = answer.expect("the refusal is in the answer").into_inner();
        assert_eq!((answer.success, &*answer.result_code), (false, "unauthorized"), "{}", answer.message);
        assert!(answer.message.contains(words), "{}", answer.message);
        assert_eq!(holder.code_of(waymaker_protocol::Request::KeepAlive(KeepAlive)), None);
    }
}

/// Lists all locks of Locket again and again until the server refuses a call. Returns the refusal.
async fn list_until_refused(channel: Channel, token: String) -> Status {
    let mut client = LocketClient::new(channel);
    let all = || FetchAllRequest { r#type: "lock".to_owned(), type_code: 1 };
    loop {
        let call = timeout(WATCHDOG, client.fetch_all(by(&token, all()))).await.expect("an answer");
        if let Err(status) = call {
            return status;
        }
    }
}

#[tokio::test]
async fn a_long_call_of_locket_ends_with_the_reason_when_its_client_loses_a_right() {
    /// Number of locks; the list of them has several pages.
    const COUNT: usize = 2_000;
    let rules = |rights: &str| format!("[[rule]]\nidentity = \"alice\"\nallow = [{rights}]\n");
    let office = Office::new(&rules("\"acquire\", \"list\""));
    let alice = office.token("alice");
    let server = office.server(&PORTS);
    let url = format!("http://{}", server.address("grpc"));
    let channel = Channel::from_shared(url).expect("a url").connect().await.expect("the server accepts");
    let mut client = LocketClient::new(channel.clone());
    for number in 0..COUNT {
        let resource = Resource {
            key: format!("key {number}"),
            owner: "owner".to_owned(),
            value: String::new(),
            r#type: "lock".to_owned(),
            type_code: 1,
        };
        let lock = locket::LockRequest { resource: Some(resource), ttl_in_seconds: 3_600 };
        client.lock(by(&alice, lock)).await.expect("a lock");
    }
    let begun = Instant::now();
    loop {
        // A call between two pages is refused because the rights have changed. A later call is refused because no rule gives the right.
        let calls: Vec<_> =
            (0..4).map(|_| tokio::spawn(list_until_refused(channel.clone(), alice.clone()))).collect();
        office.set_rules(&rules("\"acquire\""));
        hang_up(&server);
        let mut is_told = false;
        for call in calls {
            let status = call.await.expect("it does not panic");
            assert_eq!(status.code(), Code::PermissionDenied, "{status}");
            is_told |= status.message().contains("rights of the client have changed");
        }
        if is_told {
            return;
        }
        assert!(begun.elapsed() < WATCHDOG, "no call was in progress when the right was lost");
        office.set_rules(&rules("\"acquire\", \"list\""));
        hang_up(&server);
        let all = || FetchAllRequest { r#type: "lock".to_owned(), type_code: 1 };
        while client.fetch_all(by(&alice, all())).await.is_err() {
            assert!(begun.elapsed() < WATCHDOG, "the right does not come back");
        }
    }
}
