//! Taking, waiting for, giving back and looking at locks.

use crate::harness::{Server, assert_remaining, each_size};
use std::collections::BTreeSet;
use std::time::Instant;
use waymaker_protocol::limits::{INSPECT_HOLDERS_MAX, WAIT_FOREVER_MS};
use waymaker_protocol::{
    Acquire, AcquireOptions, AcquireTerms, Cancel, ErrorCode, ErrorDetail, Event, Extend, Inspect, List,
    LockState, Release, Request, Response, RevokeReason, SessionRequest, Status,
};

#[test]
fn fences_of_a_key_start_at_one_and_increment() {
    let server = Server::start(&[]);
    let mut client = server.client("a");
    for fence in 1..=5 {
        let sent = Instant::now();
        let granted = client.acquire(b"key", 0);
        assert_eq!(granted.fence, fence);
        assert_remaining(granted.remaining_ms.into(), 30_000, sent);
        client.release(granted.id);
    }
}

#[test]
fn a_busy_response_names_the_holder() {
    let server = Server::start(&[]);
    let (mut holder, mut other) = (server.client("the holder"), server.client("other"));
    let sent = Instant::now();
    holder.acquire(b"key", 60_000);
    let answer = other.ask(Request::Acquire(Acquire { key: b"key", ..Acquire::default() }));
    let error = answer.error();
    assert_eq!(error.code, ErrorCode::Busy);
    let ErrorDetail::Contention(contention) = error.detail else { panic!("{error:?}") };
    assert!(contention.held && !contention.shared);
    assert_eq!(contention.owner, b"the holder");
    assert_remaining(contention.remaining_ms.into(), 60_000, sent);
}

#[test]
fn an_unnamed_connection_is_named_by_its_address() {
    let server = Server::start(&[]);
    let (mut holder, mut other) = (server.client(""), server.client("other"));
    let address = holder.socket.local_addr().unwrap().to_string();
    holder.acquire(b"key", 0);
    let answer = other.ask(Request::Acquire(Acquire { key: b"key", ..Acquire::default() }));
    let ErrorDetail::Contention(contention) = answer.error().detail else { panic!() };
    assert_eq!(contention.owner, address.as_bytes());
}

#[test]
fn a_waiter_is_granted_when_the_holder_releases() {
    let server = Server::start(&[]);
    let (mut holder, mut waiter) = (server.client("a"), server.client("b"));
    let held = holder.acquire(b"key", 0);
    let number = waiter.wait_for(b"key", 10_000);
    holder.release(held.id);
    let answer = waiter.receive();
    assert_eq!(answer.number(), number);
    let granted = answer.granted();
    assert!(granted.waited);
    assert_eq!(granted.fence, 2);
}

#[test]
fn a_timed_out_wait_names_the_holder() {
    let server = Server::start(&[]);
    let (mut holder, mut waiter) = (server.client("a"), server.client("b"));
    holder.acquire(b"key", 0);
    waiter.wait_for(b"key", 50);
    let answer = waiter.receive();
    assert_eq!(answer.error().code, ErrorCode::Timeout);
    let ErrorDetail::Contention(contention) = answer.error().detail else { panic!() };
    assert_eq!(contention.owner, b"a");
    assert_eq!(contention.waiter_count, 0);
}

#[test]
fn a_cancelled_waiter_is_answered_and_leaves_the_queue() {
    let server = Server::start(&[]);
    let (mut holder, mut waiter) = (server.client("a"), server.client("b"));
    let held = holder.acquire(b"key", 0);
    let acquire_number = waiter.wait_for(b"key", 10_000);
    let cancel_number = waiter.send(Request::Cancel(Cancel { acquire_number, key: b"key" }));
    let (first, second) = (waiter.receive(), waiter.receive());
    assert_eq!(first.number(), cancel_number);
    assert!(matches!(first.response(), Response::Cancelled(cancelled) if cancelled.was_waiting));
    assert_eq!(second.number(), acquire_number);
    assert_eq!(second.error().code, ErrorCode::Cancelled);
    holder.release(held.id);
    assert_eq!(holder.acquire(b"key", 0).fence, 2);
    let late = waiter.ask(Request::Cancel(Cancel { acquire_number, key: b"key" }));
    assert!(matches!(late.response(), Response::Cancelled(cancelled) if !cancelled.was_waiting));
}

#[test]
fn a_reader_does_not_overtake_a_waiting_writer() {
    let server = Server::start(&[]);
    let mut clients: Vec<_> = ["r1", "w", "r2"].map(|name| server.client(name)).into();
    let shared = Acquire {
        key: b"key",
        shared: true,
        terms: AcquireTerms { wait_ms: 10_000, notify_queued: true, ..AcquireTerms::default() },
    };
    let first = clients[0].ask(Request::Acquire(shared)).granted();
    clients[1].wait_for(b"key", 10_000);
    clients[2].send(Request::Acquire(shared));
    assert!(matches!(clients[2].receive().event(), Event::Queued { position: 1, .. }));
    clients[0].release(first.id);
    let writer = clients[1].receive().granted();
    clients[1].release(writer.id);
    let reader = clients[2].receive().granted();
    assert!(reader.fence > writer.fence);
}

