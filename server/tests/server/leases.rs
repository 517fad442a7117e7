//! What ends by time, and what a lost connection does.

use crate::harness::{Client, Server, allow_files};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use waymaker_protocol::{Acquire, AcquireOptions, Event, Extend, Inspect, KeepAlive, Request, Response};

#[test]
fn a_lease_that_ends_is_told_and_lets_the_next_one_in() {
    let server = Server::start(&[]);
    let (mut holder, mut waiter) = (server.client("a"), server.client("b"));
    let begin = Instant::now();
    let held = holder.acquire(b"key", 300);
    waiter.wait_for(b"key", 10_000);
    assert_eq!(holder.receive().event(), Event::Expired { id: held.id });
    assert_eq!(waiter.receive().granted().fence, 2);
    assert!(begin.elapsed() >= Duration::from_millis(299), "{:?} is early", begin.elapsed());
}

#[test]
fn a_waiter_whose_connection_is_lost_leaves_at_once() {
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
fn a_hold_outlives_its_connection_unless_it_asked_for_an_end() {
    let server = Server::start(&["--workers", "2"]);
    let (mut gone, mut other) = (server.client("a"), server.client("b"));
    gone.acquire(b"stays", 60_000);
    let options = AcquireOptions { release_after_ms: Some(50), ..AcquireOptions::default() };
    let acquire = Acquire { key: b"ends", lease_ms: 60_000, options, ..Acquire::default() };
    gone.ask(Request::Acquire(acquire)).granted();
    let number = other.wait_for(b"ends", 30_000);
    drop(gone);
    let answer = other.receive();
    assert_eq!(answer.number(), number);
    assert!(answer.granted().waited);
    let answer = other.ask(Request::Acquire(Acquire { key: b"stays", ..Acquire::default() }));
    assert_eq!(answer.error().code, waymaker_protocol::ErrorCode::Busy);
}

/// A thousand clients renew leases of two seconds as clients do, while the server stands still for five.
#[test]
fn a_stall_of_the_server_costs_no_lease_whose_renewal_was_sent_in_time() {
    const CLIENT_COUNT: usize = 1_000;
    const LEASE_MS: u32 = 2_000;
    const STALL: Duration = Duration::from_secs(5);
    const RENEWAL_INTERVAL: Duration = Duration::from_millis(600);
    allow_files(CLIENT_COUNT as u64);
    let server = Server::start(&["--workers", "2"]);
    let mut clients: Vec<_> = (0..CLIENT_COUNT).map(|number| server.client(&number.to_string())).collect();
    // Until all are there, leases are long.
    let acquired = clients.iter_mut().enumerate().map(|(number, client)| {
        let key = format!("stalled {number}");
        client.acquire(key.as_bytes(), 600_000).id
    });
    let ids: Vec<_> = acquired.collect();
    let renew_all = |clients: &mut [Client<TcpStream>], lease_ms| {
        for (client, id) in clients.iter_mut().zip(&ids) {
            client.send(Request::Extend(Extend { id: *id, lease_ms, key: None }));
        }
    };
    renew_all(&mut clients, LEASE_MS);
    clients.iter_mut().for_each(assert_extended);
    server.signal("STOP");
    let stopped = Instant::now();
    // The renewals wait in the sockets while the leases run out.
    let mut renewal_count = 0;
    while stopped.elapsed() < STALL {
        renew_all(&mut clients, LEASE_MS);
        renewal_count += 1;
        std::thread::sleep(RENEWAL_INTERVAL);
    }
    // So that this test may be slow from here on.
    renew_all(&mut clients, 600_000);
    server.signal("CONT");
    for client in &mut clients {
        (0..=renewal_count).for_each(|_| assert_extended(client));
    }
    for (client, id) in clients.iter_mut().zip(&ids) {
        client.release(*id);
    }
}

/// The next thing that is said must be that a lease was extended.
fn assert_extended(client: &mut Client<TcpStream>) {
    let answer = client.receive();
    assert!(matches!(answer.response(), Response::Extended(_)), "{:?}", answer.response());
}

#[test]
fn many_leases_that_end_together_all_end() {
    let server = Server::start(&["--workers", "2"]);
    let mut client = server.client("a");
    for number in 0..5_000_u32 {
        client.send(Request::Acquire(Acquire {
            key: &number.to_le_bytes(),
            lease_ms: 400,
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
fn leases_end_in_time_while_others_keep_the_server_busy() {
    let server = Server::start(&["--workers", "1"]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
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
            scope.spawn(move || while reader.read(&mut [0; 1 << 16]).is_ok_and(|len| len > 0) {});
        }
        let (mut holder, mut waiter) = (server.client("a"), server.client("b"));
        for _ in 0..10 {
            let begin = Instant::now();
            let held = holder.acquire(b"key", 200);
            waiter.wait_for(b"key", 10_000);
            assert_eq!(holder.receive().event(), Event::Expired { id: held.id });
            let granted = waiter.receive().granted();
            waiter.release(granted.id);
            assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Waits until so many wait for `key`.
fn wait_for_waiters(client: &mut Client<TcpStream>, count: u32) {
    let end = Instant::now() + crate::harness::PATIENCE;
    loop {
        let answer = client.ask(Request::Inspect(Inspect { key: b"key" }));
        let Response::Inspected(inspected) = answer.response() else { panic!() };
        if inspected.waiter_count == count {
            return;
        }
        assert!(Instant::now() < end, "{} wait", inspected.waiter_count);
    }
}
