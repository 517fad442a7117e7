//! Traces of acquires, as a collector gets them.

mod collector;
mod failures;
mod fronts;

use crate::harness::{Client, Server, each_size, hello_of, refused};
use collector::{Collector, texts};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use std::net::TcpStream;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Cancel, ErrorCode, Items,
    KeyItem, NamespaceKind, PathItem, PathKey, Register, Request, Response, SessionRequest, TraceParent,
    TraceParentBytes,
};

/// The span of a caller. Its trace is sampled.
pub(crate) const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn caller() -> TraceParent {
    CALLER.parse().unwrap()
}

fn caller_bytes() -> &'static TraceParentBytes {
    static BYTES: LazyLock<TraceParentBytes> = LazyLock::new(|| *caller().as_bytes());
    &BYTES
}

fn traced() -> AcquireOptions<'static> {
    AcquireOptions { traceparent: Some(caller_bytes()), ..AcquireOptions::default() }
}

fn acquire(key: &[u8], wait_ms: u32) -> Request<'_> {
    Request::Acquire(Acquire {
        key,
        terms: AcquireTerms { wait_ms, options: traced(), ..AcquireTerms::default() },
        ..Acquire::default()
    })
}

/// Sends a traced acquire, and waits until it has entered the queue.
fn queue(client: &mut Client<TcpStream>, key: &[u8]) {
    let acquire = Acquire {
        key,
        terms: AcquireTerms {
            wait_ms: WAIT_FOREVER_MS,
            notify_queued: true,
            options: traced(),
            ..AcquireTerms::default()
        },
        ..Acquire::default()
    };
    client.send(Request::Acquire(acquire));
    client.receive();
}

/// A server that exports to this collector.
fn server_of(collector: &Collector, more: &[&str]) -> Server {
    Server::start(&[&["--otlp-endpoint", &collector.url()], more].concat())
}

/// Asserts that a span belongs to the caller, and returns its attributes.
#[track_caller]
fn attributes(span: &Span) -> Vec<String> {
    assert_eq!(span.trace_id, caller().trace_id());
    assert_eq!(span.parent_span_id, caller().span_id());
    assert_eq!((span.name.as_str(), span.kind()), ("acquire", SpanKind::Server));
    assert_eq!(span.flags, 0x301, "sampled, and the parent is in another process");
    assert!(span.span_id.len() == 8 && span.span_id != [0; 8] && span.span_id != span.parent_span_id);
    assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
    texts(&span.attributes)
}

/// The attributes of an acquire in the namespace `default`.
fn expected(key: &str, rest: &[&str]) -> Vec<String> {
    let mut expected = vec![
        "waymaker.namespace=default".to_owned(),
        "waymaker.kind=flat".to_owned(),
        "waymaker.front=binary".to_owned(),
        format!("waymaker.key={key}"),
    ];
    expected.extend(rest.iter().map(|text| (*text).to_owned()));
    expected
}

#[test]
fn a_granted_acquire_is_a_span_of_the_caller() {
    let collector = Collector::start();
    for server in [["--workers", "1"], ["--workers", "3"]].map(|workers| server_of(&collector, &workers)) {
        let known = collector.spans().len();
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let begun = now();
        let mut client = server.client("client");
        let fence = client.ask(acquire(b"key", 0)).granted().fence;
        let span = collector.wait_for_spans(known + 1).pop().unwrap();
        let ended = now();
        assert_eq!(
            attributes(&span),
            expected("key", &["waymaker.result=granted", &format!("waymaker.fence={fence}")])
        );
        assert!(span.events.is_empty(), "it did not wait");
        // The clocks of both may differ by a correction of the time of day.
        let tolerance = 1_000_000_000;
        let unix = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap();
        assert!(span.start_time_unix_nano >= unix(begun) - tolerance, "{span:?}");
        assert!(span.end_time_unix_nano <= unix(ended) + tolerance, "{span:?}");
    }
    let resource = collector.requests()[0].resource_spans[0].resource.clone().unwrap();
    let [name, version, instance] = &texts(&resource.attributes)[..] else { panic!("{resource:?}") };
    assert_eq!(name, "service.name=waymaker");
    assert_eq!(*version, format!("service.version={}", env!("CARGO_PKG_VERSION")));
    assert!(instance.starts_with("service.instance.id="), "{instance}");
}