#[test]
fn any_client_with_the_id_can_release_and_the_holder_is_notified() {
    let server = Server::start(&[]);
    let (mut holder, mut other) = (server.client("a"), server.client("b"));
    let held = holder.acquire(b"key", 0);
    other.release(held.id);
    let event = holder.receive();
    assert_eq!(event.number(), 0);
    let revoked = Event::Revoked { id: held.id, reason: RevokeReason::ReleasedElsewhere, message: b"" };
    assert_eq!(event.event(), revoked);
    let again = other.ask(Request::Release(Release { id: held.id, key: None, own: false }));
    assert_eq!(again.error().code, ErrorCode::NotFound);
}

#[test]
fn an_id_with_another_key_or_namespace_is_not_found() {
    let server = Server::start(&[]);
    let mut holder = server.client("a");
    let held = holder.acquire(b"key", 0);
    let wrong_key = holder.ask(Request::Release(Release { id: held.id, key: Some(b"yek"), own: false }));
    assert_eq!(wrong_key.error().code, ErrorCode::NotFound);
    let mut foreigner = server.stranger();
    let hello = waymaker_protocol::Hello { namespace: b"elsewhere", ..crate::harness::default_hello() };
    assert!(matches!(foreigner.ask(Request::Hello(hello)).response(), Response::Welcome(_)));
    let answer = foreigner.ask(Request::Release(Release { id: held.id, key: None, own: false }));
    assert_eq!(answer.error().code, ErrorCode::NotFound);
    assert_eq!(foreigner.acquire(b"key", 0).fence, 1, "its keys are its own");
}

#[test]
fn extend_moves_the_lease_and_reports_clamping() {
    let server = Server::start(&[]);
    let mut client = server.client("a");
    let held = client.acquire(b"key", 0);
    let extend = |lease_ms| Request::Extend(Extend { id: held.id, lease_ms, key: Some(b"key"), own: false });
    for (lease_ms, remaining_ms, clamped) in
        [(90_000, 90_000, false), (60_000, 60_000, false), (0, 30_000, false), (u32::MAX, 86_400_000, true)]
    {
        let answer = client.ask(extend(lease_ms));
        let Response::Extended(extended) = answer.response() else { panic!("{:?}", answer.response()) };
        assert_eq!((extended.remaining_ms, extended.clamped), (remaining_ms, clamped));
    }
}

