//! The task of one connection.

use super::give_way::give_way;
use super::local::{Behind, Local};
use super::{Intake, Port, Socket};
use crate::limits::READS_PER_POLL;
use crate::worker::{ConnectionKey, Next, Worker};
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// How long a connection that the server closes may take to read the last answer.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes of a connection that the server closes which are read and thrown away, so that the last answer arrives.
const LINGER_LEN_MAX: u64 = 1 << 20;

/// Why a connection ends here.
enum End {
    /// The other side left, or the connection failed.
    Lost,
    /// The server closes it; its last answer was written.
    Close,
    /// It goes on at another worker.
    Move(u16),
}

/// Reads a connection and feeds the worker; the flusher writes. Nothing is read while answers pile up.
struct Connection {
    local: Rc<Local>,
    socket: Rc<RefCell<Socket>>,
    key: ConnectionKey,
    /// It has not read its socket empty.
    behind: Option<Behind>,
    registered: bool,
}

/// Serves a connection to its end.
pub(super) async fn serve(local: Rc<Local>, intake: Intake) {
    let Intake { socket, peer, moved, port: _ } = intake;
    let mut socket = match Socket::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, peer, "could not serve a connection");
            return local.note_ended();
        }
    };
    if let Err(error) = socket.handshake().await {
        tracing::debug!(%error, peer, "a connection did not shake hands");
        return local.note_ended();
    }
    let socket = Rc::new(RefCell::new(socket));
    let now = local.now();
    let key = {
        let mut worker = local.worker.borrow_mut();
        let peer = peer.as_bytes();
        if moved.is_some() { worker.handle_moved(peer, now) } else { worker.handle_open(peer, now) }
    };
    let mut connection =
        Connection { local: Rc::clone(&local), socket, key, behind: None, registered: false };
    if let Some(bytes) = moved {
        let next = local.worker.borrow_mut().handle_bytes(key, &bytes, now);
        if let Next::Rebound(key) = next {
            connection.key = key;
        }
        local.follow_up(&mut local.worker.borrow_mut());
    }
    let ended = poll_fn(|context| connection.poll(context)).await;
    connection.finish(ended, peer).await;
    local.note_ended();
}

impl Connection {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        let local = Rc::clone(&self.local);
        let mut worker = local.worker.borrow_mut();
        if !self.registered {
            self.registered = true;
            local.register(self.key, &self.socket, context.waker());
        }
        if let Some(end) = self.write_on(&mut worker, context) {
            return Poll::Ready(end);
        }
        for _ in 0..READS_PER_POLL {
            if !worker.wants_read(self.key) {
                // The flusher comes back here once enough was written, and when there is nothing more to come.
                local.note_empty(&mut self.behind);
                return Poll::Pending;
            }
            let next = if worker.has_input(self.key) {
                // It was set aside while answers piled up; they have been written since.
                worker.handle_flushed(self.key, local.now())
            } else {
                let mut scratch = local.scratch.borrow_mut();
                let mut buffer = ReadBuf::new(&mut scratch);
                let polled = Pin::new(&mut *self.socket.borrow_mut()).poll_read(context, &mut buffer);
                match polled {
                    Poll::Pending => {
                        local.note_empty(&mut self.behind);
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(End::Lost),
                    Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                        // One that only sends no more still reads: what it asked for last was not written yet.
                        let end = self.write_on(&mut worker, context);
                        return Poll::Ready(end.unwrap_or(End::Lost));
                    }
                    Poll::Ready(Ok(())) => {
                        local.note_activity();
                        local.note_behind(&mut self.behind);
                        worker.handle_bytes(self.key, buffer.filled(), local.now())
                    }
                }
            };
            match next {
                Next::Continue => {}
                Next::Rebound(key) => {
                    local.unregister(self.key);
                    self.key = key;
                    local.register(key, &self.socket, context.waker());
                }
                Next::Move(worker) => return Poll::Ready(End::Move(worker)),
            }
            local.follow_up(&mut worker);
        }
        give_way(context);
        Poll::Pending
    }

    /// Goes on where the flusher could not: writes, or waits until the socket takes more. Says so if this is the end.
    fn write_on(&self, worker: &mut Worker, context: &mut Context<'_>) -> Option<End> {
        loop {
            let Some(output) = worker.output(self.key) else { return Some(End::Close) };
            if output.is_empty() {
                return None;
            }
            let polled = Pin::new(&mut *self.socket.borrow_mut()).poll_write(context, output);
            match polled {
                Poll::Ready(Ok(0) | Err(_)) => return Some(End::Lost),
                Poll::Ready(Ok(len)) => worker.wrote(self.key, len),
                Poll::Pending => return None,
            }
        }
    }

    async fn finish(mut self, ended: End, peer: String) {
        self.local.note_empty(&mut self.behind);
        self.local.unregister(self.key);
        let Self { local, socket, key, .. } = self;
        let lose = || {
            let mut worker = local.worker.borrow_mut();
            worker.handle_lost(key, local.now());
            local.follow_up(&mut worker);
        };
        // Nobody else has it any more: the flusher knew it by its registration alone.
        let Some(mut socket) = Rc::into_inner(socket).map(RefCell::into_inner) else { return lose() };
        match ended {
            End::Move(to) => {
                let input = local.worker.borrow_mut().take_moving(key);
                match socket.into_std() {
                    Ok(socket) => {
                        local.handles[usize::from(to)].send(Intake {
                            port: Port::Binary,
                            socket,
                            peer,
                            moved: Some(input),
                        });
                    }
                    Err(error) => tracing::warn!(%error, peer, "could not move a connection"),
                }
            }
            End::Lost => lose(),
            End::Close => {
                lose();
                // Closing with unread bytes would reset the connection, and the last answer might never arrive.
                let last_words = async {
                    socket.shutdown().await?;
                    let mut rest = (&mut socket).take(LINGER_LEN_MAX);
                    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
                };
                let _ = tokio::time::timeout(LINGER, last_words).await;
            }
        }
    }
}
