//! What ends by time, and what a lost connection does.

use crate::harness::{
    Client, Server, SetWhenDropped, allow_files, assert_not_early, wait_until, with_short_lease,
};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use waymaker_protocol::limits::LIST_PAGE_MAX;
use waymaker_protocol::{
    Acquire, AcquireOptions, AcquireTerms, Event, Extend, Inspect, KeepAlive, List, LockId, Request, Response,
};

#[test]
fn an_expired_lease_is_reported_and_the_next_waiter_granted() {
    let server = Server::start(&[]);
    let (mut holder, mut waiter) = (server.client("a"), server.client("b"));
    let held = holder.acquire(b"key", 600_000);
    waiter.wait_for(b"key", 600_000);
    let begin = Instant::now();
    shorten(&mut holder, held.id, 300);
    assert_eq!(holder.receive().event(), Event::Expired { id: held.id });
    assert_eq!(waiter.receive().granted().fence, 2);
    assert_not_early(begin, Duration::from_millis(300));
}

#[test]
fn a_waiter_leaves_the_queue_when_its_connection_is_lost() {
    let server = Server::start(&["--workers", "2"]);
    let (mut holder, mut gone, mut next) = (server.client("a"), server.client("b"), server.client("c"));
    let held = holder.acquire(b"key", 0);
    gone.wait_for(b"key", 60_000);
    next.wait_for(b"key", 60_000);
    drop(gone);
    wait_for_waiters(&mut holder, 1);
    holder.release(held.id);
    assert_eq!(next.receive().granted().fence, 2, "nobody was granted in between");
}

#[test]
fn a_hold_survives_its_connection_unless_release_after_is_set() {
    let server = Server::start(&["--workers", "2"]);
    let (mut gone, mut other) = (server.client("a"), server.client("b"));
    gone.acquire(b"stays", 600_000);
    let options = AcquireOptions { release_after_ms: Some(50), ..AcquireOptions::default() };
    let acquire = Acquire {
        key: b"ends",
        terms: AcquireTerms { lease_ms: 600_000, options, ..AcquireTerms::default() },
        ..Acquire::default()
    };
    gone.ask(Request::Acquire(acquire)).granted();
    let number = other.wait_for(b"ends", 600_000);
    drop(gone);
    let answer = other.receive();
    assert_eq!(answer.number(), number);
    assert!(answer.granted().waited);
    let answer = other.ask(Request::Acquire(Acquire { key: b"stays", ..Acquire::default() }));
    assert_eq!(answer.error().code, waymaker_protocol::ErrorCode::Busy);
}

