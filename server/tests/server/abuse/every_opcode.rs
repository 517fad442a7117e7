//! Every request of the binary protocol, without end, over a server with much in it. Requests of bystanders and the ends of their leases
//! are measured.

use super::expiry::assert_leases_end_in_time;
use super::fill::{Unsent, skip_input};
use super::{PORTS, server};
use crate::harness::{Client, Server, default_hello, hello_of};
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use waymaker_protocol::limits::{ITEM_COUNT_MAX, WAIT_FOREVER_MS};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Bucket, Cancel,
    DescribePool, Extend, ForceRelease, Freeze, Goodbye, Heartbeat, Hello, Holds, Inspect, Items, KeepAlive,
    KeyItem, List, ListEntries, ListPools, LockId, LookUp, NamespaceKind, Namespaces, PathItem, PathKey,
    Pong, Register, Release, RemoveNamespace, Request, ServerStatus, SetCapacity, Status, Throttle,
    ThrottleAll, TreeStatistics, Unregister, Unwatch, Verify, Watch, next_frame,
};

/// What the server has of each kind.
const STOCK: usize = 3_000;
/// Namespaces that the server has.
const NAMESPACE_COUNT: usize = 500;
/// Bytes of requests that are made at once.
const BURST_LEN: usize = 32 << 10;

#[test]
fn a_flood_of_any_request_does_not_delay_lease_expiry() {
    let server = server();
    stock(&server);
    flood_with_each(&server, "plain");
}

#[test]
fn a_flood_does_not_delay_lease_expiry_on_other_workers() {
    let server = Server::start(&[&PORTS[..], &["--workers", "2"]].concat());
    stock(&server);
    flood_with_each(&server, "two workers");
}

#[test]
fn an_encrypted_flood_does_not_delay_lease_expiry() {
    let ports = ["binary"];
    let server = Server::start_encrypted(&[&PORTS[..], &["--workers", "1"]].concat(), &ports);
    stock(&server);
    flood_with_each(&server, "TLS");
}

#[test]
fn the_floods_cover_every_request() {
    let opcode_of =
        |bytes: &[u8]| next_frame(bytes, usize::MAX).expect("a header").expect("a whole frame").opcode();
    let flooded: BTreeSet<u8> = requests().iter().map(|(_, _, burst)| opcode_of(&burst(1))).collect();
    for opcode in opcode::HELLO..opcode::ANSWER {
        let bytes = [8, 0, 0, 0, 1, 0, 0, 0, opcode, 0, 0, 0];
        let frame = next_frame(&bytes, usize::MAX).expect("a header").expect("a whole frame");
        let is_known = !matches!(Request::decode(frame), Err(error) if error.field() == "opcode");
        assert!(!is_known || flooded.contains(&opcode), "opcode {opcode:#x} is not flooded");
    }
}

/// A burst of requests, by the number of the first of them.
type Burst = Box<dyn Fn(u32) -> Vec<u8> + Sync>;

fn burst(request: impl Fn(u32, &mut Vec<u8>) + Sync + 'static) -> Burst {
    Box::new(move |first| {
        let mut bytes = Vec::new();
        let mut number = first;
        while bytes.len() < BURST_LEN {
            number += 1;
            request(number, &mut bytes);
        }
        bytes
    })
}

/// A burst of one request over and over.
fn same(request: &Request<'_>) -> Burst {
    let mut bytes = Vec::new();
    request.encode(1, &mut bytes);
    burst(move |number, out| {
        let begin = out.len();
        out.extend_from_slice(&bytes);
        out[begin + 4..begin + 8].copy_from_slice(&number.to_le_bytes());
    })
}

fn key(number: usize) -> Vec<u8> {
    format!("key/{number:08}").into_bytes()
}

fn path(number: usize) -> Vec<u8> {
    path_of(&["root", &format!("branch {}", number % 50), &format!("leaf {number}")])
}

fn path_of(segments: &[&str]) -> Vec<u8> {
    let mut path = Vec::new();
    PathKey::append(segments, &mut path).expect("short segments");
    path
}

