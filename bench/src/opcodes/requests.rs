//! Each request of the binary protocol in its most expensive form.

use super::stock::{EMPTY, Server, hello, leaf, long_key, path_of};
use crate::keys::{key, mixed};
use waymaker_protocol::limits::{
    BUCKET_COUNT_MAX, ITEM_COUNT_MAX, METADATA_LEN_MAX, OWNER_LEN_MAX, REASON_LEN_MAX, REQUEST_ID_LEN_MAX,
    SEGMENT_COUNT_MAX, SEGMENT_LEN_MAX, TYPE_LEN_MAX, VALUE_LEN_MAX, WAIT_FOREVER_MS,
};
use waymaker_protocol::message::opcode;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Bucket, Cancel,
    DescribePool, Extend, ForceRelease, Freeze, Heartbeat, Holds, Inspect, Items, KeepAlive, KeyItem, List,
    ListEntries, ListPools, LockId, LookUp, NamespaceKind, Namespaces, PathItem, PathKey, PoolOrder,
    Register, Release, RemoveNamespace, Request, ServerStatus, SessionRequest, SetCapacity, Status, Throttle,
    ThrottleAll, TreeStatistics, Unregister, Unwatch, Verify, Watch,
};

/// Bytes of short requests generated for one poll: more than a poll serves.
const BYTES_PER_POLL: usize = 256 << 10;
/// Approximate number of claims in the large stock.
const SLOT_COUNT: u64 = 1_700_000;
/// A lease that expires soon.
const SHORT_MS: u32 = 10;

type Encode = Box<dyn Fn(u32, &mut Vec<u8>)>;

/// One kind of request.
pub struct Load {
    /// Name of the request and its form.
    pub name: &'static str,
    /// Kind of namespace for the request.
    pub kind: NamespaceKind,
    /// Namespace of the request.
    pub namespace: &'static [u8],
    /// Session of the connection.
    pub session: SessionRequest,
    /// Whether the frames are no requests.
    pub is_malformed: bool,
    /// Appends the request with this number.
    pub(super) encode: Encode,
    pub(super) bytes_per_poll: usize,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Load").field("name", &self.name).finish_non_exhaustive()
    }
}

fn load(name: &'static str, kind: NamespaceKind, encode: impl Fn(u32, &mut Vec<u8>) + 'static) -> Load {
    let mut bytes = Vec::new();
    encode(1, &mut bytes);
    Load {
        name,
        kind,
        namespace: kind.name().as_bytes(),
        session: SessionRequest::None,
        is_malformed: false,
        encode: Box::new(encode),
        bytes_per_poll: BYTES_PER_POLL.max(2 * bytes.len()),
    }
}

/// A load that repeats the same request.
fn same(name: &'static str, kind: NamespaceKind, request: &Request<'_>) -> Load {
    let mut bytes = Vec::new();
    request.encode(1, &mut bytes);
    load(name, kind, repeated(bytes))
}

/// A load of pages of a listing; each page begins at a different cursor.
fn pages(name: &'static str, kind: NamespaceKind, page: impl Fn(u64) -> Request<'static> + 'static) -> Load {
    load(name, kind, move |number, out| page(mixed(number.into()) % SLOT_COUNT).encode(number, out))
}

/// Repeats a frame with a new number each time.
fn repeated(frame: Vec<u8>) -> impl Fn(u32, &mut Vec<u8>) {
    move |number, out| {
        let begin = out.len();
        out.extend_from_slice(&frame);
        out[begin + 4..begin + 8].copy_from_slice(&number.to_le_bytes());
    }
}

fn malformed(name: &'static str, kind: NamespaceKind, frame: Vec<u8>) -> Load {
    Load { is_malformed: true, ..load(name, kind, repeated(frame)) }
}

/// Returns a frame of this opcode with an invalid body.
fn frame_of(opcode: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = (8 + body.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&[0, 0, 0, 0, opcode, 0, 0, 0]);
    frame.extend_from_slice(body);
    frame
}

/// All options, each with its maximum length.
fn long_options() -> AcquireOptions<'static> {
    AcquireOptions {
        owner: Some(&[b'o'; OWNER_LEN_MAX]),
        metadata: Some(&[b'm'; METADATA_LEN_MAX]),
        release_after_ms: Some(0),
        ..AcquireOptions::default()
    }
}

