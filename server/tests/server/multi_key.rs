//! Several keys at once: all of them or none, whatever shards they lie in.

use crate::harness::{Client, Received, Server, SetWhenDropped, assert_remaining, each_size, wait_until};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquireTerms, Cancel, ErrorCode, ErrorDetail, Event, Extend,
    Granted, Inspect, Items, KeyItem, LockId, Release, Request, Response, SessionRequest, Welcome,
};

/// One of the locks of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lock {
    id: LockId,
    fence: u64,
    remaining_ms: u32,
    shared: bool,
    key: Vec<u8>,
}

fn exclusive(keys: &[impl AsRef<[u8]>]) -> Vec<(&[u8], bool)> {
    keys.iter().map(|key| (key.as_ref(), false)).collect()
}

/// Asks for these keys, each shared or not; the rest is as in `acquire`.
fn send_items(client: &mut Client<TcpStream>, items: &[(&[u8], bool)], acquire: &AcquireKeys<'_>) -> u32 {
    let mut buffer = Vec::new();
    let items = items.iter().map(|(key, shared)| KeyItem { key, shared: *shared });
    let items = Items::new(items, &mut buffer).expect("a list of keys");
    client.send(Request::AcquireKeys(AcquireKeys { items, ..*acquire }))
}

fn send_keys(client: &mut Client<TcpStream>, keys: &[impl AsRef<[u8]>], acquire: &AcquireKeys<'_>) -> u32 {
    send_items(client, &exclusive(keys), acquire)
}

/// Queues for these keys and says the number of the acquire and the id of the claim.
fn queue_for(client: &mut Client<TcpStream>, keys: &[impl AsRef<[u8]>], wait_ms: u32) -> (u32, LockId) {
    let acquire = AcquireKeys {
        terms: AcquireTerms { wait_ms, notify_queued: true, ..AcquireTerms::default() },
        ..AcquireKeys::default()
    };
    let number = send_keys(client, keys, &acquire);
    let queued = client.receive();
    assert_eq!(queued.number(), number);
    let Event::Queued { id, .. } = queued.event() else { panic!("{:?}", queued.event()) };
    (number, id)
}

/// Takes keys that must be free.
fn take(client: &mut Client<TcpStream>, keys: &[impl AsRef<[u8]>]) -> Vec<Lock> {
    send_keys(client, keys, &AcquireKeys::default());
    locks(&client.receive())
}

fn locks(answer: &Received) -> Vec<Lock> {
    let Response::GrantedKeys(granted) = answer.response() else { panic!("{:?}", answer.response()) };
    let lock = |key: &waymaker_protocol::GrantedKey<'_>| Lock {
        id: key.id,
        fence: key.fence,
        remaining_ms: key.remaining_ms,
        shared: key.shared,
        key: key.key.to_vec(),
    };
    granted.keys.iter().map(lock).collect()
}

fn release_all(client: &mut Client<TcpStream>, locks: &[Lock]) {
    for lock in locks {
        client.send(Request::Release(Release { id: lock.id, key: Some(&lock.key), own: false }));
    }
    for _ in locks {
        let answer = client.receive();
        assert!(matches!(answer.response(), Response::Released(_)), "{:?}", answer.response());
    }
}

/// How many hold a key and how many wait for it, and its newest fence.
fn state(client: &mut Client<TcpStream>, key: &[u8]) -> (u32, u32, u64) {
    let answer = client.ask(Request::Inspect(Inspect { key }));
    let Response::Inspected(inspected) = answer.response() else { panic!("{:?}", answer.response()) };
    (inspected.holder_count, inspected.waiter_count, inspected.fence)
}

/// Waits until nobody holds a key and nobody waits for it: other shards hear a little later of what one decided.
fn assert_becomes_free(client: &mut Client<TcpStream>, key: &[u8]) {
    wait_until(&format!("nobody holds {key:?} or waits for it"), || {
        let (holder_count, waiter_count, _) = state(client, key);
        holder_count + waiter_count == 0
    });
}

