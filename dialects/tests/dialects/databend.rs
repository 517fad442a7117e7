//! Databend's semaphore: the cases of its own tests for the queue, its events and permits, and further promises of Waymaker.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use waymaker_client::{Client, LockId, NamespaceKind};
use waymaker_dialects::databend::{AcquireError, Permit, Queued, Semaphore};

use crate::connected::connect_by;
use crate::fake::{Seen, connected_with, id, still};
use crate::manual_clock::ManualClock;
use crate::patience::{LEASE, eventually, patient, soon};
use crate::real::{RealServer, server};
use crate::relay::Relay;

async fn connect(server: &RealServer) -> Client {
    soon(patient().connect(server.url())).await.unwrap()
}

async fn acquire(client: &Client, prefix: &str, capacity: u64, id: &str) -> Result<Permit, AcquireError> {
    soon(Semaphore::new_acquired(client.clone(), prefix, capacity, id, LEASE)).await
}

/// Checks that the future joins the empty queue of the semaphore.
async fn assert_waits(client: &Client, prefix: &str, future: impl Future) {
    let pool = client.semaphore(prefix, 1).any_capacity();
    let is_queued = async || soon(pool.describe()).await.unwrap().waiter_count == 1;
    tokio::select! {
        _ = future => panic!("it does not wait"),
        () = eventually(is_queued) => {}
    }
}

/// Returns the output of a future that is ready.
fn ended<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Takes out the entry with this label, as an operator does.
async fn remove(client: &Client, prefix: &str, id: &str) {
    let pools = client.operator(NamespaceKind::Pool);
    let held = pools.list(prefix).await.unwrap();
    let entry = held.iter().find(|held| held.owner == id.as_bytes()).expect("it is held");
    pools.force_release(entry.id, "called off").await.unwrap();
}

/// A semaphore with the numbered entries of a test. The server reports the granted and the waiting entries.
struct Queue {
    client: Client,
    capacity: u64,
    /// For the order of times: the time of number 0.
    begin: Option<Duration>,
    entries: BTreeMap<u64, Queued>,
    granted: BTreeSet<u64>,
}

impl Queue {
    async fn new(server: &RealServer, capacity: u64) -> Self {
        let client = connect(server).await;
        Self { client, capacity, begin: None, entries: BTreeMap::new(), granted: BTreeSet::new() }
    }

    /// In which entries come in the order of their numbers, however they arrive.
    async fn by_time(server: &RealServer, capacity: u64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self { begin: Some(now), ..Self::new(server, capacity).await }
    }

    async fn insert(&mut self, number: u64, permits: u64) {
        let mut semaphore = Semaphore::new(self.client.clone(), "queue", self.capacity, LEASE).await;
        semaphore.set_permits(permits);
        if let Some(begin) = self.begin {
            semaphore.set_time_based_seq(Some(begin + Duration::from_secs(number)));
        }
        let mut acquirer = semaphore.new_acquirer(number, LEASE);
        let queued = soon(acquirer.enqueue_permit()).await.unwrap();
        assert!(self.entries.insert(number, queued).is_none());
    }

    async fn remove(&mut self, number: u64) {
        drop(self.entries.remove(&number).expect("it was put in"));
        soon(async {
            loop {
                let (held, waiting, _) = self.state().await;
                if !held.contains(&number) && !waiting.contains(&number) {
                    return;
                }
            }
        })
        .await;
    }

    /// Returns the numbers of the granted and of the waiting entries in their order, and the number of held permits.
    async fn state(&self) -> (BTreeSet<u64>, Vec<u64>, u64) {
        let semaphore = self.client.semaphore("queue", self.capacity);
        let status = soon(semaphore.describe()).await.unwrap();
        let number = |owner: &[u8]| std::str::from_utf8(owner).unwrap().parse().unwrap();
        let held = status.holders.iter().map(|holder| number(&holder.owner)).collect();
        let waiting = status.waiters.iter().map(|waiter| number(&waiter.owner)).collect();
        (held, waiting, status.held)
    }