/// Returns the number as a request id of maximum length.
fn request_id(number: u32) -> [u8; REQUEST_ID_LEN_MAX] {
    let mut id = [b'r'; REQUEST_ID_LEN_MAX];
    id[..4].copy_from_slice(&number.to_le_bytes());
    id
}

fn put_keys(keys: &[Vec<u8>], shared: bool, wait_ms: u32, number: u32, out: &mut Vec<u8>) {
    put_keys_with(keys, shared, wait_ms, AcquireOptions::default(), number, out);
}

fn put_keys_with(
    keys: &[Vec<u8>],
    shared: bool,
    wait_ms: u32,
    options: AcquireOptions<'_>,
    number: u32,
    out: &mut Vec<u8>,
) {
    let mut buffer = Vec::new();
    let items = Items::new(keys.iter().map(|key| KeyItem { shared, key }), &mut buffer).expect("keys");
    AcquireKeys {
        items,
        terms: AcquireTerms { lease_ms: SHORT_MS, wait_ms, options, ..AcquireTerms::default() },
    }
    .encode(number, out);
}

fn put_set(
    paths: &[Vec<u8>],
    write: bool,
    wait_ms: u32,
    options: AcquireOptions<'_>,
    number: u32,
    out: &mut Vec<u8>,
) {
    let mut buffer = Vec::new();
    let items = paths.iter().map(|path| PathItem { write, path: PathKey::new(path).expect("a path") });
    let items = Items::new(items, &mut buffer).expect("paths");
    AcquireSet {
        items,
        terms: AcquireTerms { lease_ms: SHORT_MS, wait_ms, options, ..AcquireTerms::default() },
    }
    .encode(number, out);
}

/// Returns the maximum number of short keys in a claim; no other number has the same keys.
fn short_keys(number: u32) -> Vec<Vec<u8>> {
    let item = |item: u16| [&number.to_le_bytes()[..], &item.to_le_bytes()].concat();
    (0..ITEM_COUNT_MAX as u16).map(item).collect()
}

/// Returns the maximum number of longest keys in a claim.
fn long_keys(number: u32) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..120_u32).map(long_key).collect();
    keys.iter_mut().for_each(|key| key[4..8].copy_from_slice(&number.to_le_bytes()));
    keys
}

/// Returns `count` paths of `segment_count` segments; they share no prefix with the paths of other numbers.
fn paths(number: u32, count: u16, segment_count: usize) -> Vec<Vec<u8>> {
    let path = |item: u16| {
        let mut path = vec![6, 0];
        path.extend_from_slice(&number.to_le_bytes());
        path.extend_from_slice(&item.to_le_bytes());
        path.resize(path.len() + (segment_count - 1) * 2, 0);
        path
    };
    (0..count).map(path).collect()
}

/// Returns a path of maximum length.
fn longest_path(number: u32) -> Vec<u8> {
    let mut path = Vec::new();
    while path.len() + 2 + SEGMENT_LEN_MAX <= usize::from(u16::MAX) {
        path.extend_from_slice(&(SEGMENT_LEN_MAX as u16).to_le_bytes());
        path.extend_from_slice(&number.to_le_bytes());
        path.resize(path.len() + SEGMENT_LEN_MAX - 4, b's');
    }
    path
}

/// Returns all requests, each in its most expensive forms.
pub fn loads(server: &mut Server) -> Vec<Load> {
    let mut loads = flat();
    loads.extend(reading());
    loads.extend(of_holds(server));
    loads.extend(several_keys());
    loads.extend(tree());
    loads.extend(reading_tree(server));
    loads.extend(pools());
    loads.extend(limits());
    loads.extend(registries());
    loads.extend(malformed_frames());
    loads
}

