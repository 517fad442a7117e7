//! A connection whose server must speak one protocol.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use waymaker_client::internal::Protocol;

/// Maximum number of bytes kept to detect the protocol; enough for every protocol.
const BEGINNING_LEN_MAX: usize = 1024;

/// Protocol of a server, as far as its first bytes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// The server has sent nothing yet.
    Awaited,
    /// The server speaks the expected protocol.
    Expected,
    Other(Protocol),
    /// The server closed the connection before it sent a known greeting.
    End,
}

/// Returns the error message for a server that speaks `found` instead of the protocol named `expected`.
pub(crate) fn problem(found: Protocol, expected: &str) -> String {
    format!(
        "the server there speaks {found}, not {expected} (7420 is the default port of the binary protocol, 7421 of gRPC and \
         7422 of HTTP)"
    )
}

/// A socket that fails with an explanation if the server begins to speak another protocol.
#[derive(Debug)]
pub(crate) struct Checked<S> {
    socket: S,
    expected: Protocol,
    /// The name of the expected protocol in the explanation.
    name: &'static str,
    beginning: Vec<u8>,
    greeting: watch::Sender<Greeting>,
    is_checked: bool,
}

impl<S> Checked<S> {
    pub(crate) fn new(
        socket: S,
        expected: Protocol,
        name: &'static str,
        greeting: watch::Sender<Greeting>,
    ) -> Self {
        greeting.send_replace(Greeting::Awaited);
        Self { socket, expected, name, beginning: Vec::new(), greeting, is_checked: false }
    }

    /// Checks the next bytes of the server; no bytes mean that it closed the connection.
    fn check(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = BEGINNING_LEN_MAX - self.beginning.len();
        self.beginning.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let protocol = match Protocol::of(&self.beginning) {
            Some(protocol) if protocol == self.expected => return self.accept(),
            Some(protocol) => protocol,
            None if bytes.is_empty() => {
                self.greeting.send_replace(Greeting::End);
                return Ok(());
            }
            None if self.beginning.len() == BEGINNING_LEN_MAX => return self.accept(),
            None => return Ok(()),
        };
        self.greeting.send_replace(Greeting::Other(protocol));
        Err(io::Error::new(io::ErrorKind::InvalidData, problem(protocol, self.name)))
    }

    fn accept(&mut self) -> io::Result<()> {
        self.is_checked = true;
        self.beginning = Vec::new();
        self.greeting.send_replace(Greeting::Expected);
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Checked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.socket).poll_read(context, buffer));
        if self.is_checked {
            return Poll::Ready(read);
        }
        if read.is_err() {
            self.greeting.send_replace(Greeting::End);
            return Poll::Ready(read);
        }
        Poll::Ready(self.check(&buffer.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Checked<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
