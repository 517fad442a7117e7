//! Each operation of the binary protocol needs exactly one right, for the keys that it names.

use super::Office;
use crate::harness::{Client, Server, default_hello};
use std::io::{Read, Write};
use std::net::TcpStream;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquirePermits, AcquireSet, Bucket, DescribePool, ErrorCode, ForceRelease, Freeze,
    Heartbeat, Hello, Holds, Inspect, Items, KeyItem, List, ListEntries, ListPools, LockId, LookUp,
    NamespaceKind, Namespaces, PathItem, PathKey, PoolOrder, Register, RemoveNamespace, Request, Response,
    ServerStatus, SetCapacity, Throttle, ThrottleAll, TreeStatistics, Unregister, Verify, Watch,
};

/// Every right that a rule can give for a namespace.
const RIGHTS: [&str; 9] = [
    "acquire_shared",
    "acquire",
    "inspect",
    "list",
    "release_others",
    "force_release",
    "freeze",
    "resize",
    "admin",
];

/// An operation: its kind of namespace, the rights of which each alone suffices (none: any right does), and whether it names keys.
struct Operation {
    name: &'static str,
    kind: NamespaceKind,
    rights: &'static [&'static str],
    names_key: bool,
    ask: fn(&mut Client<TcpStream>, &[u8]) -> Option<ErrorCode>,
}

pub(super) fn path_of(key: &[u8]) -> Vec<u8> {
    let mut path = Vec::new();
    PathKey::append(key.split(|byte| *byte == b'/'), &mut path).expect("a short path");
    path
}

fn set(client: &mut Client<TcpStream>, key: &[u8], write: bool) -> Option<ErrorCode> {
    let path = path_of(key);
    let (mut buffer, item) = (Vec::new(), PathItem { path: PathKey::new(&path).expect("a path"), write });
    let items = Items::new([item], &mut buffer).expect("one path");
    let acquire = AcquireSet { items, ..AcquireSet::default() };
    client.code_of(Request::AcquireSet(acquire))
}

fn keys(client: &mut Client<TcpStream>, key: &[u8], shared: bool) -> Option<ErrorCode> {
    let mut buffer = Vec::new();
    let items = Items::new([KeyItem { key, shared }], &mut buffer).expect("one key");
    let acquire = AcquireKeys { items, ..AcquireKeys::default() };
    client.code_of(Request::AcquireKeys(acquire))
}

fn bucket(name: &[u8]) -> Bucket<'_> {
    Bucket { rate: 1_000, burst: 1_000, cost: 1, period_ns: 1_000_000_000, name }
}