    async fn assert<const H: usize, const W: usize>(&self, held: [u64; H], waiting: [u64; W], permits: u64) {
        assert_eq!(self.state().await, (held.into(), waiting.into(), permits));
    }

    /// Returns the removed entries as negative numbers, then the granted entries, since the last call.
    async fn events(&mut self) -> Vec<i64> {
        let (held, ..) = self.state().await;
        let removed = self.granted.difference(&held).map(|number| -(*number as i64));
        let granted = held.difference(&self.granted).map(|number| *number as i64);
        let events = removed.chain(granted).collect();
        self.granted = held;
        events
    }
}

mod queue {
    use super::*;

    #[tokio::test]
    async fn a_request_that_fits_the_capacity_is_granted_at_once() {
        let server = server!();
        let mut queue = Queue::new(&server, 10).await;
        queue.insert(1, 3).await;
        queue.insert(2, 4).await;
        queue.assert([1, 2], [], 7).await;
        assert!(queue.entries.values().all(|queued| queued.place().is_none()));
    }

    #[tokio::test]
    async fn a_small_request_does_not_overtake_an_earlier_waiter() {
        let server = server!();
        let mut queue = Queue::new(&server, 10).await;
        for (number, permits) in [(1, 3), (2, 5), (3, 4), (4, 4), (5, 2), (6, 1)] {
            queue.insert(number, permits).await;
        }
        queue.assert([1, 2], [3, 4, 5, 6], 8).await;
        let positions = (3..=6).map(|number| queue.entries[&number].place().unwrap().position);
        assert!(positions.eq(0..=3));
    }

    /// The original lets a late client in beyond the capacity, because two clients could otherwise wait for each other.
    /// Waymaker has one queue: the late client is the next, and the capacity holds.
    #[tokio::test]
    async fn a_late_entry_with_an_early_time_is_granted_next_within_capacity() {
        let server = server!();
        let mut queue = Queue::by_time(&server, 1).await;
        for number in [2, 3, 1] {
            queue.insert(number, 1).await;
        }
        queue.assert([2], [1, 3], 1).await;
        queue.remove(2).await;
        queue.assert([1], [3], 1).await;
    }

