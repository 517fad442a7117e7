//! The limiter: buckets of tokens.

use crate::harness::{Client, Server, each_size, hello_of, wait_for};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use waymaker_protocol::{
    Bucket, Hello, Items, NamespaceKind, Request, Response, SessionRequest, Throttle, ThrottleAll, Throttled,
};

/// Long enough that no token comes back while a test runs.
const HOUR_NS: u64 = 3_600_000_000_000;
const NEVER: u64 = u64::MAX;

fn limit_client(server: &Server) -> Client<TcpStream> {
    server.client_of(NamespaceKind::Limit, "limited")
}

/// A bucket of this many tokens that comes back one by one in an hour each.
fn slow(name: &[u8], burst: u32, cost: u32) -> Bucket<'_> {
    Bucket { rate: 1, burst, cost, period_ns: HOUR_NS, name }
}

fn throttle(client: &mut Client<TcpStream>, bucket: Bucket<'_>, refund: bool) -> Throttled {
    throttled(client, Request::Throttle(Throttle { bucket, refund }))
}

/// Takes from a bucket twice in one write, so the server reads both requests together.
fn throttle_twice(client: &mut Client<TcpStream>, bucket: Bucket<'_>) -> [Throttled; 2] {
    let mut bytes = Vec::new();
    for number in [1_000, 1_001] {
        Request::Throttle(Throttle { bucket, refund: false }).encode(number, &mut bytes);
    }
    client.write(&bytes);
    [(); 2].map(|()| {
        let answer = client.receive();
        let Response::Throttled(throttled) = answer.response() else { panic!("{:?}", answer.response()) };
        throttled
    })
}

fn throttle_all(client: &mut Client<TcpStream>, buckets: &[Bucket<'_>], refund: bool) -> Throttled {
    let mut buffer = Vec::new();
    let buckets = Items::new(buckets.iter().copied(), &mut buffer).expect("a list of buckets");
    throttled(client, Request::ThrottleAll(ThrottleAll { buckets, refund }))
}

fn throttled(client: &mut Client<TcpStream>, request: Request<'_>) -> Throttled {
    let answer = client.ask(request);
    let Response::Throttled(throttled) = answer.response() else { panic!("{:?}", answer.response()) };
    throttled
}

/// How many tokens a bucket of [`slow`] has left.
fn left(client: &mut Client<TcpStream>, name: &[u8], burst: u32) -> u64 {
    throttle(client, slow(name, burst, 0), false).remaining
}

#[test]
fn a_bucket_gives_its_burst_and_returns_the_retry_time() {
    for server in each_size() {
        let [mut a, mut b] = [(); 2].map(|()| limit_client(&server));
        for remaining in [4, 3, 2] {
            let taken = throttle(&mut a, slow(b"bucket", 5, 1), false);
            assert_eq!((taken.allowed, taken.remaining, taken.retry_after_ns), (true, remaining, 0));
        }
        let refused = throttle(&mut b, slow(b"bucket", 5, 3), false);
        assert_eq!((refused.allowed, refused.remaining), (false, 2), "nothing was taken");
        assert!(refused.retry_after_ns <= HOUR_NS && refused.retry_after_ns > HOUR_NS - HOUR_NS / 10);
        assert!(refused.reset_after_ns <= 3 * HOUR_NS && refused.reset_after_ns > 2 * HOUR_NS);
        let never = throttle(&mut b, slow(b"bucket", 5, 6), false);
        assert_eq!((never.allowed, never.retry_after_ns), (false, NEVER));
        assert!(throttle(&mut b, slow(b"bucket", 5, 2), false).allowed, "it is there for a smaller one");
        assert_eq!(left(&mut a, b"bucket", 5), 0);
        assert!(throttle(&mut a, slow(b"bucket", 5, 0), false).allowed, "looking is always allowed");
        assert_eq!(left(&mut a, b"another", 5), 5);
    }
}

#[test]
fn refunded_tokens_can_be_taken_again_up_to_a_full_bucket() {
    for server in each_size() {
        let mut client = limit_client(&server);
        throttle(&mut client, slow(b"bucket", 5, 5), false);
        assert_eq!(throttle(&mut client, slow(b"bucket", 5, 2), true).remaining, 2);
        assert!(throttle(&mut client, slow(b"bucket", 5, 2), false).allowed);
        assert_eq!(throttle(&mut client, slow(b"bucket", 5, 50), true).remaining, 5);
    }
}

/// However many ask, no more is given than the burst and what has come back since the first asked; and who comes again
/// when it was told to is served.
#[test]
fn a_bucket_never_exceeds_its_rate() {
    for server in each_size() {
        let bucket = Bucket { rate: 500, burst: 20, cost: 1, period_ns: 1_000_000_000, name: b"rate" };
        let allowed = AtomicU64::new(0);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut client = limit_client(&server);
                    for _ in 0..500 {
                        let asked = throttle(&mut client, bucket, false);
                        allowed.fetch_add(u64::from(asked.allowed), Ordering::Relaxed);
                    }
                });
            }
        });
        let most = 20 + 500 * begin.elapsed().as_millis() as u64 / 1_000 + 1;
        let allowed = allowed.into_inner();
        assert!(allowed <= most, "{allowed} of {most}");
        assert!(allowed >= 20, "the burst at least");

        let mut client = limit_client(&server);
        let slower = Bucket { rate: 10, burst: 1, name: b"slower", ..bucket };
        let refused = wait_for("a refusal", || {
            let [_, second] = throttle_twice(&mut client, slower);
            Some(second).filter(|asked| !asked.allowed)
        });
        std::thread::sleep(Duration::from_nanos(refused.retry_after_ns));
        assert!(throttle(&mut client, slower, false).allowed);
    }
}

