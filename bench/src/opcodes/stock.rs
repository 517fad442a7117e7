//! A server with much state.

use super::KINDS;
use crate::keys::{key, shuffled};
use crate::node::{START, with_one_worker};
use std::time::Instant;
use waymaker_engine::Time;
use waymaker_protocol::limits::{
    ANY_WORKER, FRAME_LEN_MAX, KEY_LEN_MAX, NAMESPACE_LEN_MAX, OWNER_LEN_MAX, VALUE_LEN_MAX, WAIT_FOREVER_MS,
};
use waymaker_protocol::{
    Acquire, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Hello, Items, LockId, NamespaceKind,
    PathItem, PathKey, PoolOrder, Register, Release, Request, Response, SetCapacity, VERSION, next_frame,
};
use waymaker_server::mail::ConnectionKey;
use waymaker_server::worker::{Next, Worker};

/// The longest lease, so that no hold of the stock expires.
const LEASE_MS: u32 = 86_400_000;
/// Number of requests that one connection of the stock sends before it reads.
const WINDOW: usize = 500;

/// A flat namespace without keys.
pub(super) const EMPTY: &[u8] = b"empty";

/// Amount of state of the server.
#[derive(Clone, Copy, Debug)]
pub struct Stock {
    /// Number of held keys.
    pub key_count: u32,
    /// Number of namespaces.
    pub namespace_count: u32,
    /// Number of holders and waiters of one shared key, of one pool and of one tree; also of pools, registrations
    /// and held paths.
    pub crowd: u32,
}

impl Stock {
    /// State of a large server.
    pub const LARGE: Self = Self { key_count: 1_000_000, namespace_count: 4_096, crowd: 100_000 };
    /// State for tests.
    pub const SMALL: Self = Self { key_count: 50, namespace_count: 10, crowd: 20 };
}

/// A worker that is driven by hand, and its connections.
pub struct Server {
    pub(super) worker: Worker,
    began: Instant,
    later_ms: u64,
    last_number: u32,
    response_count: u64,
    /// Connections that hold the stock.
    connections: Vec<ConnectionKey>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").finish_non_exhaustive()
    }
}

pub(super) fn hello(kind: NamespaceKind, namespace: &[u8]) -> Hello<'_> {
    Hello {
        version_min: VERSION,
        version_max: VERSION,
        kind,
        worker: ANY_WORKER,
        namespace,
        owner: &[b'o'; OWNER_LEN_MAX],
        ..Hello::default()
    }
}

/// Returns the longest key with this number.
pub(super) fn long_key(number: u32) -> Vec<u8> {
    let mut key = vec![b'k'; KEY_LEN_MAX];
    key[..4].copy_from_slice(&number.to_le_bytes());
    key
}

fn permits(name: &[u8], capacity: u64, wait_ms: u32) -> AcquirePermits<'_> {
    let order = PoolOrder::Arrival;
    AcquirePermits {
        capacity,
        permits: 1,
        order,
        name,
        terms: AcquireTerms { lease_ms: LEASE_MS, wait_ms, ..AcquireTerms::default() },
        ..AcquirePermits::default()
    }
}

/// Returns a path below the root of the tree.
pub(super) fn leaf(number: u32) -> Vec<u8> {
    path_of(&["root", &format!("branch {}", number % 50), &format!("leaf {number}")])
}

pub(super) fn path_of(segments: &[&str]) -> Vec<u8> {
    let mut path = Vec::new();
    PathKey::append(segments, &mut path).expect("the segments are short");
    path
}

impl Server {
    /// Creates a server with this stock.
    pub fn with_stock(stock: &Stock) -> Self {
        let (_, worker) = with_one_worker(None);
        let mut server = Self {
            worker,
            began: Instant::now(),
            later_ms: 0,
            last_number: 0,
            response_count: 0,
            connections: Vec::new(),
        };
        for kind in KINDS {
            let key = server.open(&hello(kind, kind.name().as_bytes()));
            server.close(key);
        }
        let empty = server.open(&hello(NamespaceKind::Flat, EMPTY));
        server.close(empty);
        for number in KINDS.len() as u32 + 1..stock.namespace_count {
            let mut name = vec![b'n'; NAMESPACE_LEN_MAX];
            name[..4].copy_from_slice(&number.to_le_bytes());
            let key = server.open(&hello(NamespaceKind::Flat, &name));
            server.close(key);
        }
        server.stock_keys(stock.key_count);
        server.stock_crowds(stock.crowd);
        server.stock_pools(stock.crowd);
        server.stock_tree(stock.crowd);
        server.stock_registry(stock.crowd / 10);
        server
    }

