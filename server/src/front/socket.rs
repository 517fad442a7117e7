//! Sockets of front-end connections.

use crate::driver::{Local, Socket, StdSocket};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep};

/// Socket that a protocol library reads and writes. It reads no more than the turn of its connection allows. It fails
/// if the client does not send the first bytes of its protocol in time. It also fails if the client takes no bytes of a
/// response for too long.
#[derive(Debug)]
pub(crate) struct FrontSocket {
    socket: Socket,
    /// Number of greeting bytes that were read.
    greeted_len: usize,
    /// Deadline of the first `greeting_len` bytes; `None` after their arrival.
    greeting: Option<Pin<Box<Sleep>>>,
    greeting_len: usize,
    /// Deadline of the current write; set while the peer takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl FrontSocket {
    /// Registers the socket in the runtime of this thread and completes the TLS handshake, if there is one. The client
    /// then has the HELLO timeout to send its first `greeting_len` bytes.
    ///
    /// # Errors
    /// Fails if the registration or the handshake fails, or if the handshake takes too long.
    pub(crate) async fn begin(socket: StdSocket, greeting_len: usize) -> io::Result<Self> {
        let mut socket = Socket::from_std(socket)?;
        let limits = || Local::with(|local| local.node.set);
        socket.handshake(limits().tls_handshake.into()).await?;
        let greeting = Some(Box::pin(sleep(limits().hello.into())));
        Ok(Self { socket, greeted_len: 0, greeting, greeting_len, stall: None })
    }

    /// Returns the names in the certificate of the client; none without a certificate.
    pub(crate) fn certificate_names(&self) -> Vec<String> {
        self.socket.certificate_names()
    }

    /// Records that bytes were read.
    fn note_read(&mut self, len: usize) {
        if self.greeting.is_some() {
            self.greeted_len += len;
            if self.greeted_len >= self.greeting_len {
                self.greeting = None;
            }
        }
        Local::with(|local| {
            local.note_activity();
            local.front_turn.borrow_mut().note_read(len);
        });
    }

    /// Returns the result of a write, but lets the write fail with `TimedOut` if the peer accepts no byte for the write
    /// timeout. The timeout begins with the first attempt that must wait, and any result ends it.
    fn judge_write(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if polled.is_ready() {
            self.stall = None;
            return polled;
        }
        let stall = self
            .stall
            .get_or_insert_with(|| Box::pin(sleep(Local::with(|local| local.node.set.write).into())));
        match stall.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for FrontSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        let len = Local::with(|local| {
            let mut turn = local.front_turn.borrow_mut();
            turn.may_read(&mut local.barrier(), || own.socket.unread_len()).min(buffer.remaining())
        });
        if len == 0 && buffer.remaining() > 0 {
            // The turn may read no more, so the next turn reads the rest.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let (polled, read_len) = Local::with(|local| {
            // Read into the shared buffer of the thread: the buffer of the library would have to be cleared before each
            // read.
            let mut scratch = local.scratch.borrow_mut();
            let mut part = ReadBuf::new(&mut scratch[..len]);
            // Without `unconstrained`, the runtime would sometimes report that the socket is empty although bytes have
            // arrived, to let other tasks run.
            let read =
                unconstrained(poll_fn(|context| Pin::new(&mut own.socket).poll_read(context, &mut part)));
            let polled = pin!(read).poll(context);
            buffer.put_slice(part.filled());
            (polled, part.filled().len())
        });
        let has_ended = read_len == 0 && polled.is_ready() && len > 0;
        if has_ended && Local::with(|local| local.front_turn.borrow_mut().end_later()) {
            // The library must learn only in the next turn that the client has closed the connection. The next read of
            // the socket reports the end again.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        match &polled {
            Poll::Ready(_) => own.note_read(read_len),
            Poll::Pending => {
                if let Some(greeting) = &mut own.greeting
                    && greeting.as_mut().poll(context).is_ready()
                {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
        }
        polled
    }
}

impl AsyncWrite for FrontSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let own = self.get_mut();
        let polled = Pin::new(&mut own.socket).poll_write(context, bytes);
        own.judge_write(context, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let own = self.get_mut();
        let polled = Pin::new(&mut own.socket).poll_write_vectored(context, slices);
        own.judge_write(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

/// Returns the two ends of a connection for tests. The client end is non-blocking and has sent these bytes.
#[cfg(test)]
pub(super) async fn test_socket(sent: &[u8]) -> (std::net::TcpStream, FrontSocket) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    std::io::Write::write_all(&mut client, sent).unwrap();
    client.set_nonblocking(true).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let socket = FrontSocket::begin(StdSocket::Tcp(socket), crate::limits::HTTP_GREETING_LEN).await.unwrap();
    (client, socket)
}
