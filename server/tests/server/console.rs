//! The interface of the console: what operators see and change, with which rights, and how wrong requests are refused.

use crate::access::{Office, hello_with};
use crate::harness::{Client, Server, WATCHDOG, default_hello, wait_for};
use crate::locktopus::{http, parts};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    Acquire, AcquirePermits, AcquireSet, AcquireTerms, ErrorCode, Event, Hello, Items, NamespaceKind,
    PathItem, PathKey, Request, RevokeReason,
};

const HTTP: [&str; 2] = ["--http-listen", "127.0.0.1:0"];

/// Makes requests, with a token if it has one.
struct Operator<'a> {
    server: &'a Server,
    token: Option<&'a str>,
}

impl<'a> Operator<'a> {
    fn of(server: &'a Server) -> Self {
        Self { server, token: None }
    }

    fn authorization(&self) -> String {
        self.token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default()
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        self.send_to(method, &format!("/console/api/{path}"), headers, body)
    }

    fn send_to(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.server.address("http")).expect("the server accepts");
        socket.set_read_timeout(Some(WATCHDOG)).expect("a timeout");
        let (authorization, len) = (self.authorization(), body.len());
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len}\r\n{authorization}{headers}\r\n{body}"
        );
        socket.write_all(text.as_bytes()).expect("it is read");
        socket
    }

    fn answer(mut socket: TcpStream) -> (u16, Value) {
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer, and the end of the connection");
        let (status, head, body) = parts(&answer);
        assert!(head.contains("content-type: application/json\r\ncache-control: no-store\r\n"), "{answer}");
        (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        Self::answer(self.send("GET", path, "", ""))
    }

    /// Returns the answer to a request, which must succeed.
    fn ok(&self, path: &str) -> Value {
        let (status, value) = self.get(path);
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let headers = "Content-Type: application/json\r\nX-Waymaker-Console: 1\r\n";
        Self::answer(self.send("POST", path, headers, &body.to_string()))
    }

    /// The code of a refusal.
    fn refusal((status, value): (u16, Value)) -> (u16, String) {
        (status, value["error"]["code"].as_str().unwrap_or_else(|| panic!("{value}")).to_owned())
    }

    /// The events of the server until one has this.
    fn live_until<T>(&self, found: impl Fn(&Value) -> Option<T>) -> T {
        let mut lines = BufReader::new(self.send("GET", "live", "", "")).lines();
        let data = std::iter::from_fn(|| lines.next()).map(|line| line.expect("a line in time"));
        let mut events = data.filter_map(|line| {
            let text = line.strip_prefix("data: ")?.to_owned();
            Some(serde_json::from_str::<Value>(&text).expect("JSON"))
        });
        let begin = std::time::Instant::now();
        let found = events.find_map(|event| {
            assert!(begin.elapsed() < WATCHDOG, "no such event: {event}");
            found(&event)
        });
        found.expect("such an event")
    }
}

fn acquire(key: &[u8], wait_ms: u32) -> Request<'_> {
    Request::Acquire(Acquire {
        key,
        terms: AcquireTerms { lease_ms: 60_000, wait_ms, ..AcquireTerms::default() },
        ..Acquire::default()
    })
}

/// Makes a client that holds a key, and a client that waits for it.
fn holder_and_waiter(server: &Server, key: &[u8]) -> (Client<TcpStream>, Client<TcpStream>) {
    let (mut holder, mut waiter) = (server.client("holder"), server.client("waiter"));
    holder.acquire(key, 60_000);
    waiter.wait_for(key, WAIT_FOREVER_MS);
    (holder, waiter)
}