fn flat() -> Vec<Load> {
    use NamespaceKind::Flat;
    let wait = |key: &[u8], shared| {
        let acquire = Acquire {
            key,
            shared,
            terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() },
        };
        let mut bytes = Vec::new();
        acquire.encode(1, &mut bytes);
        bytes
    };
    vec![
        same("KEEP_ALIVE", Flat, &Request::KeepAlive(KeepAlive)),
        Load {
            session: SessionRequest::New { lease_ms: 60_000 },
            ..same("KEEP_ALIVE of a session", Flat, &Request::KeepAlive(KeepAlive))
        },
        load("ACQUIRE of a new key", Flat, |number, out| {
            Acquire {
                key: &key(number.into()),
                terms: AcquireTerms { lease_ms: SHORT_MS, ..AcquireTerms::default() },
                ..Acquire::default()
            }
            .encode(number, out);
        }),
        load("ACQUIRE with all options", Flat, |number, out| {
            let id = request_id(number);
            let options = AcquireOptions { request_id: Some(&id), ..long_options() };
            let key = long_key(number);
            Acquire {
                key: &key,
                terms: AcquireTerms { lease_ms: SHORT_MS, options, ..AcquireTerms::default() },
                ..Acquire::default()
            }
            .encode(number, out);
        }),
        Load {
            session: SessionRequest::New { lease_ms: 60_000 },
            ..load("ACQUIRE of a session", Flat, |number, out| {
                let key = long_key(number);
                Acquire {
                    key: &key,
                    terms: AcquireTerms { lease_ms: SHORT_MS, ..AcquireTerms::default() },
                    ..Acquire::default()
                }
                .encode(number, out);
            })
        },
        load(
            "ACQUIRE of a held key",
            Flat,
            repeated({
                let mut bytes = Vec::new();
                Acquire { key: b"crowd", ..Acquire::default() }.encode(1, &mut bytes);
                bytes
            }),
        ),
        load("ACQUIRE behind many waiters", Flat, repeated(wait(b"crowd", false))),
        load("ACQUIRE behind many waiters, with position", Flat, |number, out| {
            let options = AcquireOptions { priority: Some(number % 7), ..AcquireOptions::default() };
            let wait_ms = WAIT_FOREVER_MS;
            Acquire {
                key: b"crowd",
                terms: AcquireTerms { wait_ms, notify_queued: true, options, ..AcquireTerms::default() },
                ..Acquire::default()
            }
            .encode(number, out);
        }),
        load("RELEASE of an unknown id", Flat, |number, out| {
            Release { id: LockId::from_bytes([7; 16]), key: None, own: false }.encode(number, out);
        }),
        load("EXTEND of an unknown id", Flat, |number, out| {
            Extend { id: LockId::from_bytes([7; 16]), key: None, lease_ms: 10, own: false }
                .encode(number, out);
        }),
        load("CANCEL of a waiter", Flat, |number, out| {
            if number % 2 == 1 {
                let acquire = Acquire {
                    key: b"crowd",
                    terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() },
                    ..Acquire::default()
                };
                return acquire.encode(number, out);
            }
            Request::Cancel(Cancel { acquire_number: number - 1, key: b"crowd" }).encode(number, out);
        }),
        same(
            "CANCEL of an unknown request",
            Flat,
            &Request::Cancel(Cancel { acquire_number: 1, key: b"crowd" }),
        ),
    ]
}

fn reading() -> Vec<Load> {
    use NamespaceKind::Flat;
    vec![
        same("INSPECT of a crowded key", Flat, &Request::Inspect(Inspect { key: b"crowd" })),
        pages("LIST", Flat, |cursor| Request::List(List { cursor, ..List::default() })),
        pages("LIST of a prefix without keys", Flat, |cursor| {
            Request::List(List { cursor, prefix: b"nothing", ..List::default() })
        }),
        Load {
            namespace: EMPTY,
            ..pages("LIST in a namespace without keys", Flat, |cursor| {
                Request::List(List { cursor, ..List::default() })
            })
        },
        same("HOLDS without holds", Flat, &Request::Holds(Holds::default())),
        load("HOLDS of a connection with holds", Flat, |number, out| {
            if number % 8 == 1 {
                return Acquire { key: &key(u64::from(number) << 32), ..Acquire::default() }
                    .encode(number, out);
            }
            Request::Holds(Holds::default()).encode(number, out);
        }),
        same("WATCH of a crowded key", Flat, &Request::Watch(Watch { key: b"crowd" })),
        load("WATCH of new keys", Flat, |number, out| {
            Request::Watch(Watch { key: &long_key(number) }).encode(number, out);
        }),
        load("UNWATCH", Flat, |number, out| {
            if number % 2 == 1 {
                return Request::Watch(Watch { key: b"watched" }).encode(number, out);
            }
            Request::Unwatch(Unwatch { watch_number: number - 1, key: b"watched" }).encode(number, out);
        }),
        same(
            "UNWATCH of an unknown watch",
            Flat,
            &Request::Unwatch(Unwatch { watch_number: 1, key: b"crowd" }),
        ),
        same("VERIFY", Flat, &Request::Verify(Verify { fence: 1, key: b"crowd" })),
        Load {
            namespace: EMPTY,
            ..load("FREEZE and thaw", Flat, |number, out| {
                let thaw = number % 128 >= 64;
                Request::Freeze(Freeze { prefix: &long_key(number % 64), thaw, ..Freeze::default() })
                    .encode(number, out);
            })
        },
        same("SERVER_STATUS", Flat, &Request::ServerStatus(ServerStatus)),
        same("NAMESPACES", Flat, &Request::Namespaces(Namespaces::default())),
        same(
            "REMOVE_NAMESPACE of an unknown namespace",
            Flat,
            &Request::RemoveNamespace(RemoveNamespace { name: b"nothing" }),
        ),
        same("NAMESPACES, last page", Flat, &Request::Namespaces(Namespaces { cursor: 4095, count_max: 1 })),
    ]
}