/// Every request of the protocol that some right governs, and one that none does.
const OPERATIONS: &[Operation] = &[
    Operation {
        name: "acquire",
        kind: NamespaceKind::Flat,
        rights: &["acquire"],
        names_key: true,
        ask: |client, key| client.code_of(Request::Acquire(Acquire { key, ..Acquire::default() })),
    },
    Operation {
        name: "acquire shared",
        kind: NamespaceKind::Flat,
        rights: &["acquire", "acquire_shared"],
        names_key: true,
        ask: |client, key| {
            client.code_of(Request::Acquire(Acquire { key, shared: true, ..Acquire::default() }))
        },
    },
    Operation {
        name: "acquire keys",
        kind: NamespaceKind::Flat,
        rights: &["acquire"],
        names_key: true,
        ask: |client, key| keys(client, key, false),
    },
    Operation {
        name: "acquire keys shared",
        kind: NamespaceKind::Flat,
        rights: &["acquire", "acquire_shared"],
        names_key: true,
        ask: |client, key| keys(client, key, true),
    },
    Operation {
        name: "acquire a set",
        kind: NamespaceKind::Tree,
        rights: &["acquire"],
        names_key: true,
        ask: |client, key| set(client, key, true),
    },
    Operation {
        name: "acquire a set shared",
        kind: NamespaceKind::Tree,
        rights: &["acquire", "acquire_shared"],
        names_key: true,
        ask: |client, key| set(client, key, false),
    },
    Operation {
        name: "acquire permits",
        kind: NamespaceKind::Pool,
        rights: &["acquire"],
        names_key: true,
        ask: |client, name| {
            let acquire = AcquirePermits { name, capacity: 10, permits: 1, ..AcquirePermits::default() };
            client.code_of(Request::AcquirePermits(acquire))
        },
    },
    Operation {
        name: "throttle",
        kind: NamespaceKind::Limit,
        rights: &["acquire"],
        names_key: true,
        ask: |client, name| {
            client.code_of(Request::Throttle(Throttle { bucket: bucket(name), refund: false }))
        },
    },
    Operation {
        name: "throttle all",
        kind: NamespaceKind::Limit,
        rights: &["acquire"],
        names_key: true,
        ask: |client, name| {
            let mut buffer = Vec::new();
            let buckets = Items::new([bucket(name)], &mut buffer).expect("one bucket");
            client.code_of(Request::ThrottleAll(ThrottleAll { buckets, refund: false }))
        },
    },
    Operation {
        name: "register",
        kind: NamespaceKind::Registry,
        rights: &["acquire"],
        names_key: true,
        ask: |client, key| {
            let register = Register { key, owner: b"o", lease_ms: 60_000, ..Register::default() };
            client.code_of(Request::Register(register))
        },
    },
    Operation {
        name: "heartbeat",
        kind: NamespaceKind::Registry,
        rights: &["acquire"],
        names_key: true,
        ask: |client, key| {
            let register = Register { key, owner: b"o", lease_ms: 60_000, ..Register::default() };
            client.code_of(Request::Heartbeat(Heartbeat(register)))
        },
    },
    Operation {
        name: "unregister",
        kind: NamespaceKind::Registry,
        rights: &["acquire"],
        names_key: true,
        ask: |client, key| client.code_of(Request::Unregister(Unregister { key, owner: b"o" })),
    },
    Operation {
        name: "inspect",
        kind: NamespaceKind::Flat,
        rights: &["inspect"],
        names_key: true,
        ask: |client, key| client.code_of(Request::Inspect(Inspect { key })),
    },
    Operation {
        name: "inspect a path",
        kind: NamespaceKind::Tree,
        rights: &["inspect"],
        names_key: true,
        ask: |client, key| {
            let path = path_of(key);
            client.code_of(Request::Inspect(Inspect { key: &path }))
        },
    },
    Operation {
        name: "verify",
        kind: NamespaceKind::Flat,
        rights: &["inspect"],
        names_key: true,
        ask: |client, key| client.code_of(Request::Verify(Verify { key, fence: 1 })),
    },
    Operation {
        name: "watch",
        kind: NamespaceKind::Flat,
        rights: &["inspect"],
        names_key: true,
        ask: |client, key| client.code_of(Request::Watch(Watch { key })),
    },
    Operation {
        name: "look up",
        kind: NamespaceKind::Registry,
        rights: &["inspect"],
        names_key: true,
        ask: |client, key| client.code_of(Request::LookUp(LookUp { key })),
    },
    Operation {
        name: "describe a pool",
        kind: NamespaceKind::Pool,
        rights: &["inspect"],
        names_key: true,
        ask: |client, name| client.code_of(Request::DescribePool(DescribePool { name })),
    },
    Operation {
        name: "count a tree",
        kind: NamespaceKind::Tree,
        rights: &["inspect"],
        names_key: false,
        ask: |client, _| client.code_of(Request::TreeStatistics(TreeStatistics)),
    },
    Operation {
        name: "list",
        kind: NamespaceKind::Flat,
        rights: &["list"],
        names_key: false,
        ask: |client, _| {
            client.code_of(Request::List(List { cursor: 0, count_max: 0, prefix: b"", ..List::default() }))
        },
    },
    Operation {
        name: "list entries",
        kind: NamespaceKind::Registry,
        rights: &["list"],
        names_key: false,
        ask: |client, _| {
            let list = ListEntries { cursor: 0, count_max: 0, any_type: true, type_name: b"" };
            client.code_of(Request::ListEntries(list))
        },
    },
    Operation {
        name: "list pools",
        kind: NamespaceKind::Pool,
        rights: &["list"],
        names_key: false,
        ask: |client, _| {
            client.code_of(Request::ListPools(ListPools { cursor: 0, count_max: 0, prefix: b"" }))
        },
    },
    Operation {
        name: "force a release",
        kind: NamespaceKind::Flat,
        rights: &["force_release"],
        names_key: false,
        ask: |client, _| {
            let id = LockId { place: 1, secret: 1 };
            client.code_of(Request::ForceRelease(ForceRelease { id, reason: b"test" }))
        },
    },
    Operation {
        name: "freeze",
        kind: NamespaceKind::Flat,
        rights: &["freeze"],
        names_key: true,
        ask: |client, prefix| {
            client.code_of(Request::Freeze(Freeze { prefix, thaw: true, ..Freeze::default() }))
        },
    },
    Operation {
        name: "set a capacity",
        kind: NamespaceKind::Pool,
        rights: &["resize"],
        names_key: true,
        ask: |client, name| {
            let set = SetCapacity { name, capacity: 10, order: PoolOrder::Arrival, ..SetCapacity::default() };
            client.code_of(Request::SetCapacity(set))
        },
    },
    Operation {
        name: "remove a namespace",
        kind: NamespaceKind::Flat,
        rights: &["admin"],
        names_key: false,
        ask: |client, _| client.code_of(Request::RemoveNamespace(RemoveNamespace { name: b"flat" })),
    },
    Operation {
        name: "show the state of the server",
        kind: NamespaceKind::Flat,
        rights: &[],
        names_key: false,
        ask: |client, _| client.code_of(Request::ServerStatus(ServerStatus)),
    },
    Operation {
        name: "show own holds",
        kind: NamespaceKind::Flat,
        rights: &[],
        names_key: false,
        ask: |client, _| client.code_of(Request::Holds(Holds { cursor: 0, count_max: 0 })),
    },
];