    #[tokio::test]
    async fn entries_are_queued_by_time_whatever_their_arrival_order() {
        let server = server!();
        for numbers in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
            let mut queue = Queue::by_time(&server, 1).await;
            queue.insert(0, 1).await;
            for number in numbers {
                queue.insert(number, 1).await;
            }
            queue.assert([0], [1, 2, 3], 1).await;
            queue.remove(0).await;
            queue.assert([1], [2, 3], 1).await;
            for number in [3, 2, 1] {
                queue.remove(number).await;
            }
        }
    }

    #[tokio::test]
    async fn all_clients_share_one_queue() {
        let server = server!();
        let (mut one, other) = (Queue::new(&server, 10).await, Queue::new(&server, 10).await);
        for (number, permits) in [(1, 6), (2, 5), (3, 1)] {
            one.insert(number, permits).await;
        }
        other.assert([1], [2, 3], 6).await;
        one.remove(1).await;
        other.assert([2, 3], [], 6).await;
    }

    /// Two holders and two who wait.
    async fn four(server: &RealServer) -> Queue {
        let mut queue = Queue::new(server, 10).await;
        for (number, permits) in [(1, 3), (2, 4), (3, 4), (4, 2)] {
            queue.insert(number, permits).await;
        }
        queue.assert([1, 2], [3, 4], 7).await;
        queue
    }

    #[tokio::test]
    async fn removing_a_holder_grants_all_waiters_that_fit() {
        let server = server!();
        let mut queue = four(&server).await;
        queue.remove(1).await;
        queue.assert([2, 3, 4], [], 10).await;
    }

    #[tokio::test]
    async fn removing_a_holder_grants_no_waiter_beyond_the_capacity() {
        let server = server!();
        let mut queue = four(&server).await;
        queue.insert(8, 8).await;
        queue.remove(2).await;
        queue.assert([1, 3, 4], [8], 9).await;
    }

    #[tokio::test]
    async fn removing_a_holder_grants_nothing_if_the_first_waiter_does_not_fit() {
        let server = server!();
        let mut queue = Queue::new(&server, 10).await;
        for (number, permits) in [(1, 3), (2, 4), (8, 8)] {
            queue.insert(number, permits).await;
        }
        queue.remove(2).await;
        queue.assert([1], [8], 3).await;
    }

    #[tokio::test]
    async fn removing_a_waiter_grants_those_behind_it_that_fit() {
        let server = server!();
        for (permits, held) in [(2, 10), (3, 8)] {
            let mut queue = Queue::new(&server, 10).await;
            for (number, permits) in [(1, 3), (2, 5), (3, 4), (4, permits), (8, 8)] {
                queue.insert(number, permits).await;
            }
            queue.assert([1, 2], [3, 4, 8], 8).await;
            queue.remove(3).await;
            if held == 10 {
                queue.assert([1, 2, 4], [8], 10).await;
            } else {
                queue.assert([1, 2], [4, 8], 8).await;
            }
            for number in [8, 4, 2, 1] {
                queue.remove(number).await;
            }
        }
    }

    #[tokio::test]
    async fn removing_an_unknown_entry_changes_nothing() {
        let server = server!();
        let queue = four(&server).await;
        let pools = queue.client.operator(NamespaceKind::Pool);
        assert!(pools.force_release(LockId { place: 77, secret: 7 }, "").await.is_err());
        queue.assert([1, 2], [3, 4], 7).await;
    }

    #[tokio::test]
    async fn granting_stops_at_the_first_waiter_that_does_not_fit() {
        let server = server!();
        let mut queue = Queue::new(&server, 5).await;
        for (number, permits) in [(1, 3), (2, 3), (3, 2), (4, 1)] {
            queue.insert(number, permits).await;
        }
        queue.assert([1], [2, 3, 4], 3).await;
        queue.remove(1).await;
        queue.assert([2, 3], [4], 5).await;
    }

    #[tokio::test]
    async fn grant_and_removal_events_arrive_in_order() {
        let server = server!();
        let mut queue = Queue::new(&server, 10).await;
        let mut events = Vec::new();
        for (number, permits) in [(1, 5), (2, 4), (3, 3), (4, 2), (2, 0), (5, 6), (1, 0), (6, 1), (4, 0)] {
            match permits {
                0 => queue.remove(number).await,
                permits => queue.insert(number, permits).await,
            }
            events.extend(queue.events().await);
        }
        assert_eq!(events, [1, 2, -2, 3, 4, -1, -4, 5, 6]);
    }
}

#[tokio::test]
async fn permits_never_exceed_the_capacity() {
    let server = server!();
    let client = connect(&server).await;
    let mut first = Vec::new();
    for prefix in ["s1", "s1", "s2", "s2"] {
        first.push(acquire(&client, prefix, 2, "id").await.unwrap());
    }
    let mut third = Box::pin(Semaphore::new_acquired(client.clone(), "s1", 2, "third", LEASE));
    assert_waits(&client, "s1", &mut third).await;
    drop(first.swap_remove(0));
    assert_eq!(soon(third).await.unwrap().fence(), 3);
}

#[tokio::test]
async fn permits_never_exceed_the_capacity_in_time_order() {
    let server = server!();
    let client = connect(&server).await;
    let acquire =
        |id: &'static str| Semaphore::new_acquired_by_time(client.clone(), "s1", 2, id, None, LEASE);
    let (first, _second) = (soon(acquire("1")).await.unwrap(), soon(acquire("2")).await.unwrap());
    let mut third = Box::pin(acquire("3"));
    assert_waits(&client, "s1", &mut third).await;
    drop(first);
    drop(soon(third).await.unwrap());
}