/// Requests about holds with long keys and long options.
fn of_holds(server: &mut Server) -> Vec<Load> {
    use NamespaceKind::Flat;
    let connection = server.open(&hello(Flat, Flat.name().as_bytes()));
    let acquire = |number: u32, out: &mut Vec<u8>| {
        let mut key = long_key(number);
        key[4] = b'h';
        let options = AcquireOptions { release_after_ms: None, ..long_options() };
        Acquire {
            key: &key,
            terms: AcquireTerms { lease_ms: 86_400_000, options, ..AcquireTerms::default() },
            ..Acquire::default()
        }
        .encode(number, out);
    };
    let ids = server.ask_many(connection, 4_000, acquire);
    let (held, ended) = (ids.clone(), ids[2_000..].to_vec());
    let extended = ids[..2_000].to_vec();
    vec![
        load("STATUS of a long key", Flat, move |number, out| {
            let id = held[number as usize % 2_000];
            Request::Status(Status { id, key: None }).encode(number, out);
        }),
        load("EXTEND", Flat, move |number, out| {
            let id = extended[number as usize % 2_000];
            Extend { id, key: None, lease_ms: 80_000_000 + number % 1_000_000, own: false }
                .encode(number, out);
        }),
        load("FORCE_RELEASE", Flat, move |number, out| {
            let id = ended[number as usize % ended.len()];
            Request::ForceRelease(ForceRelease { id, reason: &[b'x'; REASON_LEN_MAX] }).encode(number, out);
        }),
        load("FORCE_RELEASE of an unknown id", Flat, |number, out| {
            let id = LockId::from_bytes([7; 16]);
            Request::ForceRelease(ForceRelease { id, reason: &[b'x'; REASON_LEN_MAX] }).encode(number, out);
        }),
    ]
}

fn several_keys() -> Vec<Load> {
    use NamespaceKind::Flat;
    let same_keys = |shared, wait_ms| {
        let mut bytes = Vec::new();
        put_keys(&short_keys(0), shared, wait_ms, 1, &mut bytes);
        repeated(bytes)
    };
    vec![
        load("ACQUIRE_KEYS of 1,024 new keys", Flat, |number, out| {
            put_keys(&short_keys(number), false, 0, number, out);
        }),
        load("ACQUIRE_KEYS of 1,024 keys with a request id", Flat, |number, out| {
            let id = request_id(number);
            let options = AcquireOptions { request_id: Some(&id), ..long_options() };
            put_keys_with(&short_keys(number), false, 0, options, number, out);
        }),
        load("ACQUIRE_KEYS of 1,024 keys, repeated", Flat, |number, out| {
            let options = AcquireOptions { request_id: Some(b"again"), ..AcquireOptions::default() };
            put_keys_with(&short_keys(1), false, 0, options, number, out);
        }),
        load("ACQUIRE_KEYS of 120 long keys, repeated", Flat, |number, out| {
            let options = AcquireOptions { request_id: Some(b"again"), ..AcquireOptions::default() };
            put_keys_with(&long_keys(1), false, 0, options, number, out);
        }),
        load("ACQUIRE_KEYS of 1,024 keys of 125 bytes", Flat, |number, out| {
            let mut keys = short_keys(number);
            keys.iter_mut().for_each(|key| key.resize(125, b'k'));
            put_keys(&keys, false, 0, number, out);
        }),
        load("ACQUIRE_KEYS of 120 long keys", Flat, |number, out| {
            put_keys(&long_keys(number), false, 0, number, out);
        }),
        load("ACQUIRE_KEYS of 1,024 shared keys", Flat, same_keys(true, 0)),
        load("ACQUIRE_KEYS of 1,024 keys that waits", Flat, same_keys(false, WAIT_FOREVER_MS)),
        load("ACQUIRE_KEYS of 1,024 keys, shared, that waits", Flat, |number, out| {
            let mut keys = short_keys(0);
            keys[0] = b"crowd".to_vec();
            put_keys(&keys, true, WAIT_FOREVER_MS, number, out);
        }),
        load("ACQUIRE_KEYS of 1,024 keys, the last held", Flat, |number, out| {
            let mut keys = short_keys(number);
            keys[ITEM_COUNT_MAX - 1] = b"crowd".to_vec();
            put_keys(&keys, false, 0, number, out);
        }),
        load("ACQUIRE_KEYS of the same key 1,024 times", Flat, |number, out| {
            put_keys(&vec![b"crowd".to_vec(); ITEM_COUNT_MAX], false, 0, number, out);
        }),
    ]
}

