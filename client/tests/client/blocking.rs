//! The client without a runtime.

use std::time::Duration;

use waymaker_client::blocking::{self, Block};
use waymaker_client::{Error, LossReason, Unavailable};

use crate::real::server;

#[test]
fn a_program_without_a_runtime_locks_waits_and_releases() {
    let server = server!();
    let [alice, bob] = ["alice", "bob"]
        .map(|owner| waymaker_client::Client::builder().owner(owner).connect_blocking(server.url()).unwrap());
    let lock = alice.write("k").block().unwrap();
    let Err(Error::Busy(contention)) = bob.write("k").try_().block() else { panic!("alice has it") };
    assert_eq!(contention.owner, b"alice");
    let waiting = std::thread::spawn(move || {
        bob.write("k").wait(Duration::from_secs(10)).block().map(|lock| lock.fence())
    });
    lock.release().block().unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), 2);
    let sum = alice.with_lock("k", |lock| lock.fence() + 1).unwrap();
    assert_eq!(sum, 4);
    assert_eq!(alice.semaphore("s", 2).acquire().block().unwrap().fence(), 1);
}

#[test]
fn leases_are_renewed_by_the_thread_of_the_client() {
    let server = server!();
    let client = blocking::connect(server.url()).unwrap();
    let lock = client.write("k").lease(Duration::from_millis(100)).block().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(lock.is_held());
    assert_eq!(client.inspect("k").block().unwrap().holders.len(), 1);
}

#[test]
fn dropping_the_client_releases_what_is_left() {
    let server = server!();
    let (client, other) =
        (blocking::connect(server.url()).unwrap(), blocking::connect(server.url()).unwrap());
    let lock = client.write("k").block().unwrap();
    drop(client);
    assert_eq!(lock.loss_reason(), Some(LossReason::ClientClosed));
    assert_eq!(other.write("k").try_().block().unwrap().fence(), 2);
}

#[test]
fn a_server_that_is_not_there_is_an_error_and_leaves_no_thread_waiting() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = blocking::connect(&format!("waymaker://{closed}")).unwrap_err();
    assert!(matches!(error, Error::Unavailable(Unavailable::Unreachable { .. })), "{error}");
}