#[test]
fn held_locks_and_waiters_are_listed_by_prefix() {
    let server = Server::start(&HTTP);
    let operator = Operator::of(&server);
    let (mut holder, _waiter) = holder_and_waiter(&server, b"orders/7");
    holder.ask(acquire(b"orders/\xff", 0)).granted();
    holder.ask(acquire(b"other", 0)).granted();
    let page = operator.ok("locks?namespace=default&prefix=orders/");
    let locks = page["locks"].as_array().expect("locks");
    let mut keys: Vec<_> = locks.iter().map(|lock| lock["key_hex"].as_str().expect("digits")).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["6f72646572732f37", "6f72646572732fff"]);
    assert_eq!((&page["kind"], &page["next"]), (&json!("flat"), &Value::Null));
    let lock = locks.iter().find(|lock| lock["key"] == "orders/7").expect("the lock");
    assert!(lock["remaining_ms"].as_u64().expect("a lease") <= 60_000, "{lock}");
    assert_eq!(lock["id"].as_str().expect("an id").len(), 32);
    let waiting = wait_for("the waiter", || {
        let waiting = operator.ok("waiting?namespace=default&prefix=orders/");
        (waiting["seen"] == 1).then_some(waiting)
    });
    let waiter = &waiting["waiters"][0];
    assert_eq!((&waiter["key"], &waiter["remaining_ms"]), (&json!("orders/7"), &Value::Null));
    assert_eq!(waiting["complete"], true);
    assert_eq!(operator.ok("waiting?namespace=default&prefix=x")["seen"], 0);
}

