//! Encrypted TCP connections.
//!
//! A connection can be split into its socket and its TLS state and reassembled in another runtime. In this way, a
//! connection moves to another worker.
//!
//! The driver relies on two properties. A read returns pending only after the socket was read empty. A read that
//! succeeds has filled the buffer, emptied the socket, or met the end of the stream. Otherwise it has received
//! [`READ_LEN_MAX`] bytes or [`TLS_OVERHEAD_PER_READ`] bytes of TLS overhead.

use super::partial_record::PartialRecord;
use crate::limits::{READ_LEN_MAX, TLS_OVERHEAD_PER_READ};
use rustls::ServerConnection;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::unconstrained;

/// TLS state of a connection.
#[derive(Debug)]
pub struct TlsState {
    connection: ServerConnection,
    partial: PartialRecord,
}

impl TlsState {
    /// Creates the TLS state before the handshake.
    pub(super) fn new(connection: ServerConnection) -> Self {
        Self { connection, partial: PartialRecord::default() }
    }
}

/// TCP connection with its TLS state.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    state: Box<TlsState>,
    /// Number of decrypted bytes that were not read.
    decrypted_len: usize,
    /// Waker of the task that reads the socket. [`TlsStream::try_write`] wakes this task if the socket is full, and the
    /// next read then sends the remaining data.
    reader: Option<Waker>,
}

impl TlsStream {
    pub(super) fn from_std(socket: std::net::TcpStream, mut state: Box<TlsState>) -> io::Result<Self> {
        // A connection that moved may have decrypted bytes that the previous worker did not read. Count them as unread.
        let io_state = state.connection.process_new_packets().map_err(io::Error::other)?;
        let decrypted_len = io_state.plaintext_bytes_to_read();
        Ok(Self { socket: TcpStream::from_std(socket)?, state, decrypted_len, reader: None })
    }

    pub(super) fn into_std(self) -> io::Result<(std::net::TcpStream, Box<TlsState>)> {
        Ok((self.socket.into_std()?, self.state))
    }

    /// Returns the TCP socket.
    pub(super) fn tcp(&self) -> &TcpStream {
        &self.socket
    }

    /// Returns the certificate of the client, if it presented one.
    pub(super) fn client_certificate(&self) -> Option<&[u8]> {
        self.state.connection.peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// Returns the number of bytes that were received but not read: decrypted bytes and bytes of an incomplete record.
    pub(super) fn kept_len(&self) -> u64 {
        (self.decrypted_len + self.state.partial.len()) as u64
    }

    /// Performs the TLS handshake.
    pub(super) async fn handshake(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_handshake(context)).await
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(context))?;
            if !self.state.connection.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(context))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Sends the data that was encrypted earlier. Then encrypts as many bytes as TLS accepts now, and sends as much of
    /// the result as the socket accepts. Returns the number of encrypted bytes. Returns `WouldBlock` and encrypts
    /// nothing if the socket does not accept all earlier data.
    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send()?;
        let len = self.state.connection.writer().write(bytes)?;
        match self.send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if let Some(reader) = &self.reader {
                    reader.wake_by_ref();
                }
            }
            sent => sent?,
        }
        Ok(len)
    }

    /// Sends all encrypted data that waits in the TLS state. Returns `WouldBlock` if the socket does not accept all of
    /// it.
    fn send(&mut self) -> io::Result<()> {
        while self.state.connection.wants_write() {
            if self.state.connection.write_tls(&mut WriteSide(&self.socket))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.send() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(context))?;
                }
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Reads once from the socket and decrypts complete records. Returns the number of received bytes; 0 at the end of
    /// the stream. If the client broke the TLS protocol, tries to send it an alert.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let TlsState { connection, partial } = &mut *self.state;
        match connection.read_tls(&mut ReadSide { socket: &mut self.socket, partial, context }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
            Ok(len) => match connection.process_new_packets() {
                Ok(state) => {
                    self.decrypted_len = state.plaintext_bytes_to_read();
                    Poll::Ready(Ok(len))
                }
                Err(error) => {
                    // TLS has prepared an alert that tells the client the reason. Try to send the alert, and ignore any
                    // failure, such as a full socket.
                    let _ = self.send();
                    Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)))
                }
            },
        }
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
            this.reader = Some(context.waker().clone());
        }
        if let Poll::Ready(Err(error)) = this.poll_send(context) {
            return Poll::Ready(Err(error));
        }
        let (before, mut received) = (buffer.filled().len(), 0_usize);
        loop {
            match this.state.connection.reader().read(buffer.initialize_unfilled()) {
                Ok(len) => {
                    buffer.advance(len);
                    this.decrypted_len = this.decrypted_len.saturating_sub(len);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Some clients close the socket without a TLS close message. Accept this as a normal end: the protocol
                // in the TLS stream detects truncated requests itself.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
            let read_len = buffer.filled().len() - before;
            let any = read_len > 0;
            let overhead_len = received.saturating_sub(read_len);
            if buffer.remaining() == 0
                || any && (received >= READ_LEN_MAX || overhead_len >= TLS_OVERHEAD_PER_READ)
            {
                return Poll::Ready(Ok(()));
            }
            match this.poll_receive(context) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(len)) => received += len,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if any => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_send(context))?;
        let len = this.state.connection.writer().write(bytes)?;
        // The next read, write or flush sends the data that the socket does not accept now.
        match this.poll_send(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(len)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.state.connection.send_close_notify();
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.socket).poll_shutdown(context)
    }
}

/// The socket as the TLS library reads it: without waiting, and with a count of the bytes of incomplete TLS records.
struct ReadSide<'a, 'b> {
    socket: &'a mut TcpStream,
    partial: &'a mut PartialRecord,
    context: &'a mut Context<'b>,
}

impl Read for ReadSide<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        // Without `unconstrained`, the runtime may report an empty socket although bytes have arrived. It does so after
        // a task has used up its budget of operations. The worker would then believe that the connection has read all
        // its bytes, and leases could expire although a renewal is unread.
        let read =
            unconstrained(poll_fn(|context| Pin::new(&mut *self.socket).poll_read(context, &mut buffer)));
        match pin!(read).poll(self.context) {
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            Poll::Ready(read) => read.map(|()| {
                self.partial.note(buffer.filled());
                buffer.filled().len()
            }),
        }
    }
}

/// The socket as the TLS library writes to it: one system call can send several TLS records.
struct WriteSide<'a>(&'a TcpStream);

impl Write for WriteSide<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
