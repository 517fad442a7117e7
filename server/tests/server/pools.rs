//! Pools of permits.

use crate::harness::{Client, Received, Server, assert_remaining, each_size, hello_of, wait_until};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    AcquireOptions, AcquirePermits, Cancel, DescribePool, ErrorCode, ErrorDetail, Event, Extend, Granted,
    Hello, NamespaceKind, PoolOrder, Release, Request, Response, SessionRequest, SetCapacity,
};

fn pool_client(server: &Server, owner: &str) -> Client<TcpStream> {
    server.client_of(NamespaceKind::Pool, owner)
}

/// Asks for some permits of the pool `pool`, of ten.
fn of_ten(permits: u64) -> AcquirePermits<'static> {
    AcquirePermits { name: b"pool", capacity: 10, permits, ..AcquirePermits::default() }
}

fn take(client: &mut Client<TcpStream>, acquire: AcquirePermits<'_>) -> Granted {
    client.ask(Request::AcquirePermits(acquire)).granted()
}

/// Queues and says the number of the acquire and its place.
fn queue_for(client: &mut Client<TcpStream>, acquire: AcquirePermits<'_>) -> (u32, u32) {
    let acquire = acquire.with_terms(|terms| {
        terms.wait_ms = WAIT_FOREVER_MS;
        terms.notify_queued = true;
    });
    let number = client.send(Request::AcquirePermits(acquire));
    let queued = client.receive();
    let Event::Queued { position, .. } = queued.event() else { panic!("{:?}", queued.event()) };
    assert_eq!(queued.number(), number);
    (number, position)
}

/// The capacity of the pool `pool`, the permits held, how many hold and how many wait.
fn described(client: &mut Client<TcpStream>) -> (u64, u64, u32, u32) {
    let answer = client.ask(Request::DescribePool(DescribePool { name: b"pool" }));
    let Response::PoolDescribed(pool) = answer.response() else { panic!("{:?}", answer.response()) };
    (pool.capacity, pool.held, pool.holder_count, pool.waiter_count)
}

fn set_capacity(client: &mut Client<TcpStream>, capacity: u64) -> Received {
    let set = SetCapacity { capacity, order: PoolOrder::Arrival, name: b"pool", ..SetCapacity::default() };
    client.ask(Request::SetCapacity(set))
}

fn previous(answer: &Received) -> u64 {
    let Response::CapacitySet(set) = answer.response() else { panic!("{:?}", answer.response()) };
    set.previous
}

#[test]
fn a_try_beyond_the_capacity_is_busy_and_names_the_blocker() {
    for server in each_size() {
        let [mut a, mut b] = ["a", "b"].map(|name| pool_client(&server, name));
        let (six, four) = (take(&mut a, of_ten(6)), take(&mut b, of_ten(4)));
        assert_eq!((six.fence, four.fence), (1, 2));
        let busy = a.ask(Request::AcquirePermits(of_ten(1)));
        let ErrorDetail::Contention(contention) = busy.error().detail else { panic!() };
        assert_eq!(
            (busy.error().code, contention.held, contention.owner),
            (ErrorCode::Busy, true, &b"a"[..])
        );
        b.release(four.id);
        assert_eq!(described(&mut a), (10, 6, 1, 0));
        assert_eq!(take(&mut a, of_ten(4)).fence, 3);
    }
}

#[test]
fn a_small_claim_does_not_overtake_a_large_one() {
    for server in each_size() {
        let [mut a, mut large, mut small, mut other] =
            ["a", "l", "s", "o"].map(|name| pool_client(&server, name));
        let held = take(&mut a, of_ten(3));
        assert_eq!(queue_for(&mut large, of_ten(8)).1, 0);
        let (small_number, position) = queue_for(&mut small, of_ten(1));
        assert_eq!(position, 1, "seven are free, and it waits all the same");
        let busy = other.ask(Request::AcquirePermits(of_ten(1)));
        let ErrorDetail::Contention(contention) = busy.error().detail else { panic!() };
        assert_eq!((contention.held, contention.owner, contention.waiter_count), (false, &b"l"[..], 2));
        a.release(held.id);
        assert_eq!(large.receive().granted().fence, 2);
        let granted = small.receive();
        assert_eq!((granted.number(), granted.granted().fence), (small_number, 3));
        assert_eq!(described(&mut other), (10, 9, 2, 0));
    }
}