/// So many keys, which lie in all shards.
fn many_keys(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("key/{number:03}").into_bytes()).collect()
}

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn all_keys_are_granted_together_once_each_and_sorted_by_bytes() {
    for server in each_size() {
        let (mut client, mut other) = (server.client("a"), server.client("b"));
        let single = other.acquire(b"b", 0);
        other.release(single.id);
        let items: [(&[u8], bool); 5] =
            [(b"b", true), (b"c", true), (b"a", false), (b"b", false), (b"a/longer", false)];
        let sent = Instant::now();
        send_items(
            &mut client,
            &items,
            &AcquireKeys {
                terms: AcquireTerms { lease_ms: 60_000, ..AcquireTerms::default() },
                ..AcquireKeys::default()
            },
        );
        let granted = locks(&client.receive());
        let seen: Vec<_> = granted.iter().map(|lock| (&lock.key[..], lock.fence, lock.shared)).collect();
        assert_eq!(
            seen,
            [(&b"a"[..], 1, false), (b"a/longer", 1, false), (b"b", 2, false), (b"c", 1, true)],
            "a key that is named twice is exclusive if one of them is"
        );
        granted.iter().for_each(|lock| assert_remaining(lock.remaining_ms.into(), 60_000, sent));

        // From here on they are holds of their own.
        client.release(granted[0].id);
        assert_eq!(other.acquire(b"a", 0).fence, 2);
        let extend = Extend { id: granted[2].id, lease_ms: 60_000, key: Some(b"b"), own: false };
        assert!(matches!(client.ask(Request::Extend(extend)).response(), Response::Extended(_)));
        let busy = other.ask(Request::Acquire(Acquire { key: b"b", ..Acquire::default() }));
        assert_eq!(busy.error().code, ErrorCode::Busy);
        let reader = Acquire { key: b"c", shared: true, ..Acquire::default() };
        assert_eq!(other.ask(Request::Acquire(reader)).granted().fence, 2, "readers share");
    }
}

#[test]
fn one_held_key_makes_a_claim_wait_without_holding_other_keys() {
    for server in each_size() {
        let keys = many_keys(40);
        let (mut holder, mut client, mut other) =
            (server.client("h"), server.client("c"), server.client("o"));
        let held = holder.acquire(&keys[17], 0);
        send_keys(&mut client, &keys, &AcquireKeys::default());
        let error = client.receive();
        let ErrorDetail::Contention(contention) = error.error().detail else { panic!() };
        assert_eq!((error.error().code, contention.owner), (ErrorCode::Busy, &b"h"[..]));
        for key in &keys {
            assert_eq!(state(&mut other, key).1, 0, "a try leaves nothing behind");
        }
        let (number, _) = queue_for(&mut client, &keys, WAIT_FOREVER_MS);
        for (place, key) in keys.iter().enumerate() {
            let (holders, waiters, fence) = state(&mut other, key);
            let held = u32::from(place == 17);
            assert_eq!((holders, waiters, fence), (held, 1, u64::from(held)), "{key:?}");
        }
        holder.release(held.id);
        let answer = client.receive();
        assert_eq!(answer.number(), number);
        let Response::GrantedKeys(granted) = answer.response() else { panic!() };
        assert!(granted.waited && !granted.repeated);
        let fences: Vec<_> = granted.keys.iter().map(|key| key.fence).collect();
        assert_eq!(fences.iter().sum::<u64>(), 41, "waiting spent no fence");
        let granted = locks(&answer);
        assert_eq!(granted.iter().map(|lock| &lock.key).collect::<Vec<_>>(), keys.iter().collect::<Vec<_>>());
        release_all(&mut client, &granted);
        for key in &keys {
            assert_eq!(state(&mut other, key).0, 0);
        }
    }
}

/// Readers behind a writer that waits for another key of its claim must not pass it where that one leaves; they did, and
/// then nobody told the writer when they were gone.
#[test]
fn no_reader_overtakes_a_multi_key_writer_that_waits_for_another_key() {
    for server in each_size() {
        let names = ["holder", "writer", "reader", "another reader"];
        let [mut holder, mut writer, mut reader, mut another] = names.map(|name| server.client(name));
        let held = holder.acquire(b"held", 0);
        queue_for(&mut writer, &["free", "held"], WAIT_FOREVER_MS);
        let shared = |key| Acquire {
            key,
            shared: true,
            terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, notify_queued: true, ..AcquireTerms::default() },
        };
        for client in [&mut reader, &mut another] {
            client.send(Request::Acquire(shared(b"free")));
            assert!(matches!(client.receive().event(), Event::Queued { .. }));
        }
        // Somebody in the queue leaves, so the shard looks at it anew.
        another.send(Request::Cancel(Cancel { acquire_number: 2, key: b"free" }));
        assert!(matches!(another.receive().response(), Response::Cancelled(_)));
        assert_eq!(another.receive().error().code, ErrorCode::Cancelled);
        assert_eq!(state(&mut another, b"free"), (0, 2, 0), "the writer and the reader wait");
        holder.release(held.id);
        let granted = locks(&writer.receive());
        release_all(&mut writer, &granted);
        assert_eq!(reader.receive().granted().fence, 2);
    }
}

