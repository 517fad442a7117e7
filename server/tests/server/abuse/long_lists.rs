//! Long lists of the contracts without pages: their cost for other clients, and their limits.

use super::bystander::{Delay, ask_idle, assert_delayed};
use super::expiry::assert_leases_end_in_time;
use super::http2::{Answer, Http2};
use super::server;
use crate::harness::{
    Server, SetWhenDropped, default_hello, memory_len, wait_until_rested, wait_until_rested_while,
};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use waymaker_proto::locket::{FetchAllRequest, FetchAllResponse};
use waymaker_proto::waymaker::{
    ListAcquiredLocksRequest, ListAcquiredLocksResponse, MultiLockKey, MultiLockRequest, MultiLockResponse,
};
use waymaker_protocol::{Hello, NamespaceKind, Register, Request, Response};

const LIST_ACQUIRED_LOCKS: &str = "/waymaker.WaymakerService/ListAcquiredLocks";
const FETCH_ALL: &str = "/models.Locket/FetchAll";
/// Keys of one request, as many as it may name.
const BATCH_LEN: usize = 500;
/// Limits of the server: bytes of one list, and of all of them.
const LIST_LEN_MAX: u64 = 128 << 20;
const LISTS_LEN_MAX: u64 = 256 << 20;
/// What else a server may take meanwhile.
const REST_LEN: u64 = 64 << 20;
/// Status `RESOURCE_EXHAUSTED`.
const RESOURCE_EXHAUSTED: u32 = 8;

/// Holds `count` keys, with `info_len` bytes about the requester of each.
pub(super) fn hold(server: &Server, count: usize, info_len: usize) -> Http2 {
    let mut holder = Http2::connect(server);
    for batch in 0..count.div_ceil(BATCH_LEN) {
        let keys = (0..BATCH_LEN)
            .map(|number| MultiLockKey { key: format!("one of many {batch} {number}"), write_lock: true })
            .collect();
        let request = MultiLockRequest {
            keys,
            max_lease_period: 600_000,
            requester_application: "somebody".to_owned(),
            requester_info: "i".repeat(info_len),
            ..Default::default()
        };
        let granted: MultiLockResponse = holder.ask("/waymaker.WaymakerService/MultiLock", &request);
        assert!(granted.success, "{}", granted.message);
    }
    holder
}

/// Registers `count` locks of Locket.
fn register(server: &Server, count: usize) {
    let mut client = server.stranger();
    client.open(Hello { kind: NamespaceKind::Registry, namespace: b"registry/locket", ..default_hello() });
    for first in (0..count).step_by(BATCH_LEN) {
        for number in first..first + BATCH_LEN {
            let key = format!("registered {number}");
            client.send(Request::Register(Register {
                key: key.as_bytes(),
                owner: b"somebody",
                type_name: b"lock",
                lease_ms: 600_000,
                ephemeral: true,
                ..Register::default()
            }));
        }
        for _ in 0..BATCH_LEN {
            assert!(matches!(client.receive().response(), Response::Registered(_)));
        }
    }
}

fn list(client: &mut Http2) -> Answer {
    client.call(LIST_ACQUIRED_LOCKS, &ListAcquiredLocksRequest::default())
}

fn fetch_all(client: &mut Http2) -> Answer {
    client.call(FETCH_ALL, &FetchAllRequest { type_code: 1, ..FetchAllRequest::default() })
}

#[test]
fn a_list_of_many_pages_contains_each_lock_once() {
    let server = server();
    let _holder = hold(&server, 3_000, 0);
    register(&server, 3_000);
    let mut client = Http2::connect(&server);
    let locks: ListAcquiredLocksResponse = list(&mut client).decode();
    assert!(locks.success);
    assert_eq!(locks.locks.len(), 3_000);
    assert!(locks.locks.is_sorted_by_key(|lock| (&lock.key, &lock.lock_id)));
    assert_eq!(locks.locks.iter().map(|lock| &lock.key).collect::<BTreeSet<_>>().len(), 3_000);
    let fetched: FetchAllResponse = fetch_all(&mut client).decode();
    assert_eq!(fetched.resources.len(), 3_000);
    let keys: BTreeSet<_> = fetched.resources.iter().map(|resource| &resource.key).collect();
    assert_eq!(keys.len(), 3_000);
}

#[test]
fn long_lists_barely_delay_other_clients() {
    let server = server();
    let idle = ask_idle(&server);
    let _holder = hold(&server, 100_000, 0);
    register(&server, 100_000);
    let before = memory_len(&server);
    let lists: [fn(&mut Http2) -> Answer; 2] = [list, fetch_all];
    let server = &server;
    let run = |stop: &AtomicBool| {
        std::thread::scope(|scope| {
            for list in lists {
                scope.spawn(move || {
                    let mut client = Http2::connect(server);
                    while !stop.load(Ordering::Relaxed) {
                        let answer = list(&mut client);
                        assert_eq!(answer.status, Some(0));
                        assert!(answer.body.len() > 100_000 * 20, "{} bytes", answer.body.len());
                    }
                });
            }
        });
    };
    assert_leases_end_in_time("long lists", server, run);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = SetWhenDropped(&stop);
        scope.spawn(|| run(&stop));
        assert_delayed(server, &idle, Delay::of_calls(50, 100));
    });
    let grown = memory_len(server).saturating_sub(before);
    assert!(grown < REST_LEN, "{grown} bytes");
}

#[test]
fn lists_beyond_their_limits_are_refused_with_the_limit() {
    let server = server();
    // Together more than one list may have.
    let _holder = hold(&server, 36_000, 4_000);
    wait_until_rested(&server);
    let before = memory_len(&server);
    let mut reader = Http2::connect(&server);
    let refused = list(&mut reader);
    assert_eq!(refused.status, Some(RESOURCE_EXHAUSTED));
    assert!(refused.message.contains(&LIST_LEN_MAX.to_string()), "{}", refused.message);
    // Some of them: 40 such lists are longer than all lists may be.
    let prefix = ListAcquiredLocksRequest { key_prefix: "one of many 2".to_owned() };
    assert_eq!(list_of(&mut reader, &prefix).status, Some(0));
    let mut unread = Vec::new();
    for _ in 0..40 {
        let mut client = Http2::connect_without_window(&server);
        client.send(LIST_ACQUIRED_LOCKS, &prefix);
        unread.push(client);
    }
    wait_until_rested_while(&server, || unread.iter_mut().chain([&mut reader]).for_each(Http2::stay_alive));
    let refused = list_of(&mut reader, &prefix);
    assert_eq!(refused.status, Some(RESOURCE_EXHAUSTED));
    assert!(refused.message.contains(&LISTS_LEN_MAX.to_string()), "{}", refused.message);
    let grown = memory_len(&server).saturating_sub(before);
    // The allocator rounds the length of a page up, by an eighth at most.
    assert!(grown < LISTS_LEN_MAX / 8 * 9 + REST_LEN, "{grown} bytes");
    drop(unread);
    wait_until_rested_while(&server, || reader.stay_alive());
    assert_eq!(list_of(&mut reader, &prefix).status, Some(0), "there is room again");
}

fn list_of(client: &mut Http2, request: &ListAcquiredLocksRequest) -> Answer {
    client.call(LIST_ACQUIRED_LOCKS, request)
}
