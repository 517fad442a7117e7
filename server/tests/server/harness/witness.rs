//! A lease that tells how much of the server's own time has passed.

use super::{Client, Received, Watchdog, is_nothing_yet};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use waymaker_protocol::{Acquire, Event, Request};

/// How long a look at the witness waits at most.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// A hold whose end the server tells in the order in which it does things. If something did not happen before that end, the
/// server was late by its own clock, and not because the test or its machine was slow: a lease ends only after the server
/// has read its sockets, so after a stall everything else that is due goes first.
#[derive(Debug)]
pub(crate) struct Witness<S> {
    client: Client<S>,
    length: Duration,
    is_over: bool,
}

impl<S: Read + Write> Witness<S> {
    /// Begins now, and ends after `length` of the server's time. The client is not needed for anything else, and a read of its
    /// socket gives up after [`LOOK`].
    pub(crate) fn begin(mut client: Client<S>, length: Duration) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let key = format!("witness {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let lease_ms = length.as_millis() as u32;
        let acquire = Acquire { key: key.as_bytes(), lease_ms, ..Acquire::default() };
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

    /// Waits until `has_happened` returns true, which has to be so before the witness ends. `has_happened` looks at what the
    /// server has written, and may wait a little.
    #[track_caller]
    pub(crate) fn assert_before_end(&mut self, what: &str, mut has_happened: impl FnMut() -> bool) {
        loop {
            let is_over = self.is_over();
            // All that the server did before the witness ended can be seen by now.
            if has_happened() {
                return;
            }
            assert!(!is_over, "{what}: not within {:?} of the server's time", self.length);
        }
    }

    /// Whether the server has told the end of the witness.
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