#[tokio::test]
async fn the_time_of_an_acquire_may_lie_far_in_the_past() {
    let server = server!();
    let client = connect(&server).await;
    let acquire = |seconds| {
        let time = Some(Duration::from_secs(seconds));
        Semaphore::new_acquired_by_time(client.clone(), "s", 2, seconds, time, LEASE)
    };
    let _first = soon(acquire(1)).await.unwrap();
    let _second = soon(acquire(2)).await.unwrap();
    assert_waits(&client, "s", acquire(3)).await;
}

#[tokio::test]
async fn the_capacity_decides_how_many_acquires_succeed_at_once() {
    let server = server!();
    let client = connect(&server).await;
    let _one = acquire(&client, "one", 1, "a").await.unwrap();
    let mut acquiring = tokio::task::JoinSet::new();
    for id in 0..5 {
        acquiring.spawn(Semaphore::new_acquired(client.clone(), "five", 5, id, LEASE));
    }
    let five = soon(acquiring.join_all()).await;
    assert!(five.iter().all(Result::is_ok));
    assert_waits(&client, "one", Semaphore::new_acquired(client.clone(), "one", 1, "b", LEASE)).await;
}

#[tokio::test]
async fn dropping_a_permit_grants_the_next_waiter() {
    let server = server!();
    let client = connect(&server).await;
    let mut held = Vec::new();
    for id in ["1", "2", "3"] {
        held.push(acquire(&client, "s", 3, id).await.unwrap());
    }
    let fourth = tokio::spawn(Semaphore::new_acquired(client.clone(), "s", 3, "4", LEASE));
    held.pop();
    let _fourth = soon(fourth).await.unwrap().unwrap();
    held.clear();
    for id in ["5", "6"] {
        held.push(acquire(&client, "s", 3, id).await.unwrap());
    }
}

#[tokio::test]
async fn a_dropped_acquire_leaves_all_semaphores_usable() {
    let server = server!();
    let client = connect(&server).await;
    let held = acquire(&client, "s1", 1, "held").await.unwrap();
    assert_waits(&client, "s1", Semaphore::new_acquired(client.clone(), "s1", 1, "gives up", LEASE)).await;
    drop(acquire(&client, "s2", 1, "other").await.unwrap());
    drop(held);
    drop(acquire(&client, "s1", 1, "next").await.unwrap());
}

#[tokio::test]
async fn a_permit_is_renewed_beyond_its_lease() {
    let (server, clock) = (server!(), ManualClock::new());
    let client = connect_by(&server, &clock).await;
    let mut permit = acquire(&client, "s", 1, "id").await.unwrap();
    let answered = async || {
        soon(client.inspect("k")).await.unwrap();
        soon(client.semaphore("s", 1).describe()).await.unwrap();
    };
    clock.advance_with(4 * LEASE, answered).await;
    assert_eq!(ended(&mut permit), None);
}

#[tokio::test]
async fn a_permit_with_a_long_lease_stays_held() {
    let server = server!();
    let client = connect(&server).await;
    let permit = acquire(&client, "s", 1, "id").await.unwrap();
    soon(client.semaphore("s", 1).describe()).await.unwrap();
    assert_eq!(ended(permit), None);
}

#[tokio::test]
async fn a_permit_with_a_very_short_lease_is_usable() {
    let server = server!();
    let client = connect(&server).await;
    let lease = Duration::from_millis(100);
    let mut fence = 0;
    while fence < 3 {
        let begin = Instant::now();
        match soon(Semaphore::new_acquired(client.clone(), "s", 1, "id", lease)).await {
            Ok(permit) => {
                assert!(permit.fence() > fence);
                fence = permit.fence();
            }
            // A client that is not scheduled for as long as the lease learns of its grant too late.
            Err(AcquireError::ConnectionClosed(_)) if begin.elapsed() > lease / 2 => {}
            Err(error) => panic!("{error}"),
        }
    }
    drop(acquire(&client, "s", 1, "later").await.unwrap());
}

