//! Writes to a socket until it takes no more.

use std::io::{self, ErrorKind, Write as _};
use std::net::TcpStream;

/// Bytes that are sent at once: more than a server reads before it answers others.
const FILL_LEN_MAX: usize = 768 << 10;

/// Reads and discards all bytes that have arrived.
pub(super) fn skip_input(mut socket: &TcpStream) {
    socket.set_nonblocking(true).expect("a socket");
    let _ = io::copy(&mut socket, &mut io::sink());
    socket.set_nonblocking(false).expect("a socket");
}

/// The rest of a piece, if the socket took only its beginning.
#[derive(Debug, Default)]
pub(super) struct Unsent(Vec<u8>);

impl Unsent {
    /// Sends this rest, then one piece of `next` after the other, until the socket takes no more or [`FILL_LEN_MAX`] bytes are sent.
    /// Returns false if the connection was cut.
    pub(super) fn fill(&mut self, mut socket: &TcpStream, mut next: impl FnMut() -> Vec<u8>) -> bool {
        socket.set_nonblocking(true).expect("a socket");
        let mut sent = 0;
        let cut = loop {
            match socket.write(&self.0) {
                Ok(len) => {
                    sent += len;
                    drop(self.0.drain(..len));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break true,
            }
            if sent >= FILL_LEN_MAX {
                break false;
            }
            if self.0.is_empty() {
                self.0 = next();
            }
        };
        socket.set_nonblocking(false).expect("a socket");
        !cut
    }
}