#[test]
fn shared_multi_key_claims_hold_common_keys_together() {
    for server in each_size() {
        let [mut first, mut second, mut writer] = ["1", "2", "w"].map(|name| server.client(name));
        let readers = |keys: [&'static [u8]; 2]| keys.map(|key| (key, true));
        send_items(&mut first, &readers([b"a", b"b"]), &AcquireKeys::default());
        let one = locks(&first.receive());
        send_items(&mut second, &readers([b"b", b"c"]), &AcquireKeys::default());
        let two = locks(&second.receive());
        assert_eq!((one[1].fence, two[0].fence), (1, 2));
        queue_for(&mut writer, &[b"b"], WAIT_FOREVER_MS);
        let late = AcquireKeys {
            terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, notify_queued: true, ..AcquireTerms::default() },
            ..AcquireKeys::default()
        };
        let mut reader = server.client("late");
        send_items(&mut reader, &readers([b"b", b"d"]), &late);
        assert!(matches!(reader.receive().event(), Event::Queued { .. }), "a writer waits in front of it");
        release_all(&mut first, &one);
        release_all(&mut second, &two);
        let granted = locks(&writer.receive());
        release_all(&mut writer, &granted);
        assert_eq!(locks(&reader.receive())[0].fence, 4);
    }
}

#[test]
fn a_timed_out_wait_leaves_no_state_and_spends_no_fence() {
    for server in each_size() {
        let keys = many_keys(20);
        let (mut holder, mut client, mut other) =
            (server.client("h"), server.client("c"), server.client("o"));
        let held = holder.acquire(&keys[19], 0);
        for _ in 0..5 {
            let (number, _) = queue_for(&mut client, &keys, 20);
            let answer = client.receive();
            assert_eq!((answer.number(), answer.error().code), (number, ErrorCode::Timeout));
        }
        for key in &keys[..19] {
            assert_becomes_free(&mut other, key);
        }
        holder.release(held.id);
        let fences: Vec<_> = take(&mut client, &keys).iter().map(|lock| lock.fence).collect();
        assert_eq!(fences, [vec![1; 19], vec![2]].concat());
    }
}

#[test]
fn a_waiting_claim_can_be_cancelled_by_smallest_key_or_id() {
    for server in each_size() {
        let keys = ["z", "m", "a"];
        let (mut holder, mut client, mut other) =
            (server.client("h"), server.client("c"), server.client("o"));
        let held = holder.acquire(b"m", 0);

        let (acquire_number, _) = queue_for(&mut client, &keys, WAIT_FOREVER_MS);
        let (behind, _) = queue_for(&mut other, &["z", "b"], WAIT_FOREVER_MS);
        let number = client.send(Request::Cancel(Cancel { acquire_number, key: b"a" }));
        let (first, second) = (client.receive(), client.receive());
        assert!(matches!(first.response(), Response::Cancelled(cancelled) if cancelled.was_waiting));
        assert_eq!((first.number(), second.number()), (number, acquire_number));
        assert_eq!(second.error().code, ErrorCode::Cancelled);
        let passed = other.receive();
        assert_eq!(passed.number(), behind, "who stood behind it is let in");
        release_all(&mut other, &locks(&passed));

        let (acquire_number, id) = queue_for(&mut client, &keys, WAIT_FOREVER_MS);
        let answer = other.ask(Request::Release(Release { id, key: None, own: false }));
        assert!(matches!(answer.response(), Response::Released(released) if released.was_waiting));
        let cancelled = client.receive();
        assert_eq!((cancelled.number(), cancelled.error().code), (acquire_number, ErrorCode::Cancelled));
        assert_becomes_free(&mut other, b"z");
        assert_becomes_free(&mut other, b"a");
        holder.release(held.id);
        assert_eq!(take(&mut client, &keys).iter().map(|lock| lock.fence).collect::<Vec<_>>(), [1, 2, 2]);
    }
}