fn tree() -> Vec<Load> {
    use NamespaceKind::Tree;
    let none = AcquireOptions::default;
    let wait = WAIT_FOREVER_MS;
    vec![
        load("ACQUIRE_SET of a path", Tree, move |number, out| {
            put_set(&paths(number, 1, 1), true, 0, none(), number, out);
        }),
        load("ACQUIRE_SET of a path of 64 segments", Tree, move |number, out| {
            put_set(&paths(number, 1, SEGMENT_COUNT_MAX), true, 0, none(), number, out);
        }),
        load("ACQUIRE_SET of the longest path", Tree, move |number, out| {
            put_set(&[longest_path(number)], true, 0, none(), number, out);
        }),
        load("ACQUIRE_SET of 64 paths", Tree, move |number, out| {
            put_set(&paths(number, 64, 3), true, 0, none(), number, out);
        }),
        load("ACQUIRE_SET of 1,024 segments", Tree, move |number, out| {
            put_set(&paths(number, 16, SEGMENT_COUNT_MAX), true, 0, none(), number, out);
        }),
        load("ACQUIRE_SET of 1,024 short paths", Tree, move |number, out| {
            put_set(&paths(number, ITEM_COUNT_MAX as u16, 1), true, 0, none(), number, out);
        }),
        load("ACQUIRE_SET of 1,024 short paths that waits", Tree, move |number, out| {
            let mut set = paths(number, ITEM_COUNT_MAX as u16, 1);
            set[0] = leaf(0);
            put_set(&set, true, wait, none(), number, out);
        }),
        load("ACQUIRE_SET of 65,536 segments", Tree, move |number, out| {
            put_set(&paths(number, ITEM_COUNT_MAX as u16, SEGMENT_COUNT_MAX), true, 0, none(), number, out);
        }),
        load("ACQUIRE_SET of 65,536 segments, repeated", Tree, |number, out| {
            let options = AcquireOptions { request_id: Some(b"again"), ..AcquireOptions::default() };
            let set = paths(0, ITEM_COUNT_MAX as u16, SEGMENT_COUNT_MAX);
            put_set(&set, true, 0, options, number, out);
        }),
        load("ACQUIRE_SET of the root", Tree, move |number, out| {
            put_set(&[path_of(&["root"])], true, 0, none(), number, out);
        }),
        load("ACQUIRE_SET of the root that waits", Tree, move |number, out| {
            put_set(&[path_of(&["root"])], true, wait, none(), number, out);
        }),
        load("ACQUIRE_SET behind many sets", Tree, move |number, out| {
            put_set(&[leaf(1)], true, wait, none(), number, out);
        }),
    ]
}

