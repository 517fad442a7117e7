//! Several workers over the same shards.

use crate::harness::{Server, default_hello};
use std::sync::atomic::{AtomicU64, Ordering};
use waymaker_protocol::{Acquire, AcquireTerms, ErrorCode, Hello, Request, Response};

#[test]
fn a_connection_may_choose_its_worker() {
    let server = Server::start(&["--workers", "4"]);
    for worker in 0..4 {
        let mut client = server.stranger();
        let answer = client.ask(Request::Hello(Hello { worker, ..default_hello() }));
        let Response::Welcome(welcome) = answer.response() else { panic!("{:?}", answer.response()) };
        assert_eq!((welcome.worker, welcome.worker_count, welcome.shard_count), (worker, 4, 16));
        assert!(client.acquire(format!("of {worker}").as_bytes(), 0).fence == 1);
    }
    let mut client = server.stranger();
    let answer = client.ask(Request::Hello(Hello { worker: 4, ..default_hello() }));
    assert_eq!(answer.error().code, ErrorCode::BadInput);
}

#[test]
fn connections_are_spread_over_the_workers() {
    let server = Server::start(&["--workers", "4"]);
    let mut counts = [0; 4];
    let _clients: Vec<_> = (0..40)
        .map(|_| {
            let mut client = server.stranger();
            let answer = client.ask(Request::Hello(default_hello()));
            let Response::Welcome(welcome) = answer.response() else { panic!() };
            counts[usize::from(welcome.worker)] += 1;
            client
        })
        .collect();
    assert_eq!(counts, [10; 4]);
}

/// Two clients, and many, race for one key; a counter that is read and written back under the lock loses nothing, and
/// fences rise by one with each grant.
#[test]
fn racing_clients_hold_a_key_one_at_a_time() {
    for (workers, clients, rounds) in [("1", 2, 500_u64), ("4", 8, 250)] {
        let server = Server::start(&["--workers", workers]);
        let (counter, last_fence) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for number in 0..clients {
                let (server, counter, last_fence) = (&server, &counter, &last_fence);
                scope.spawn(move || {
                    let mut client = server.client(&number.to_string());
                    for _ in 0..rounds {
                        let acquire = Acquire {
                            key: b"race",
                            terms: AcquireTerms { wait_ms: u32::MAX, ..AcquireTerms::default() },
                            ..Acquire::default()
                        };
                        let granted = client.ask(Request::Acquire(acquire)).granted();
                        let seen = counter.load(Ordering::Relaxed);
                        assert_eq!(last_fence.swap(granted.fence, Ordering::Relaxed) + 1, granted.fence);
                        std::thread::yield_now();
                        counter.store(seen + 1, Ordering::Relaxed);
                        client.release(granted.id);
                    }
                });
            }
        });
        assert_eq!(counter.into_inner(), clients * rounds);
    }
}

#[test]
fn deep_pipelines_of_many_connections_are_all_answered() {
    let server = Server::start(&["--workers", "4", "--busy-poll", "50us"]);
    std::thread::scope(|scope| {
        for number in 0..8_u32 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client("deep");
                for round in 0..20_u32 {
                    let keys: Vec<_> = (0..500_u32)
                        .map(|key| [number, round % 3, key].map(u32::to_le_bytes).concat())
                        .collect();
                    let mut numbers: Vec<_> = keys
                        .iter()
                        .map(|key| client.send(Request::Acquire(Acquire { key, ..Acquire::default() })))
                        .collect();
                    let mut ids = Vec::new();
                    for _ in 0..keys.len() {
                        let answer = client.receive();
                        let place =
                            numbers.iter().position(|number| *number == answer.number()).expect("asked once");
                        numbers.swap_remove(place);
                        ids.push(answer.granted().id);
                    }
                    for id in ids {
                        client.send(Request::Release(waymaker_protocol::Release {
                            id,
                            key: None,
                            own: false,
                        }));
                    }
                    for _ in 0..keys.len() {
                        assert!(matches!(client.receive().response(), Response::Released(_)));
                    }
                }
            });
        }
    });
}