/// A cancel that is right behind its acquire may find it before it has its turns, while it waits, or granted. In each
/// case the two answers agree.
#[test]
fn a_cancel_sent_right_after_its_acquire_gets_a_consistent_answer() {
    for server in each_size() {
        let keys = many_keys(12);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut busy = server.client("busy");
                while !done.load(Ordering::Relaxed) {
                    let granted = take_when_free(&mut busy, &keys[3..9]);
                    release_all(&mut busy, &granted);
                }
            });
            let _done = SetWhenDropped(&done);
            let mut client = server.client("c");
            for _ in 0..300 {
                let acquire = AcquireKeys {
                    terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() },
                    ..AcquireKeys::default()
                };
                let acquire_number = send_keys(&mut client, &keys, &acquire);
                let cancel_number = client.send(Request::Cancel(Cancel { acquire_number, key: &keys[0] }));
                let (mut was_waiting, mut granted, mut refused) = (None, None, false);
                for _ in 0..2 {
                    let answer = client.receive();
                    match answer.response() {
                        Response::Cancelled(cancelled) => {
                            assert_eq!(answer.number(), cancel_number);
                            assert!(
                                !(cancelled.was_waiting && refused),
                                "the answer to the cancel comes first"
                            );
                            was_waiting = Some(cancelled.was_waiting);
                        }
                        Response::GrantedKeys(_) => granted = Some(locks(&answer)),
                        _ => {
                            assert_eq!(answer.error().code, ErrorCode::Cancelled);
                            refused = true;
                        }
                    }
                }
                assert_eq!(was_waiting, Some(granted.is_none()));
                release_all(&mut client, &granted.unwrap_or_default());
            }
        });
    }
}

fn take_when_free(client: &mut Client<TcpStream>, keys: &[impl AsRef<[u8]>]) -> Vec<Lock> {
    let acquire = AcquireKeys {
        terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, ..AcquireTerms::default() },
        ..AcquireKeys::default()
    };
    send_keys(client, keys, &acquire);
    locks(&client.receive())
}

#[test]
fn a_waiter_leaves_all_its_queues_when_its_connection_is_lost() {
    for server in each_size() {
        let keys = many_keys(30);
        let (mut holder, mut other) = (server.client("h"), server.client("o"));
        let held = holder.acquire(&keys[8], 0);
        let mut lost = server.client("lost");
        queue_for(&mut lost, &keys, WAIT_FOREVER_MS);
        let (number, _) = queue_for(&mut other, &keys[10..], WAIT_FOREVER_MS);
        drop(lost);
        let answer = other.receive();
        assert_eq!(answer.number(), number, "who stood behind it is let in");
        release_all(&mut other, &locks(&answer));
        for key in &keys[..8] {
            assert_becomes_free(&mut other, key);
        }
        holder.release(held.id);
        assert_eq!(take(&mut other, &keys)[8].fence, 2);
    }
}

fn again(request_id: &[u8], wait_ms: u32) -> AcquireKeys<'_> {
    let options = AcquireOptions { request_id: Some(request_id), ..AcquireOptions::default() };
    AcquireKeys {
        terms: AcquireTerms { wait_ms, notify_queued: true, options, ..AcquireTerms::default() },
        ..AcquireKeys::default()
    }
}

#[test]
fn a_request_id_names_one_multi_key_claim() {
    for server in each_size() {
        let keys = many_keys(10);
        let acquire = again(b"attempt", WAIT_FOREVER_MS);
        let (mut holder, mut first, mut second) =
            (server.client("h"), server.client("app"), server.client("app"));
        let held = holder.acquire(&keys[4], 0);
        let old = send_keys(&mut first, &keys, &acquire);
        assert!(matches!(first.receive().event(), Event::Queued { .. }));

        // While it waits the newer acquire takes its place.
        let mut reversed = keys.clone();
        reversed.reverse();
        let new = send_keys(&mut second, &reversed, &acquire);
        let superseded = first.receive();
        assert_eq!((superseded.number(), superseded.error().code), (old, ErrorCode::Cancelled));
        assert!(matches!(second.receive().event(), Event::Queued { position: 0, .. }));
        assert_eq!(state(&mut holder, &keys[0]), (0, 1, 0), "it stands in its queue once");
        holder.release(held.id);
        let answer = second.receive();
        assert_eq!(answer.number(), new);
        let granted = locks(&answer);

        // Granted, all its locks are the answer.
        send_keys(&mut first, &keys, &acquire);
        let answer = first.receive();
        let Response::GrantedKeys(repeated) = answer.response() else { panic!("{:?}", answer.response()) };
        assert!(repeated.repeated);
        let names = |locks: &[Lock]| locks.iter().map(|lock| (lock.id, lock.fence)).collect::<Vec<_>>();
        assert_eq!(names(&locks(&answer)), names(&granted));

        // Other keys are another claim, readers are refused, and so is what is no longer whole.
        send_keys(&mut second, &["elsewhere"], &again(b"attempt", 0));
        assert_eq!(locks(&second.receive()).len(), 1);
        let shared: Vec<_> = keys.iter().map(|key| (&key[..], true)).collect();
        send_items(&mut second, &shared, &again(b"attempt", 0));
        assert_eq!(second.receive().refusal(), (ErrorCode::BadInput, "request_id", 0));
        release_all(&mut first, &granted[5..6]);
        send_keys(&mut second, &keys, &again(b"attempt", 0));
        assert_eq!(second.receive().refusal(), (ErrorCode::BadInput, "request_id", 0));
        release_all(&mut first, &granted[..5]);
        release_all(&mut first, &granted[6..]);
        assert_eq!(take(&mut second, &keys)[0].fence, 2, "no repetition spent a fence");
    }
}

