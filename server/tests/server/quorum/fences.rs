//! Fences of scope quorum, as clients see them.

use super::has_etcd;
use super::members::Members;
use crate::durable::Place;
use crate::harness::{Client, Received, Server, again_if_given_up, give_up, wait_for};
use std::net::TcpStream;
use waymaker_proto::etcd::etcdserverpb::kv_client::KvClient;
use waymaker_proto::etcd::etcdserverpb::{PutRequest, RangeRequest};
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireTerms, Cancel, ErrorCode, Granted, Inspect,
    Items, KeyItem, NamespaceKind, Release, Request, Response,
};

/// Time in which the server refuses a claim that the cluster does not answer. The server gives up after 1.8 s; the rest is for its
/// threads to be scheduled.
const REFUSED_WITHIN_MS: u32 = 10_000;
/// Time in which the server refuses a claim without asking the cluster. It is shorter than the 1.8 s of a question.
const REFUSED_AT_ONCE_MS: u32 = 1_000;
/// A key that another client holds, for [`ask_before`].
const HELD: &[u8] = b"held by another";

/// Longer than any test takes.
const LEASE_MS: u32 = 600_000;

pub(super) const QUORUM: AcquireOptions<'static> = AcquireOptions {
    scope: Some(3),
    release_after_ms: None,
    priority: None,
    request_id: None,
    owner: None,
    metadata: None,
    traceparent: None,
};
const LOCAL: AcquireOptions<'static> = AcquireOptions { scope: Some(2), ..QUORUM };

pub(super) fn quorum(key: &[u8]) -> Acquire<'_> {
    Acquire {
        key,
        terms: AcquireTerms { lease_ms: LEASE_MS, options: QUORUM, ..AcquireTerms::default() },
        ..Acquire::default()
    }
}

/// The flags of a server that has fences counted by these.
pub(super) fn flags(members: &Members) -> [String; 2] {
    ["--quorum-endpoints".to_owned(), members.endpoints().join(",")]
}

fn start(members: &Members, more: &[&str]) -> Server {
    let flags = flags(members);
    Server::start(&[&flags.each_ref().map(String::as_str)[..], more].concat())
}

fn start_on(place: &Place, members: &Members, more: &[&str]) -> Server {
    let flags = flags(members);
    place.start(&[&flags.each_ref().map(String::as_str)[..], more].concat())
}

fn acquire(client: &mut Client<TcpStream>, key: &[u8]) -> Granted {
    counted(&client.ask(Request::Acquire(quorum(key))))
}

/// Returns the grant. Gives the attempt up if the cluster was too slow to count its fence.
fn counted(answer: &Received) -> Granted {
    if matches!(answer.response(), Response::Error(error) if error.code == ErrorCode::QuorumUnavailable) {
        give_up("the cluster did not answer in time");
    }
    answer.granted()
}

/// Acquires and releases. Returns the fence. A release is not waited for, so the hold may be there again after a kill: not for
/// long.
fn spend(client: &mut Client<TcpStream>, key: &[u8]) -> u64 {
    let asked = quorum(key).with_terms(|terms| {
        terms.lease_ms = 500;
        terms.wait_ms = 600_000;
    });
    let granted = counted(&client.ask(Request::Acquire(asked)));
    client.send(Request::Release(Release { id: granted.id, key: None, own: false }));
    // If the test was slow, the lease has expired, which is announced first.
    while !matches!(client.receive().response(), Response::Released(_) | Response::Error(_)) {}
    granted.fence
}

