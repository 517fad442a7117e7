//! What others see of it, and do to it.

use super::client::{Locker, broken, each_size, http, parts, server, statistics};
use crate::harness::{Client, Server, default_hello};
use std::net::TcpStream;
use waymaker_protocol::{ForceRelease, Hello, List, LockId, NamespaceKind, Request, Response};

/// A client of the binary protocol in the namespace that stands for `test`.
fn operator(server: &Server) -> Client<TcpStream> {
    let mut client = server.stranger();
    client.open(Hello { kind: NamespaceKind::Tree, namespace: b"tree/locktopus/test", ..default_hello() });
    client
}

/// The id and the owner of the only lock.
fn only_lock(client: &mut Client<TcpStream>) -> (LockId, String) {
    let (mut cursor, mut found) = (0, Vec::new());
    loop {
        let answer = client.ask(Request::List(List { cursor, ..List::default() }));
        let Response::Listed(listed) = answer.response() else { panic!("{:?}", answer.response()) };
        for lock in &listed.locks {
            assert_eq!(lock.key, b"\x01\0a\x01\0b");
            found.push((lock.id, String::from_utf8(lock.owner.to_vec()).expect("an address")));
        }
        cursor = listed.next;
        if cursor == 0 {
            assert_eq!(found.len(), 1, "{found:?}");
            return found.remove(0);
        }
    }
}

#[test]
fn a_lock_is_listed_in_its_namespace_with_the_address_of_its_holder() {
    for server in each_size() {
        let mut locker = Locker::connect(&server, "test");
        locker.take("W a/b");
        let (_, owner) = only_lock(&mut operator(&server));
        assert_eq!(owner, locker.address());
    }
}

#[test]
fn a_forced_release_notifies_and_closes_the_holder() {
    for server in each_size() {
        let [mut locker, mut waiter] = ["test"; 2].map(|namespace| Locker::connect(&server, namespace));
        locker.take("W a/b");
        waiter.queue("W a");
        let mut operator = operator(&server);
        let (id, _) = only_lock(&mut operator);
        let answer = operator.ask(Request::ForceRelease(ForceRelease { id, reason: b"it hung" }));
        assert!(matches!(answer.response(), Response::ForceReleased(_)), "{:?}", answer.response());
        assert_eq!(locker.ended(), broken("the lock was lost: released by an operator: it hung"));
        waiter.acquire();
    }
}

#[test]
fn a_namespace_has_statistics_once_a_client_has_connected() {
    let server = server(&[]);
    for (port, path) in
        [("http", "stats_v1"), ("http", "stats"), ("locktopus", "stats_v1"), ("locktopus", "stats")]
    {
        let request = |namespace: &str| http(&server, port, &format!("GET /{path}?namespace={namespace}"));
        let answer = request(path);
        assert_eq!((parts(&answer).0, parts(&answer).2), (404, "Namespace not found"), "{port} {path}");
        // What was only asked over HTTP is not there.
        assert_eq!(parts(&http(&server, port, &format!("GET /v1?namespace={path}"))).0, 400);
        assert_eq!(parts(&request(path)).0, 404);
    }
    let _locker = Locker::connect(&server, "stats");
    let answer = http(&server, "locktopus", "GET /stats?namespace=stats");
    let (status, head, _) = parts(&answer);
    assert!(status == 200 && head.contains("content-type: application/json"), "{answer}");
    let answer = http(&server, "http", "GET /stats_v1");
    assert_eq!((parts(&answer).0, parts(&answer).2), (400, "URL parameter 'namespace' is required"));
}

#[test]
fn the_statistics_count_held_and_waiting_locks() {
    for server in each_size() {
        let [mut one, mut two, mut three] = ["test"; 3].map(|namespace| Locker::connect(&server, namespace));
        let fresh = statistics(&server, "test");
        let groups = |numbers: &serde_json::Value| {
            ["LastGroupID", "GroupsAcquired", "GroupsPending"].map(|name| numbers[name].as_u64())
        };
        assert_eq!(groups(&fresh), [Some(0); 3]);
        assert_eq!(fresh.as_object().map(serde_json::Map::len), Some(9));
        one.take("W a, R b");
        two.take("R b");
        three.queue("W b");
        assert_eq!(groups(&statistics(&server, "test")), [Some(3), Some(2), Some(1)]);
        one.release();
        two.release();
        three.acquire();
        three.release();
        assert_eq!(groups(&statistics(&server, "test")), [Some(3), Some(0), Some(0)]);
    }
}
