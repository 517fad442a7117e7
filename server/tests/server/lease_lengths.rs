//! How long a lease lasts for a client that counts from when it sent the request.

use crate::harness::Server;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use waymaker_protocol::{Acquire, AcquireTerms, Extend, Request};

const LEASE: Duration = Duration::from_millis(10);
const KEYS_PER_ROUND: usize = 100;
const ROUNDS: usize = 15;

/// The clock of the server.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A waiter is granted the key when the lease ends, so the whole lease must lie between the request and that grant.
#[test]
fn no_lease_is_shorter_than_requested() {
    let server = Server::start(&["--workers", "1"]);
    let (mut holder, mut waiter) = (server.client("a"), server.client("b"));
    let lease_ms = LEASE.as_millis() as u32;
    let mut shorter = Vec::new();
    for round in 0..ROUNDS {
        let keys: Vec<_> = (0..KEYS_PER_ROUND).map(|number| format!("{round} {number}")).collect();
        // Half of the leases begin with a grant, the others with a renewal.
        let (granted, renewed) = keys.split_at(KEYS_PER_ROUND / 2);
        let held: Vec<_> = renewed.iter().map(|key| holder.acquire(key.as_bytes(), 600_000).id).collect();
        let requests = granted
            .iter()
            .map(|key| {
                Request::Acquire(Acquire {
                    key: key.as_bytes(),
                    terms: AcquireTerms { lease_ms, ..AcquireTerms::default() },
                    ..Acquire::default()
                })
            })
            .chain(
                held.iter().map(|id| Request::Extend(Extend { id: *id, lease_ms, key: None, own: false })),
            );
        // One after the other, so that each begins at another instant within its millisecond.
        let mut event_count = 0;
        let begun: Vec<_> = requests
            .map(|request| {
                let begun = now();
                let number = holder.send(request);
                while holder.receive().number() != number {
                    event_count += 1;
                }
                begun
            })
            .collect();
        let numbers: Vec<_> = keys
            .iter()
            .map(|key| {
                let acquire = Acquire {
                    key: key.as_bytes(),
                    terms: AcquireTerms { wait_ms: 600_000, ..AcquireTerms::default() },
                    ..Acquire::default()
                };
                waiter.send(Request::Acquire(acquire))
            })
            .collect();
        for _ in &keys {
            let answer = waiter.receive();
            let ended = now();
            answer.granted();
            let lease = ended - begun[(answer.number() - numbers[0]) as usize];
            if lease < LEASE {
                shorter.push(lease);
            }
        }
        // One event for each lease that has ended.
        for _ in event_count..KEYS_PER_ROUND {
            holder.receive().event();
        }
    }
    let count = ROUNDS * KEYS_PER_ROUND;
    let shortest = shorter.iter().min();
    assert!(
        shorter.is_empty(),
        "{} of {count} leases are shorter, the shortest is {shortest:?}",
        shorter.len()
    );
}
