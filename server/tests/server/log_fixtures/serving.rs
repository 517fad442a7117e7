//! A real server starts on a copy of each fixture and goes on where the server ended that had left it.

use crate::fixture::{Fact, Fixture, id_of};
use crate::harness::{Client, Received, Server, default_hello};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};
use waymaker_protocol::{
    Acquire, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, DescribePool, ErrorCode, Hello, Holds,
    Items, List, LockId, LockState, LookUp, NamespaceKind, PathItem, PathKey, PoolOrder, Register, Release,
    Request, Response, SessionId, SessionRequest, Status,
};

/// Lazy leases of the fixtures end at an instant of wall time, in November 2036; this is the first day of that month.
const LAZY_END: Duration = Duration::from_secs(2_109_110_400);

/// A server on a copy of a fixture, with a client for each namespace in it.
struct Serving<'a> {
    server: &'a Server,
    fixture: &'a Fixture,
    clients: BTreeMap<Vec<u8>, (NamespaceKind, Client<TcpStream>)>,
}

fn lock_id(fact: &Fact) -> LockId {
    let (place, secret) = id_of(fact.text("id"));
    LockId { place, secret }
}

fn local() -> AcquireOptions<'static> {
    AcquireOptions { scope: Some(2), ..AcquireOptions::default() }
}

fn order(fact: &Fact) -> PoolOrder {
    if fact.bytes("order") == b"timestamp" { PoolOrder::Timestamp } else { PoolOrder::Arrival }
}

impl<'a> Serving<'a> {
    fn new(server: &'a Server, fixture: &'a Fixture) -> Self {
        let client = |fact: &Fact| {
            let (name, kind) = (fact.bytes("namespace"), NamespaceKind::ALL[fact.u64("kind") as usize]);
            let mut client = server.stranger();
            client.open(Hello { kind, namespace: name, owner: b"a later client", ..default_hello() });
            (name.to_vec(), (kind, client))
        };
        Self { server, fixture, clients: fixture.about("namespace").map(client).collect() }
    }

    fn ask(&mut self, namespace: &[u8], request: Request<'_>) -> Received {
        self.clients.get_mut(namespace).expect("a namespace of the fixture").1.ask(request)
    }

    fn kind(&self, namespace: &[u8]) -> NamespaceKind {
        self.clients[namespace].0
    }