/// Rules that give each right to an identity of its own, for all keys, and to another one for keys that begin with `a/`.
fn rules() -> String {
    let rule = |right: &&str| {
        format!(
            "[[rule]]\nidentity = \"{right}\"\nallow = [\"{right}\"]\n\
             [[rule]]\nidentity = \"{right} below a\"\nprefix = \"a/\"\nallow = [\"{right}\"]\n"
        )
    };
    RIGHTS.iter().map(rule).collect()
}

/// A connection of an identity to the namespace of an operation.
fn connect(server: &Server, operation: &Operation, token: &str) -> Client<TcpStream> {
    server.client_with(operation.kind, token)
}

fn assert_each_operation_needs_its_right(start: fn(&Office) -> Server) {
    let office = Office::new(&rules());
    let tokens: Vec<_> = RIGHTS.iter().map(|right| (*right, office.token(right))).collect();
    let server = start(&office);
    for (right, token) in &tokens {
        for operation in OPERATIONS {
            let code = (operation.ask)(&mut connect(&server, operation, token), b"a/key");
            let is_refused = code == Some(ErrorCode::Unauthorized);
            let expected = !operation.rights.is_empty() && !operation.rights.contains(right);
            assert_eq!(is_refused, expected, "{} with the right {right}: {code:?}", operation.name);
        }
    }
}

#[test]
fn each_operation_is_served_with_its_right_and_refused_with_any_other() {
    assert_each_operation_needs_its_right(|office| office.server(&[]));
}

#[test]
fn over_tls_each_operation_is_served_with_its_right_and_refused_with_any_other() {
    assert_each_operation_needs_its_right(|office| office.encrypted_server(&[], &["binary"]));
}

#[test]
fn a_right_for_a_prefix_serves_keys_below_it_alone() {
    let office = Office::new(&rules());
    let tokens: Vec<_> =
        RIGHTS.iter().map(|right| (*right, office.token(&format!("{right} below a")))).collect();
    let server = office.server(&[]);
    for (right, token) in &tokens {
        for operation in OPERATIONS.iter().filter(|operation| operation.names_key) {
            let mut client = connect(&server, operation, token);
            // In a tree, `a/` is the path `a`.
            let is_tree = operation.kind == NamespaceKind::Tree;
            for (key, is_below) in [(&b"a/key"[..], true), (b"a", is_tree), (b"ab", false), (b"b/key", false)]
            {
                let code = (operation.ask)(&mut client, key);
                let is_refused = code == Some(ErrorCode::Unauthorized);
                let expected = !(is_below && operation.rights.contains(right));
                let (name, key) = (operation.name, String::from_utf8_lossy(key));
                assert_eq!(is_refused, expected, "{name} of {key} with the right {right}: {code:?}");
            }
        }
    }
}

#[test]
fn a_right_for_a_prefix_serves_an_operation_without_a_key_unless_it_is_about_all_keys() {
    let office = Office::new(&rules());
    let tokens: Vec<_> =
        RIGHTS.iter().map(|right| (*right, office.token(&format!("{right} below a")))).collect();
    let server = office.server(&[]);
    for operation in OPERATIONS.iter().filter(|operation| !operation.names_key) {
        for (right, token) in tokens.iter().filter(|(right, _)| operation.rights.contains(right)) {
            let code = (operation.ask)(&mut connect(&server, operation, token), b"");
            let is_about_all = ["count a tree", "remove a namespace"].contains(&operation.name);
            let name = operation.name;
            assert_eq!(code == Some(ErrorCode::Unauthorized), is_about_all, "{name} with {right}: {code:?}");
        }
    }
}

