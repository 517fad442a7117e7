//! The requests of the clients of a server that leaves a fixture behind, of every kind that the log records.

use super::promised::{Durability, Promised};
use crate::fixture::{Fact, id_text, mode_name, order_name};
use crate::harness::{Client, Server, WATCHDOG, hello_of};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use waymaker_protocol::limits::LEASE_NONE_MS;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Bucket, Extend, Freeze,
    Hello, Items, KeyItem, LockId, NamespaceKind, PathItem, PathKey, PoolOrder, Register, Request, Response,
    SessionRequest, SetCapacity, Throttle, Welcome,
};

/// The longest lease of a hold or a session: 24 h. A fixture comes from another boot, so each start grants it anew.
const LEASE_MS: u32 = 86_400_000;
/// The longest lease of an entry: 10 years.
const REGISTRY_LEASE_MS: i64 = 10 * 365 * 86_400_000;
/// A lease of an entry whose length fits the field of the log.
const SHORTER_REGISTRY_LEASE_MS: u32 = 40 * 86_400_000;

/// More than fit into two of the smallest segments, each a block long.
const FRAMES_TO_FILL_TWO_SEGMENTS: usize = 40;

/// The owner of the connections.
const OWNER: &str = "first server";

/// Clients of one server, and the promises to them.
pub(super) struct Story<'a> {
    server: &'a Server,
    promised: Promised,
    keys: Client<TcpStream>,
    /// Released after the snapshot.
    ended_later: Option<LockId>,
    /// Extended after the snapshot.
    extended_later: Option<LockId>,
    /// Connections on which holds depend.
    open: Vec<Client<TcpStream>>,
}

fn local() -> AcquireOptions<'static> {
    AcquireOptions { scope: Some(2), ..AcquireOptions::default() }
}

fn connect(server: &Server, promised: &mut Promised, hello: Hello<'_>) -> (Client<TcpStream>, Welcome) {
    promised.namespace(hello.kind);
    let mut client = server.stranger();
    let welcome = client.open(hello);
    (client, welcome)
}

impl<'a> Story<'a> {
    /// Makes requests of every kind.
    pub(super) fn begin(server: &'a Server) -> Self {
        let mut promised = Promised::default();
        let (keys, _) = connect(server, &mut promised, hello_of(NamespaceKind::Flat, OWNER));
        let (ended_later, extended_later) = (None, None);
        let mut story = Self { server, promised, keys, ended_later, extended_later, open: Vec::new() };
        story.keys();
        story.several_keys();
        story.sessions();
        story.trees();
        story.pools();
        story.registries();
        story.operators();
        story.limits();
        story.settle("last");
        story
    }

    /// Returns the promises, and the connections. These must stay open until the server has ended: a lost connection may end holds.
    pub(super) fn end(self) -> (Promised, Vec<Client<TcpStream>>) {
        let Self { promised, keys, mut open, .. } = self;
        open.push(keys);
        (promised, open)
    }

    /// Acquires a key of scope local. When it is durable, everything before it is.
    fn settle(&mut self, key: &str) {
        self.acquire(Acquire {
            key: key.as_bytes(),
            terms: AcquireTerms { lease_ms: LEASE_MS, options: local(), ..AcquireTerms::default() },
            ..Acquire::default()
        });
    }

    /// Acquires a free key and notes the hold.
    fn acquire(&mut self, acquire: Acquire<'_>) -> LockId {
        let granted = self.keys.ask(Request::Acquire(acquire)).granted();
        self.note_key(&acquire, granted.id, granted.fence, Fact::new("hold"));
        granted.id
    }

    fn note_key(&mut self, acquire: &Acquire<'_>, id: LockId, fence: u64, fact: Fact) {
        let durability =
            if acquire.terms.options.scope == Some(2) { Durability::Local } else { Durability::Ephemeral };
        let fact =
            described(fact, &acquire.terms.options, acquire.terms.session_lease, acquire.terms.lease_ms);
        let fact = fact.with("key", acquire.key).with("mode", mode_name(acquire.shared));
        self.promised.counted(NamespaceKind::Flat, acquire.key, fence, durability);
        self.promised.held(NamespaceKind::Flat, id, fence, durability, fact);
    }

