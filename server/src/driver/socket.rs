//! Sockets of connections: TCP with or without TLS, and Unix.

use super::tls_stream::{TlsState, TlsStream};
use crate::access::names_of;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// Socket that is registered in no runtime, so that it can move from one thread to another.
#[derive(Debug)]
pub enum StdSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
    /// TCP socket with its TLS state; the handshake may not have begun.
    Tls(std::net::TcpStream, Box<TlsState>),
}

impl StdSocket {
    /// Writes as much as the socket accepts now. It never waits, because accepted sockets are non-blocking.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the socket accepts nothing, or if it has TLS. Returns other errors, for example if the
    /// connection has ended.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => (&*socket).write(bytes),
            Self::Unix(socket) => (&*socket).write(bytes),
            // This function only sends refusals to new connections. A TLS handshake has not begun then, so the client
            // could not read a refusal.
            Self::Tls(..) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Socket in the runtime of this thread.
#[derive(Debug)]
#[expect(missing_docs, reason = "each variant is named after its content")]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

impl Socket {
    /// Registers the socket in the runtime of this thread.
    ///
    /// # Errors
    /// Fails if the registration fails.
    pub fn from_std(socket: StdSocket) -> io::Result<Self> {
        Ok(match socket {
            StdSocket::Tcp(socket) => Self::Tcp(TcpStream::from_std(socket)?),
            StdSocket::Unix(socket) => Self::Unix(UnixStream::from_std(socket)?),
            StdSocket::Tls(socket, state) => Self::Tls(Box::new(TlsStream::from_std(socket, state)?)),
        })
    }

    /// Completes the TLS handshake within the time `limit`. Does nothing on a connection without TLS.
    ///
    /// # Errors
    /// Fails if the handshake fails or takes too long.
    pub async fn handshake(&mut self, limit: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
            Self::Tls(socket) => tokio::time::timeout(limit, socket.handshake()).await?,
        }
    }

    /// Returns the names in the certificate of the client, which are known after the handshake. Empty without TLS,
    /// without a certificate, or if the certificate has no names.
    pub(crate) fn certificate_names(&self) -> Vec<String> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Vec::new(),
            Self::Tls(socket) => socket.client_certificate().map(names_of).unwrap_or_default(),
        }
    }

    /// Writes as much as the socket, or with TLS the TLS state, accepts now.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the socket accepts nothing, and other errors if the connection ended.
    #[inline]
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            Self::Unix(socket) => socket.try_write(bytes),
            Self::Tls(socket) => socket.try_write(bytes),
        }
    }

    /// Returns the number of bytes that have arrived but were not read, in the kernel and in the TLS state.
    pub(crate) fn unread_len(&self) -> u64 {
        let (len, kept_len) = match self {
            Self::Tcp(socket) => (rustix::io::ioctl_fionread(socket), 0),
            Self::Unix(socket) => (rustix::io::ioctl_fionread(socket), 0),
            Self::Tls(socket) => (rustix::io::ioctl_fionread(socket.tcp()), socket.kept_len()),
        };
        // If the operating system cannot tell the number of bytes, the socket is broken. The next read reports the
        // error.
        len.unwrap_or(0) + kept_len
    }

    /// Removes the socket from the runtime of this thread.
    ///
    /// # Errors
    /// Fails if the socket cannot be removed.
    pub fn into_std(self) -> io::Result<StdSocket> {
        Ok(match self {
            Self::Tcp(socket) => StdSocket::Tcp(socket.into_std()?),
            Self::Unix(socket) => StdSocket::Unix(socket.into_std()?),
            Self::Tls(socket) => {
                let (socket, state) = socket.into_std()?;
                StdSocket::Tls(socket, state)
            }
        })
    }
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Unix(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Tls(socket) => Pin::new(&mut **socket).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Unix(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Tls(socket) => Pin::new(&mut **socket).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write_vectored(context, slices),
            Self::Unix(socket) => Pin::new(socket).poll_write_vectored(context, slices),
            Self::Tls(socket) => Pin::new(&mut **socket).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(socket) => Pin::new(&mut **socket).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Unix(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Tls(socket) => Pin::new(&mut **socket).poll_shutdown(context),
        }
    }
}
