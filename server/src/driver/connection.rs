//! Task of one binary-protocol connection.

use super::late::Queued;
use super::local::Local;
use super::{Admission, Intake, Reserved, Socket, failed_handshake};
use crate::access::Evidence;
use crate::clock::Moment;
use crate::edge::connection::{self, ConnectionIo, End, Newcomer, Read, TurnEnd, Write};
use crate::edge::turn::Turn;
use crate::mail::ConnectionKey;
use crate::port::Port;
use crate::worker::{Client, Identification, Worker};
use std::cell::{RefCell, RefMut};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// Maximum time for the end of a connection: the server shuts down its side, and then waits until the client has read
/// the last response and closed its own side.
const LINGER: Duration = Duration::from_secs(1);
/// Maximum number of bytes that the server reads and discards while it closes a connection. Closing with unread bytes
/// would reset the connection, and the client might lose the last response.
const LINGER_LEN_MAX: u64 = 1 << 20;

/// Connection with its socket.
struct Connection {
    local: Rc<Local>,
    socket: Rc<RefCell<Socket>>,
    inner: connection::Connection,
    queued: Queued,
    registered: bool,
    /// Place among the few connections that the Unix socket accepts although the server is full. `None` if the server
    /// was not full. Held until the connection ends.
    reserved: Option<Reserved>,
    /// Counts the connection for its source address and in the metrics until the connection ends.
    admission: Admission,
}

/// I/O of a connection during one turn.
struct Io<'a, 'b> {
    local: &'a Local,
    socket: &'a Rc<RefCell<Socket>>,
    scratch: RefMut<'a, Box<[u8]>>,
    context: &'a mut Context<'b>,
}

impl ConnectionIo for Io<'_, '_> {
    #[inline]
    fn read(&mut self) -> Read<'_> {
        let mut buffer = ReadBuf::new(&mut self.scratch);
        let polled = Pin::new(&mut *self.socket.borrow_mut()).poll_read(self.context, &mut buffer);
        let len = buffer.filled().len();
        match polled {
            Poll::Pending => Read::Nothing,
            Poll::Ready(Err(_)) => Read::Failed,
            Poll::Ready(Ok(())) if len == 0 => Read::End,
            Poll::Ready(Ok(())) => {
                self.local.note_activity();
                Read::Bytes(&self.scratch[..len], self.local.now())
            }
        }
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Write {
        match Pin::new(&mut *self.socket.borrow_mut()).poll_write(self.context, bytes) {
            Poll::Ready(Ok(0) | Err(_)) => Write::Failed,
            Poll::Ready(Ok(len)) => Write::Written(len),
            Poll::Pending => Write::Full,
        }
    }

    #[inline]
    fn now(&self) -> Moment {
        self.local.now()
    }

    fn rebind(&mut self, old: ConnectionKey, new: ConnectionKey) {
        self.local.unregister(old);
        self.local.register(new, self.socket, self.context.waker());
    }

    #[inline]
    fn follow_up(&mut self, worker: &mut Worker) {
        self.local.follow_up(worker);
    }
}

/// Serves a connection until it ends or moves to another worker.
pub(super) async fn serve(local: Rc<Local>, intake: Intake) {
    let Intake { socket, peer, mut evidence, moved, port: _, reserved, mut admission } = intake;
    let mut socket = match Socket::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, peer, "could not serve a connection");
            if let Some(moved) = moved {
                local.settle(&moved);
            }
            return local.note_ended();
        }
    };
    // Wait for the handshake of a new connection only. A moved connection has completed its handshake. Its previous
    // worker may delay the expiry of leases until this worker has served the bytes that were unread or unserved at the
    // move. So this worker must not wait for the client here.
    if moved.is_none()
        && let Err(error) = socket.handshake(local.node.set.tls_handshake.into()).await
    {
        failed_handshake::note(&local.node, &error, &evidence, &peer, Port::Binary);
        return local.note_ended();
    }
    evidence.certificate_names = socket.certificate_names();
    admission.end_handshake();
    let socket = Rc::new(RefCell::new(socket));
    let inner = {
        let mut worker = local.worker.borrow_mut();
        let client = Client {
            identification: Identification::Unidentified,
            evidence: Some(Arc::new(evidence)),
            address: Some(peer.as_str().into()),
            front_end: Some(Port::Binary.name()),
        };
        let newcomer = Newcomer { peer: peer.as_bytes(), moved, client, is_reserved: reserved.is_some() };
        let inner = connection::Connection::begin(&mut worker, &mut local.barrier(), newcomer, local.now());
        local.follow_up(&mut worker);
        inner
    };
    let mut connection = Connection {
        local: Rc::clone(&local),
        socket,
        inner,
        queued: Queued::default(),
        registered: false,
        reserved,
        admission,
    };
    let ended = poll_fn(|context| connection.poll(context)).await;
    connection.finish(ended, peer).await;
    local.note_ended();
}