/// All requests, with the kind of namespace that serves them.
fn requests() -> Vec<(&'static str, NamespaceKind, Burst)> {
    use NamespaceKind::{Flat, Limit, Pool, Registry, Tree};
    let id = LockId::from_bytes([7; 16]);
    let options = AcquireOptions::default();
    let mut buffer = Vec::new();
    let keys: Vec<Vec<u8>> = (0..ITEM_COUNT_MAX).map(|number| key(number + STOCK)).collect();
    let key_items = || keys.iter().map(|key| KeyItem { shared: true, key });
    let all_keys = AcquireKeys {
        items: Items::new(key_items(), &mut buffer).expect("keys"),
        terms: AcquireTerms { lease_ms: 10, ..AcquireTerms::default() },
    };
    let mut bucket_buffer = Vec::new();
    let bucket =
        |name: &'static [u8]| Bucket { rate: 10, burst: 10, cost: 1, period_ns: 1_000_000_000, name };
    let buckets = (0..64_u8).map(|_| bucket(b"bucket"));
    let buckets = Items::new(buckets, &mut bucket_buffer).expect("buckets");
    let mut path_buffer = Vec::new();
    let paths: Vec<Vec<u8>> = (0..64).map(path).collect();
    let path_items =
        paths.iter().map(|path| PathItem { write: false, path: PathKey::new(path).expect("a path") });
    let set = AcquireSet {
        items: Items::new(path_items, &mut path_buffer).expect("paths"),
        terms: AcquireTerms { lease_ms: 10, options, ..AcquireTerms::default() },
    };
    let root = path_of(&["root"]);
    let register = |key: &'static [u8]| Register {
        lease_ms: 10_000,
        key,
        owner: b"flood",
        value: &[b'v'; 4096],
        type_name: b"cell",
        ..Register::default()
    };
    vec![
        ("HELLO", Flat, same(&Request::Hello(default_hello()))),
        ("GOODBYE", Flat, same(&Request::Goodbye(Goodbye))),
        ("PONG", Flat, same(&Request::Pong(Pong))),
        ("KEEP_ALIVE", Flat, same(&Request::KeepAlive(KeepAlive))),
        (
            "ACQUIRE of a held key",
            Flat,
            same(&Request::Acquire(Acquire { key: &key(1), ..Acquire::default() })),
        ),
        (
            "ACQUIRE of new keys",
            Flat,
            burst(|number, out| {
                let key = number.to_le_bytes();
                Acquire {
                    key: &key,
                    terms: AcquireTerms { lease_ms: 10, ..AcquireTerms::default() },
                    ..Acquire::default()
                }
                .encode(number, out);
            }),
        ),
        (
            "ACQUIRE that waits",
            Flat,
            same(&Request::Acquire(Acquire {
                key: &key(2),
                terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() },
                ..Acquire::default()
            })),
        ),
        ("RELEASE", Flat, same(&Request::Release(Release { id, key: None, own: false }))),
        ("EXTEND", Flat, same(&Request::Extend(Extend { id, key: None, lease_ms: 10, own: false }))),
        ("CANCEL", Flat, same(&Request::Cancel(Cancel { acquire_number: 1, key: b"key" }))),
        ("STATUS", Flat, same(&Request::Status(Status { id, key: None }))),
        ("INSPECT", Flat, same(&Request::Inspect(Inspect { key: &key(3) }))),
        ("LIST", Flat, same(&Request::List(List::default()))),
        (
            "LIST of a prefix without keys",
            Flat,
            same(&Request::List(List { prefix: b"nothing", ..List::default() })),
        ),
        ("HOLDS", Flat, same(&Request::Holds(Holds::default()))),
        ("WATCH", Flat, same(&Request::Watch(Watch { key: &key(4) }))),
        ("UNWATCH", Flat, same(&Request::Unwatch(Unwatch { watch_number: 1, key: &key(4) }))),
        ("VERIFY", Flat, same(&Request::Verify(Verify { fence: 1, key: &key(5) }))),
        ("VERIFY of a root", Tree, same(&Request::Verify(Verify { fence: 1, key: &root }))),
        ("INSPECT of a root", Tree, same(&Request::Inspect(Inspect { key: &root }))),
        ("FORCE_RELEASE", Flat, same(&Request::ForceRelease(ForceRelease { id, reason: b"flood" }))),
        (
            "FREEZE",
            Limit,
            same(&Request::Freeze(Freeze { prefix: b"frozen", thaw: true, ..Freeze::default() })),
        ),
        ("SERVER_STATUS", Flat, same(&Request::ServerStatus(ServerStatus))),
        ("NAMESPACES", Flat, same(&Request::Namespaces(Namespaces::default()))),
        ("REMOVE_NAMESPACE", Flat, same(&Request::RemoveNamespace(RemoveNamespace { name: b"none" }))),
        ("ACQUIRE_KEYS of 1,024 keys", Flat, same(&Request::AcquireKeys(all_keys))),
        ("ACQUIRE_SET of 64 paths", Tree, same(&Request::AcquireSet(set))),
        ("LIST of a tree", Tree, same(&Request::List(List::default()))),
        ("TREE_STATISTICS", Tree, same(&Request::TreeStatistics(TreeStatistics))),
        (
            "ACQUIRE_PERMITS",
            Pool,
            same(&Request::AcquirePermits(AcquirePermits {
                capacity: 5,
                permits: 1,
                name: b"pool of the flood",
                terms: AcquireTerms { lease_ms: 10, ..AcquireTerms::default() },
                ..AcquirePermits::default()
            })),
        ),
        ("DESCRIBE_POOL", Pool, same(&Request::DescribePool(DescribePool { name: &key(6) }))),
        (
            "SET_CAPACITY",
            Pool,
            same(&Request::SetCapacity(SetCapacity { name: &key(7), capacity: 5, ..SetCapacity::default() })),
        ),
        ("LIST_POOLS", Pool, same(&Request::ListPools(ListPools::default()))),
        (
            "LIST_POOLS of a prefix without pools",
            Pool,
            same(&Request::ListPools(ListPools { prefix: b"nothing", ..ListPools::default() })),
        ),
        ("THROTTLE", Limit, same(&Request::Throttle(Throttle { bucket: bucket(b"bucket"), refund: false }))),
        ("THROTTLE_ALL", Limit, same(&Request::ThrottleAll(ThrottleAll { buckets, refund: false }))),
        ("REGISTER", Registry, same(&Request::Register(register(b"flood")))),
        ("HEARTBEAT", Registry, same(&Request::Heartbeat(Heartbeat(register(b"flood"))))),
        ("UNREGISTER", Registry, same(&Request::Unregister(Unregister { key: b"flood", owner: b"flood" }))),
        ("LOOK_UP", Registry, same(&Request::LookUp(LookUp { key: &key(8) }))),
        (
            "LIST_ENTRIES",
            Registry,
            same(&Request::ListEntries(ListEntries { any_type: true, ..ListEntries::default() })),
        ),
        (
            "LIST_ENTRIES of a type without entries",
            Registry,
            same(&Request::ListEntries(ListEntries { type_name: b"nothing", ..ListEntries::default() })),
        ),
    ]
}