fn resume(welcome: &Welcome) -> SessionRequest {
    SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane }
}

#[test]
fn a_repeated_request_number_gets_the_first_answer_after_a_resume() {
    for server in each_size() {
        let keys = many_keys(10);
        let mut buffer = Vec::new();
        let items = keys.iter().map(|key| KeyItem { key, shared: false });
        let items = Items::new(items, &mut buffer).unwrap();
        let acquire = Request::AcquireKeys(AcquireKeys {
            items,
            terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
        });
        let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 0 });
        client.send_numbered(70, acquire);
        let granted = locks(&client.receive());
        let (mut client, _) = server.session_client(resume(&welcome));
        client.send_numbered(70, acquire);
        assert_eq!(locks(&client.receive()), granted);
        client.send_numbered(71, acquire);
        assert_eq!(client.receive().error().code, ErrorCode::Busy, "a new number is a new request");

        // The end of the session is the end of all of them.
        client.ask(Request::Goodbye(waymaker_protocol::Goodbye));
        let mut other = server.client("other");
        assert!(take_when_free(&mut other, &keys).iter().all(|lock| lock.fence == 2));
    }
}

#[test]
fn a_waiter_lost_with_its_connection_is_a_new_attempt_when_repeated() {
    for server in each_size() {
        let keys = many_keys(10);
        let mut holder = server.client("holder");
        let held = holder.acquire(&keys[9], 0);
        let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 0 });
        let (number, _) = queue_for(&mut client, &keys, WAIT_FOREVER_MS);
        let (mut client, _) = server.session_client(resume(&welcome));
        for key in &keys[..9] {
            assert_becomes_free(&mut holder, key);
        }
        let mut buffer = Vec::new();
        let items = Items::new(keys.iter().map(|key| KeyItem { key, shared: false }), &mut buffer).unwrap();
        let acquire = AcquireKeys {
            items,
            terms: AcquireTerms { wait_ms: WAIT_FOREVER_MS, notify_queued: true, ..AcquireTerms::default() },
        };
        client.send_numbered(number, Request::AcquireKeys(acquire));
        assert!(matches!(client.receive().event(), Event::Queued { position: 0, .. }));
        holder.release(held.id);
        assert_eq!(locks(&client.receive())[9].fence, 2);
    }
}

