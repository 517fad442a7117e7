//! The task of one connection.

use super::local::{Behind, Local};
use super::{Intake, Socket};
use crate::worker::{ConnectionKey, Next};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
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

/// Writes, reads, feeds the worker, and comes round again. Answers go out before more is read, and nothing is read while
/// answers pile up.
struct Connection {
    local: Rc<Local>,
    socket: Socket,
    key: ConnectionKey,
    /// It has not read its socket empty.
    behind: Option<Behind>,
    registered: bool,
}

/// Serves a connection to its end.
pub(super) async fn serve(local: Rc<Local>, intake: Intake) {
    let Intake { socket, peer, moved } = intake;
    let socket = match Socket::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, peer, "could not serve a connection");
            return end(&local);
        }
    };
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
        local.follow_up(&mut local.worker.borrow_mut(), Some(connection.key));
    }
    let ended = poll_fn(|context| connection.poll(context)).await;
    connection.finish(ended, peer).await;
    end(&local);
}

fn end(local: &Local) {
    local.handles[usize::from(local.index)].connection_count.fetch_sub(1, Ordering::Relaxed);
    local.connection_ended.notify_one();
}

impl Connection {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        let local = Rc::clone(&self.local);
        let mut worker = local.worker.borrow_mut();
        if !self.registered {
            self.registered = true;
            local.register(self.key, context.waker());
        }
        loop {
            let Some(output) = worker.output(self.key) else { return Poll::Ready(End::Close) };
            if output.is_empty() {
                break;
            }
            match Pin::new(&mut self.socket).poll_write(context, output) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(End::Lost),
                Poll::Ready(Ok(len)) => worker.wrote(self.key, len),
                Poll::Pending => break,
            }
        }
        if !worker.wants_read(self.key) {
            local.note_empty(&mut self.behind);
            return Poll::Pending;
        }
        let next = if worker.has_input(self.key) {
            // It was set aside while answers piled up; they have been written since.
            worker.handle_flushed(self.key, local.now())
        } else {
            let mut scratch = local.scratch.borrow_mut();
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.socket).poll_read(context, &mut buffer) {
                Poll::Pending => {
                    local.note_empty(&mut self.behind);
                    return Poll::Pending;
                }
                Poll::Ready(Err(_)) => return Poll::Ready(End::Lost),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Poll::Ready(End::Lost),
                Poll::Ready(Ok(())) => {
                    local.note_activity();
                    worker.handle_bytes(self.key, buffer.filled(), local.now())
                }
            }
        };
        match next {
            Next::Continue => {}
            Next::Rebound(key) => {
                local.unregister(self.key);
                self.key = key;
                local.register(key, context.waker());
            }
            Next::Move(worker) => return Poll::Ready(End::Move(worker)),
        }
        local.follow_up(&mut worker, Some(self.key));
        // Its answers are written when it comes round again, after every other connection that is ready was read. So
        // answers leave close together, and a client with many connections is woken once for all of them instead of
        // once for each: the wake-up of a sleeping client costs the sender more than the answer does.
        local.note_behind(&mut self.behind);
        context.waker().wake_by_ref();
        Poll::Pending
    }

    async fn finish(mut self, ended: End, peer: String) {
        self.local.note_empty(&mut self.behind);
        self.local.unregister(self.key);
        match ended {
            End::Move(to) => {
                let input = self.local.worker.borrow_mut().take_moving(self.key);
                match self.socket.into_std() {
                    Ok(socket) => {
                        self.local.handles[usize::from(to)].send(Intake { socket, peer, moved: Some(input) });
                    }
                    Err(error) => tracing::warn!(%error, peer, "could not move a connection"),
                }
            }
            End::Lost => self.lose(),
            End::Close => {
                self.lose();
                // Closing with unread bytes would reset the connection, and the last answer might never arrive.
                let last_words = async {
                    self.socket.shutdown().await?;
                    let mut rest = (&mut self.socket).take(LINGER_LEN_MAX);
                    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
                };
                let _ = tokio::time::timeout(LINGER, last_words).await;
            }
        }
    }

    fn lose(&self) {
        let mut worker = self.local.worker.borrow_mut();
        worker.handle_lost(self.key, self.local.now());
        self.local.follow_up(&mut worker, None);
    }
}