#[test]
fn each_result_is_a_span_with_its_reason() {
    for workers in ["1", "3"] {
        let collector = Collector::start();
        let server = server_of(&collector, &["--workers", workers]);
        let [mut holder, mut other] = ["holder", "other"].map(|owner| server.client(owner));
        let held = holder.acquire(b"key", 60_000);
        let mut spans = Vec::new();
        let mut next = || {
            spans = collector.wait_for_spans(spans.len() + 1);
            spans.last().unwrap().clone()
        };
        assert_eq!(other.ask(acquire(b"key", 0)).error().code, ErrorCode::Busy);
        assert_eq!(attributes(&next()), expected("key", &["waymaker.result=busy", "error.type=busy"]));

        assert_eq!(other.ask(acquire(b"key", 1)).error().code, ErrorCode::Timeout);
        let span = next();
        assert_eq!(attributes(&span), expected("key", &["waymaker.result=timeout", "error.type=timeout"]));
        assert!(span.end_time_unix_nano - span.start_time_unix_nano >= 1_000_000, "{span:?}");

        let refused = Acquire {
            key: b"key",
            terms: AcquireTerms { lease_ms: 1, options: traced(), ..AcquireTerms::default() },
            ..Acquire::default()
        };
        assert_eq!(other.ask(Request::Acquire(refused)).refusal().1, "lease_ms");
        assert_eq!(
            attributes(&next()),
            expected("key", &["waymaker.result=refused", "error.type=bad_input"])
        );

        let number = other.send(acquire(b"key", WAIT_FOREVER_MS));
        other.send(Request::Cancel(Cancel { acquire_number: number, key: b"key" }));
        assert_eq!(
            attributes(&next()),
            expected("key", &["waymaker.result=cancelled", "error.type=cancelled"])
        );

        let mut lost = server.client("lost");
        lost.send(acquire(b"key", WAIT_FOREVER_MS));
        drop(lost);
        let cancelled = ["waymaker.result=cancelled", "error.type=connection_lost"];
        assert_eq!(attributes(&next()), expected("key", &cancelled));

        let mut waiter = server.client("waiter");
        queue(&mut waiter, b"key");
        holder.release(held.id);
        let fence = waiter.receive().granted().fence;
        let span = next();
        let granted = ["waymaker.result=granted", &format!("waymaker.fence={fence}")];
        assert_eq!(attributes(&span), expected("key", &granted));
        let [queued] = &span.events[..] else { panic!("{span:?}") };
        assert_eq!(queued.name, "queued");
        let range = span.start_time_unix_nano..=span.end_time_unix_nano;
        assert!(range.contains(&queued.time_unix_nano), "{span:?}");
    }
}

#[test]
fn an_acquire_of_a_lost_session_is_a_span_once() {
    let collector = Collector::start();
    let server = server_of(&collector, &[]);
    let mut holder = server.client("holder");
    let held = holder.acquire(b"key", 60_000);
    let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 60_000 });
    client.send_numbered(9, acquire(b"key", WAIT_FOREVER_MS));
    drop(client);
    let lost = collector.wait_for_spans(1).pop().unwrap();
    assert_eq!(
        attributes(&lost),
        expected("key", &["waymaker.result=cancelled", "error.type=connection_lost"])
    );

    let resume = SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane };
    let (mut client, _) = server.session_client(resume);
    client.send_numbered(9, acquire(b"key", WAIT_FOREVER_MS));
    holder.release(held.id);
    let fence = client.receive().granted().fence;
    let granted = ["waymaker.result=granted", &format!("waymaker.fence={fence}")];
    assert_eq!(attributes(&collector.wait_for_spans(2)[1]), expected("key", &granted));
    // The answer is repeated, and the request is not served again.
    client.send_numbered(9, acquire(b"key", WAIT_FOREVER_MS));
    assert_eq!(client.receive().granted().fence, fence);
    client.send_numbered(10, acquire(b"other", 0));
    client.receive();
    let spans = collector.wait_for_spans(3);
    assert_eq!(attributes(&spans[2])[3], "waymaker.key=other");
}

#[test]
fn acquires_without_a_sampled_trace_are_no_spans() {
    let collector = Collector::start();
    let server = server_of(&collector, &[]);
    let mut client = server.client("client");
    client.acquire(b"absent", 0);
    let unsampled = TraceParent::new(caller().trace_id(), caller().span_id(), 0xfe).unwrap();
    let options = AcquireOptions { traceparent: Some(unsampled.as_bytes()), ..AcquireOptions::default() };
    client
        .ask(Request::Acquire(Acquire {
            key: b"unsampled",
            terms: AcquireTerms { options, ..AcquireTerms::default() },
            ..Acquire::default()
        }))
        .granted();
    client.ask(acquire(b"sampled", 0)).granted();
    let spans = collector.wait_for_spans(1);
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert_eq!(attributes(&spans[0])[3], "waymaker.key=sampled");
}

