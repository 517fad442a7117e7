//! A lease that tells how much of the server's own time has passed.

use super::{Client, Received, Watchdog, is_nothing_yet};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use waymaker_protocol::{Acquire, AcquireTerms, Event, Request};

/// How long one look at a witness waits.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// A hold whose expiry the server announces after everything that it did before. If an event is missing at that point, the
/// server was late by its own clock; a slow test does not matter. After a stall of the whole server a lease expires last,
/// because the server reads all its sockets first.
#[derive(Debug)]
pub(crate) struct Witness<S> {
    client: Client<S>,
    length: Duration,
    is_over: bool,
}

impl<S: Read + Write> Witness<S> {
    /// Takes a hold that expires after `length` of the server's time. `client` is used for nothing else, and its socket has [`LOOK`]
    /// as its read timeout.
    pub(crate) fn begin(mut client: Client<S>, length: Duration) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let key = format!("witness {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let lease_ms = length.as_millis() as u32;
        let acquire = Acquire {
            key: key.as_bytes(),
            terms: AcquireTerms { lease_ms, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        client.send(Request::Acquire(acquire));
        let mut witness = Self { client, length, is_over: false };
        let mut watchdog = Watchdog::start();
        loop {
            if let Some(answer) = witness.look() {
                answer.granted();
                return witness;
            }
            watchdog.look_again(|| "the grant of a witness".to_owned());
        }
    }

    /// Waits until `has_happened` returns true, and asserts that this is before the witness ends. `has_happened` reads the sockets of
    /// the test and may block for a short time.
    #[track_caller]
    pub(crate) fn assert_before_end(&mut self, what: &str, mut has_happened: impl FnMut() -> bool) {
        loop {
            let is_over = self.is_over();
            // Everything that the server wrote before the expiry has arrived by now.
            if has_happened() {
                return;
            }
            assert!(!is_over, "{what}: not within {:?} of the server's time", self.length);
        }
    }

    /// Returns whether the witness has expired.
    pub(crate) fn is_over(&mut self) -> bool {
        if !self.is_over
            && let Some(told) = self.look()
        {
            assert!(matches!(told.event(), Event::Expired { .. }), "{:?}", told.event());
            self.is_over = true;
        }
        self.is_over
    }

    fn look(&mut self) -> Option<Received> {
        match self.client.read_frame() {
            Ok(Some(received)) => Some(received),
            Ok(None) => panic!("the server closed the connection of the witness"),
            Err(error) if is_nothing_yet(&error) => None,
            Err(error) => panic!("the witness cannot be read: {error}"),
        }
    }
}

mod tests {
    use crate::harness::{Server, Watchdog};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    #[test]
    fn an_event_missing_when_the_witness_expires_is_a_failure() {
        let server = Server::start(&[]);
        let mut witness = server.witness(Duration::from_millis(100));
        let mut watchdog = Watchdog::start();
        let failed = catch_unwind(AssertUnwindSafe(|| {
            witness.assert_before_end("an event", || {
                watchdog.look_again(|| "the end of the witness".to_owned());
                false
            });
        }));
        let message = failed.expect_err("the event is missing");
        let message: &String = message.downcast_ref().expect("text");
        assert_eq!(message, "an event: not within 100ms of the server's time");
        assert!(witness.is_over());
    }

    #[test]
    fn an_event_present_when_the_witness_expires_is_no_failure() {
        let server = Server::start(&[]);
        let mut witness = server.witness(Duration::from_millis(100));
        let mut watchdog = Watchdog::start();
        while !witness.is_over() {
            watchdog.look_again(|| "the end of the witness".to_owned());
        }
        witness.assert_before_end("an event", || true);
    }
}
