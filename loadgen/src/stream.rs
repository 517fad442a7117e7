//! Byte stream of one connection: a socket, or TLS over a socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::plan::Plan;
use crate::tls_stream::TlsStream;

/// Stream of one connection. The plan decides the variant for all connections.
#[derive(Debug)]
pub enum Stream<S> {
    /// Sends bytes unchanged.
    Plain(S),
    /// Encrypts the bytes.
    Tls(TlsStream<S>),
}

impl Stream<TcpStream> {
    /// Connects, and performs the TLS handshake if the plan uses TLS. Blocks for at most `answer_time_max` per
    /// response.
    pub fn connect(plan: &Plan, answer_time_max: Duration) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&plan.socket_address, answer_time_max)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(answer_time_max))?;
        match &plan.tls {
            None => Ok(Self::Plain(socket)),
            Some(tls) => Ok(Self::Tls(TlsStream::shake_hands(tls.begin()?, socket)?)),
        }
    }

    /// Converts the stream for an event loop; it never blocks.
    pub fn into_mio(self) -> io::Result<Stream<mio::net::TcpStream>> {
        self.socket().set_nonblocking(true)?;
        Ok(match self {
            Self::Plain(socket) => Stream::Plain(mio::net::TcpStream::from_std(socket)),
            Self::Tls(stream) => Stream::Tls(stream.map_socket(mio::net::TcpStream::from_std)),
        })
    }
}

impl<S> Stream<S> {
    /// Returns the underlying socket.
    pub fn socket(&self) -> &S {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket(),
        }
    }

    /// Returns the underlying socket, for registration with an event loop.
    pub fn socket_mut(&mut self) -> &mut S {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket_mut(),
        }
    }

    /// Whether a read that did not fill its buffer has emptied the socket.
    #[inline]
    pub fn is_drained(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(stream) => stream.is_drained(),
        }
    }
}

impl<S: Read + Write> Read for Stream<S> {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl<S: Read + Write> Write for Stream<S> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