    /// The holds, without those whose time is over by the wall clock.
    fn holds(&self) -> Vec<&'a Fact> {
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
        let is_over = |hold: &Fact| hold.get("lease") == Some(b"lazy") && since_1970 > LAZY_END;
        self.fixture.about("hold").filter(|hold| !is_over(hold)).collect()
    }

    /// Every hold is found by its id, with its fence and its whole lease.
    fn finds_every_hold(&mut self) {
        for hold in self.holds() {
            let status = Request::Status(Status { id: lock_id(hold), key: None });
            let answer = self.ask(hold.bytes("namespace"), status);
            let Response::Status(status) = answer.response() else { panic!("{}: {answer:?}", hold.line()) };
            assert_eq!((status.state, status.fence), (LockState::Held, hold.u64("fence")), "{}", hold.line());
            let only_reads = hold.get("paths").is_some_and(|paths| !paths.contains(&b'+'));
            assert_eq!(status.shared, only_reads || hold.get("mode") == Some(b"shared"), "{}", hold.line());
            assert_eq!(status.session_lease, hold.get("lease") == Some(b"session"), "{}", hold.line());
            if let Some(lease_ms) =
                hold.text("lease").parse::<u32>().ok().filter(|lease_ms| *lease_ms > 60_000)
            {
                let left = status.remaining_ms;
                assert!((lease_ms / 2..=lease_ms).contains(&left), "{left} ms are left: {}", hold.line());
            }
        }
    }

    /// The lists of all namespaces have those holds and no others, each as it was described.
    fn lists_nothing_else(&mut self) {
        for name in self.clients.keys().cloned().collect::<Vec<_>>() {
            if self.kind(&name) == NamespaceKind::Limit {
                continue;
            }
            let mut listed = BTreeMap::new();
            let mut cursor = 0;
            loop {
                let answer = self
                    .ask(&name, Request::List(List { cursor, count_max: 0, prefix: b"", ..List::default() }));
                let Response::Listed(page) = answer.response() else { panic!("{:?}", answer.response()) };
                for lock in page.locks {
                    let described = [lock.owner, lock.request_id, lock.metadata].map(<[u8]>::to_vec);
                    listed.insert((lock.id.place, lock.id.secret), (lock.fence, lock.priority, described));
                }
                cursor = page.next;
                if cursor == 0 {
                    break;
                }
            }
            let expected =
                self.holds().into_iter().filter(|hold| hold.bytes("namespace") == name).map(|hold| {
                    let described = ["owner", "request_id", "metadata"];
                    let described = described.map(|field| hold.get(field).unwrap_or_default().to_vec());
                    let priority = hold.get("priority").map_or(0, |_| hold.u64("priority") as u32);
                    (id_of(hold.text("id")), (hold.u64("fence"), priority, described))
                });
            assert_eq!(listed, expected.collect(), "{}", name.escape_ascii());
        }
    }

    /// Every entry can be looked up, with the value and the type that its owner gave.
    fn looks_up_every_entry(&mut self) {
        for hold in self.holds().into_iter().filter(|hold| hold.get("type").is_some()) {
            let look_up = Request::LookUp(LookUp { key: hold.bytes("key") });
            let answer = self.ask(hold.bytes("namespace"), look_up);
            let Response::LookedUp(found) = answer.response() else { panic!("{:?}", answer.response()) };
            let entry = found.entry;
            assert!(found.found && entry.remaining_ms > 0, "{}", hold.line());
            let described = [entry.owner, entry.value, entry.type_name];
            assert_eq!(
                described,
                ["owner", "metadata", "type"].map(|field| hold.bytes(field)),
                "{}",
                hold.line()
            );
        }
    }

    /// Every other claim on a held key, path, pool or entry is refused.
    fn refuses_others(&mut self) {
        for hold in self.holds() {
            let answer = match self.kind(hold.bytes("namespace")) {
                NamespaceKind::Tree => {
                    let path = hold.text("paths").split(',').next().expect("a path");
                    self.take_path(hold.bytes("namespace"), path)
                }
                NamespaceKind::Pool => {
                    let of_pool =
                        |other: &&Fact| other.get("permits").is_some() && other.get("key") == hold.get("key");
                    let held: u64 =
                        self.holds().into_iter().filter(of_pool).map(|hold| hold.u64("permits")).sum();
                    self.take_permits(hold, hold.u64("capacity") - held + 1)
                }
                NamespaceKind::Registry | NamespaceKind::Lazy => self.register(hold),
                _ => self.take_key(hold.bytes("namespace"), hold.bytes("key"), true),
            };
            assert_eq!(answer.error().code, ErrorCode::Busy, "{}", hold.line());
        }
    }

    fn take_key(&mut self, namespace: &[u8], key: &[u8], is_local: bool) -> Received {
        let options = if is_local { local() } else { AcquireOptions::default() };
        self.ask(
            namespace,
            Request::Acquire(Acquire {
                key,
                terms: AcquireTerms { options, ..AcquireTerms::default() },
                ..Acquire::default()
            }),
        )
    }

    /// Asks for a path to write it.
    fn take_path(&mut self, namespace: &[u8], path: &str) -> Received {
        let mut bytes = Vec::new();
        PathKey::append(path.trim_start_matches('+').split('/'), &mut bytes).expect("a path");
        let item = PathItem { write: true, path: PathKey::new(&bytes).expect("a path key") };
        let mut buffer = Vec::new();
        let items = Items::new([item], &mut buffer).expect("one path");
        self.ask(
            namespace,
            Request::AcquireSet(AcquireSet {
                items,
                terms: AcquireTerms { options: local(), ..AcquireTerms::default() },
            }),
        )
    }

    /// Asks for permits of the pool that a fact is about, with the capacity and the order that its holders gave.
    fn take_permits(&mut self, fact: &Fact, permits: u64) -> Received {
        let of_pool = |hold: &&Fact| hold.get("permits").is_some() && hold.get("key") == fact.get("key");
        let held = self.fixture.about("hold").find(of_pool).expect("a hold of the pool");
        let acquire = AcquirePermits {
            name: fact.bytes("key"),
            permits,
            capacity: held.u64("capacity"),
            order: order(held),
            terms: AcquireTerms { options: local(), ..AcquireTerms::default() },
            ..AcquirePermits::default()
        };
        self.ask(fact.bytes("namespace"), Request::AcquirePermits(acquire))
    }

    /// Another owner registers the key that a fact is about.
    fn register(&mut self, fact: &Fact) -> Received {
        let register =
            Register { key: fact.bytes("key"), owner: b"another", lease_ms: 60_000, ..Register::default() };
        self.ask(fact.bytes("namespace"), Request::Register(register))
    }

    /// Settings of operators are kept.
    fn keeps_the_settings_of_operators(&mut self) {
        for fact in self.fixture.about("frozen") {
            let key = [fact.bytes("prefix"), b"key"].concat();
            let answer = self.take_key(fact.bytes("namespace"), &key, false);
            assert_eq!(answer.error().code, ErrorCode::Frozen, "{}", fact.line());
        }
        for fact in self.fixture.about("pool") {
            let describe = Request::DescribePool(DescribePool { name: fact.bytes("key") });
            let answer = self.ask(fact.bytes("namespace"), describe);
            let Response::PoolDescribed(pool) = answer.response() else { panic!("{:?}", answer.response()) };
            assert_eq!((pool.capacity, pool.order, pool.is_set), (fact.u64("capacity"), order(fact), true));
        }
    }

    /// Sessions are resumed lane by lane, and a request that is repeated gets its first answer. The connections stay open.
    fn resumes_sessions(&mut self) -> Vec<Client<TcpStream>> {
        let mut lanes: BTreeMap<(&str, u64), Vec<&Fact>> = BTreeMap::new();
        for hold in self.holds().into_iter().filter(|hold| hold.get("session").is_some()) {
            lanes.entry((hold.text("session"), hold.u64("lane"))).or_default().push(hold);
        }
        assert!(!lanes.is_empty(), "the fixture has a session");
        let resume = |((session, lane), holds): ((&str, u64), Vec<&Fact>)| {
            let (place, secret) = id_of(session);
            let session = SessionRequest::Resume { id: SessionId { place, secret }, lane: lane as u16 };
            let (namespace, mut client) = (holds[0].bytes("namespace"), self.server.stranger());
            let kind = self.kind(namespace);
            let welcome = client.open(Hello { kind, namespace, session, ..default_hello() });
            assert!(welcome.resumed);
            assert_eq!(u64::from(welcome.session_lease_ms), holds[0].u64("session_lease"));
            let found = holds_of(&mut client);
            assert_eq!(found, holds.iter().map(|hold| id_of(hold.text("id"))).collect());
            for hold in holds.into_iter().filter(|hold| hold.get("key").is_some()) {
                let session_lease = hold.bytes("lease") == b"session";
                let lease_ms = if session_lease { 0 } else { hold.u64("lease") as u32 };
                let acquire = Acquire {
                    key: hold.bytes("key"),
                    terms: AcquireTerms {
                        session_lease,
                        lease_ms,
                        options: local(),
                        ..AcquireTerms::default()
                    },
                    ..Acquire::default()
                };
                client.send_numbered(hold.u64("number") as u32, Request::Acquire(acquire));
                let granted = client.receive().granted();
                assert_eq!(
                    (granted.id, granted.fence),
                    (lock_id(hold), hold.u64("fence")),
                    "{}",
                    hold.line()
                );
            }
            client
        };
        lanes.into_iter().map(resume).collect()
    }

    /// Releases every hold. Each key goes on with the next fence then. Returns namespace, id and fence of the new holds.
    fn goes_on_with_the_next_fences(&mut self) -> Vec<(Vec<u8>, LockId, u64)> {
        for hold in self.holds() {
            let answer = self.ask(
                hold.bytes("namespace"),
                Request::Release(Release { id: lock_id(hold), key: None, own: false }),
            );
            assert!(matches!(answer.response(), Response::Released(_)), "{}: {answer:?}", hold.line());
        }
        let mut held = Vec::new();
        for counter in self.fixture.about("counter") {
            let namespace = counter.bytes("namespace");
            let is_local = counter.bytes("scope") == b"local";
            let answer = match self.kind(namespace) {
                NamespaceKind::Tree => self.take_path(namespace, "next"),
                NamespaceKind::Pool => self.take_permits(counter, 1),
                NamespaceKind::Registry | NamespaceKind::Lazy => self.register(counter),
                _ => self.take_key(namespace, counter.bytes("key"), is_local),
            };
            let (id, fence) = match answer.response() {
                Response::Granted(granted) => (granted.id, granted.fence),
                Response::Registered(registered) => (registered.id, registered.fence),
                other => panic!("{}: {other:?}", counter.line()),
            };
            assert_eq!(fence, counter.u64("fence") + 1, "{}", counter.line());
            if is_local {
                held.push((namespace.to_vec(), id, fence));
            }
        }
        let floor = self.fixture.about("floor").next().expect("a floor").u64("fence");
        // The torn grant of one fixture was never acknowledged.
        for key in [&b"torn"[..], b"never asked for before"] {
            let fence = self.take_key(b"flat", key, true).granted().fence;
            assert_eq!(fence, floor + 1, "{}", key.escape_ascii());
        }
        held
    }
}