    fn release(&mut self, id: LockId) {
        self.keys.release(id);
        self.promised.ended(id);
    }

    fn extend(&mut self, id: LockId, lease_ms: u32) {
        let answer = self.keys.ask(Request::Extend(Extend { id, key: None, lease_ms, own: false }));
        assert!(matches!(answer.response(), Response::Extended(_)), "{:?}", answer.response());
        self.promised.extended(id, lease_ms);
    }

    fn keys(&mut self) {
        let durable = Acquire {
            terms: AcquireTerms { lease_ms: LEASE_MS, options: local(), ..AcquireTerms::default() },
            ..Acquire::default()
        };
        let described = AcquireOptions {
            request_id: Some(b"request 1"),
            owner: Some(b"somebody else"),
            metadata: Some(b"any \x00\xff\n bytes = here"),
            priority: Some(3),
            ..local()
        };
        self.acquire(Acquire {
            key: b"exclusive",
            terms: AcquireTerms { options: described, ..durable.terms },
            ..durable
        });
        for _ in 0..2 {
            self.acquire(Acquire { key: b"shared", shared: true, ..durable });
        }
        self.acquire(Acquire { key: b"\x00 any\xff=key\n", ..durable });
        let release_after = AcquireOptions { release_after_ms: Some(LEASE_MS), ..local() };
        self.acquire(Acquire {
            key: b"of a connection",
            terms: AcquireTerms { options: release_after, ..durable.terms },
            ..durable
        });
        // One key is free in the end, the other is held again.
        for key in ["freed", "passed on"] {
            for _ in 0..3 {
                let id = self.acquire(Acquire { key: key.as_bytes(), ..durable });
                self.release(id);
            }
        }
        self.acquire(Acquire { key: b"passed on", ..durable });
        let extended = self.acquire(Acquire {
            key: b"extended",
            terms: AcquireTerms { lease_ms: 60_000, ..durable.terms },
            ..durable
        });
        self.extend(extended, LEASE_MS);
        self.ended_later = Some(self.acquire(Acquire { key: b"ended later", ..durable }));
        self.extended_later = Some(self.acquire(Acquire {
            key: b"extended later",
            terms: AcquireTerms { lease_ms: 60_000, ..durable.terms },
            ..durable
        }));
        // Only a clean stop carries these over.
        let in_memory = Acquire {
            terms: AcquireTerms { lease_ms: LEASE_MS, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        self.acquire(Acquire { key: b"in memory", ..in_memory });
        let id = self.acquire(Acquire { key: b"in memory, freed", ..in_memory });
        self.release(id);
    }

    fn several_keys(&mut self) {
        let mut buffer = Vec::new();
        let keys = [(false, &b"several/a"[..]), (true, b"several/b"), (false, b"several/c")];
        let items = Items::new(keys.map(|(shared, key)| KeyItem { shared, key }), &mut buffer);
        let options = AcquireOptions { request_id: Some(b"several"), ..local() };
        let acquire = AcquireKeys {
            items: items.expect("a few keys"),
            terms: AcquireTerms { lease_ms: LEASE_MS, options, ..AcquireTerms::default() },
        };
        let answer = self.keys.ask(Request::AcquireKeys(acquire));
        let Response::GrantedKeys(granted) = answer.response() else { panic!("{:?}", answer.response()) };
        for lock in &granted.keys {
            let one = Acquire {
                key: lock.key,
                shared: lock.shared,
                terms: AcquireTerms { lease_ms: LEASE_MS, options, ..AcquireTerms::default() },
            };
            self.note_key(&one, lock.id, lock.fence, Fact::new("hold"));
        }
    }

    /// A session with a lane for keys and one for paths.
    fn sessions(&mut self) {
        let session = SessionRequest::New { lease_ms: LEASE_MS };
        let hello = Hello { session, ..hello_of(NamespaceKind::Flat, "of a session") };
        let (mut keys, welcome) = connect(self.server, &mut self.promised, hello);
        let of_session = Acquire {
            key: b"of a session",
            terms: AcquireTerms { session_lease: true, options: local(), ..AcquireTerms::default() },
            ..Acquire::default()
        };
        let of_its_own = Acquire {
            key: b"in a session",
            terms: AcquireTerms { lease_ms: LEASE_MS, options: local(), ..AcquireTerms::default() },
            ..Acquire::default()
        };
        for acquire in [of_session, of_its_own] {
            let answer = keys.ask(Request::Acquire(acquire));
            let granted = answer.granted();
            let fact = in_session(&welcome, answer.number()).with("owner", "of a session");
            self.note_key(&acquire, granted.id, granted.fence, fact);
        }
        let join = SessionRequest::Join { id: welcome.session_id };
        let hello = Hello { session: join, ..hello_of(NamespaceKind::Tree, "of a session") };
        let (mut tree, welcome) = connect(self.server, &mut self.promised, hello);
        let acquire = AcquireSet {
            terms: AcquireTerms { session_lease: true, options: local(), ..AcquireTerms::default() },
            ..AcquireSet::default()
        };
        let fact = |number| in_session(&welcome, number).with("owner", "of a session");
        acquire_set(&mut self.promised, &mut tree, &["+session/a", "session/b"], acquire, fact);
        self.open.extend([keys, tree]);
    }

    fn trees(&mut self) {
        let (mut tree, _) = connect(self.server, &mut self.promised, hello_of(NamespaceKind::Tree, OWNER));
        let described = AcquireOptions { request_id: Some(b"paths"), metadata: Some(b"of paths"), ..local() };
        let acquire = AcquireSet {
            terms: AcquireTerms { lease_ms: LEASE_MS, options: described, ..AcquireTerms::default() },
            ..AcquireSet::default()
        };
        let fact = |_| Fact::new("hold");
        acquire_set(&mut self.promised, &mut tree, &["+a/b", "a/c/d", "+e"], acquire, fact);
        acquire_set(
            &mut self.promised,
            &mut tree,
            &["a/c"],
            acquire.with_terms(|terms| terms.options = local()),
            fact,
        );
        // Without a lease: it needs another end.
        let endless = AcquireOptions { release_after_ms: Some(LEASE_MS), ..local() };
        let endless = acquire.with_terms(|terms| {
            terms.lease_ms = LEASE_NONE_MS;
            terms.options = endless;
        });
        acquire_set(&mut self.promised, &mut tree, &["+endless"], endless, fact);
        self.open.push(tree);
    }

    fn pools(&mut self) {
        let (mut pools, _) = connect(self.server, &mut self.promised, hello_of(NamespaceKind::Pool, OWNER));
        let (capacity, order) = (7, PoolOrder::Timestamp);
        let set = SetCapacity { name: b"slots", capacity, order, ..SetCapacity::default() };
        assert!(matches!(pools.ask(Request::SetCapacity(set)).response(), Response::CapacitySet(_)));
        let fact =
            Fact::new("pool").with("namespace", "pool").with("key", "slots").number("capacity", capacity);
        self.promised.set(fact.with("order", "timestamp"));
        for (name, capacity, permits, order) in [
            (&b"workers"[..], 10, 3, PoolOrder::Arrival),
            (b"workers", 10, 4, PoolOrder::Arrival),
            (b"slots", capacity, 2, order),
        ] {
            let acquire = AcquirePermits {
                capacity,
                permits,
                order,
                name,
                terms: AcquireTerms { lease_ms: LEASE_MS, options: local(), ..AcquireTerms::default() },
                ..AcquirePermits::default()
            };
            let granted = pools.ask(Request::AcquirePermits(acquire)).granted();
            let fact = described(Fact::new("hold"), &acquire.terms.options, false, LEASE_MS);
            let fact = fact.with("key", name).number("permits", permits).number("capacity", capacity);
            let fact = fact.with("order", order_name(order == PoolOrder::Timestamp));
            self.promised.counted(NamespaceKind::Pool, name, granted.fence, Durability::Local);
            self.promised.held(NamespaceKind::Pool, granted.id, granted.fence, Durability::Local, fact);
        }
        self.open.push(pools);
    }

    fn registries(&mut self) {
        let shorter = i64::from(SHORTER_REGISTRY_LEASE_MS);
        for (kind, key, lease_ms, ephemeral) in [
            (NamespaceKind::Registry, &b"service/1"[..], shorter, false),
            (NamespaceKind::Registry, b"service/in memory", shorter, true),
            (NamespaceKind::Registry, b"", shorter, false),
            (NamespaceKind::Lazy, b"machine/1", REGISTRY_LEASE_MS, false),
        ] {
            let (mut client, _) = connect(self.server, &mut self.promised, hello_of(kind, OWNER));
            let register = Register {
                lease_ms,
                ephemeral,
                key,
                owner: b"the owner",
                value: b"the value",
                type_name: b"the type",
                ..Register::default()
            };
            let answer = client.ask(Request::Register(register));
            let Response::Registered(registered) = answer.response() else {
                panic!("{:?}", answer.response())
            };
            let fact = Fact::new("hold").with("key", key).with("owner", "the owner");
            let fact = fact.with("metadata", "the value").with("type", "the type");
            let fact = match kind {
                NamespaceKind::Lazy => fact.with("lease", "lazy"),
                _ => fact.number("lease", SHORTER_REGISTRY_LEASE_MS),
            };
            let durability = if ephemeral { Durability::Ephemeral } else { Durability::Local };
            self.promised.counted(kind, key, registered.fence, durability);
            self.promised.held(kind, registered.id, registered.fence, durability, fact);
        }
    }

    fn operators(&mut self) {
        self.freeze(b"frozen/", false);
        self.freeze(b"thawed/", false);
        self.freeze(b"thawed/", true);
        self.promised.set(Fact::new("frozen").with("namespace", "flat").with("prefix", "frozen/"));
    }

    fn freeze(&mut self, prefix: &[u8], thaw: bool) {
        let answer = self.keys.ask(Request::Freeze(Freeze { prefix, thaw, ..Freeze::default() }));
        assert!(
            matches!(answer.response(), Response::Frozen(frozen) if frozen.changed),
            "{:?}",
            answer.response()
        );
    }

    /// The log has the namespace of a bucket, but not the bucket.
    fn limits(&mut self) {
        let (mut limits, _) = connect(self.server, &mut self.promised, hello_of(NamespaceKind::Limit, OWNER));
        let bucket = Bucket { rate: 1, burst: 5, period_ns: 1_000_000_000, cost: 1, name: b"bucket" };
        let answer = limits.ask(Request::Throttle(Throttle { bucket, refund: false }));
        assert!(matches!(answer.response(), Response::Throttled(_)), "{:?}", answer.response());
    }

    /// Fills more than two segments, and waits until everything before is in a snapshot.
    pub(super) fn fill(&mut self, directory: &Path) {
        let acquire = Acquire {
            key: b"busy",
            terms: AcquireTerms { lease_ms: LEASE_MS, options: local(), ..AcquireTerms::default() },
            ..Acquire::default()
        };
        for _ in 0..FRAMES_TO_FILL_TWO_SEGMENTS {
            let id = self.acquire(acquire);
            self.release(id);
        }
        let end = Instant::now() + WATCHDOG;
        loop {
            let files = names_in(directory);
            let count = |prefix| files.iter().filter(|name| name.starts_with(prefix)).count();
            // The two newest segments have only frames of this loop then.
            if count("snapshot-") > 0 && count("segment-") <= 2 {
                return;
            }
            assert!(Instant::now() < end, "no segments are folded: {files:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Changes holds that are in the snapshot, and adds a new hold, so recovery needs the segments behind it too.
    pub(super) fn go_on(&mut self) {
        let (ended, extended) = (self.ended_later.take(), self.extended_later.take());
        self.release(ended.expect("it was held"));
        self.extend(extended.expect("it was held"), LEASE_MS);
        self.freeze(b"frozen later/", false);
        self.promised.set(Fact::new("frozen").with("namespace", "flat").with("prefix", "frozen later/"));
        self.settle("after the snapshot");
    }

    /// Makes the last grant, whose frame is torn afterwards. A later server must not find it.
    pub(super) fn acquire_to_be_torn(&mut self, key: &[u8]) {
        let acquire = Acquire {
            key,
            terms: AcquireTerms { lease_ms: LEASE_MS, options: local(), ..AcquireTerms::default() },
            ..Acquire::default()
        };
        self.keys.ask(Request::Acquire(acquire)).granted();
    }
}

/// The names of the files in a directory that a server uses.
fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// The fields of a hold that its acquire says.
fn described(fact: Fact, options: &AcquireOptions<'_>, session_lease: bool, lease_ms: u32) -> Fact {
    let mut fact = match lease_ms {
        _ if session_lease => fact.with("lease", "session"),
        LEASE_NONE_MS => fact.with("lease", "none"),
        lease_ms => fact.number("lease", lease_ms),
    };
    let own = fact.get("owner").map(<[u8]>::to_vec);
    fact = fact.with("owner", options.owner.map_or(own.unwrap_or_else(|| OWNER.into()), <[u8]>::to_vec));
    if let Some(priority) = options.priority {
        fact = fact.number("priority", priority);
    }
    if let Some(delay_ms) = options.release_after_ms {
        fact = fact.number("release_after", delay_ms);
    }
    if let Some(request_id) = options.request_id {
        fact = fact.with("request_id", request_id);
    }
    if let Some(metadata) = options.metadata {
        fact = fact.with("metadata", metadata);
    }
    fact
}

/// A hold of this lane, acquired under this number.
fn in_session(welcome: &Welcome, number: u32) -> Fact {
    let session = welcome.session_id;
    Fact::new("hold")
        .with("session", id_text(session.place, session.secret))
        .number("session_lease", welcome.session_lease_ms)
        .number("lane", welcome.lane)
        .number("number", number)
}

/// Acquires a set of paths and notes the hold. A path that begins with `+` is written.
fn acquire_set(
    promised: &mut Promised,
    client: &mut Client<TcpStream>,
    set: &[&str],
    acquire: AcquireSet<'_>,
    fact: impl FnOnce(u32) -> Fact,
) {
    let path_key = |text: &&str| {
        let mut bytes = Vec::new();
        PathKey::append(text.trim_start_matches('+').split('/'), &mut bytes).expect("a path");
        bytes
    };
    let paths: Vec<_> = set.iter().map(path_key).collect();
    let items = set.iter().zip(&paths).map(|(text, path)| PathItem {
        write: text.starts_with('+'),
        path: PathKey::new(path).expect("a path key"),
    });
    let mut buffer = Vec::new();
    let items = Items::new(items, &mut buffer).expect("a list of paths");
    let answer = client.ask(Request::AcquireSet(AcquireSet { items, ..acquire }));
    let granted = answer.granted();
    let mut paths = set.to_vec();
    paths.sort_unstable();
    let fact = fact(answer.number()).with("paths", paths.join(","));
    let fact = described(fact, &acquire.terms.options, acquire.terms.session_lease, acquire.terms.lease_ms);
    promised.counted(NamespaceKind::Tree, b"", granted.fence, Durability::Local);
    promised.held(NamespaceKind::Tree, granted.id, granted.fence, Durability::Local, fact);
}
