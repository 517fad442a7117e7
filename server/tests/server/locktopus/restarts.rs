//! What becomes of a lock while its server is restarted in order.

use super::client::{Ended, Locker};
use crate::durable::Place;
use crate::harness::{Server, assert_not_early};
use std::time::{Duration, Instant};

const ARGUMENTS: [&str; 4] = ["--locktopus-listen", "127.0.0.1:0", "--drain", "100ms"];

/// Stops a server in order. Its clients get the close code 1001.
fn stop(mut server: Server, lockers: Vec<Locker>) {
    server.signal("TERM");
    for locker in lockers {
        assert_eq!(locker.ended(), Ended { text: None, close: Some((1001, String::new())) });
    }
    assert!(server.wait().success());
}

fn lock(server: &Server, abandon_timeout_ms: u32, set: &str) -> Locker {
    let parameters = format!("namespace=test&abandon-timeout-ms={abandon_timeout_ms}");
    let mut locker = Locker::connect_with(server, &parameters);
    locker.take(set);
    locker
}

#[test]
fn a_restart_on_a_data_directory_keeps_locks_for_their_abandon_timeout() {
    for workers in ["1", "3"] {
        let place = Place::new();
        let arguments = [&ARGUMENTS[..], &["--workers", workers]].concat();
        let server = place.start(&arguments);
        let lockers =
            vec![lock(&server, 600_000, "W long"), lock(&server, 500, "W short"), lock(&server, 0, "W none")];
        let stopped = Instant::now();
        stop(server, lockers);
        let server = place.start(&arguments);
        let [mut again, mut waiter] = ["test"; 2].map(|namespace| Locker::connect(&server, namespace));
        again.take("W none");
        again.release();
        again.send_lock("W short");
        if again.receive().2 == "enqueued" {
            again.acquire();
        }
        assert_not_early(stopped, Duration::from_millis(500));
        // Its client may connect again. The lock is not its own any more, as after any other loss of the connection.
        waiter.queue("W long");
        stop(server, vec![again, waiter]);
        let server = place.start(&arguments);
        assert!(!Locker::connect(&server, "test").is_free("W long"), "a second restart changes nothing");
    }
}

#[test]
fn a_restart_without_a_data_directory_ends_every_lock() {
    let server = Server::start(&ARGUMENTS);
    let lockers = vec![lock(&server, 600_000, "W long")];
    stop(server, lockers);
    let server = Server::start(&ARGUMENTS);
    Locker::connect(&server, "test").take("W long");
}