#[tokio::test]
async fn a_permit_ends_at_once_when_its_entry_is_removed() {
    let server = server!();
    let client = connect(&server).await;
    let mut permit = acquire(&client, "s", 1, "id").await.unwrap();
    assert_eq!(ended(&mut permit), None);
    remove(&client, "s", "id").await;
    assert_eq!(soon(&mut permit).await, Ok(()));
    assert_eq!(soon(permit).await, Ok(()), "and says so again");
    drop(acquire(&client, "s", 1, "next").await.unwrap());
}

/// Its client has no connection, so the permit is not renewed and the server removes it. The client learns nothing of that.
#[tokio::test]
async fn a_disconnected_permit_fails_before_another_client_gets_it() {
    let server = server!();
    let other = connect(&server).await;
    for lease in [1, 5, 30].map(Duration::from_secs) {
        let relay = Relay::to(server.url()).await;
        let cut_off = patient().connect(relay.url()).await.unwrap();
        let mut permit = soon(Semaphore::new_acquired(cut_off, "s", 1, "cut off", lease)).await.unwrap();
        drop(relay);
        if ended(&mut permit).is_some() {
            // The lease ended before the connection was cut.
            continue;
        }
        let _next = soon(Semaphore::new_acquired(other.clone(), "s", 1, "next", LEASE)).await.unwrap();
        let ending = ended(permit).expect("its client knows before the next one is granted");
        assert!(ending.unwrap_err().to_string().contains("it could not be renewed in time"));
        return;
    }
    panic!("no lease was long enough");
}

#[tokio::test]
async fn permits_and_waits_fail_when_the_server_dies() {
    let (mut server, clock) = (server!(), ManualClock::new());
    let client = connect_by(&server, &clock).await;
    let permit = acquire(&client, "s", 1, "holds").await.unwrap();
    let mut waiter = Box::pin(Semaphore::new_acquired(client.clone(), "s", 1, "waits", LEASE));
    assert_waits(&client, "s", &mut waiter).await;
    server.kill();
    // Pauses between attempts to connect move the clock too.
    soon(permit).await.unwrap_err();
    assert!(matches!(soon(waiter).await, Err(AcquireError::ConnectionClosed(_))));
    let error = acquire(&client, "s", 1, "late").await.unwrap_err();
    assert!(matches!(error, AcquireError::ConnectionClosed(_)), "{error}");
}

#[tokio::test]
async fn closing_the_client_ends_its_permits_with_an_error() {
    let server = server!();
    let client = connect(&server).await;
    let permit = acquire(&client, "s", 1, "id").await.unwrap();
    client.clone().close().await.unwrap();
    assert_eq!(soon(permit).await.unwrap_err().reason, "the client was closed");
    let error = acquire(&client, "s", 1, "id").await.unwrap_err();
    assert!(matches!(error, AcquireError::ConnectionClosed(_)), "{error}");
}

/// The grant arrived after the end of its lease, and so did the confirmation: another client may hold the permit by now.
#[tokio::test]
async fn a_grant_that_arrives_after_its_lease_is_an_error() {
    let clock = ManualClock::new();
    let (client, _first, server) = connected_with(still().clock(clock.shared())).await;
    let lease = Duration::from_secs(2);
    let waiter = tokio::spawn(Semaphore::new_acquired(client, "s", 1, "id", lease));
    let mut connection = server.join().await;
    let (number, seen) = connection.next().await;
    assert_eq!(seen, Seen::Permits { name: b"s".to_vec(), permits: 1 });
    clock.advance(lease).await;
    connection.grant(number, 1, 2_000).await;
    let (number, seen) = connection.next().await;
    assert_eq!(seen, Seen::Extend { id: id(1), lease_ms: 2_000 });
    clock.advance(lease).await;
    connection.extended(number, 2_000).await;
    let error = soon(waiter).await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::ConnectionClosed(_)), "{error}");
}