/// The connection is lost while the request waits for the turns of its shards, or is served, or after that. Asked again it
/// is served once in each case.
#[test]
fn a_request_repeated_while_it_waits_for_shard_turns_is_served_once() {
    let server = Server::start(&["--workers", "3"]);
    let keys = many_keys(30);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut busy = server.client("busy");
                while !done.load(Ordering::Relaxed) {
                    for number in 0..200_u32 {
                        busy.send(Request::Inspect(Inspect { key: &number.to_le_bytes() }));
                    }
                    for _ in 0..200 {
                        busy.receive();
                    }
                }
            });
        }
        let _done = SetWhenDropped(&done);
        let (mut client, welcome) = server.session_client(SessionRequest::New { lease_ms: 0 });
        let mut buffer = Vec::new();
        let items = Items::new(keys.iter().map(|key| KeyItem { key, shared: false }), &mut buffer).unwrap();
        let acquire = Request::AcquireKeys(AcquireKeys { items, ..AcquireKeys::default() });
        for fence in 1..=100 {
            let number = 1_000 * fence as u32;
            client.send_numbered(number, acquire);
            client = server.session_client(resume(&welcome)).0;
            client.send_numbered(number, acquire);
            let answer = client.receive();
            assert_eq!(answer.number(), number);
            let granted = locks(&answer);
            assert!(granted.iter().all(|lock| lock.fence == fence), "{fence}: {granted:?}");
            for (number, lock) in (number + 1..).zip(&granted) {
                client
                    .send_numbered(number, Request::Release(Release { id: lock.id, key: None, own: false }));
            }
            let mut released = 0;
            while released < granted.len() {
                let answer = client.receive();
                if answer.number() == number {
                    // What was asked on the old connection was answered on the new one, and asked again.
                    assert_eq!(locks(&answer), granted);
                    continue;
                }
                assert!(matches!(answer.response(), Response::Released(_)), "{:?}", answer.response());
                released += 1;
            }
        }
    });
}

#[test]
fn a_stopping_server_refuses_each_waiter_once() {
    for server in each_size() {
        let keys = many_keys(10);
        let (mut holder, mut waiter) = (server.client("holder"), server.client("waiter"));
        let held = holder.acquire(&keys[5], 0);
        let (number, _) = queue_for(&mut waiter, &keys, WAIT_FOREVER_MS);
        server.signal("TERM");
        let answer = waiter.receive();
        assert_eq!((answer.number(), answer.error().code), (number, ErrorCode::Shutdown));
        send_keys(&mut waiter, &["free"], &AcquireKeys::default());
        assert_eq!(waiter.receive().error().code, ErrorCode::Shutdown);
        holder.release(held.id);
        assert!(waiter.try_receive().is_none(), "nothing is held, so the server ends");
    }
}

/// Two clients name two keys in opposite orders, again and again.
#[test]
fn claims_naming_keys_in_opposite_orders_never_deadlock() {
    for server in each_size() {
        let counter = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for keys in [["left", "right"], ["right", "left"]] {
                let (server, counter) = (&server, &counter);
                scope.spawn(move || {
                    let mut client = server.client(keys[0]);
                    for _ in 0..1_000 {
                        let granted = take_when_free(&mut client, &keys);
                        let seen = counter.load(Ordering::Relaxed);
                        assert_eq!((granted[0].fence, granted[1].fence), (seen + 1, seen + 1));
                        counter.store(seen + 1, Ordering::Relaxed);
                        release_all(&mut client, &granted);
                    }
                });
            }
        });
        assert_eq!(counter.into_inner(), 2_000);
    }
}

#[test]
fn dining_philosophers_all_finish() {
    for (workers, seats, meals) in [("1", 5_usize, 100), ("2", 5, 100), ("3", 64, 15)] {
        let server = Server::start(&["--workers", workers]);
        let forks = many_keys(seats);
        let in_use: Vec<_> = (0..seats).map(|_| AtomicBool::new(false)).collect();
        std::thread::scope(|scope| {
            for seat in 0..seats {
                let (server, forks, in_use) = (&server, &forks, &in_use);
                scope.spawn(move || {
                    let mut client = server.client(&seat.to_string());
                    let hands = [seat, (seat + 1) % seats];
                    for _ in 0..meals {
                        let granted = take_when_free(&mut client, &hands.map(|fork| &forks[fork]));
                        for fork in hands {
                            assert!(!in_use[fork].swap(true, Ordering::Relaxed), "one eats with fork {fork}");
                        }
                        for fork in hands {
                            in_use[fork].store(false, Ordering::Relaxed);
                        }
                        release_all(&mut client, &granted);
                    }
                });
            }
        });
        let mut client = server.client("afterwards");
        let fences: Vec<_> = take(&mut client, &forks).iter().map(|lock| lock.fence).collect();
        assert_eq!(fences, vec![2 * meals + 1; seats], "each fork was taken for each meal, and never else");
    }
}