#[test]
fn requests_with_one_number_are_a_span_each() {
    let collector = Collector::start();
    let server = server_of(&collector, &[]);
    let mut client = server.client("client");
    for key in [b"a", b"b"] {
        client.send_numbered(7, acquire(key, 0));
    }
    let spans = collector.wait_for_spans(2);
    assert_eq!(
        [0, 1].map(|index| attributes(&spans[index])[3].clone()),
        ["waymaker.key=a", "waymaker.key=b"]
    );
}

#[test]
fn acquires_of_every_kind_are_spans() {
    let collector = Collector::start();
    let server = server_of(&collector, &["--workers", "2"]);
    let mut paths = Vec::new();
    PathKey::append(["users", "42"], &mut paths).unwrap();
    let path = PathItem { write: true, path: PathKey::new(&paths).unwrap() };
    let long = "é".repeat(200);
    let (mut of_keys, mut of_set) = (Vec::new(), Vec::new());
    let keys = ["b", "a"].map(|key| KeyItem { shared: false, key: key.as_bytes() });
    for (kind, request, key) in [
        (NamespaceKind::Flat, acquire(long.as_bytes(), 0), "é".repeat(128)),
        (
            NamespaceKind::Flat,
            Request::AcquireKeys(AcquireKeys {
                items: Items::new(keys, &mut of_keys).unwrap(),
                terms: AcquireTerms { options: traced(), ..AcquireTerms::default() },
            }),
            "a".to_owned(),
        ),
        (
            NamespaceKind::Tree,
            Request::AcquireSet(AcquireSet {
                items: Items::new([path], &mut of_set).unwrap(),
                terms: AcquireTerms { options: traced(), ..AcquireTerms::default() },
            }),
            "users/42".to_owned(),
        ),
        (
            NamespaceKind::Pool,
            Request::AcquirePermits(AcquirePermits {
                name: b"pool",
                capacity: 2,
                permits: 1,
                terms: AcquireTerms { options: traced(), ..AcquireTerms::default() },
                ..AcquirePermits::default()
            }),
            "pool".to_owned(),
        ),
        (
            NamespaceKind::Registry,
            Request::Register(Register {
                key: b"entry",
                owner: b"me",
                lease_ms: 1_000,
                traceparent: Some(caller_bytes()),
                ..Register::default()
            }),
            "entry".to_owned(),
        ),
    ] {
        let known = collector.spans().len();
        let mut client = server.client_of(kind, "client");
        let answer = client.ask(request);
        let fence = match answer.response() {
            Response::Granted(granted) => granted.fence,
            Response::GrantedKeys(granted) => granted.keys[0].fence,
            Response::Registered(registered) => registered.fence,
            other => panic!("{other:?}"),
        };
        let span = collector.wait_for_spans(known + 1).pop().unwrap();
        let name = kind.name();
        let expected = [
            format!("waymaker.namespace={name}"),
            format!("waymaker.kind={name}"),
            "waymaker.front=binary".to_owned(),
            format!("waymaker.key={key}"),
            "waymaker.result=granted".to_owned(),
            format!("waymaker.fence={fence}"),
        ];
        assert_eq!(attributes(&span), expected);
    }
}

#[test]
fn a_server_without_a_collector_checks_the_trace_context_and_ignores_it() {
    for server in each_size() {
        let mut client = server.client("client");
        client.ask(acquire(b"key", 0)).granted();
        let mut bytes = Vec::new();
        acquire(b"other", 0).encode(7, &mut bytes);
        let trace_id = bytes.len() - TraceParent::LEN;
        bytes[trace_id..][..16].fill(0);
        client.write(&bytes);
        assert_eq!(client.receive().refusal(), (ErrorCode::BadInput, "traceparent", 0));
        client.ask(acquire(b"other", 0)).granted();
    }
}

#[test]
fn an_invalid_collector_is_refused_by_name() {
    for check in [&["--check-config"][..], &[]] {
        let (status, text) = refused(&[check, &["--otlp-endpoint", "collector:4317"]].concat());
        assert!(!status.success(), "{text}");
        assert!(
            text.contains("--otlp-endpoint: \"collector:4317\" is not an address; use http://HOST:PORT"),
            "{text}"
        );
    }
}

/// A client of the namespace `default` on a connection of its own.
fn client_of(server: &Server) -> Client<TcpStream> {
    let mut client = server.stranger();
    client
        .open(waymaker_protocol::Hello { namespace: b"default", ..hello_of(NamespaceKind::Flat, "client") });
    client
}