fn reading_tree(server: &mut Server) -> Vec<Load> {
    use NamespaceKind::Tree;
    let connection = server.open(&hello(Tree, Tree.name().as_bytes()));
    let hold = |number: u32, out: &mut Vec<u8>| {
        let options = AcquireOptions { release_after_ms: None, ..long_options() };
        let mut path = longest_path(number);
        path[2 + 4] = b'h';
        let mut buffer = Vec::new();
        let item = PathItem { write: true, path: PathKey::new(&path).expect("a path") };
        let items = Items::new([item], &mut buffer).expect("a path");
        let set = AcquireSet {
            items,
            terms: AcquireTerms { lease_ms: 86_400_000, options, ..AcquireTerms::default() },
        };
        set.encode(number, out);
    };
    let ids = server.ask_many(connection, 100, hold);
    let root = path_of(&["root"]);
    let mut none = root.clone();
    PathKey::append(["nothing"], &mut none).expect("a segment");
    vec![
        load("STATUS of a long path", Tree, move |number, out| {
            let id = ids[number as usize % ids.len()];
            Request::Status(Status { id, key: None }).encode(number, out);
        }),
        same("INSPECT of the namespace", Tree, &Request::Inspect(Inspect { key: b"" })),
        same("INSPECT of a root", Tree, &Request::Inspect(Inspect { key: &root })),
        same("VERIFY of the namespace", Tree, &Request::Verify(Verify { fence: 1, key: b"" })),
        same("VERIFY of a root", Tree, &Request::Verify(Verify { fence: 3, key: &root })),
        load("VERIFY of a path", Tree, |number, out| {
            Request::Verify(Verify { fence: 3, key: &leaf(number % 100_000) }).encode(number, out);
        }),
        pages("LIST of a tree", Tree, |cursor| Request::List(List { cursor, ..List::default() })),
        load("LIST of a path without holders", Tree, move |number, out| {
            let cursor = mixed(number.into()) % SLOT_COUNT;
            Request::List(List { cursor, prefix: &none, ..List::default() }).encode(number, out);
        }),
        same("TREE_STATISTICS", Tree, &Request::TreeStatistics(TreeStatistics)),
    ]
}

fn permits(name: &[u8], wait_ms: u32) -> AcquirePermits<'_> {
    let lease_ms = SHORT_MS;
    AcquirePermits {
        any_capacity: true,
        permits: 2,
        name,
        terms: AcquireTerms { lease_ms, wait_ms, ..AcquireTerms::default() },
        ..AcquirePermits::default()
    }
}

fn pools() -> Vec<Load> {
    use NamespaceKind::Pool;
    let mut wait = permits(b"crowd", WAIT_FOREVER_MS);
    wait.terms.notify_queued = true;
    vec![
        load("ACQUIRE_PERMITS of a new pool", Pool, move |number, out| {
            let key = key(u64::from(number) << 32);
            let permits = AcquirePermits {
                capacity: 5,
                permits: 1,
                name: &key,
                terms: AcquireTerms { lease_ms: SHORT_MS, ..AcquireTerms::default() },
                ..AcquirePermits::default()
            };
            Request::AcquirePermits(permits).encode(number, out);
        }),
        load("ACQUIRE_PERMITS of a crowded pool", Pool, move |number, out| {
            Request::AcquirePermits(permits(b"crowd", 0)).encode(number, out);
        }),
        same("ACQUIRE_PERMITS behind many waiters", Pool, &Request::AcquirePermits(wait)),
        same("DESCRIBE_POOL", Pool, &Request::DescribePool(DescribePool { name: b"crowd" })),
        load("SET_CAPACITY of a crowded pool", Pool, |number, out| {
            let (name, order) = (b"resized", PoolOrder::Arrival);
            let capacity = 1_000 + u64::from(number % 1_000);
            Request::SetCapacity(SetCapacity { name, capacity, order, ..SetCapacity::default() })
                .encode(number, out);
        }),
        load("SET_CAPACITY of new pools", Pool, |number, out| {
            let (name, order) = (long_key(number), PoolOrder::Arrival);
            Request::SetCapacity(SetCapacity { name: &name, capacity: 5, order, ..SetCapacity::default() })
                .encode(number, out);
        }),
        pages("LIST_POOLS", Pool, |cursor| {
            Request::ListPools(ListPools { cursor: cursor % 40_000, ..ListPools::default() })
        }),
        pages("LIST_POOLS of a prefix without pools", Pool, |cursor| {
            Request::ListPools(ListPools {
                cursor: cursor % 40_000,
                prefix: b"nothing",
                ..ListPools::default()
            })
        }),
    ]
}

fn bucket(name: &[u8]) -> Bucket<'_> {
    Bucket { rate: 10, burst: 10, cost: 1, period_ns: 1_000_000_000, name }
}