/// Who only ever takes all of these keys or none has the same fence on each of them, and so sees everybody else.
#[test]
fn claims_are_all_or_nothing_despite_tries_timeouts_and_cancels() {
    for server in each_size() {
        let keys = many_keys(8);
        std::thread::scope(|scope| {
            for number in 0..4_u64 {
                let (server, keys) = (&server, &keys);
                scope.spawn(move || {
                    let mut random = 88_172_645_463_325_252 + number;
                    let mut client = server.client(&number.to_string());
                    for _ in 0..150 {
                        let wait_ms = [0, 1, 5, WAIT_FOREVER_MS][next_random(&mut random) as usize % 4];
                        let acquire = AcquireKeys {
                            terms: AcquireTerms { wait_ms, ..AcquireTerms::default() },
                            ..AcquireKeys::default()
                        };
                        send_keys(&mut client, keys, &acquire);
                        let answer = client.receive();
                        if let Response::Error(error) = answer.response() {
                            assert!([ErrorCode::Busy, ErrorCode::Timeout].contains(&error.code), "{error:?}");
                            continue;
                        }
                        let granted = locks(&answer);
                        let fence = granted[0].fence;
                        assert!(granted.iter().all(|lock| lock.fence == fence), "{granted:?}");
                        release_all(&mut client, &granted);
                    }
                });
            }
        });
    }
}

/// Any mix of single claims, readers, and claims over several keys comes to an end, and no two hold what conflicts.
#[test]
fn any_mix_of_claims_finishes_without_conflicting_holds() {
    for workers in ["1", "4"] {
        let server = Server::start(&["--workers", workers]);
        let keys = many_keys(24);
        // How many readers hold each key; a writer counts as a thousand.
        let holders: Vec<_> = keys.iter().map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for number in 0..8_u64 {
                let (server, keys, holders) = (&server, &keys, &holders);
                scope.spawn(move || {
                    let mut random = 0x9e37_79b9_7f4a_7c15 ^ number << 32;
                    let mut client = server.client(&number.to_string());
                    for _ in 0..120 {
                        mixed_claim(&mut client, keys, holders, &mut random);
                    }
                });
            }
        });
        let mut client = server.client("afterwards");
        for key in &keys {
            assert_becomes_free(&mut client, key);
        }
    }
}

fn mixed_claim(client: &mut Client<TcpStream>, keys: &[Vec<u8>], holders: &[AtomicU64], random: &mut u64) {
    let count = 1 + next_random(random) as usize % 4;
    let mut places: Vec<_> = (0..count).map(|_| next_random(random) as usize % keys.len()).collect();
    places.sort_unstable();
    places.dedup();
    let shared: Vec<bool> = places.iter().map(|_| next_random(random).is_multiple_of(2)).collect();
    let wait_ms = [0, 2, WAIT_FOREVER_MS, WAIT_FOREVER_MS][next_random(random) as usize % 4];
    let priority = Some(next_random(random) as u32 % 3).filter(|priority| *priority > 0);
    let options = AcquireOptions { priority, ..AcquireOptions::default() };
    if let ([place], [shared]) = (&places[..], &shared[..]) {
        let acquire = Acquire {
            key: &keys[*place],
            shared: *shared,
            terms: AcquireTerms { wait_ms, options, ..AcquireTerms::default() },
        };
        client.send(Request::Acquire(acquire));
    } else {
        let items: Vec<_> =
            places.iter().zip(&shared).map(|(place, shared)| (&keys[*place][..], *shared)).collect();
        send_items(
            client,
            &items,
            &AcquireKeys {
                terms: AcquireTerms { wait_ms, options, ..AcquireTerms::default() },
                ..AcquireKeys::default()
            },
        );
    }
    let answer = client.receive();
    let ids: Vec<LockId> = match answer.response() {
        Response::Granted(Granted { id, .. }) => vec![id],
        Response::GrantedKeys(granted) => granted.keys.iter().map(|key| key.id).collect(),
        _ => {
            let code = answer.error().code;
            assert!([ErrorCode::Busy, ErrorCode::Timeout].contains(&code), "{code:?}");
            return;
        }
    };
    for (place, shared) in places.iter().zip(&shared) {
        let before = holders[*place].fetch_add(if *shared { 1 } else { 1_000 }, Ordering::Relaxed);
        assert!(if *shared { before < 1_000 } else { before == 0 }, "{before} before");
    }
    for (place, shared) in places.iter().zip(&shared) {
        holders[*place].fetch_sub(if *shared { 1 } else { 1_000 }, Ordering::Relaxed);
    }
    for id in &ids {
        client.send(Request::Release(Release { id: *id, key: None, own: false }));
    }
    for _ in &ids {
        assert!(matches!(client.receive().response(), Response::Released(_)));
    }
}
