//! Bytes that are sent as far as they are taken.

use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;

/// What is left of a piece of which a socket took a part.
#[derive(Debug, Default)]
pub(super) struct Unsent(Vec<u8>);

impl Unsent {
    /// Sends this, and then what `next` makes, until nothing more is taken. Returns false if the connection was cut.
    pub(super) fn fill(&mut self, mut socket: &TcpStream, mut next: impl FnMut() -> Vec<u8>) -> bool {
        socket.set_nonblocking(true).expect("a socket");
        let cut = loop {
            match socket.write(&self.0) {
                Ok(len) => drop(self.0.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break true,
            }
            if self.0.is_empty() {
                self.0 = next();
            }
        };
        socket.set_nonblocking(false).expect("a socket");
        !cut
    }
}