    /// Returns the current time, which advances like real time.
    pub(super) fn now(&self) -> Time {
        START.after_ms(self.later_ms + self.began.elapsed().as_millis() as u64)
    }

    /// Returns numbers that no request has used.
    pub(super) fn numbers(&mut self) -> u32 {
        self.last_number += 1 << 22;
        self.last_number
    }

    /// Returns the number of responses so far.
    pub fn response_count(&self) -> u64 {
        self.response_count
    }

    pub(super) fn open(&mut self, hello: &Hello<'_>) -> ConnectionKey {
        let now = self.now();
        let key = self.worker.handle_open(b"peer", now);
        let mut bytes = Vec::new();
        hello.encode(1, &mut bytes);
        let next = self.worker.handle_bytes(key, &bytes, now);
        assert_eq!(next, Next::Continue, "there is one worker");
        self.settle_connection(key);
        key
    }

    /// Whether the connection is still served.
    pub(super) fn is_open(&mut self, key: ConnectionKey) -> bool {
        self.worker.output(key).is_some()
    }

    /// Closes a connection and runs the work that follows from it.
    pub(super) fn close(&mut self, key: ConnectionKey) {
        let now = self.now();
        self.worker.handle_lost(key, now);
        self.later_ms += 1_000;
        self.settle();
    }

    /// Takes the bytes written to a connection, and lets the worker run its due work once. Returns the number of
    /// responses.
    pub(super) fn settle_connection(&mut self, key: ConnectionKey) -> u32 {
        let count = self.take_output(key, |_| ());
        self.finish_step();
        count
    }

    fn take_output(&mut self, key: ConnectionKey, mut hear: impl FnMut(Response<'_>)) -> u32 {
        let mut count = 0;
        let mut len = 0;
        if let Some(mut bytes) = self.worker.output(key) {
            len = bytes.len();
            while let Ok(Some(frame)) = next_frame(bytes, FRAME_LEN_MAX) {
                bytes = &bytes[frame.len()..];
                count += 1;
                hear(Response::decode(frame).expect("the worker writes responses"));
            }
        }
        self.worker.wrote(key, len);
        self.response_count += u64::from(count);
        count
    }

    fn finish_step(&mut self) {
        let now = self.now();
        self.worker.handle_mail(now);
        while self.worker.poll_dirty().is_some() || self.worker.poll_wake().is_some() {}
        while self.worker.poll_audit().is_some() || self.worker.poll_accept().is_some() {}
        if self.worker.wants_drain() {
            self.worker.handle_drained(now, now);
        }
        if self.worker.next_deadline() <= now {
            self.worker.tick(now);
        }
    }

    /// Runs all due work.
    fn settle(&mut self) {
        loop {
            self.finish_step();
            for place in 0..self.connections.len() {
                self.take_output(self.connections[place], |_| ());
            }
            let now = self.now();
            if !self.worker.wants_drain() && self.worker.next_deadline() > now {
                return;
            }
        }
    }

    /// Opens a connection for the stock.
    fn stocking(&mut self, kind: NamespaceKind) -> ConnectionKey {
        let key = self.open(&hello(kind, kind.name().as_bytes()));
        self.connections.push(key);
        key
    }

    /// Sends `count` requests. Returns the ids of the grants.
    pub(super) fn ask_many(
        &mut self,
        key: ConnectionKey,
        count: u32,
        encode: impl Fn(u32, &mut Vec<u8>),
    ) -> Vec<LockId> {
        let mut ids = Vec::new();
        let mut bytes = Vec::new();
        for number in 0..count {
            encode(number, &mut bytes);
            if number as usize % WINDOW == WINDOW - 1 || number + 1 == count || bytes.len() >= 32 << 10 {
                let now = self.now();
                self.worker.handle_bytes(key, &bytes, now);
                bytes.clear();
                self.take_output(key, |response| match response {
                    Response::Granted(granted) => ids.push(granted.id),
                    Response::Error(error) => panic!("the server refuses the stock: {error:?}"),
                    _ => {}
                });
                self.finish_step();
            }
        }
        ids
    }

    /// Holds keys in random order, so that their records are not contiguous in memory.
    fn stock_keys(&mut self, count: u32) {
        let connection = self.stocking(NamespaceKind::Flat);
        let acquire = |number: u32, bytes: &mut Vec<u8>| {
            let key = key(number.into());
            Acquire {
                key: &key,
                terms: AcquireTerms { lease_ms: LEASE_MS, ..AcquireTerms::default() },
                ..Acquire::default()
            }
            .encode(number, bytes);
        };
        let ids = self.ask_many(connection, count, acquire);
        self.ask_many(connection, count, |number, bytes| {
            Release { id: ids[number as usize], key: None, own: false }.encode(number, bytes);
        });
        let order = shuffled(count);
        self.ask_many(connection, count, |number, bytes| acquire(order[number as usize], bytes));
    }

    /// Adds holders and waiters of one key, from connections with few waiters each.
    fn stock_crowds(&mut self, count: u32) {
        let holders = self.stocking(NamespaceKind::Flat);
        let read = Acquire {
            key: b"crowd",
            shared: true,
            terms: AcquireTerms {
                lease_ms: LEASE_MS,
                options: AcquireOptions { metadata: Some(&[b'm'; 4096]), ..AcquireOptions::default() },
                ..AcquireTerms::default()
            },
        };
        self.ask_many(holders, count.min(10_000), |number, bytes| read.encode(number, bytes));
        let wait = |number: u32, bytes: &mut Vec<u8>| {
            Acquire {
                key: b"crowd",
                terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() },
                ..Acquire::default()
            }
            .encode(number, bytes);
        };
        self.ask_in_parts(NamespaceKind::Flat, count * 9 / 10, wait);
    }