/// Asks, and asserts that the answer comes before a wait for [`HELD`] times out after `limit_ms`. Both are on one connection, so
/// their order is the order in which the server wrote them.
fn ask_before(client: &mut Client<TcpStream>, request: Request<'_>, limit_ms: u32) -> Received {
    let wait = Acquire {
        key: HELD,
        terms: AcquireTerms { wait_ms: limit_ms, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    let acquire_number = client.send(Request::Acquire(wait));
    let number = client.send(request);
    let answer = client.receive();
    assert_eq!(answer.number(), number, "no answer within {limit_ms} ms: {:?}", answer.response());
    client.send(Request::Cancel(Cancel { acquire_number, key: HELD }));
    let ended = [client.receive(), client.receive()];
    assert!(ended.iter().any(|answer| answer.number() == acquire_number), "{ended:?}");
    answer
}

#[test]
fn quorum_fences_increment_across_restarts_and_disk_loss() {
    if has_etcd("fences of scope quorum") {
        again_if_given_up(fences_after_restarts);
    }
}

fn fences_after_restarts() {
    let members = Members::start(1);
    let place = Place::new();
    {
        let server = start_on(&place, &members, &["--workers", "2"]);
        let mut client = server.client("first");
        assert_eq!([(); 3].map(|()| spend(&mut client, b"key")), [1, 2, 3]);
        server.signal("KILL");
    }
    let old = tempfile::tempdir().expect("a directory");
    copy(place.path(), old.path().join("data"));
    {
        // On the directory as it was left.
        let server = start_on(&place, &members, &["--workers", "1"]);
        let mut client = server.client("second");
        assert_eq!([(); 3].map(|()| spend(&mut client, b"key")), [4, 5, 6]);
        server.signal("KILL");
    }
    {
        // On an older one.
        std::fs::remove_dir_all(place.path()).expect("it is ours");
        copy(old.path().join("data"), place.path());
        let server = start_on(&place, &members, &["--workers", "3"]);
        let mut client = server.client("third");
        assert_eq!([(); 2].map(|()| spend(&mut client, b"key")), [7, 8]);
        server.signal("KILL");
    }
    {
        // On none at all, and with none.
        std::fs::remove_dir_all(place.path()).expect("it is ours");
        let server = start_on(&place, &members, &[]);
        assert_eq!(spend(&mut server.client("fourth"), b"key"), 9);
    }
    let server = start(&members, &["--workers", "2"]);
    let mut client = server.client("fifth");
    assert_eq!(spend(&mut client, b"key"), 10);
    // Whoever wants less of a key whose counter is there gets as much.
    let plain = client.ask(Request::Acquire(Acquire { key: b"key", ..Acquire::default() })).granted();
    assert_eq!(plain.fence, 11);
    // Two servers that count the same keys by accident never give the same fence.
    let other = start(&members, &[]);
    assert_eq!(spend(&mut other.client("sixth"), b"key"), 12);
    client.release(plain.id);
    assert_eq!(spend(&mut client, b"key"), 13);
}

/// Copies the files of one directory into another.
pub(super) fn copy(from: impl AsRef<std::path::Path>, to: impl AsRef<std::path::Path>) {
    std::fs::create_dir_all(&to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.as_ref().join(entry.file_name())).expect("a copy");
    }
}

#[test]
fn a_quorum_hold_survives_a_kill_with_a_data_directory() {
    if has_etcd("holds of scope quorum") {
        again_if_given_up(hold_after_a_kill);
    }
}

fn hold_after_a_kill() {
    let members = Members::start(1);
    let place = Place::new();
    let held = {
        let server = start_on(&place, &members, &["--workers", "2"]);
        let mut client = server.client("first");
        assert_eq!(spend(&mut client, b"held"), 1);
        let held = acquire(&mut client, b"held");
        server.signal("KILL");
        held
    };
    let server = start_on(&place, &members, &["--workers", "1"]);
    let mut client = server.client("second");
    assert_eq!(client.ask(Request::Acquire(quorum(b"held"))).error().code, ErrorCode::Busy);
    client.release(held.id);
    assert_eq!(acquire(&mut client, b"held").fence, held.fence + 1);
}

#[test]
fn an_unavailable_cluster_refuses_only_quorum_acquires() {
    if has_etcd("a cluster that does not answer") {
        again_if_given_up(refusals_without_a_cluster);
    }
}

fn refusals_without_a_cluster() {
    let mut members = Members::start(3);
    let place = Place::new();
    let server = start_on(&place, &members, &["--workers", "2"]);
    let mut client = server.client("somebody");
    server.client("another").acquire(HELD, LEASE_MS);
    let held = acquire(&mut client, b"held");
    for is_killed in [false, true] {
        for index in 0..3 {
            if is_killed {
                members.kill(index);
            } else {
                members.pause(index);
            }
        }
        let refused = ask_before(&mut client, Request::Acquire(quorum(b"key")), REFUSED_WITHIN_MS);
        assert_eq!(refused.refusal().0, ErrorCode::QuorumUnavailable);
        for key in [&b"key"[..], b"other", b"held"] {
            let refused = ask_before(&mut client, Request::Acquire(quorum(key)), REFUSED_AT_ONCE_MS);
            let code = refused.error().code;
            assert!(matches!(code, ErrorCode::QuorumUnavailable | ErrorCode::Busy), "{code:?}");
        }
        // Nothing was given instead, and nothing else suffers.
        let inspected = client.ask(Request::Inspect(Inspect { key: b"key" }));
        let Response::Inspected(inspected) = inspected.response() else { panic!("{inspected:?}") };
        assert_eq!(inspected.holder_count, 0);
        for options in [AcquireOptions::default(), LOCAL] {
            let acquire = Acquire {
                key: b"plain",
                terms: AcquireTerms { options, ..AcquireTerms::default() },
                ..Acquire::default()
            };
            let granted = client.ask(Request::Acquire(acquire)).granted();
            client.release(granted.id);
        }
        if is_killed {
            members.restart_all(&[0, 1, 2]);
        } else {
            (0..3).for_each(|index| members.resume(index));
        }
        let granted = wait_for("a grant once the cluster answers again", || {
            let answer = client.ask(Request::Acquire(quorum(b"key")));
            match answer.response() {
                Response::Granted(granted) => Some(granted),
                Response::Error(error) if error.code == ErrorCode::QuorumUnavailable => None,
                other => panic!("{other:?}"),
            }
        });
        client.release(granted.id);
    }
    client.release(held.id);
    assert_eq!(acquire(&mut client, b"held").fence, held.fence + 1);
}

#[test]
fn a_reserved_claim_blocks_others_and_can_be_cancelled() {
    if has_etcd("claims that are reserved") {
        again_if_given_up(reserved_claims);
    }
}

fn reserved_claims() {
    let mut members = Members::start(1);
    let server = start(&members, &["--workers", "2"]);
    let (mut client, mut other) = (server.client("first"), server.client("second"));
    assert_eq!(spend(&mut client, b"key"), 1);
    members.pause(0);
    // One write, so the server has all three requests before it gives up on the cluster. The try is refused because of the claim
    // in front of it.
    let mut bytes = Vec::new();
    let plain = Acquire { key: b"key", ..Acquire::default() };
    Request::Acquire(quorum(b"key").with_terms(|terms| terms.wait_ms = u32::MAX)).encode(1_000, &mut bytes);
    Request::Acquire(plain).encode(1_001, &mut bytes);
    Request::Cancel(Cancel { acquire_number: 1_000, key: b"key" }).encode(1_002, &mut bytes);
    client.write(&bytes);
    let mut answers = [(); 3].map(|()| client.receive());
    answers.sort_by_key(Received::number);
    assert_eq!(answers.each_ref().map(Received::number), [1_000, 1_001, 1_002]);
    assert_eq!(answers[0].error().code, ErrorCode::Cancelled);
    assert_eq!(answers[1].error().code, ErrorCode::Busy);
    // What the cluster counts of it late only raises the counter.
    members.resume(0);
    let fence = spend(&mut other, b"key");
    assert!(fence == 2 || fence == 3, "{fence}");
    // The end of its wait is another way.
    members.pause(0);
    let late = client.ask(Request::Acquire(quorum(b"key").with_terms(|terms| terms.wait_ms = 100)));
    assert_eq!(late.error().code, ErrorCode::Timeout, "the cluster would have been given more time");
    members.resume(0);
    assert!(spend(&mut other, b"key") > fence);
}

#[test]
fn multi_key_claims_permits_and_readers_are_counted() {
    if has_etcd("other kinds of scope quorum") {
        again_if_given_up(other_kinds_of_claims);
    }
}

fn other_kinds_of_claims() {
    let members = Members::start(1);
    let place = Place::new();
    for round in 0..3 {
        let server = start_on(&place, &members, &["--workers", "3"]);
        let mut client = server.client("somebody");
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        let mut buffer = Vec::new();
        let items = Items::new(keys.map(|key| KeyItem { shared: false, key }), &mut buffer).expect("a list");
        let asked = AcquireKeys {
            items,
            terms: AcquireTerms { lease_ms: LEASE_MS, options: QUORUM, ..AcquireTerms::default() },
        };
        let answer = client.ask(Request::AcquireKeys(asked));
        let Response::GrantedKeys(granted) = answer.response() else { panic!("{:?}", counted(&answer)) };
        let fences: Vec<u64> = granted.keys.iter().map(|key| key.fence).collect();
        assert_eq!(fences, [round + 1; 3]);
        let ids: Vec<_> = granted.keys.iter().map(|key| key.id).collect();
        ids.into_iter().for_each(|id| client.release(id));
        // Readers that come together share one write of the cluster, and each has a fence of its own.
        let mut readers: Vec<_> = (0..8).map(|_| server.client("reader")).collect();
        for reader in &mut readers {
            reader.send(Request::Acquire(Acquire { shared: true, ..quorum(b"shared") }));
        }
        let granted: Vec<_> = readers.iter_mut().map(|reader| counted(&reader.receive())).collect();
        let mut fences: Vec<u64> = granted.iter().map(|granted| granted.fence).collect();
        fences.sort_unstable();
        assert_eq!(fences, (8 * round + 1..=8 * round + 8).collect::<Vec<_>>());
        readers.iter_mut().zip(granted).for_each(|(reader, granted)| reader.release(granted.id));
        let mut client = server.client_of(NamespaceKind::Pool, "somebody");
        let asked = AcquirePermits {
            name: b"pool",
            permits: 1,
            capacity: 1,
            terms: AcquireTerms { lease_ms: LEASE_MS, options: QUORUM, ..AcquireTerms::default() },
            ..AcquirePermits::default()
        };
        let granted = counted(&client.ask(Request::AcquirePermits(asked)));
        assert_eq!(granted.fence, round + 1);
        client.release(granted.id);
        server.signal("KILL");
        // Each time as if it had never been there.
        drop(server);
        std::fs::remove_dir_all(place.path()).expect("it is ours");
    }
}

/// Whoever looks into etcd finds the fence in words, and what is no counter is left alone.
#[test]
fn counters_are_readable_in_etcd_and_other_values_are_not_overwritten() {
    if has_etcd("counters in etcd") {
        again_if_given_up(counters_in_the_cluster);
    }
}

fn counters_in_the_cluster() {
    let members = Members::start(1);
    let server = start(&members, &["--quorum-prefix", "locks/"]);
    let mut client = server.client("somebody");
    assert_eq!([(); 2].map(|()| spend(&mut client, b"key")), [1, 2]);
    let mut kv = KvClient::new(members.channel(0));
    let everything = RangeRequest { key: vec![0], range_end: vec![0], ..RangeRequest::default() };
    let found = members.block_on(kv.range(everything)).expect("an answer").into_inner().kvs;
    assert_eq!(found.len(), 1, "{found:?}");
    let key = String::from_utf8(found[0].key.clone()).expect("text");
    assert!(key.starts_with("locks/") && key.ends_with("/key"), "{key}");
    assert!(found[0].value.starts_with(b"2 "), "{:?}", found[0].value.escape_ascii().to_string());
    let mut nonsense = found[0].key.clone();
    nonsense.extend_from_slice(b"2");
    // The last of them are numbers, behind which nothing is left to count.
    for value in
        ["mine", "18446744073709551615 ab.1", "18446744073709551614 ab.1", "4611686018427387904 ab.1"]
    {
        let put = PutRequest { key: nonsense.clone(), value: value.into(), ..PutRequest::default() };
        members.block_on(kv.put(put)).expect("it is put");
        let refused = client.ask(Request::Acquire(quorum(b"key2")));
        assert_eq!(refused.refusal().0, ErrorCode::QuorumUnavailable, "{value}");
    }
    assert_eq!(spend(&mut client, b"key"), 3);
}

/// A transaction counts many keys at once. Members that were told of a smaller limit refuse it as a whole.
#[test]
fn a_transaction_too_large_for_etcd_is_split() {
    if has_etcd("members with a small limit") {
        again_if_given_up(small_transactions);
    }
}

fn small_transactions() {
    let mut members = Members::start_with(1, &["--max-txn-ops=4"]);
    let server = start(&members, &["--workers", "1"]);
    let mut client = server.client("somebody");
    let keys: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
    for round in 1..=3 {
        // While it stands still more arrive than are asked one by one.
        members.pause(0);
        for key in &keys {
            client.send(Request::Acquire(quorum(key.as_bytes())));
        }
        members.resume(0);
        let granted: Vec<Granted> = keys.iter().map(|_| counted(&client.receive())).collect();
        for granted in granted {
            assert_eq!(granted.fence, round);
            client.release(granted.id);
        }
    }
}
