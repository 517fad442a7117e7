//! `/metrics`: what Prometheus reads.

use crate::abuse::web_socket::WebSocket;
use crate::addresses::get;
use crate::durable::{Place, local};
use crate::harness::{Client, Server, default_hello, hello_of, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{LockRequest, UnLockRequest};
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquireTerms, Cancel, ErrorCode, Event, Extend, ForceRelease,
    Hello, Items, KeyItem, NamespaceKind, Release, Request, SessionRequest,
};

const HTTP: [&str; 2] = ["--http-listen", "127.0.0.1:0"];

/// Every series of a scrape.
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    fn of(server: &Server) -> Self {
        let page = get(server, "/metrics");
        let (_, text) = page.split_once("\r\n\r\n").expect("a head and a body");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let mut values = BTreeMap::new();
        for line in series {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            let value = value.parse().expect("a number");
            assert!(values.insert(name.to_owned(), value).is_none(), "{name} is there twice");
        }
        Self(values)
    }

    fn get(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.0))
    }

    /// The acquires of a namespace that ended like this.
    fn acquires(&self, namespace: &str, kind: &str, result: &str) -> f64 {
        self.get(&format!(
            "waymaker_acquire_total{{namespace=\"{namespace}\",kind=\"{kind}\",front=\"binary\",result=\"{result}\"}}"
        ))
    }

    /// The names of metrics, without the suffixes of histograms.
    fn names(&self) -> BTreeSet<String> {
        let name = |series: &String| {
            let name = series.split('{').next().unwrap_or_default();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            base.unwrap_or(name).to_owned()
        };
        self.0.keys().map(name).collect()
    }
}

fn server(more: &[&str]) -> Server {
    Server::start(&[&HTTP, more].concat())
}

fn release(client: &mut Client<TcpStream>, id: waymaker_protocol::LockId) {
    client.release(id);
}

#[test]
fn acquires_are_counted_by_namespace_kind_and_result() {
    for workers in ["1", "3"] {
        let server = server(&["--workers", workers]);
        let [mut holder, mut other] = ["holder", "other"].map(|name| server.client(name));
        let held = holder.acquire(b"key", 60_000);
        let busy = other.ask(Request::Acquire(Acquire { key: b"key", ..Acquire::default() }));
        assert_eq!(busy.error().code, ErrorCode::Busy);
        let timeout = other.ask(Request::Acquire(Acquire {
            key: b"key",
            terms: AcquireTerms { wait_ms: 1, ..AcquireTerms::default() },
            ..Acquire::default()
        }));
        assert_eq!(timeout.error().code, ErrorCode::Timeout);
        let cancelled = other.wait_for(b"key", WAIT_FOREVER_MS);
        other.send(Request::Cancel(Cancel { acquire_number: cancelled, key: b"key" }));
        other.receive();
        other.receive();
        let refused = other.ask(Request::Acquire(Acquire {
            key: b"free",
            terms: AcquireTerms { lease_ms: 1, ..AcquireTerms::default() },
            ..Acquire::default()
        }));
        assert_eq!(refused.refusal().0, ErrorCode::BadInput);
        let waiter = other.wait_for(b"key", WAIT_FOREVER_MS);
        release(&mut holder, held.id);
        assert_eq!(other.receive().number(), waiter);
        let scrape = Scrape::of(&server);
        let results = ["granted", "busy", "timeout", "cancelled", "refused"];
        assert_eq!(
            results.map(|result| scrape.acquires("default", "flat", result)),
            [2.0, 1.0, 1.0, 1.0, 1.0]
        );
        let mut tree = server.stranger();
        tree.open(Hello {
            namespace: "a \"tree\"\n".as_bytes(),
            ..hello_of(NamespaceKind::Tree, "somebody")
        });
        let scrape = Scrape::of(&server);
        assert_eq!(scrape.get("waymaker_connections{front=\"binary\"}"), 3.0);
        assert_eq!(scrape.get("waymaker_connections{front=\"http\"}"), 1.0);
    }
}