fn limits() -> Vec<Load> {
    use NamespaceKind::Limit;
    let all = move |number: u32, rest: &[u8], out: &mut Vec<u8>| {
        let mut names: Vec<Vec<u8>> = (0..BUCKET_COUNT_MAX as u32).map(long_key).collect();
        names.iter_mut().for_each(|name| name[4..4 + rest.len()].copy_from_slice(rest));
        let mut buffer = Vec::new();
        let buckets = Items::new(names.iter().map(|name| bucket(name)), &mut buffer).expect("buckets");
        Request::ThrottleAll(ThrottleAll { buckets, refund: false }).encode(number, out);
    };
    vec![
        load("THROTTLE", Limit, move |number, out| {
            Throttle { bucket: bucket(b"bucket"), refund: false }.encode(number, out);
        }),
        load("THROTTLE of new buckets", Limit, move |number, out| {
            Throttle { bucket: bucket(&long_key(number)), refund: false }.encode(number, out);
        }),
        load("THROTTLE_ALL of 64 buckets", Limit, move |number, out| all(number, b"same", out)),
        load("THROTTLE_ALL of 64 new buckets", Limit, move |number, out| {
            all(number, &number.to_le_bytes(), out);
        }),
    ]
}

fn register<'a>(key: &'a [u8], value: &'a [u8]) -> Register<'a> {
    Register {
        lease_ms: 10_000,
        key,
        owner: &[b'o'; OWNER_LEN_MAX],
        value,
        type_name: &[b't'; TYPE_LEN_MAX],
        ..Register::default()
    }
}

fn registries() -> Vec<Load> {
    use NamespaceKind::{Lazy, Registry};
    let lists = |name: &'static str, other: &'static str, kind| {
        let any =
            |cursor| Request::ListEntries(ListEntries { any_type: true, cursor, ..ListEntries::default() });
        let nothing = |cursor| {
            Request::ListEntries(ListEntries { type_name: b"nothing", cursor, ..ListEntries::default() })
        };
        [pages(name, kind, any), pages(other, kind, nothing)]
    };
    let mut loads = vec![
        load("REGISTER of the longest entries", Registry, move |number, out| {
            Request::Register(register(&long_key(number), &[b'v'; VALUE_LEN_MAX])).encode(number, out);
        }),
        load("REGISTER of short entries", Lazy, move |number, out| {
            Request::Register(register(&key(u64::from(number) << 32), b"")).encode(number, out);
        }),
        load("HEARTBEAT", Registry, move |number, out| {
            let key = long_key(0);
            if number % 64 == 1 {
                return Request::Register(register(&key, &[b'v'; VALUE_LEN_MAX])).encode(number, out);
            }
            Request::Heartbeat(Heartbeat(register(&key, &[b'v'; VALUE_LEN_MAX]))).encode(number, out);
        }),
        load("UNREGISTER", Registry, move |number, out| {
            let key = long_key(number / 2);
            if number % 2 == 0 {
                return Request::Register(register(&key, b"")).encode(number, out);
            }
            let owner = &[b'o'; OWNER_LEN_MAX];
            Request::Unregister(Unregister { key: &key, owner }).encode(number, out);
        }),
        load("LOOK_UP", Registry, |number, out| {
            Request::LookUp(LookUp { key: &key(u64::from(number % 10_000)) }).encode(number, out);
        }),
    ];
    loads.extend(lists("LIST_ENTRIES", "LIST_ENTRIES of a type without entries", Registry));
    loads.extend(lists("LIST_ENTRIES, lazy", "LIST_ENTRIES of a type without entries, lazy", Lazy));
    loads
}

fn malformed_frames() -> Vec<Load> {
    use NamespaceKind::Flat;
    let long = vec![0xff; 60 << 10];
    vec![
        malformed("an unknown opcode", Flat, frame_of(0x7f, b"")),
        malformed("an unknown opcode with a long body", Flat, frame_of(0x7f, &long)),
        malformed("a short ACQUIRE", Flat, frame_of(opcode::ACQUIRE, b"")),
        malformed("a malformed ACQUIRE_KEYS", Flat, frame_of(opcode::ACQUIRE_KEYS, &[0; 32])),
        malformed("a long malformed ACQUIRE_KEYS", Flat, frame_of(opcode::ACQUIRE_KEYS, &long)),
        malformed("a short RELEASE", Flat, frame_of(opcode::RELEASE, b"short")),
        same("a request of another kind", Flat, &Request::TreeStatistics(TreeStatistics)),
        malformed("a second HELLO", Flat, {
            let mut bytes = Vec::new();
            hello(Flat, b"flat").encode(1, &mut bytes);
            bytes
        }),
    ]
}