#[test]
fn a_different_capacity_is_refused_unless_any_capacity_is_accepted() {
    for server in each_size() {
        let [mut a, mut b] = ["a", "b"].map(|name| pool_client(&server, name));
        let any = |capacity| AcquirePermits { any_capacity: true, capacity, ..of_ten(1) };
        let none = b.ask(Request::AcquirePermits(any(0)));
        assert_eq!(none.refusal(), (ErrorCode::BadInput, "capacity", 0), "there is no such pool");
        let first = take(&mut b, any(3));
        assert_eq!(described(&mut b).0, 3, "where there is no pool it says what it should be");
        b.release(first.id);
        assert_eq!(described(&mut b).0, 0, "a pool lives as long as somebody uses it");

        let by_time = AcquirePermits { order: PoolOrder::Timestamp, ..of_ten(1) };
        let held = take(&mut a, by_time);
        let other = b.ask(Request::AcquirePermits(AcquirePermits { capacity: 9, ..by_time }));
        assert_eq!(other.refusal(), (ErrorCode::CapacityMismatch, "capacity", 10));
        let other = b.ask(Request::AcquirePermits(of_ten(1)));
        assert_eq!(other.refusal(), (ErrorCode::BadInput, "order", 0));
        for capacity in [0, 10, 77] {
            let held = take(&mut b, any(capacity));
            b.release(held.id);
        }
        let too_many = b.ask(Request::AcquirePermits(AcquirePermits { permits: 11, ..any(99) }));
        assert_eq!(too_many.refusal(), (ErrorCode::BadInput, "permits", 10));
        a.release(held.id);
        let nine = AcquirePermits { capacity: 9, ..of_ten(9) };
        assert_eq!(take(&mut b, nine).fence, 6, "the counter stays");
    }
}

#[test]
fn a_pool_by_timestamp_serves_the_earliest_first() {
    for server in each_size() {
        let mut holder = pool_client(&server, "holder");
        let now_us = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
        let at = |before_s: u64| AcquirePermits {
            order: PoolOrder::Timestamp,
            timestamp_us: now_us as u64 - before_s * 1_000_000,
            capacity: 1,
            ..of_ten(1)
        };
        let mut held = take(&mut holder, at(0));
        // Beyond an hour it counts as an hour, so those two stand in the order of their arrival.
        let asked = [60, 300, 4 * 3600, 5 * 3600, 1];
        let mut waiters: Vec<_> = asked
            .iter()
            .map(|before_s| {
                let mut client = pool_client(&server, &before_s.to_string());
                queue_for(&mut client, at(*before_s));
                client
            })
            .collect();
        let answer = holder.ask(Request::DescribePool(DescribePool { name: b"pool" }));
        let Response::PoolDescribed(pool) = answer.response() else { panic!() };
        assert_eq!(pool.order, PoolOrder::Timestamp);
        let order: Vec<_> = pool.waiters.iter().map(|waiter| waiter.owner).collect();
        assert_eq!(order, [&b"14400"[..], b"18000", b"300", b"60", b"1"]);
        holder.release(held.id);
        for place in [2, 3, 1, 0, 4] {
            held = waiters[place].receive().granted();
            waiters[place].release(held.id);
        }
    }
}