#[test]
fn a_request_id_names_one_claim() {
    let server = Server::start(&[]);
    let (mut first, mut second) = (server.client("app"), server.client("app"));
    let options = AcquireOptions { request_id: Some(b"attempt 7"), ..AcquireOptions::default() };
    let acquire = Acquire {
        key: b"key",
        terms: AcquireTerms { options, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    let granted = first.ask(Request::Acquire(acquire)).granted();
    let again = second.ask(Request::Acquire(acquire)).granted();
    assert!(again.repeated && !granted.repeated);
    assert_eq!((again.id, again.fence), (granted.id, granted.fence));
    let shared = second.ask(Request::Acquire(Acquire { shared: true, ..acquire }));
    assert_eq!(shared.error().code, ErrorCode::BadInput);
}

#[test]
fn status_inspect_and_list_show_holders_and_waiters() {
    let server = Server::start(&["--workers", "3"]);
    let (mut holder, mut waiter) = (server.client("the holder"), server.client("b"));
    let options = AcquireOptions { metadata: Some(b"why"), ..AcquireOptions::default() };
    let held = holder
        .ask(Request::Acquire(Acquire {
            key: b"list/0",
            terms: AcquireTerms { options, ..AcquireTerms::default() },
            ..Acquire::default()
        }))
        .granted();
    waiter.wait_for(b"list/0", 10_000);
    let answer = waiter.ask(Request::Inspect(Inspect { key: b"list/0" }));
    let Response::Inspected(inspected) = answer.response() else { panic!() };
    assert_eq!((inspected.fence, inspected.holder_count, inspected.waiter_count), (1, 1, 1));
    assert_eq!(inspected.holders[0].owner, b"the holder");
    assert_eq!(inspected.holders[0].id, held.id);
    let answer = waiter.ask(Request::Status(Status { id: held.id, key: None }));
    let Response::Status(status) = answer.response() else { panic!() };
    assert_eq!((status.state, status.fence, status.key), (LockState::Held, 1, &b"list/0"[..]));

    for number in 1..300 {
        holder.acquire(format!("list/{number}").as_bytes(), 0);
        holder.acquire(format!("other/{number}").as_bytes(), 0);
    }
    let (mut cursor, mut keys, mut pages) = (0, BTreeSet::new(), 0);
    loop {
        let answer =
            waiter.ask(Request::List(List { cursor, count_max: 40, prefix: b"list/", ..List::default() }));
        let Response::Listed(page) = answer.response() else { panic!() };
        assert!(page.locks.len() <= 40);
        for lock in &page.locks {
            assert!(keys.insert(lock.key.to_vec()), "each lock stands in one page");
            if lock.key == b"list/0" {
                assert_eq!((lock.owner, lock.metadata), (&b"the holder"[..], &b"why"[..]));
            }
        }
        pages += 1;
        cursor = page.next;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(keys.len(), 300);
    assert!(pages > 8);
}

#[test]
fn inspect_shows_waiters_in_queue_order() {
    for server in each_size() {
        let mut holder = server.client("holder");
        holder.acquire(b"key", 0);
        let asked = [
            ("one", false, WAIT_FOREVER_MS, None),
            ("two", true, 60_000, None),
            ("three", false, 90_000, Some(5)),
        ];
        let mut queued = Vec::new();
        for (owner, shared, wait_ms, priority) in asked {
            let mut client = server.client(owner);
            let options = AcquireOptions { priority, ..AcquireOptions::default() };
            let acquire = Acquire {
                key: b"key",
                shared,
                terms: AcquireTerms { wait_ms, notify_queued: true, options, ..AcquireTerms::default() },
            };
            client.send(Request::Acquire(acquire));
            let Event::Queued { id, ticket, .. } = client.receive().event() else { panic!() };
            queued.push((client, id, ticket));
        }

        let answer = holder.ask(Request::Inspect(Inspect { key: b"key" }));
        let Response::Inspected(inspected) = answer.response() else { panic!() };
        assert_eq!((inspected.holder_count, inspected.waiter_count), (1, 3));
        assert_eq!(inspected.waiters.len(), 3);
        // The priority stands in front of those that came before it.
        for (waiter, index) in inspected.waiters.iter().zip([2, 0, 1]) {
            let ((owner, shared, wait_ms, priority), (_, id, ticket)) = (asked[index], &queued[index]);
            assert_eq!((waiter.owner, waiter.id, waiter.ticket), (owner.as_bytes(), *id, *ticket));
            assert_eq!((waiter.shared, waiter.priority), (shared, priority.unwrap_or(0)));
            let is_endless = (wait_ms, waiter.remaining_ms) == (WAIT_FOREVER_MS, WAIT_FOREVER_MS);
            let waited_ms = u64::from(wait_ms - waiter.remaining_ms);
            assert!(is_endless || waited_ms.abs_diff(waiter.age_ms) <= 1, "{waiter:?}");
        }
        let [three, one, two] = [0, 1, 2].map(|index| inspected.waiters[index].age_ms);
        assert!(
            one >= two && two >= three,
            "who came first has waited longest, not {one}, {two}, {three} ms"
        );

        // A waiter that is ended by the id that was shown is not shown again.
        holder.release(inspected.waiters[1].id);
        assert_eq!(queued[0].0.receive().error().code, ErrorCode::Cancelled);
        // So many are shown, and all are counted.
        let more = Acquire {
            key: b"key",
            terms: AcquireTerms { wait_ms: 60_000, notify_queued: true, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        let mut ids = vec![queued[2].1, queued[1].1];
        for _ in 0..INSPECT_HOLDERS_MAX {
            holder.send(Request::Acquire(more));
            let Event::Queued { id, .. } = holder.receive().event() else { panic!() };
            ids.push(id);
        }
        let answer = holder.ask(Request::Inspect(Inspect { key: b"key" }));
        let Response::Inspected(inspected) = answer.response() else { panic!() };
        assert_eq!(inspected.waiter_count as usize, ids.len());
        let shown: Vec<_> = inspected.waiters.iter().map(|waiter| waiter.id).collect();
        assert_eq!(shown, ids[..INSPECT_HOLDERS_MAX]);
    }
}

#[test]
fn a_unix_socket_serves_like_a_tcp_port() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("waymaker.sock");
    let server = Server::start(&["--unix", path.to_str().unwrap()]);
    assert_eq!(server.address("unix"), path.to_str().unwrap());
    let socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let mut client = crate::harness::Client::new(socket);
    client.hello("a", SessionRequest::None);
    assert_eq!(client.acquire(b"key", 0).fence, 1);
    let answer = server.client("b").ask(Request::Acquire(Acquire { key: b"key", ..Acquire::default() }));
    assert_eq!(answer.error().code, ErrorCode::Busy);
}