#[test]
fn several_buckets_all_give_tokens_or_none_does() {
    for server in each_size() {
        let mut client = limit_client(&server);
        let names: Vec<_> = (0..40).map(|number| format!("bucket/{number}").into_bytes()).collect();
        let buckets = |cost| names.iter().map(|name| slow(name, 10, cost)).collect::<Vec<_>>();
        throttle(&mut client, slow(&names[33], 10, 6), false);
        let all = throttle_all(&mut client, &buckets(3), false);
        assert_eq!((all.allowed, all.remaining), (true, 1), "that of the tightest");
        let none = throttle_all(&mut client, &buckets(2), false);
        assert_eq!((none.allowed, none.remaining), (false, 1));
        for (number, name) in names.iter().enumerate() {
            assert_eq!(left(&mut client, name, 10), if number == 33 { 1 } else { 7 }, "{number}");
        }
        let back = throttle_all(&mut client, &buckets(3), true);
        assert!(back.allowed);
        assert_eq!((left(&mut client, &names[33], 10), left(&mut client, &names[0], 10)), (4, 10));
    }
}

/// The answer is that of one bucket: of the one that has to be waited for longest, not of each the worst.
#[test]
fn the_answer_for_several_buckets_is_that_of_the_tightest() {
    for server in each_size() {
        let mut client = limit_client(&server);
        throttle(&mut client, slow(b"waits", 10, 7), false);
        let two = [slow(b"waits", 10, 5), slow(b"empty after", 10, 10)];
        let refused = throttle_all(&mut client, &two, false);
        assert_eq!((refused.allowed, refused.remaining), (false, 3));
        assert!(refused.retry_after_ns <= 2 * HOUR_NS && refused.retry_after_ns > HOUR_NS);
        assert!(refused.reset_after_ns <= 7 * HOUR_NS && refused.reset_after_ns > 6 * HOUR_NS);
        let never = throttle_all(&mut client, &[slow(b"waits", 10, 5), slow(b"other", 10, 11)], false);
        assert_eq!((never.allowed, never.remaining, never.retry_after_ns), (false, 10, NEVER));
    }
}

#[test]
fn racing_clients_take_no_more_tokens_than_several_buckets_have() {
    for server in each_size() {
        let names: Vec<_> = (0..8).map(|number| format!("bucket/{number}").into_bytes()).collect();
        let allowed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (server, names, allowed) = (&server, &names, &allowed);
                scope.spawn(move || {
                    let mut client = limit_client(server);
                    let mut buckets: Vec<_> = names.iter().map(|name| slow(name, 300, 1)).collect();
                    buckets.rotate_left(number);
                    while throttle_all(&mut client, &buckets, false).allowed {
                        allowed.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(allowed.into_inner(), 300);
        let mut client = limit_client(&server);
        for name in &names {
            assert_eq!(left(&mut client, name, 300), 0);
        }
    }
}

#[test]
fn a_repeated_request_number_takes_no_tokens_again() {
    for server in each_size() {
        let hello = |session| Hello { session, ..hello_of(NamespaceKind::Limit, "session") };
        let mut client = server.stranger();
        let welcome = client.open(hello(SessionRequest::New { lease_ms: 0 }));
        let one = Request::Throttle(Throttle { bucket: slow(b"bucket", 5, 2), refund: false });
        let mut buffer = Vec::new();
        let buckets = Items::new([slow(b"bucket", 5, 1), slow(b"other", 5, 1)], &mut buffer).unwrap();
        let two = Request::ThrottleAll(ThrottleAll { buckets, refund: false });
        for _ in 0..2 {
            for (number, request, remaining) in [(40, one, 3), (41, two, 2)] {
                client.send_numbered(number, request);
                let answer = client.receive();
                assert_eq!(answer.number(), number);
                assert!(matches!(answer.response(), Response::Throttled(t) if t.remaining == remaining));
            }
            client = server.stranger();
            client.open(hello(SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane }));
        }
        assert_eq!(left(&mut limit_client(&server), b"bucket", 5), 2);
    }
}