#[test]
fn a_raised_capacity_grants_waiters_and_a_lowered_one_keeps_holders() {
    for server in each_size() {
        let [mut a, mut b, mut c, mut operator] = ["a", "b", "c", "o"].map(|name| pool_client(&server, name));
        assert_eq!(previous(&set_capacity(&mut operator, 10)), 0);
        assert_eq!(described(&mut operator), (10, 0, 0, 0), "a pool that was set stays");
        let held = take(&mut a, of_ten(8));
        let (number, _) = queue_for(&mut b, of_ten(10));
        queue_for(&mut c, of_ten(3));

        // Five are too few for the one in front; who stands behind it fits nonetheless not yet.
        assert_eq!(previous(&set_capacity(&mut operator, 5)), 10);
        let refused = b.receive();
        assert_eq!((refused.number(), refused.refusal()), (number, (ErrorCode::BadInput, "permits", 5)));
        assert_eq!(described(&mut operator), (5, 8, 1, 1), "nothing was taken");
        let old = b.ask(Request::AcquirePermits(of_ten(1)));
        assert_eq!(old.refusal(), (ErrorCode::CapacityMismatch, "capacity", 5));

        assert_eq!(previous(&set_capacity(&mut operator, 11)), 5);
        assert_eq!(c.receive().granted().fence, 2);
        assert_eq!(described(&mut operator), (11, 11, 2, 0));
        a.release(held.id);
        assert_eq!(described(&mut operator), (11, 3, 1, 0));
        let order = SetCapacity {
            capacity: 11,
            order: PoolOrder::Timestamp,
            name: b"pool",
            ..SetCapacity::default()
        };
        let other_order = operator.ask(Request::SetCapacity(order));
        assert_eq!(other_order.refusal(), (ErrorCode::BadInput, "order", 0));
    }
}

#[test]
fn a_pool_description_lists_holders_and_waiters() {
    for server in each_size() {
        let [mut a, mut b] = ["holder", "waiter"].map(|name| pool_client(&server, name));
        assert_eq!(described(&mut a), (0, 0, 0, 0), "there is no such pool");
        let sent = Instant::now();
        let held = take(&mut a, of_ten(7).with_terms(|terms| terms.lease_ms = 60_000));
        queue_for(&mut b, of_ten(4));
        let answer = a.ask(Request::DescribePool(DescribePool { name: b"pool" }));
        let Response::PoolDescribed(pool) = answer.response() else { panic!() };
        assert_eq!((pool.capacity, pool.held, pool.fence, pool.is_set), (10, 7, 1, false));
        assert_eq!((pool.holder_count, pool.waiter_count, pool.order), (1, 1, PoolOrder::Arrival));
        let [holder] = pool.holders[..] else { panic!("{pool:?}") };
        assert_eq!((holder.id, holder.permits, holder.fence, holder.owner), (held.id, 7, 1, &b"holder"[..]));
        assert_remaining(holder.remaining_ms.into(), 60_000, sent);
        let [waiter] = pool.waiters[..] else { panic!("{pool:?}") };
        assert_eq!((waiter.permits, waiter.owner, waiter.remaining_ms), (4, &b"waiter"[..], u32::MAX));
    }
}

#[test]
fn permits_are_returned_by_release_expiry_cancel_and_connection_loss() {
    for server in each_size() {
        let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| pool_client(&server, name));
        let short = take(&mut a, of_ten(10));
        queue_for(&mut b, of_ten(10));
        let extend = Extend { id: short.id, lease_ms: 30, key: None, own: false };
        assert!(matches!(a.ask(Request::Extend(extend)).response(), Response::Extended(_)));
        assert!(matches!(a.receive().event(), Event::Expired { .. }));
        let held = b.receive().granted();

        // A waiter leaves with its connection, a hold only where it asked for that.
        let mut lost = pool_client(&server, "lost");
        queue_for(&mut lost, of_ten(10));
        let (number, position) = queue_for(&mut c, of_ten(3));
        assert_eq!(position, 1);
        drop(lost);
        wait_until("the waiter leaves", || described(&mut a).3 == 1);
        let cancel = c.send(Request::Cancel(Cancel { acquire_number: number, key: b"pool" }));
        let (first, second) = (c.receive(), c.receive());
        assert!(matches!(first.response(), Response::Cancelled(cancelled) if cancelled.was_waiting));
        assert_eq!((first.number(), second.number()), (cancel, number));
        assert_eq!(second.error().code, ErrorCode::Cancelled);
        b.release(held.id);

        let mut lost = pool_client(&server, "lost");
        let release = AcquireOptions { release_after_ms: Some(0), ..AcquireOptions::default() };
        take(&mut lost, of_ten(4).with_terms(|terms| terms.options = release));
        take(&mut lost, of_ten(6));
        queue_for(&mut c, of_ten(4));
        drop(lost);
        assert_eq!(c.receive().granted().fence, 5);
        assert_eq!(described(&mut a), (10, 10, 2, 0), "the other hold stays to the end of its lease");
    }
}