#[test]
fn pages_of_locks_hold_each_lock_once() {
    let server = Server::start(&HTTP);
    let mut client = server.client("holder");
    for number in 0..25 {
        client.ask(acquire(format!("key {number}").as_bytes(), 0)).granted();
    }
    let operator = Operator::of(&server);
    let (mut keys, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = operator.ok(&format!("locks?namespace=default&count=4&cursor={cursor}"));
        let locks = page["locks"].as_array().expect("locks");
        assert!(locks.len() <= 4, "{page}");
        keys.extend(locks.iter().map(|lock| lock["key"].as_str().expect("a key").to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 25);
}

#[test]
fn the_longest_waiters_come_first_whatever_they_wait_for() {
    let server = Server::start(&HTTP);
    let operator = Operator::of(&server);
    let waits = |count: u64| {
        wait_for("the waiters", || {
            let waiting = operator.ok("waiting?namespace=default");
            (waiting["seen"] == count).then_some(waiting)
        })
    };
    let _first = holder_and_waiter(&server, b"a");
    waits(1);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let _second = holder_and_waiter(&server, b"b");
    let waiting = waits(2);
    assert_eq!((&waiting["waiters"][0]["key"], &waiting["waiters"][1]["key"]), (&json!("a"), &json!("b")));
}

#[test]
fn a_limited_number_of_the_longest_waiters_is_shown() {
    let server = Server::start(&HTTP);
    let operator = Operator::of(&server);
    let (_holder, mut waiter) = holder_and_waiter(&server, b"key");
    for _ in 0..100 {
        waiter.send(acquire(b"key", WAIT_FOREVER_MS));
    }
    let waiting = wait_for("the waiters", || {
        let waiting = operator.ok("waiting?namespace=default");
        (waiting["seen"] == 101).then_some(waiting)
    });
    assert_eq!(waiting["waiters"].as_array().map(Vec::len), Some(100));
    assert_eq!(waiting["complete"], true);
}

#[test]
fn a_page_of_long_keys_has_fewer_locks() {
    const COUNT: usize = 200;
    let server = Server::start(&HTTP);
    let operator = Operator::of(&server);
    let mut client = server.client("client");
    for number in 0..COUNT {
        client.acquire(format!("{number:01000}").as_bytes(), 60_000);
    }
    let (mut keys, mut cursor) = (std::collections::BTreeSet::new(), "0".to_owned());
    loop {
        let page = operator.ok(&format!("locks?namespace=default&cursor={cursor}"));
        let locks = page["locks"].as_array().expect("an array");
        assert!(locks.len() < COUNT, "{} locks", locks.len());
        keys.extend(locks.iter().map(|lock| lock["key"].as_str().expect("a text").to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        cursor = next.to_owned();
    }
    assert_eq!(keys.len(), COUNT);
}

#[test]
fn one_key_shows_its_holders_and_its_queue() {
    let server = Server::start(&HTTP);
    let operator = Operator::of(&server);
    let _clients = holder_and_waiter(&server, b"key");
    let key = wait_for("the waiter", || {
        let key = operator.ok("lock?namespace=default&key=key");
        (key["waiter_count"] == 1).then_some(key)
    });
    assert_eq!(
        (&key["holder_count"], &key["frozen"], &key["pool"]),
        (&json!(1), &json!(false), &Value::Null)
    );
    assert_eq!(key["holders"][0]["fence"], key["fence"]);
    assert_eq!(key["waiters"][0]["remaining_ms"], Value::Null);
    assert_eq!(key["may"]["force_release"], true);
    assert_eq!(operator.ok("lock?namespace=default&key_hex=6b6579")["key"], "key");
    let free = operator.ok("lock?namespace=default&key=free");
    assert_eq!((&free["holder_count"], &free["waiter_count"]), (&json!(0), &json!(0)));
}

#[test]
fn paths_of_a_tree_are_shown_and_found_as_text() {
    let server = Server::start(&HTTP);
    let mut tree = server.client_of(NamespaceKind::Tree, "holder");
    let mut path = Vec::new();
    PathKey::append([b"a", b"b"], &mut path).expect("a path");
    let path = PathKey::new(&path).expect("a path");
    let mut buffer = Vec::new();
    let items = Items::new([PathItem { path, write: true }], &mut buffer).expect("one path");
    let set = AcquireSet { items, terms: AcquireTerms { lease_ms: 60_000, ..AcquireTerms::default() } };
    tree.ask(Request::AcquireSet(set)).granted();
    let operator = Operator::of(&server);
    let page = operator.ok("locks?namespace=tree&prefix=a");
    assert_eq!((&page["kind"], &page["locks"][0]["key"]), (&json!("tree"), &json!("a/b")));
    let key = operator.ok("lock?namespace=tree&key=a/b");
    assert_eq!((&key["holder_count"], &key["key"]), (&json!(1), &json!("a/b")));
}

#[test]
fn a_pool_shows_its_permits_and_can_be_resized() {
    let server = Server::start(&HTTP);
    let mut client = server.client_of(NamespaceKind::Pool, "holder");
    let permits = AcquirePermits {
        name: b"workers",
        capacity: 2,
        permits: 2,
        terms: AcquireTerms { lease_ms: 60_000, ..AcquireTerms::default() },
        ..AcquirePermits::default()
    };
    client.ask(Request::AcquirePermits(permits)).granted();
    let operator = Operator::of(&server);
    let pool = operator.ok("lock?namespace=pool&key=workers");
    assert_eq!(pool["pool"], json!({"capacity": 2, "in_use": 2}));
    assert_eq!((&pool["holders"][0]["permits"], &pool["may"]["resize"]), (&json!(2), &json!(true)));
    let resize =
        json!({"namespace": "pool", "key_hex": pool["key_hex"], "capacity": 5, "reason": "more work"});
    assert_eq!(operator.post("resize", &resize), (200, json!({"capacity": 5, "in_use": 2})));
    assert_eq!(operator.ok("lock?namespace=pool&key=workers")["pool"]["capacity"], 5);
    let nothing = json!({"namespace": "pool", "key_hex": pool["key_hex"], "capacity": 0, "reason": "r"});
    assert_eq!(Operator::refusal(operator.post("resize", &nothing)), (400, "bad_input".to_owned()));
}

#[test]
fn acts_of_the_console_are_in_the_audit_log_with_their_reasons() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let audit = ["--audit", path.to_str().expect("text")];
    let server = Server::start(&[&HTTP[..], &audit].concat());
    let operator = Operator::of(&server);
    let (mut holder, mut waiter) = holder_and_waiter(&server, b"key");
    let id = operator.ok("lock?namespace=default&key=key")["holders"][0]["id"].clone();
    let release = json!({"namespace": "default", "id": id, "reason": "stuck since noon"});
    let (status, released) = operator.post("force-release", &release);
    assert_eq!((status, &released["key"], &released["was_waiting"]), (200, &json!("key"), &json!(false)));
    assert!(matches!(holder.receive().event(), Event::Revoked { reason: RevokeReason::Forced, .. }));
    waiter.receive().granted();
    let mut freeze = json!({"namespace": "default", "prefix": "k", "reason": "deployment"});
    assert_eq!(operator.post("freeze", &freeze), (200, json!({"changed": true, "frozen_count": 1})));
    assert_eq!(
        operator.ok("frozen?namespace=default"),
        json!({"prefixes": [{"prefix": "k", "prefix_hex": "6b"}]})
    );
    assert_eq!(operator.ok("lock?namespace=default&key=key")["frozen"], true);
    assert_eq!(holder.ask(acquire(b"k2", 0)).error().code, ErrorCode::Frozen);
    freeze["thaw"] = true.into();
    freeze["reason"] = "over".into();
    assert_eq!(operator.post("freeze", &freeze), (200, json!({"changed": true, "frozen_count": 0})));
    let reasons = wait_for("the lines", || {
        let reasons = audited(&path);
        (reasons.len() >= 3).then_some(reasons)
    });
    let expected = [("force-release", "stuck since noon"), ("freeze", "deployment"), ("thaw", "over")];
    assert_eq!(reasons, expected.map(|(act, reason)| (act.to_owned(), reason.to_owned())));
}

/// Act and reason of each line that has a reason.
fn audited(path: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter_map(|line| Some((line["act"].as_str()?.to_owned(), line["reason"].as_str()?.to_owned())))
        .collect()
}

#[test]
fn wrong_requests_are_refused_and_change_nothing() {
    let server = Server::start(&HTTP);
    let operator = Operator::of(&server);
    let _client = server.client("client");
    for path in [
        "locks?namespace=",
        "locks",
        "locks?namespace=default&cursor=x",
        "locks?namespace=default&count=-1",
        "namespaces?cursor=x",
        "lock?namespace=default",
        "lock?namespace=default&key_hex=0",
        "lock?namespace=default&key_hex=zz",
        "lock?namespace=default&key=%ff",
    ] {
        assert_eq!(Operator::refusal(operator.get(path)), (400, "bad_input".to_owned()), "{path}");
    }
    for path in
        ["locks?namespace=nowhere", "lock?namespace=nowhere&key=a", "frozen?namespace=nowhere", "nothing"]
    {
        assert_eq!(Operator::refusal(operator.get(path)), (404, "not_found".to_owned()), "{path}");
    }
    let long = "r".repeat(257);
    for (path, body) in [
        ("freeze", json!({"namespace": "default", "prefix": "k"})),
        ("freeze", json!({"namespace": "default", "prefix": "k", "reason": " "})),
        ("freeze", json!({"namespace": "default", "prefix": "k", "reason": long})),
        ("freeze", json!({"namespace": "default", "prefix": "k", "reason": "r", "unknown": 1})),
        ("freeze", json!({"namespace": "default", "prefix": "k".repeat(1_025), "reason": "r"})),
        ("force-release", json!({"namespace": "default", "id": "x", "reason": "r"})),
        ("resize", json!({"namespace": "default", "key_hex": "00", "capacity": 1, "reason": "r"})),
        ("freeze", json!([])),
        ("freeze", json!(["default", "k", null, false, "r"])),
        ("freeze", json!({"namespace": "default", "prefix_hex": "6", "reason": "r"})),
    ] {
        assert_eq!(
            Operator::refusal(operator.post(path, &body)),
            (400, "bad_input".to_owned()),
            "{path} {body}"
        );
    }
    // A form of another page cannot set this header.
    let body = json!({"namespace": "default", "prefix": "k", "reason": "r"}).to_string();
    let answer = Operator::answer(operator.send("POST", "freeze", "", &body));
    assert_eq!(Operator::refusal(answer), (400, "bad_input".to_owned()));
    assert_eq!(operator.ok("frozen?namespace=default"), json!({"prefixes": []}));
    let answer = Operator::answer(operator.send("DELETE", "locks", "", ""));
    assert_eq!(Operator::refusal(answer), (405, "bad_input".to_owned()));
    let names = operator.ok("namespaces");
    assert_eq!(
        names["namespaces"].as_array().map(Vec::len),
        Some(1),
        "no question makes a namespace: {names}"
    );
}

#[test]
fn a_long_name_of_a_member_is_not_repeated() {
    let server = Server::start(&HTTP);
    let name = "n".repeat(10_000);
    let (status, problem) = Operator::of(&server).post("freeze", &json!({ name: 1 }));
    let message = problem["error"]["message"].as_str().expect("a message");
    assert!(status == 400 && message.starts_with("body: unknown field `nnn"), "{message}");
    assert!(message.chars().count() < 300, "{message}");
}

#[test]
fn unknown_paths_and_methods_below_the_page_are_refused_as_json() {
    let server = Server::start(&HTTP);
    let operator = Operator::of(&server);
    for (method, path, status, code) in [
        ("GET", "/console/nothing.js", 404, "not_found"),
        ("POST", "/console/nothing.js", 404, "not_found"),
        ("POST", "/console/console.js", 405, "bad_input"),
        ("POST", "/console", 405, "bad_input"),
    ] {
        let answer = Operator::answer(operator.send_to(method, path, "", ""));
        assert_eq!(Operator::refusal(answer), (status, code.to_owned()), "{method} {path}");
    }
}

#[test]
fn a_prefix_that_is_not_text_is_frozen_and_thawed_by_its_bytes() {
    let server = Server::start(&HTTP);
    let operator = Operator::of(&server);
    let mut client = server.client("client");
    let mut freeze = json!({"namespace": "default", "prefix_hex": "ff", "reason": "r"});
    assert_eq!(operator.post("freeze", &freeze), (200, json!({"changed": true, "frozen_count": 1})));
    assert_eq!(client.ask(acquire(b"\xff1", 0)).error().code, ErrorCode::Frozen);
    let prefixes = json!({"prefixes": [{"prefix": "\u{fffd}", "prefix_hex": "ff"}]});
    assert_eq!(operator.ok("frozen?namespace=default"), prefixes);
    freeze["thaw"] = true.into();
    assert_eq!(operator.post("freeze", &freeze), (200, json!({"changed": true, "frozen_count": 0})));
    client.ask(acquire(b"\xff1", 0)).granted();
}

#[test]
fn a_namespace_that_is_not_text_is_listed() {
    let server = Server::start(&HTTP);
    let mut client = server.stranger();
    client.open(Hello { namespace: b"a\xff", ..default_hello() });
    let _other = server.client("other");
    let listed = Operator::of(&server).ok("namespaces");
    let names = listed["namespaces"].as_array().expect("namespaces").iter();
    let mut names: Vec<_> = names.map(|row| (row["name"].clone(), row["is_text"].clone())).collect();
    names.sort_by_key(|(name, _)| name.to_string());
    assert_eq!(names, [(json!("a\u{fffd}"), json!(false)), (json!("default"), json!(true))]);
}

#[test]
fn namespaces_are_listed_behind_thousands_that_the_operator_may_not_see() {
    let office = Office::new(
        "[[rule]]\nidentity = \"worker\"\nallow = [\"acquire\"]\n\
         [[rule]]\nidentity = \"operator\"\nnamespace = \"last\"\nallow = [\"list\"]\n",
    );
    let (worker, token) = (office.token("worker"), office.token("operator"));
    let server = office.server(&HTTP);
    let open = |namespace: &str| {
        let namespace = namespace.as_bytes();
        server.stranger().open(Hello { namespace, ..hello_with(NamespaceKind::Flat, &worker) });
    };
    (0..2_100).for_each(|number| open(&format!("number {number}")));
    open("last");
    let operator = Operator { server: &server, token: Some(&token) };
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = operator.ok(&format!("namespaces?cursor={cursor}"));
        rows.extend(page["namespaces"].as_array().expect("namespaces").clone());
        match page["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    let rights =
        json!({"list": true, "inspect": false, "force_release": false, "freeze": false, "resize": false});
    assert!(rows.len() == 1 && rows[0]["name"] == "last" && rows[0]["may"] == rights, "{rows:?}");
}

#[test]
fn a_limited_number_of_clients_gets_events() {
    let server = Server::start(&[&HTTP[..], &["--limits-connections", "1000"]].concat());
    let operator = Operator::of(&server);
    let first_line = |socket: &TcpStream| {
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).expect("a line");
        line
    };
    let mut viewers = Vec::new();
    for _ in 0..256 {
        let viewer = operator.send("GET", "live", "", "");
        assert!(first_line(&viewer).contains(" 200 "), "{} viewers", viewers.len());
        viewers.push(viewer);
    }
    assert_eq!(Operator::refusal(operator.get("live")), (429, "overloaded".to_owned()));
    viewers.pop();
    wait_for("the place of the client that left", || {
        first_line(&operator.send("GET", "live", "", "")).contains(" 200 ").then_some(())
    });
}

#[test]
fn a_long_body_is_refused() {
    let server = Server::start(&HTTP);
    let body = "x".repeat(20 * 1024);
    let headers = "X-Waymaker-Console: 1\r\n";
    let mut socket = Operator::of(&server).send("POST", "freeze", headers, &body);
    let mut answer = String::new();
    let _ = socket.read_to_string(&mut answer);
    assert_eq!(parts(&answer).0, 413, "{answer}");
}

#[test]
fn a_body_that_never_ends_is_refused_in_time() {
    let server = Server::start(&HTTP);
    let mut socket = TcpStream::connect(server.address("http")).expect("the server accepts");
    socket.set_read_timeout(Some(WATCHDOG)).expect("a timeout");
    let head =
        "POST /console/api/freeze HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 99\r\n";
    socket.write_all(format!("{head}X-Waymaker-Console: 1\r\n\r\n{{").as_bytes()).expect("it is read");
    assert_eq!(Operator::refusal(Operator::answer(socket)), (408, "bad_input".to_owned()));
}

#[test]
fn the_events_show_locks_waits_and_contended_keys() {
    let server = Server::start(&HTTP);
    let operator = Operator::of(&server);
    let _clients = holder_and_waiter(&server, b"key");
    let contended = operator.live_until(|event| {
        let row = event["contention"].get(0)?.clone();
        (row["waiting"] == 1 && event["held"] == 1 && event["waiting"] == 1).then_some(row)
    });
    assert_eq!((&contended["namespace"], &contended["key"]), (&json!("default"), &json!("key")));
    assert!(contended["waits_per_s"].as_f64().expect("a number") > 0.0, "{contended}");
    let event = operator.live_until(|event| Some(event.clone()));
    assert_eq!((&event["ready"], &event["reasons"]), (&json!(true), &json!([])));
    assert_eq!(event["acquires"]["granted"], 1);
    let (bounds, wait) = (&event["bounds_ns"], &event["durations"]["wait"]["counts"]);
    assert_eq!(bounds.as_array().map(Vec::len).map(|len| len + 1), wait.as_array().map(Vec::len));
}

/// The stream of events must not keep a server from its end.
#[test]
fn a_stopping_server_ends_the_events() {
    let mut server = Server::start(&HTTP);
    let mut lines = BufReader::new(Operator::of(&server).send("GET", "live", "", "")).lines();
    while !lines.next().expect("an event").expect("a line").starts_with("data: ") {}
    server.signal("TERM");
    assert!(lines.map_while(Result::ok).count() < 20, "the events end");
    server.wait();
}

#[test]
fn each_request_of_the_console_needs_its_right() {
    let rule = |right: &str| format!("[[rule]]\nidentity = \"{right}\"\nallow = [\"{right}\"]\n");
    let rights = ["list", "inspect", "force_release", "freeze", "resize", "metrics", "acquire"];
    let office = Office::new(&rights.map(rule).concat());
    let tokens = rights.map(|right| (right, office.token(right)));
    let server = office.server(&HTTP);
    let mut client = server.client_with(NamespaceKind::Flat, &tokens[6].1);
    client.ask(acquire(b"key", 0)).granted();
    let namespace = NamespaceKind::Flat.name();
    let body = |more: Value| {
        let mut body = json!({"namespace": namespace, "reason": "r"});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    for (right, token) in &tokens {
        let operator = Operator { server: &server, token: Some(token) };
        let is_denied = |(status, _): (u16, Value)| status == 403;
        for (needed, denied) in [
            ("list", is_denied(operator.get(&format!("locks?namespace={namespace}")))),
            ("list", is_denied(operator.get(&format!("waiting?namespace={namespace}")))),
            ("list", is_denied(operator.get(&format!("frozen?namespace={namespace}")))),
            ("list", is_denied(operator.get("locks?namespace=nowhere"))),
            ("inspect", is_denied(operator.get(&format!("lock?namespace={namespace}&key=key")))),
            (
                "force_release",
                is_denied(operator.post("force-release", &body(json!({"id": "0".repeat(32)})))),
            ),
            ("freeze", is_denied(operator.post("freeze", &body(json!({"prefix": "p"}))))),
            ("resize", is_denied(operator.post("resize", &body(json!({"key_hex": "00", "capacity": 1}))))),
        ] {
            assert_eq!(denied, needed != *right, "{needed} with {right}");
        }
        let live = operator.send("GET", "live", "", "");
        let mut line = String::new();
        BufReader::new(live).read_line(&mut line).expect("a line");
        assert_eq!(line.contains(" 200 "), *right == "metrics", "{right}: {line}");
    }
    let stranger = Operator { server: &server, token: Some("nonsense") };
    assert_eq!(Operator::refusal(stranger.get("namespaces")), (401, "unauthenticated".to_owned()));
}

#[test]
fn an_operator_without_the_right_to_inspect_a_pool_is_not_offered_to_resize_it() {
    let office = Office::new(
        "[[rule]]\nidentity = \"worker\"\nallow = [\"acquire\"]\n\
         [[rule]]\nidentity = \"resizer\"\nallow = [\"list\", \"resize\"]\n",
    );
    let (worker, resizer) = (office.token("worker"), office.token("resizer"));
    let server = office.server(&HTTP);
    let mut client = server.client_with(NamespaceKind::Pool, &worker);
    let permits = AcquirePermits { name: b"pool", capacity: 2, permits: 1, ..AcquirePermits::default() };
    client.ask(Request::AcquirePermits(permits)).granted();
    let rows = Operator { server: &server, token: Some(&resizer) }.ok("namespaces");
    let may = &rows["namespaces"][0]["may"];
    assert_eq!((&may["list"], &may["resize"]), (&json!(true), &json!(false)), "{rows}");
}

#[test]
fn frozen_prefixes_are_shown_with_the_right_to_list_them() {
    let office = Office::new(
        "[[rule]]\nidentity = \"worker\"\nallow = [\"acquire\", \"freeze\"]\n\
         [[rule]]\nidentity = \"watcher\"\nprefix = \"shown\"\nallow = [\"list\"]\n",
    );
    let (worker, watcher) = (office.token("worker"), office.token("watcher"));
    let server = office.server(&HTTP);
    let namespace = NamespaceKind::Flat.name();
    let _client = server.client_with(NamespaceKind::Flat, &worker);
    for prefix in ["hidden/", "shown/"] {
        let body = json!({"namespace": namespace, "reason": "r", "prefix": prefix});
        let (status, answer) = Operator { server: &server, token: Some(&worker) }.post("freeze", &body);
        assert_eq!(status, 200, "{answer}");
    }
    let frozen =
        Operator { server: &server, token: Some(&watcher) }.ok(&format!("frozen?namespace={namespace}"));
    let prefixes = frozen["prefixes"].as_array().expect("an array");
    assert!(prefixes.len() == 1 && prefixes[0]["prefix"] == "shown/", "{frozen}");
}

/// Asserts that the server ends a connection with events before the watchdog would end the test.
fn assert_events_end(lines: impl Iterator<Item = std::io::Result<String>>) {
    let begin = std::time::Instant::now();
    let is_late = |_: String| begin.elapsed() > WATCHDOG;
    assert!(!lines.map_while(Result::ok).any(is_late), "the events end");
}

#[test]
fn a_revoked_token_ends_the_events_and_contended_keys_need_the_right_to_list() {
    let office = Office::new(
        "[[rule]]\nidentity = \"worker\"\nallow = [\"acquire\"]\n\
         [[rule]]\nidentity = \"watcher\"\nallow = [\"metrics\"]\n\
         [[rule]]\nidentity = \"watcher\"\nprefix = \"shown\"\nallow = [\"list\"]\n",
    );
    let (worker, watcher) = (office.token("worker"), office.token("watcher"));
    let server = office.server(&HTTP);
    let clients: Vec<_> = [&b"hidden"[..], b"shown"]
        .into_iter()
        .map(|key| {
            let [mut holder, mut waiter] =
                [(), ()].map(|()| server.client_with(NamespaceKind::Flat, &worker));
            // Of several waits in one millisecond, only the first counts for its own key.
            std::thread::sleep(std::time::Duration::from_millis(20));
            holder.ask(acquire(key, 0)).granted();
            waiter.wait_for(key, WAIT_FOREVER_MS);
            (holder, waiter)
        })
        .collect();
    let operator = Operator { server: &server, token: Some(&watcher) };
    let keys = operator.live_until(|event| {
        let rows = event["contention"].as_array()?.clone();
        (event["waiting"] == 2 && !rows.is_empty()).then_some(rows)
    });
    let keys: Vec<_> = keys.iter().map(|row| row["key"].clone()).collect();
    assert_eq!(keys, [json!("shown")]);
    let lines = BufReader::new(operator.send("GET", "live", "", "")).lines();
    office.revoke(&watcher);
    assert_events_end(lines);
    drop(clients);
}

#[test]
fn the_first_rules_end_the_events_of_clients_without_an_identity() {
    let office = Office::new("");
    let rules = office.write("rules.toml", "");
    let server = Server::start(&[&HTTP[..], &["--access", rules.to_str().expect("a path of text")]].concat());
    let mut lines = BufReader::new(Operator::of(&server).send("GET", "live", "", "")).lines();
    assert!(lines.any(|line| line.expect("a line in time").starts_with("data: ")), "there are events");
    std::fs::write(&rules, "[[rule]]\nidentity = \"alice\"\nallow = [\"all\"]\n").expect("a file");
    server.signal("HUP");
    assert_events_end(lines);
}

#[test]
fn the_page_loads_only_files_of_the_server() {
    let server = Server::start(&HTTP);
    let (status, head, page) = {
        let answer = http(&server, "http", "GET /console");
        let (status, head, body) = parts(&answer);
        (status, head, body.to_owned())
    };
    assert_eq!(status, 200);
    assert!(head.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{head}");
    let mut open = files_of(&page);
    let mut seen = Vec::new();
    while let Some(path) = open.pop() {
        if seen.contains(&path) {
            continue;
        }
        let answer = http(&server, "http", &format!("GET {path}"));
        let (status, head, text) = parts(&answer);
        assert_eq!(status, 200, "{path}");
        let media_type = if path.ends_with(".css") { "text/css" } else { "text/javascript" };
        assert!(head.contains(&format!("content-type: {media_type}; charset=utf-8")), "{path}: {head}");
        assert!(!text.contains("http://") || text.contains("www.w3.org"), "{path} names another server");
        open.extend(imports_of(text));
        seen.push(path);
    }
    assert!(seen.len() > 3, "{seen:?}");
}

/// The files that a page loads.
fn files_of(page: &str) -> Vec<String> {
    let quoted = page.split('"').filter(|text| text.starts_with("/console/"));
    quoted.map(str::to_owned).collect()
}

/// The modules that a script imports.
fn imports_of(script: &str) -> Vec<String> {
    let modules = script.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next());
    modules.map(|module| format!("/console/{module}")).collect()
}