/// The connection needs several turns until it comes to the renewal.
#[test]
fn a_timely_renewal_behind_other_requests_of_its_connection_is_served() {
    const LEASE: Duration = Duration::from_millis(500);
    /// Each takes a good part of a turn.
    const LIST_COUNT: usize = 10;
    let server = Server::start(&["--workers", "1"]);
    let mut others = server.client("others");
    for number in 0..2_000 {
        others.acquire(format!("listed {number}").as_bytes(), 600_000);
    }
    // A slow machine may make the lists so expensive that the server does not wait for the requests behind them.
    let is_served = |attempt: u32| {
        let mut client = server.client("renewing");
        let id = client.acquire(format!("renewed {attempt}").as_bytes(), LEASE.as_millis() as u32).id;
        server.pause();
        for _ in 0..LIST_COUNT {
            client.send(Request::List(List { count_max: LIST_PAGE_MAX, ..List::default() }));
        }
        client.send(Request::Extend(Extend { id, lease_ms: 600_000, key: None, own: false }));
        // Until the end of the lease and longer.
        std::thread::sleep(LEASE * 2);
        server.resume();
        loop {
            match client.receive().response() {
                Response::Extended(_) => return true,
                Response::Error(_) => return false,
                Response::Listed(_) | Response::Event(Event::Expired { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    assert!((0..10).any(is_served), "no renewal was served");
}

/// A thousand clients renew their leases as clients do, while the server stands still for more than twice their length.
#[test]
fn a_server_stall_costs_no_lease_that_was_renewed_in_time() {
    const CLIENT_COUNT: usize = 1_000;
    const RENEWALS_PER_LEASE: u32 = 4;
    allow_files(CLIENT_COUNT as u64);
    with_short_lease(1_000, |lease| {
        let server = Server::start(&["--workers", "2"]);
        let mut clients: Vec<_> =
            (0..CLIENT_COUNT).map(|number| server.client(&number.to_string())).collect();
        // Until all are there, leases are long.
        let acquired = clients.iter_mut().enumerate().map(|(number, client)| {
            let key = format!("stalled {number}");
            client.acquire(key.as_bytes(), 600_000).id
        });
        let ids: Vec<_> = acquired.collect();
        let renew_all = |clients: &mut [Client<TcpStream>], lease_ms| {
            for (client, id) in clients.iter_mut().zip(&ids) {
                client.send(Request::Extend(Extend { id: *id, lease_ms, key: None, own: false }));
            }
        };
        lease.begins();
        renew_all(&mut clients, lease.ms());
        clients.iter_mut().for_each(assert_extended);
        server.pause();
        lease.is_over();
        // The renewals wait in the sockets while the leases run out.
        let paused = Instant::now();
        let mut renewal_count = 0;
        while paused.elapsed() < lease.length() * 5 / 2 {
            renew_all(&mut clients, lease.ms());
            renewal_count += 1;
            std::thread::sleep(lease.length() / RENEWALS_PER_LEASE);
        }
        // So that this test may be slow from here on.
        renew_all(&mut clients, 600_000);
        server.resume();
        for client in &mut clients {
            (0..=renewal_count).for_each(|_| assert_extended(client));
        }
        for (client, id) in clients.iter_mut().zip(&ids) {
            client.release(*id);
        }
    });
}

/// The next thing that is said must be that a lease was extended.
fn assert_extended(client: &mut Client<TcpStream>) {
    let answer = client.receive();
    assert!(matches!(answer.response(), Response::Extended(_)), "{:?}", answer.response());
}

#[test]
fn many_leases_that_expire_together_all_expire() {
    let server = Server::start(&["--workers", "2"]);
    let mut client = server.client("a");
    for number in 0..5_000_u32 {
        client.send(Request::Acquire(Acquire {
            key: &number.to_le_bytes(),
            terms: AcquireTerms { lease_ms: 400, ..AcquireTerms::default() },
            ..Acquire::default()
        }));
    }
    let (mut granted, mut expired) = (0, 0);
    while expired < 5_000 {
        match client.receive().response() {
            Response::Granted(_) => granted += 1,
            Response::Event(Event::Expired { .. }) => expired += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(granted, 5_000);
}

/// A server that never rests used to end no lease: it waited for an instant in which no connection had anything unread,
/// and under load there is none. What counts is that each has read what was there when the waiting began.
#[test]
fn leases_expire_while_other_clients_keep_the_server_busy() {
    let server = Server::start(&["--workers", "1"]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _done = SetWhenDropped(&done);
        for _ in 0..4 {
            let mut writer = server.client("busy").socket;
            let mut reader = writer.try_clone().unwrap();
            let done = &done;
            scope.spawn(move || {
                let mut requests = Vec::new();
                for number in 1..5_000 {
                    Request::KeepAlive(KeepAlive).encode(number, &mut requests);
                }
                while !done.load(Ordering::Relaxed) {
                    writer.write_all(&requests).unwrap();
                }
                writer.shutdown(Shutdown::Both).unwrap();
            });
            scope.spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        }
        let (mut holder, mut waiter) = (server.client("a"), server.client("b"));
        for _ in 0..10 {
            let held = holder.acquire(b"key", 600_000);
            waiter.wait_for(b"key", 600_000);
            shorten(&mut holder, held.id, 100);
            assert_eq!(holder.receive().event(), Event::Expired { id: held.id });
            let granted = waiter.receive().granted();
            waiter.release(granted.id);
        }
    });
}

/// Extends a lease to `lease_ms` from now, which is shorter than it was.
fn shorten(client: &mut Client<TcpStream>, id: LockId, lease_ms: u32) {
    client.send(Request::Extend(Extend { id, lease_ms, key: None, own: false }));
    assert_extended(client);
}

/// Waits until `count` clients wait for `key`.
fn wait_for_waiters(client: &mut Client<TcpStream>, count: u32) {
    wait_until(&format!("{count} waiters"), || {
        let answer = client.ask(Request::Inspect(Inspect { key: b"key" }));
        let Response::Inspected(inspected) = answer.response() else { panic!("{:?}", answer.response()) };
        inspected.waiter_count == count
    });
}
