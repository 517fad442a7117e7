//! The socket of a connection of a front end.

use crate::driver::give_way::give_way;
use crate::driver::{Behind, Local, Socket, StdSocket};
use crate::limits::{FRONT_TURN_LEN, HELLO_MS, READ_LEN_MAX, WRITE_MS};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A socket that a library reads and writes. It keeps the account of what may still be unread, as the connections of the
/// binary protocol do, and gives up on whoever does not begin, or takes nothing of what is written.
#[derive(Debug)]
pub(crate) struct FrontSocket {
    socket: Socket,
    /// It has not been read empty.
    behind: Option<Behind>,
    /// Bytes that were read since that was last noted.
    read_len: usize,
    /// Bytes that were read since the others of the worker had their turn.
    turn_len: usize,
    /// Ends the wait for the first bytes, so many of them, until these are there.
    greeting: Option<Pin<Box<Sleep>>>,
    greeting_len: usize,
    /// Ends the wait for a peer that takes nothing, while it does so.
    stall: Option<Pin<Box<Sleep>>>,
}

impl FrontSocket {
    /// Makes the socket belong to the runtime of this thread, and shakes hands if it is encrypted. From then on the other side
    /// has [`HELLO_MS`] for its first `greeting_len` bytes.
    ///
    /// # Errors
    /// If it cannot be registered there, or the two sides do not come to terms.
    pub(crate) async fn begin(socket: StdSocket, greeting_len: usize) -> io::Result<Self> {
        let mut socket = Socket::from_std(socket)?;
        socket.handshake().await?;
        let greeting = Some(Box::pin(sleep(Duration::from_millis(HELLO_MS))));
        Ok(Self { socket, behind: None, read_len: 0, turn_len: 0, greeting, greeting_len, stall: None })
    }

    /// Something was read.
    fn note_read(&mut self, len: usize) {
        self.read_len += len;
        self.turn_len += len;
        if self.greeting.is_some() && self.read_len >= self.greeting_len {
            self.greeting = None;
        }
        let is_noted = self.behind.is_some() && self.read_len < READ_LEN_MAX;
        Local::with(|local| {
            local.note_activity();
            if !is_noted {
                local.note_behind(&mut self.behind);
            }
        });
        if !is_noted && self.greeting.is_none() {
            self.read_len = 0;
        }
    }

    fn note_empty(&mut self) {
        if self.behind.is_some() {
            Local::with(|local| local.note_empty(&mut self.behind));
        }
    }

    /// What became of a write: as long as nothing is taken, time runs.
    fn judge_write(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if polled.is_ready() {
            self.stall = None;
            return polled;
        }
        // Some read nothing either until this is written. Nobody waits for what they have not read meanwhile.
        self.note_empty();
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(WRITE_MS))));
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
        if own.turn_len >= FRONT_TURN_LEN {
            own.turn_len = 0;
            give_way(context);
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut own.socket).poll_read(context, buffer);
        match &polled {
            Poll::Pending => {
                own.turn_len = 0;
                own.note_empty();
                if let Some(greeting) = &mut own.greeting
                    && greeting.as_mut().poll(context).is_ready()
                {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                own.note_read(buffer.filled().len() - before);
            }
            Poll::Ready(_) => own.note_empty(),
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

impl Drop for FrontSocket {
    fn drop(&mut self) {
        self.note_empty();
    }
}