#[test]
fn a_waiter_for_permits_can_renew_and_be_found_by_request_id() {
    for server in each_size() {
        let [mut a, mut b, mut c] = ["app", "app", "app"].map(|name| pool_client(&server, name));
        let held = take(&mut a, of_ten(10));
        let options = AcquireOptions { request_id: Some(b"7"), ..AcquireOptions::default() };
        let acquire = of_ten(2).with_terms(|terms| {
            terms.options = options;
            terms.lease_ms = 40_000;
        });
        let (old, _) = queue_for(&mut b, acquire);
        let (new, position) = queue_for(&mut c, acquire);
        assert_eq!(position, 0, "it takes its place");
        let superseded = b.receive();
        assert_eq!((superseded.number(), superseded.error().code), (old, ErrorCode::Cancelled));
        let other = AcquirePermits { permits: 3, ..acquire };
        let refused = b.ask(Request::AcquirePermits(other));
        assert_eq!(refused.refusal(), (ErrorCode::BadInput, "request_id", 0));
        a.release(held.id);
        let answer = c.receive();
        assert_eq!(answer.number(), new);
        let repeated = take(&mut b, acquire);
        assert!(repeated.repeated);
        assert_eq!(repeated.id, answer.granted().id);
        let extend =
            Request::Extend(Extend { id: repeated.id, lease_ms: 1_000, key: Some(b"pool"), own: false });
        assert!(matches!(b.ask(extend).response(), Response::Extended(_)));
        b.release(repeated.id);
        assert_eq!(described(&mut a).1, 0);
    }
}

#[test]
fn permits_on_a_session_lease_end_with_it_and_repeats_take_none() {
    for server in each_size() {
        let hello = |session| Hello { session, ..hello_of(NamespaceKind::Pool, "session") };
        let mut client = server.stranger();
        let welcome = client.open(hello(SessionRequest::New { lease_ms: 0 }));
        let acquire = Request::AcquirePermits(of_ten(6).with_terms(|terms| terms.session_lease = true));
        client.send_numbered(50, acquire);
        let granted = client.receive().granted();
        let mut again = server.stranger();
        again.open(hello(SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane }));
        again.send_numbered(50, acquire);
        assert_eq!(again.receive().granted(), granted);
        assert_eq!(described(&mut pool_client(&server, "o")), (10, 6, 1, 0));
        again.ask(Request::Goodbye(waymaker_protocol::Goodbye));
        assert_eq!(described(&mut pool_client(&server, "o")), (0, 0, 0, 0));
    }
}

#[test]
fn racing_clients_never_hold_more_permits_than_the_capacity() {
    for server in each_size() {
        let held = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 1..=6_u64 {
                let (server, held) = (&server, &held);
                scope.spawn(move || {
                    let mut client = pool_client(server, &number.to_string());
                    for _ in 0..100 {
                        let acquire = of_ten(number).with_terms(|terms| terms.wait_ms = WAIT_FOREVER_MS);
                        let granted = take(&mut client, acquire);
                        let before = held.fetch_add(number, Ordering::Relaxed);
                        assert!(before + number <= 10, "{before} and {number}");
                        held.fetch_sub(number, Ordering::Relaxed);
                        client.send(Request::Release(Release { id: granted.id, key: None, own: false }));
                        assert!(matches!(client.receive().response(), Response::Released(_)));
                    }
                });
            }
        });
    }
}
