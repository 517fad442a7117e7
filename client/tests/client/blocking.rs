//! The client without a runtime.

use waymaker_client::blocking::{self, Block};
use waymaker_client::{Error, LossReason, Unavailable};

use crate::against_server::pass;
use crate::manual_clock::ManualClock;
use crate::nowhere::Nowhere;
use crate::patience::{HOUR, LEASE, SOON, patient};
use crate::real::{RealServer, server};

/// Connects, and tries again if the server does not respond in time.
fn connect(server: &RealServer) -> blocking::Client {
    let begin = std::time::Instant::now();
    loop {
        match blocking::connect(server.url()) {
            Err(Error::Unavailable(_)) if begin.elapsed() < SOON => {}
            connected => return connected.unwrap(),
        }
    }
}

#[test]
fn a_program_without_a_runtime_locks_waits_and_releases() {
    let server = server!();
    let [alice, bob] =
        ["alice", "bob"].map(|owner| patient().owner(owner).connect_blocking(server.url()).unwrap());
    let lock = alice.write("k").block().unwrap();
    let Err(Error::Busy(contention)) = bob.write("k").try_().block() else { panic!("alice has it") };
    assert_eq!(contention.owner, b"alice");
    let waiting = std::thread::spawn(move || bob.write("k").wait(HOUR).block().map(|lock| lock.fence()));
    lock.release().block().unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), 2);
    let sum = alice.with_lock("k", |lock| lock.fence() + 1).unwrap();
    assert_eq!(sum, 4);
    assert_eq!(alice.semaphore("s", 2).acquire().block().unwrap().fence(), 1);
}

#[test]
fn the_client_thread_renews_leases() {
    let (server, clock) = (server!(), ManualClock::new());
    let client = patient().clock(clock.shared()).connect_blocking(server.url()).unwrap();
    let lock = client.write("k").lease(LEASE).block().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(pass(&client, &clock, 2 * LEASE));
    assert!(lock.is_held());
    assert_eq!(client.inspect("k").block().unwrap().holders.len(), 1);
}

#[test]
fn dropping_the_client_releases_its_locks() {
    let server = server!();
    let (client, other) = (connect(&server), connect(&server));
    let lock = client.write("k").block().unwrap();
    drop(client);
    assert_eq!(lock.loss_reason(), Some(LossReason::ClientClosed));
    assert_eq!(other.write("k").try_().block().unwrap().fence(), 2);
}

#[test]
fn connecting_to_a_missing_server_fails_and_leaves_no_thread() {
    let error = blocking::connect(&Nowhere::new().url()).unwrap_err();
    assert!(matches!(error, Error::Unavailable(Unavailable::Unreachable { .. })), "{error}");
}

/// The thread would wait for itself.
#[test]
fn blocking_the_only_thread_of_a_runtime_panics_at_once() {
    let server = server!();
    let url = server.url().to_owned();
    let (ended, end) = std::sync::mpsc::channel();
    // Without the refusal this thread would never end.
    std::thread::spawn(move || {
        let blocked = std::panic::catch_unwind(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let client = patient().connect(&url).await.unwrap();
                client.write("k").block()
            })
        });
        ended.send(blocked.map(drop)).unwrap();
    });
    let text = end.recv_timeout(SOON).expect("it is refused").unwrap_err();
    let text = text
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| text.downcast_ref::<&str>().copied())
        .unwrap();
    assert!(text.contains("block"), "{text}");
}