    /// Sends requests that wait, from as many connections as necessary.
    fn ask_in_parts(&mut self, kind: NamespaceKind, count: u32, encode: impl Fn(u32, &mut Vec<u8>)) {
        const WAITERS_OF_CONNECTION: u32 = 9_000;
        for first in (0..count).step_by(WAITERS_OF_CONNECTION as usize) {
            let connection = self.stocking(kind);
            let part = WAITERS_OF_CONNECTION.min(count - first);
            self.ask_many(connection, part, |number, bytes| encode(first + number, bytes));
        }
    }

    fn stock_pools(&mut self, count: u32) {
        let connection = self.stocking(NamespaceKind::Pool);
        let capacity = u64::from(count) + 1;
        for name in [&b"crowd"[..], b"resized"] {
            self.ask_many(connection, 1, |number, bytes| {
                let order = PoolOrder::Arrival;
                Request::SetCapacity(SetCapacity { name, capacity, order, ..SetCapacity::default() })
                    .encode(number, bytes);
            });
            self.ask_many(connection, count, |number, bytes| {
                permits(name, capacity, 0).encode(number, bytes);
            });
            self.ask_in_parts(NamespaceKind::Pool, count * 9 / 10, |number, bytes| {
                let permits = permits(name, capacity, WAIT_FOREVER_MS);
                AcquirePermits { permits: 2, ..permits }.encode(number, bytes);
            });
        }
        self.ask_many(connection, count / 2, |number, bytes| {
            permits(&key(number.into()), 5, 0).encode(number, bytes);
        });
    }

    fn stock_tree(&mut self, count: u32) {
        let connection = self.stocking(NamespaceKind::Tree);
        let set = |path: &[u8], wait_ms, number: u32, bytes: &mut Vec<u8>| {
            let mut buffer = Vec::new();
            let item = PathItem { write: true, path: PathKey::new(path).expect("a path") };
            let items = Items::new([item], &mut buffer).expect("one path");
            let set = AcquireSet {
                items,
                terms: AcquireTerms { lease_ms: LEASE_MS, wait_ms, ..AcquireTerms::default() },
            };
            set.encode(number, bytes);
        };
        let order = shuffled(count);
        self.ask_many(connection, count, |number, bytes| {
            set(&leaf(order[number as usize]), 0, number, bytes);
        });
        self.ask_in_parts(NamespaceKind::Tree, count / 2, |number, bytes| {
            set(&leaf(number), WAIT_FOREVER_MS, number, bytes);
        });
    }

    fn stock_registry(&mut self, count: u32) {
        for kind in [NamespaceKind::Registry, NamespaceKind::Lazy] {
            let connection = self.stocking(kind);
            self.ask_many(connection, count, |number, bytes| {
                Request::Register(Register {
                    lease_ms: LEASE_MS.into(),
                    key: &key(number.into()),
                    owner: b"stock",
                    value: &[b'v'; VALUE_LEN_MAX],
                    type_name: b"cell",
                    ..Register::default()
                })
                .encode(number, bytes);
            });
        }
    }
}