/// Fills the server, so that lists are long.
pub(super) fn stock(server: &Server) {
    use NamespaceKind::{Flat, Pool, Registry, Tree};
    for number in 0..NAMESPACE_COUNT {
        let namespace = format!("namespace {number}");
        server.stranger().open(Hello { namespace: namespace.as_bytes(), ..default_hello() });
    }
    let lease_ms = 600_000;
    for kind in [Flat, Pool, Registry, Tree] {
        let mut client = server.client_of(kind, "stock");
        for number in 0..STOCK {
            let (key, path) = (key(number), path(number));
            let mut buffer = Vec::new();
            let request = match kind {
                Flat => Request::Acquire(Acquire {
                    key: &key,
                    terms: AcquireTerms { lease_ms, ..AcquireTerms::default() },
                    ..Acquire::default()
                }),
                Pool => Request::AcquirePermits(AcquirePermits {
                    capacity: 5,
                    permits: 1,
                    name: &key,
                    terms: AcquireTerms { lease_ms, ..AcquireTerms::default() },
                    ..AcquirePermits::default()
                }),
                Registry => Request::Register(Register {
                    lease_ms: i64::from(lease_ms),
                    key: &key,
                    owner: b"stock",
                    value: b"value",
                    type_name: b"cell",
                    ..Register::default()
                }),
                _ => {
                    let item = PathItem { write: true, path: PathKey::new(&path).expect("a path") };
                    let items = Items::new([item], &mut buffer).expect("a path");
                    Request::AcquireSet(AcquireSet {
                        items,
                        terms: AcquireTerms { lease_ms, ..AcquireTerms::default() },
                    })
                }
            };
            client.send(request);
            if number % 500 == 499 {
                (0..500).for_each(|_| drop(client.receive()));
            }
        }
        // The holds stay with their connection.
        std::mem::forget(client);
    }
}

fn flood_with_each(server: &Server, how: &str) {
    flood_each(server, how, |what, abuse| assert_leases_end_in_time(what, server, abuse));
}

/// Calls `observe` with a flood of each request.
pub(super) fn flood_each(
    server: &Server,
    how: &str,
    mut observe: impl FnMut(&str, &(dyn Fn(&AtomicBool) + Sync)),
) {
    for (name, kind, burst) in requests() {
        observe(&format!("{name}, {how}"), &|stop| flood(server, kind, &burst, stop));
    }
}

/// Sends requests as fast as the server takes them, and reads the answers. Reconnects if the server ends the connection.
fn flood(server: &Server, kind: NamespaceKind, burst: &Burst, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut client: Client<TcpStream> = server.stranger();
        client.open(hello_of(kind, "flood"));
        let mut unsent = Unsent::default();
        let mut number = 1;
        let mut next = || {
            number += 100_000;
            burst(number)
        };
        while !stop.load(Ordering::Relaxed) && unsent.fill(&client.socket, &mut next) {
            skip_input(&client.socket);
            thread::sleep(Duration::from_micros(100));
        }
    }
}