impl Connection {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        if self.queued.is_queued() {
            return Poll::Pending;
        }
        let local = Rc::clone(&self.local);
        let mut worker = local.worker.borrow_mut();
        if !self.registered {
            self.registered = true;
            local.register(self.inner.key(), &self.socket, context.waker());
        }
        if self.inner.has_place() {
            self.inner.begin_turn(&mut local.barrier(), || self.socket.borrow().unread_len());
        }
        let mut turn = Turn::default();
        let end = self.run(&local, &mut worker, &mut turn, context);
        self.end_turn(&local, &mut worker, &mut turn, end, context)
    }

    /// Runs one turn.
    fn run(
        &mut self,
        local: &Local,
        worker: &mut Worker,
        turn: &mut Turn,
        context: &mut Context<'_>,
    ) -> TurnEnd {
        let (socket, scratch) = (&self.socket, local.scratch.borrow_mut());
        self.inner.run(worker, turn, &mut Io { local, socket, scratch, context })
    }

    /// Ends a turn. If the time or the reads of the turn were used up and the connection may have more requests, queues
    /// it for its next turn. A connection that must first write its answers is not queued: the flusher wakes it.
    fn end_turn(
        &mut self,
        local: &Local,
        worker: &mut Worker,
        turn: &mut Turn,
        end: TurnEnd,
        context: &Context<'_>,
    ) -> Poll<End> {
        if let TurnEnd::Over(end) = end {
            return Poll::Ready(end);
        }
        if self.inner.has_place() || end == TurnEnd::GaveWay {
            self.inner.end_turn(worker, &mut local.barrier(), turn, end);
            local.follow_up(worker);
        }
        if end == TurnEnd::GaveWay {
            local.late.give_way(&self.queued, context);
        }
        Poll::Pending
    }

    async fn finish(self, ended: End, peer: String) {
        let Self { local, socket, inner, reserved, admission, .. } = self;
        local.unregister(inner.key());
        let moved = {
            let mut worker = local.worker.borrow_mut();
            let moved = inner.finish(&mut worker, &mut local.barrier(), ended, local.now());
            local.follow_up(&mut worker);
            moved
        };
        // No other reference to the socket is left: only the flusher had one, and `unregister` has dropped it.
        let socket = Rc::into_inner(socket).map(RefCell::into_inner);
        match (ended, moved, socket) {
            (End::Move(to), Some(moved), Some(socket)) => match socket.into_std() {
                Ok(socket) => {
                    // The identity of the client moves with the connection in `moved`, so the evidence is no longer
                    // needed.
                    let (port, evidence, moved) = (Port::Binary, Evidence::default(), Some(moved));
                    let intake = Intake { port, socket, peer, evidence, moved, reserved, admission };
                    local.handles[usize::from(to)].send(intake);
                }
                Err(error) => {
                    tracing::warn!(%error, peer, "could not move a connection to another worker");
                    local.settle(&moved);
                }
            },
            (_, Some(moved), None) => local.settle(&moved),
            (End::Close, _, Some(mut socket)) => {
                // Read and discard further input for a while: closing with unread bytes would reset the connection, and
                // the client might lose the last response.
                let last_words = async {
                    socket.shutdown().await?;
                    let mut rest = (&mut socket).take(LINGER_LEN_MAX);
                    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
                };
                let _ = tokio::time::timeout(LINGER, last_words).await;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