/// The ids of all holds of a lane.
fn holds_of(client: &mut Client<TcpStream>) -> BTreeSet<(u64, u64)> {
    let (mut found, mut cursor) = (BTreeSet::new(), 0);
    // A number that the session has seen gets the answer of its first request.
    for number in 1_000.. {
        client.send_numbered(number, Request::Holds(Holds { cursor, count_max: 0 }));
        let answer = client.receive();
        let Response::Listed(page) = answer.response() else { panic!("{:?}", answer.response()) };
        found.extend(page.locks.iter().map(|lock| (lock.id.place, lock.id.secret)));
        cursor = page.next;
        if cursor == 0 {
            break;
        }
    }
    found
}

fn start(directory: &std::path::Path, workers: &str) -> Server {
    let path = directory.to_str().expect("text");
    Server::start(&["--workers", workers, "--data-dir", path, "--log-segment-len", "65536"])
}

fn serve(fixture: &Fixture, workers: &str) {
    println!("{} with {workers} workers", fixture.name);
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("data");
    fixture.write_to(&directory);
    let server = start(&directory, workers);
    let mut serving = Serving::new(&server, fixture);
    serving.finds_every_hold();
    serving.lists_nothing_else();
    serving.looks_up_every_entry();
    serving.refuses_others();
    serving.keeps_the_settings_of_operators();
    let sessions = serving.resumes_sessions();
    let held = serving.goes_on_with_the_next_fences();
    drop((serving, sessions));
    server.signal("KILL");
    drop(server);
    // Its own log goes on behind the older one.
    let server = start(&directory, workers);
    let mut serving = Serving::new(&server, fixture);
    for (namespace, id, fence) in held {
        let answer = serving.ask(&namespace, Request::Status(Status { id, key: None }));
        let Response::Status(status) = answer.response() else { panic!("{:?}", answer.response()) };
        assert_eq!((status.state, status.fence), (LockState::Held, fence));
    }
}

/// Serves every fixture of every version.
fn serve_all(workers: &str) {
    Fixture::all().for_each(|fixture| serve(&fixture, workers));
}

#[test]
fn a_server_with_one_shard_continues_the_log_of_every_older_version() {
    serve_all("1");
}

#[test]
fn a_server_with_equally_many_shards_continues_the_log_of_every_older_version() {
    serve_all("2");
}

#[test]
fn a_server_with_more_shards_continues_the_log_of_every_older_version() {
    serve_all("3");
}