/// Clients choose the names of namespaces, and a page that Prometheus cannot read shows no metric at all.
#[test]
fn any_name_of_a_namespace_is_one_label_of_one_series() {
    let server = server(&["--workers", "1"]);
    for name in [&b"a \"b\",front=\"c"[..], b"back\\slash", b"line\nend", b"other", b"\xff", b"\\xff"] {
        let mut client = server.stranger();
        client.open(Hello { namespace: name, ..default_hello() });
        client.acquire(b"key", 60_000);
    }
    let scrape = Scrape::of(&server);
    let granted = |namespace| scrape.acquires(namespace, "flat", "granted");
    assert_eq!(granted(r#"a \"b\",front=\"c"#), 1.0);
    assert_eq!(granted(r"back\\slash"), 1.0);
    assert_eq!(granted(r"line\\nend"), 1.0);
    assert_eq!(granted("other"), 1.0);
    assert_eq!(granted(r"\\xff"), 2.0, "both names are shown alike");
}

#[test]
fn a_repeated_claim_over_several_keys_does_not_count_again() {
    let server = server(&["--workers", "1"]);
    let mut client = server.client("client");
    let mut buffer = Vec::new();
    let items = Items::new([b"a", b"b"].map(|key| KeyItem { key, shared: false }), &mut buffer);
    let options = AcquireOptions { request_id: Some(b"attempt"), ..AcquireOptions::default() };
    let acquire = AcquireKeys {
        items: items.expect("two keys"),
        terms: AcquireTerms { options, ..AcquireTerms::default() },
    };
    client.ask(Request::AcquireKeys(acquire));
    client.ask(Request::AcquireKeys(acquire));
    assert_eq!(Scrape::of(&server).acquires("default", "flat", "granted"), 1.0);
}

#[test]
fn a_claim_over_several_keys_counts_once() {
    let server = server(&["--workers", "3"]);
    let mut client = server.client("client");
    let mut buffer = Vec::new();
    let items = Items::new([b"a", b"b", b"c"].map(|key| KeyItem { key, shared: false }), &mut buffer);
    let acquire = AcquireKeys { items: items.expect("three keys"), ..AcquireKeys::default() };
    client.ask(Request::AcquireKeys(acquire));
    assert_eq!(Scrape::of(&server).acquires("default", "flat", "granted"), 1.0);
}

#[test]
fn a_repeated_acquire_whose_hold_is_found_does_not_count_again() {
    let server = server(&["--workers", "1"]);
    let mut client = server.client("client");
    let options = AcquireOptions { request_id: Some(b"one"), ..AcquireOptions::default() };
    for _ in 0..3 {
        client
            .ask(Request::Acquire(Acquire {
                key: b"key",
                terms: AcquireTerms { options, ..AcquireTerms::default() },
                ..Acquire::default()
            }))
            .granted();
    }
    assert_eq!(Scrape::of(&server).acquires("default", "flat", "granted"), 1.0);
}

#[test]
fn durations_are_finer_than_a_millisecond_and_as_long_as_they_were() {
    let server = server(&["--workers", "1"]);
    let [mut holder, mut waiter] = ["holder", "waiter"].map(|name| server.client(name));
    let held = holder.acquire(b"key", 60_000);
    let begun = Instant::now();
    waiter.wait_for(b"key", WAIT_FOREVER_MS);
    sleep(Duration::from_millis(30));
    let at_least = begun.elapsed().as_secs_f64() - 0.005;
    release(&mut holder, held.id);
    let granted = waiter.receive().granted();
    let at_most = begun.elapsed().as_secs_f64() + 0.005;
    waiter.ask(Request::Extend(Extend { id: granted.id, lease_ms: 40_000, ..Extend::default() }));
    let scrape = Scrape::of(&server);
    for (name, count) in [("wait", 1.0), ("hold", 1.0), ("handover", 1.0), ("renew_slack", 1.0)] {
        assert_eq!(scrape.get(&format!("waymaker_{name}_seconds_count")), count, "{name}");
    }
    for name in ["wait", "hold"] {
        let sum = scrape.get(&format!("waymaker_{name}_seconds_sum"));
        assert!((at_least..=at_most).contains(&sum), "{name}: {sum} s, not {at_least} to {at_most}");
        assert!((sum * 1e3).fract() > 1e-9, "{name}: {sum} s is a whole number of milliseconds");
    }
    let slack = scrape.get("waymaker_renew_slack_seconds_sum");
    assert!((29.0..=30.001).contains(&slack), "{slack} s of the default lease of 30 s");
    assert!(scrape.get("waymaker_handover_seconds_sum") < 0.005);
    assert_eq!(scrape.get("waymaker_queue_depth_sum"), 1.0);
}

#[test]
fn the_handover_of_a_durable_lock_includes_the_sync() {
    let place = Place::new();
    let server = place.start(&[&HTTP[..], &["--workers", "1"]].concat());
    let [mut holder, mut waiter] = ["holder", "waiter"].map(|name| server.client(name));
    let held = holder.ask(Request::Acquire(local(b"key"))).granted();
    waiter.send(Request::Acquire(local(b"key").with_terms(|terms| terms.wait_ms = WAIT_FOREVER_MS)));
    wait_until("the waiter waits", || Scrape::of(&server).get("waymaker_waiting") == 1.0);
    release(&mut holder, held.id);
    waiter.receive().granted();
    let scrape = Scrape::of(&server);
    assert_eq!(scrape.get("waymaker_handover_seconds_count"), 1.0);
    assert!(scrape.get("waymaker_handover_seconds_sum") > 0.0);
    assert!(scrape.get("waymaker_log_sync_seconds_count") >= 2.0);
    assert!(scrape.get("waymaker_log_sync_seconds_sum") > 0.0);
    assert_eq!(scrape.get("waymaker_log_segments"), 1.0);
}

#[test]
fn a_lost_hold_is_counted_by_its_reason() {
    let server = server(&["--workers", "1"]);
    let mut client = server.client("client");
    let expires = client.acquire(b"expires", 10);
    let expired = client.receive();
    assert_eq!(expired.event(), Event::Expired { id: expires.id });
    let lost = |reason: &str| Scrape::of(&server).get(&format!("waymaker_lost_total{{reason=\"{reason}\"}}"));
    assert_eq!(lost("expired"), 1.0);
    let forced = client.acquire(b"forced", 60_000);
    let reason = b"maintenance";
    server.client("operator").ask(Request::ForceRelease(ForceRelease { id: forced.id, reason }));
    assert_eq!(lost("forced"), 1.0);
    client.receive();
    let elsewhere = client.acquire(b"elsewhere", 60_000);
    let release = Release { id: elsewhere.id, ..Release::default() };
    server.client("another").ask(Request::Release(release));
    assert_eq!(lost("released_elsewhere"), 1.0);
    let (mut session, _) = server.session_client(SessionRequest::New { lease_ms: 100 });
    let acquire = Acquire {
        key: b"session",
        terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    session.ask(Request::Acquire(acquire)).granted();
    drop(session);
    wait_until("the session ends", || lost("session_ended") == 1.0);
    assert_eq!(lost("expired"), 1.0);
}

#[test]
fn gauges_show_what_there_is_now() {
    let server = server(&["--workers", "3"]);
    let mut clients: Vec<_> = (0..4).map(|number| server.client(&format!("client {number}"))).collect();
    let held: Vec<_> = (0..40_u8).map(|key| clients[0].acquire(&[key], 60_000)).collect();
    for waiter in &mut clients[1..] {
        waiter.wait_for(&[0], WAIT_FOREVER_MS);
    }
    let (_session, _) = server.session_client(SessionRequest::New { lease_ms: 60_000 });
    let gauges =
        |scrape: &Scrape| ["held", "waiting", "sessions"].map(|name| scrape.get(&format!("waymaker_{name}")));
    wait_until("the gauges are up to date", || gauges(&Scrape::of(&server)) == [40.0, 3.0, 1.0]);
    let scrape = Scrape::of(&server);
    assert!(scrape.get("waymaker_memory_bytes{part=\"claims\"}") >= 43.0 * 64.0);
    assert!(scrape.get("waymaker_memory_bytes{part=\"resident\"}") > 1e6);
    let busy = |scrape: &Scrape| -> f64 {
        (0..3).map(|worker| scrape.get(&format!("waymaker_worker_busy_ratio{{worker=\"{worker}\"}}"))).sum()
    };
    wait_until("a second has passed in which a worker ran", || {
        (1e-9..3.0).contains(&busy(&Scrape::of(&server)))
    });
    drop(clients);
    drop(held);
    wait_until("the waiters have left", || Scrape::of(&server).get("waymaker_waiting") == 0.0);
}

#[test]
fn a_rejected_request_is_counted_by_its_limit() {
    let server = server(&["--workers", "1"]);
    let mut client = server.stranger();
    client.open(Hello { session: SessionRequest::New { lease_ms: 60_000 }, ..default_hello() });
    // Acquires that are read together are let in together.
    for _ in 0..waymaker_server::limits::WAITING_MAX + 1_000 {
        client.send(Request::Acquire(Acquire {
            key: b"key",
            terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() },
            ..Acquire::default()
        }));
    }
    let series = "waymaker_rejected_total{limit=\"waiting_acquires_per_connection\"}";
    wait_until("the last one is refused", || {
        Scrape::of(&server).0.get(series).is_some_and(|count| *count >= 1.0)
    });
}

/// The contract asks about a lock on another lane than the one that holds it.
#[tokio::test]
async fn a_lock_that_its_grpc_client_unlocks_is_not_lost() {
    let server = server(&["--grpc-listen", "127.0.0.1:0", "--workers", "1"]);
    let url = format!("http://{}", server.address("grpc"));
    let mut client = WaymakerServiceClient::connect(url).await.expect("the server accepts");
    let request = LockRequest { key: "key".to_owned(), ..LockRequest::default() };
    let mut events = client.lock(request).await.unwrap().into_inner();
    let event = events.message().await.unwrap().expect("an event");
    client.un_lock(UnLockRequest { key: event.key, id: event.id }).await.unwrap();
    let scrape = Scrape::of(&server);
    assert_eq!(scrape.get("waymaker_hold_seconds_count"), 1.0);
    assert_eq!(scrape.get("waymaker_lost_total{reason=\"released_elsewhere\"}"), 0.0);
}

#[test]
fn a_web_socket_counts_for_the_port_that_it_came_by() {
    let server = server(&["--locktopus-listen", "127.0.0.1:0"]);
    let _user = WebSocket::connect(&server, "n");
    let is_counted = |scrape: Scrape, front: &str| {
        scrape.0.keys().any(|series| series.starts_with("waymaker_acquire_total") && series.contains(front))
    };
    wait_until("the namespace is counted", || is_counted(Scrape::of(&server), "front=\"locktopus\""));
    assert!(!is_counted(Scrape::of(&server), "front=\"http\""));
}

/// Names in the first column of the tables of the reference.
fn documented() -> BTreeSet<String> {
    let text = include_str!("../../../docs/reference/metrics.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let is_metric = |name: &&str| name.starts_with("waymaker_") || name.starts_with("locket_");
    rows.filter(is_metric).map(str::to_owned).collect()
}

#[test]
fn the_reference_has_every_metric_and_no_other() {
    let place = Place::new();
    // Nothing listens there, so the cluster is down.
    let server = place
        .start(&[&HTTP[..], &["--quorum-endpoints", "http://127.0.0.1:9", "--memory-limit", "90%"]].concat());
    server.client("client").acquire(b"key", 60_000);
    let scrape = Scrape::of(&server);
    assert_eq!(scrape.names(), documented());
    assert_eq!(["disk_full", "log_stalled"].map(|name| scrape.get(&format!("waymaker_{name}"))), [0.0; 2]);
    let options = AcquireOptions { scope: Some(3), ..AcquireOptions::default() };
    let counted = Acquire {
        key: b"counted",
        terms: AcquireTerms { options, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    server.client("another").ask(Request::Acquire(counted)).error();
    wait_until("the cluster is down", || Scrape::of(&server).get("waymaker_quorum_up") == 0.0);
    let scrape = Scrape::of(&server);
    let reason = |code: &str| scrape.get(&format!("waymaker_readiness_reason{{code=\"{code}\"}}"));
    assert_eq!(["quorum_down", "recovering"].map(reason), [1.0, 0.0]);
    assert_eq!(scrape.get("waymaker_ready"), 1.0, "a degraded server is ready");
}