#[test]
fn an_operation_over_several_keys_needs_the_right_for_each() {
    let office = Office::new("[[rule]]\nidentity = \"me\"\nprefix = \"a/\"\nallow = [\"acquire\"]\n");
    let token = office.token("me");
    let server = office.server(&[]);
    let mut buffer = Vec::new();
    let items = [&b"a/1"[..], b"b/1"].map(|key| KeyItem { key, shared: false });
    let items = Items::new(items, &mut buffer).expect("two keys");
    let acquire = AcquireKeys { items, ..AcquireKeys::default() };
    let mut client = server.client_with(NamespaceKind::Flat, &token);
    assert_eq!(client.code_of(Request::AcquireKeys(acquire)), Some(ErrorCode::Unauthorized));

    let paths = [&b"a/1"[..], b"b/1"].map(path_of);
    let mut buffer = Vec::new();
    let items = paths.iter().map(|path| PathItem { path: PathKey::new(path).expect("a path"), write: true });
    let items = Items::new(items, &mut buffer).expect("two paths");
    let acquire = AcquireSet { items, ..AcquireSet::default() };
    let mut client = server.client_with(NamespaceKind::Tree, &token);
    assert_eq!(client.code_of(Request::AcquireSet(acquire)), Some(ErrorCode::Unauthorized));

    let mut buffer = Vec::new();
    let buckets = Items::new([bucket(b"a/1"), bucket(b"b/1")], &mut buffer).expect("two buckets");
    let mut client = server.client_with(NamespaceKind::Limit, &token);
    let throttle = Request::ThrottleAll(ThrottleAll { buckets, refund: false });
    assert_eq!(client.code_of(throttle), Some(ErrorCode::Unauthorized));
}

#[test]
fn clients_that_may_freeze_some_prefixes_leave_room_for_operators() {
    let office = Office::new(
        "[[rule]]\nidentity = \"operator\"\nallow = [\"all\"]\n\
         [[rule]]\nidentity = \"team\"\nprefix = \"team/\"\nallow = [\"freeze\"]\n",
    );
    let (operator, team) = (office.token("operator"), office.token("team"));
    let server = office.server(&[]);
    let frozen = |token: &str, prefix: &str| {
        let mut client = server.client_with(NamespaceKind::Flat, token);
        client.code_of(Request::Freeze(Freeze {
            prefix: prefix.as_bytes(),
            thaw: false,
            ..Freeze::default()
        }))
    };
    let codes: Vec<_> = (0..50).map(|number| frozen(&team, &format!("team/{number}"))).collect();
    assert!(codes[..48].iter().all(Option::is_none), "{codes:?}");
    assert_eq!(codes[48..], [Some(ErrorCode::Overloaded); 2]);
    assert_eq!(frozen(&operator, "team/48"), None);
}

#[test]
fn a_refusal_names_the_identity_and_the_right() {
    let office = Office::new(&rules());
    let token = office.token("list");
    let server = office.server(&[]);
    let mut client = server.client_with(NamespaceKind::Flat, &token);
    let answer = client.ask(Request::Acquire(Acquire { key: b"key", ..Acquire::default() }));
    assert_eq!(answer.refusal(), (ErrorCode::Unauthorized, "acquire", 0));
    let text = answer.error().to_string();
    assert!(text.contains("list") && text.contains("acquire"), "{text}");
}

/// The names of the namespaces that a client is shown.
pub(super) fn namespaces<S: Read + Write>(client: &mut Client<S>) -> Vec<String> {
    namespaces_in_pages(client, 0)
}

/// The same, in pages of `count_max` namespaces.
fn namespaces_in_pages<S: Read + Write>(client: &mut Client<S>, count_max: u16) -> Vec<String> {
    let mut names = Vec::new();
    let mut cursor = 0;
    loop {
        let page = client.ask(Request::Namespaces(Namespaces { cursor, count_max }));
        let Response::NamespacesListed(page) = page.response() else { panic!("{:?}", page.response()) };
        names.extend(page.namespaces.iter().map(|one| String::from_utf8_lossy(one.name).into_owned()));
        cursor = page.next;
        if cursor == 0 {
            names.sort();
            return names;
        }
    }
}

#[test]
fn a_client_is_shown_the_namespaces_that_it_may_list() {
    let office = Office::new(
        "[[rule]]\nidentity = \"root\"\nallow = [\"all\"]\n\
         [[rule]]\nidentity = \"one\"\nnamespace = \"team*\"\nallow = [\"list\"]\n\
         [[rule]]\nidentity = \"one\"\nnamespace = \"hidden*\"\nallow = [\"acquire\"]\n",
    );
    let (root, one) = (office.token("root"), office.token("one"));
    let server = office.server(&[]);
    let open = |token: &str, namespace: &str| {
        let mut client = server.stranger();
        let (credentials, namespace) = (token.as_bytes(), namespace.as_bytes());
        client.open(Hello { credentials, namespace, ..default_hello() });
        client
    };
    let hide = |numbers: std::ops::Range<u32>| -> Vec<_> {
        numbers.map(|number| open(&root, &format!("hidden{number}"))).collect()
    };
    // More than one page has room for, in front of the namespaces that are shown, between them and behind them.
    let mut kept = hide(0..300);
    let mut teams = open(&root, "team-a");
    kept.extend(hide(300..600));
    let mut team = open(&one, "team-b");
    kept.extend(hide(600..900));
    for count_max in [0, 1] {
        assert_eq!(namespaces_in_pages(&mut team, count_max), ["team-a", "team-b"]);
    }
    assert_eq!(namespaces(&mut teams).len(), 902);
    drop(kept);
}