#[tokio::test]
async fn a_waiter_removed_by_an_operator_gets_an_error() {
    let server = server!();
    let client = connect(&server).await;
    let _held = acquire(&client, "s", 1, "holds").await.unwrap();
    let mut acquirer = Semaphore::new(client.clone(), "s", 1, LEASE).await.new_acquirer("waits", LEASE);
    let queued = soon(acquirer.enqueue_permit()).await.unwrap();
    let id = queued.place().unwrap().id;
    client.operator(NamespaceKind::Pool).force_release(id, "called off").await.unwrap();
    let error = soon(acquirer.await_permit(queued)).await.unwrap_err();
    assert!(matches!(error, AcquireError::EarlyRemoved(_)), "{error}");
}

#[tokio::test]
async fn an_acquire_that_can_never_be_granted_is_rejected_at_once() {
    let server = server!();
    let client = connect(&server).await;
    let asking = async |capacity, permits, prefix: &str, lease| {
        let mut semaphore = Semaphore::new(client.clone(), prefix, capacity, lease).await;
        semaphore.set_permits(permits);
        match soon(semaphore.acquire("id")).await.unwrap_err() {
            AcquireError::Refused(error) => error.to_string(),
            error => panic!("{error}"),
        }
    };
    let _held = acquire(&client, "s", 2, "holds").await.unwrap();
    for (capacity, permits, prefix, lease, text) in [
        (
            3,
            1,
            "s",
            LEASE,
            "capacity_mismatch: the pool has 2 permits; request this capacity, or resize the pool",
        ),
        (2, 3, "s", LEASE, "bad_input: permits: must not exceed the capacity of the pool"),
        (0, 1, "none", LEASE, "bad_input: capacity: must not be 0"),
        (1, 0, "none", LEASE, "bad_input: permits: must not be 0"),
        (1, 1, "///", LEASE, "bad_input: name: must not be empty"),
        (1, 1, "none", Duration::ZERO, "bad_input: lease: the lease is zero; it must be at least 1 ms"),
    ] {
        assert_eq!(asking(capacity, permits, prefix, lease).await, text);
    }
    // Another order than that in which it is used.
    let by_time = Semaphore::new_acquired_by_time(client.clone(), "s", 2, "id", None, LEASE);
    assert!(matches!(soon(by_time).await, Err(AcquireError::Refused(_))));
}

#[tokio::test]
async fn trailing_slashes_of_a_prefix_are_ignored() {
    let server = server!();
    let client = connect(&server).await;
    let _held = acquire(&client, "a/b//", 1, "holds").await.unwrap();
    assert_waits(&client, "a/b", Semaphore::new_acquired(client.clone(), "a/b", 1, "waits", LEASE)).await;
    drop(acquire(&client, "a", 1, "another").await.unwrap());
}

#[tokio::test]
async fn the_arrival_order_can_be_restored_and_an_acquirer_gets_one_permit() {
    let server = server!();
    let client = connect(&server).await;
    let _held = acquire(&client, "s", 2, "holds").await.unwrap();
    let mut semaphore = Semaphore::new(client, "s", 2, LEASE).await;
    semaphore.set_time_based_seq(None);
    semaphore.set_storage_based_seq();
    let mut acquirer = semaphore.new_acquirer("id", LEASE);
    let queued = soon(acquirer.enqueue_permit()).await.unwrap();
    assert!(matches!(acquirer.enqueue_permit().await, Err(AcquireError::Refused(_))));
    let permit = soon(acquirer.await_permit(queued)).await.unwrap();
    assert_eq!(permit.acquirer_name, "Semaphore(s)-Acquirer(id=id)");
}
