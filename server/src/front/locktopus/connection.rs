//! One WebSocket: between its messages and the worker stands a [`Session`].

use super::framing::Framed;
use super::message::{LockSet, MESSAGE_LEN_MAX};
use super::namespaces::Namespace;
use super::session::{Closing, Reaction, Session};
use crate::driver::front_turn::poll_turn;
use crate::driver::{Asked, Closed, Followed, Inlet, Local, Reply};
use crate::front::http::Upgraded;
use crate::front::shown::text;
use crate::front::socket::FrontSocket;
use crate::limits::{
    WEBSOCKET_BUFFER_LEN, WEBSOCKET_LINGER_LEN_MAX, WEBSOCKET_LINGER_MS, WEBSOCKET_OUTPUT_LEN_MAX,
    WEBSOCKET_PING_MS, WEBSOCKET_PINGS_MISSED_MAX,
};
use futures_util::{SinkExt, StreamExt};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::Error as WebSocketError;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};
use waymaker_engine::Counted;
use waymaker_protocol::limits::{LEASE_NONE_MS, WAIT_FOREVER_MS};
use waymaker_protocol::{
    AcquireOptions, AcquireSet, ErrorCode, ErrorDetail, Event, Items, LockId, Release, Request, Response,
    RevokeReason, TraceParent,
};

/// The code that clients know to mean that something went wrong.
const CLOSE_BROKEN: u16 = 3000;
/// The code for frames that break the rules of WebSockets.
const CLOSE_PROTOCOL: u16 = 1002;
/// The code for a text that is no UTF-8.
const CLOSE_NOT_UTF8: u16 = 1007;
/// The code for a client that breaks a rule of the server: it does not finish its message, or has lost its identity or a right.
const CLOSE_POLICY: u16 = 1008;
/// The code for a message that is too long.
const CLOSE_TOO_LONG: u16 = 1009;
/// The code of a server that goes away.
const CLOSE_GOING_AWAY: u16 = 1001;

/// Most bytes of a reason beside the code of a closing frame.
const CLOSE_REASON_LEN_MAX: usize = 123;

/// What a connection is made of beside its socket.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) inlet: Inlet,
    pub(super) namespace: Arc<Namespace>,
    /// How long its lock stays once it is lost.
    pub(super) abandon_timeout_ms: u32,
    /// The trace context of the upgrade request, for all locks of the connection.
    pub(super) traceparent: Option<TraceParent>,
    /// Who is on the other side.
    pub(super) peer: Box<str>,
    /// Counts the connection in the accounts of its identity.
    pub(super) _counted: Option<Counted>,
}

/// Serves one WebSocket to its end.
pub(super) async fn serve(Upgraded { socket, read }: Upgraded, lane: Lane) {
    let config = WebSocketConfig::default()
        .read_buffer_size(WEBSOCKET_BUFFER_LEN)
        .write_buffer_size(0)
        .max_write_buffer_size(WEBSOCKET_OUTPUT_LEN_MAX)
        .max_message_size(Some(MESSAGE_LEN_MAX))
        .max_frame_size(Some(MESSAGE_LEN_MAX));
    let socket = Framed::new(socket, &read);
    let socket = WebSocketStream::from_partially_read(socket, read, Role::Server, Some(config)).await;
    let mut connection = Connection {
        socket,
        session: Session::new(Arc::clone(&lane.namespace)),
        lane,
        lock: None,
        release: None,
        pings: pings(),
        pings_missed: 0,
        unfinished: None,
        taken_count: 0,
    };
    let end = connection.run().await;
    let Connection { socket, lane, .. } = connection;
    tracing::debug!(target: "locktopus::clients", peer = lane.peer, ?end, "closed");
    // The worker learns it now, not once the other side has left: from here on the abandon timeout runs.
    drop(lane);
    close(socket, end).await;
}

fn pings() -> Interval {
    let period = Duration::from_millis(WEBSOCKET_PING_MS);
    let mut pings = interval_at(Instant::now() + period, period);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

struct Connection {
    socket: WebSocketStream<Framed<FrontSocket>>,
    session: Session,
    /// What the worker says about the lock.
    lock: Option<Followed>,
    /// What it will say to the release.
    release: Option<Asked>,
    lane: Lane,
    pings: Interval,
    pings_missed: u32,
    /// The message that is awaited, by its number, and the end of the wait.
    unfinished: Option<(u64, Pin<Box<Sleep>>)>,
    /// Messages and control frames that were taken from the socket.
    taken_count: u64,
}

/// How a connection ends.
#[derive(Debug)]
enum End {
    /// The other side closed it, with this code.
    Left(Option<u16>),
    /// The other side is gone.
    Lost,
    /// The other side breaks the rules of WebSockets. It is closed with this code and without a word, as RFC 6455 has it.
    Violated(u16),
    /// The server closes it.
    Closed(Closing),
}

/// What happened next.
enum Happening {
    Received(Option<Result<Message, WebSocketError>>),
    /// The worker said something about the lock, or has ended the lane.
    Told(Result<Reply, Closed>),
    Released,
    /// A message was begun and not finished in time.
    MessageIsLate,
    PingIsDue,
    Finishing,
}

impl Connection {
    async fn run(&mut self) -> End {
        let mut finishing = Local::with(Local::finishing);
        let mut finishing = pin!(finishing.wait_for(|finishing| *finishing));
        loop {
            let happening = poll_fn(|context| match self.poll_happening(context) {
                Poll::Pending => finishing.as_mut().poll(context).map(|_| Happening::Finishing),
                happened => happened,
            })
            .await;
            if let Err(end) = self.handle(happening).await {
                return end;
            }
        }
    }

    /// What the worker says goes before what the client does, so that nothing is asked about a lock whose fate is known.
    fn poll_happening(&mut self, context: &mut Context<'_>) -> Poll<Happening> {
        if let Some(release) = &mut self.release
            && Pin::new(release).poll(context).is_ready()
        {
            return Poll::Ready(Happening::Released);
        }
        if let Some(lock) = &mut self.lock
            && let Poll::Ready(told) = lock.poll_told(context)
        {
            return Poll::Ready(Happening::Told(told));
        }
        if !self.session.wants_message() {
            // The rest of a message may wait for the server to read it.
            self.unfinished = None;
        } else if self.holds_message() && poll_turn(context).is_pending() {
            // Messages that were read wait for the next turn.
            Local::with(|local| local.front_turn.borrow_mut().serve_later());
        } else if let Poll::Ready(received) = self.socket.poll_next_unpin(context) {
            self.taken_count += 1;
            return Poll::Ready(Happening::Received(received));
        } else if self.poll_unfinished(context).is_ready() {
            return Poll::Ready(Happening::MessageIsLate);
        }
        self.pings.poll_tick(context).map(|_| Happening::PingIsDue)
    }

    /// Returns whether a message was read from the socket and not taken. Without one the connection does not give way, even after a long
    /// turn: the next message of its client would wait until all connections that gave way have continued.
    fn holds_message(&self) -> bool {
        self.socket.get_ref().framing.complete_count() > self.taken_count
    }

    /// Ready if a message was begun and is not finished after the time of a frame, however many frames came meanwhile.
    fn poll_unfinished(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(number) = self.socket.get_ref().framing.partial() else {
            self.unfinished = None;
            return Poll::Pending;
        };
        let awaited = self.unfinished.take().filter(|(awaited, _)| *awaited == number);
        let (_, end) =
            self.unfinished.insert(awaited.unwrap_or_else(|| {
                (number, Box::pin(sleep(Local::with(|local| local.node.set.frame).into())))
            }));
        end.as_mut().poll(context)
    }

    async fn handle(&mut self, happening: Happening) -> Result<(), End> {
        let reaction = match happening {
            Happening::Received(received) => self.handle_received(received)?,
            Happening::Told(Ok(reply)) => self.handle_told(&reply),
            Happening::Released => {
                self.release = None;
                self.lock = None;
                self.session.handle_released()
            }
            Happening::MessageIsLate => return Err(End::Violated(CLOSE_POLICY)),
            Happening::PingIsDue => {
                if self.pings_missed == WEBSOCKET_PINGS_MISSED_MAX {
                    return Err(End::Lost);
                }
                self.pings_missed += 1;
                return self.send(Message::Ping(Default::default())).await;
            }
            Happening::Told(Err(Closed { denial: Some(denial) })) => {
                Reaction::Close(Closing::Denied(refusal_of(&denial).1))
            }
            Happening::Told(Err(Closed { denial: None })) | Happening::Finishing => {
                Reaction::Close(Closing::Stopping)
            }
        };
        self.react(reaction).await
    }

    fn handle_received(
        &mut self,
        received: Option<Result<Message, WebSocketError>>,
    ) -> Result<Reaction, End> {
        let message = match received {
            Some(Ok(message)) => message,
            Some(Err(WebSocketError::Capacity(_))) => return Err(End::Violated(CLOSE_TOO_LONG)),
            Some(Err(WebSocketError::Protocol(_))) => return Err(End::Violated(CLOSE_PROTOCOL)),
            Some(Err(WebSocketError::Utf8(_))) => return Err(End::Violated(CLOSE_NOT_UTF8)),
            Some(Err(_)) | None => return Err(End::Lost),
        };
        self.pings_missed = 0;
        match message {
            Message::Text(text) => Ok(self.session.handle_message(text.as_bytes())),
            Message::Binary(bytes) => Ok(self.session.handle_message(&bytes)),
            Message::Close(frame) => Err(End::Left(frame.map(|frame| frame.code.into()))),
            // Pings are answered where they are read.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(Reaction::Wait),
        }
    }

    fn handle_told(&mut self, reply: &Reply) -> Reaction {
        match reply.response() {
            Response::Event(Event::Queued { id, .. }) => self.session.handle_queued(id),
            Response::Granted(granted) => self.session.handle_granted(granted.id),
            Response::Error(error) => self.session.handle_refused(error.code, &refusal_of(reply).1),
            Response::Event(Event::Revoked { reason, message, .. }) => {
                let message = String::from_utf8_lossy(message);
                self.session.handle_lost(&match reason {
                    RevokeReason::Forced => format!("released by an operator: {message}"),
                    _ => "released by another client".to_owned(),
                })
            }
            _ => Reaction::Wait,
        }
    }

    async fn react(&mut self, reaction: Reaction) -> Result<(), End> {
        match reaction {
            Reaction::Wait => Ok(()),
            Reaction::Send(answer) => {
                let text = answer.encode();
                tracing::debug!(target: "locktopus::locks", peer = self.lane.peer, answer = text.trim_end());
                self.send(Message::text(text)).await
            }
            Reaction::Acquire(set) => {
                self.lock = Some(self.acquire(&set));
                Ok(())
            }
            Reaction::Release(lock) => {
                self.release = Some(self.release(lock));
                Ok(())
            }
            Reaction::Close(closing) => Err(End::Closed(closing)),
        }
    }

    /// Asks for a hold that lasts until it is released, or as long as was agreed once the connection is lost.
    fn acquire(&self, set: &LockSet) -> Followed {
        tracing::debug!(target: "locktopus::locks", peer = self.lane.peer, ?set, "lock requested");
        let mut buffer = Vec::new();
        let options = AcquireOptions {
            release_after_ms: Some(self.lane.abandon_timeout_ms),
            traceparent: self.lane.traceparent.as_ref().map(TraceParent::as_bytes),
            ..AcquireOptions::default()
        };
        let acquire = AcquireSet {
            lease_ms: LEASE_NONE_MS,
            wait_ms: WAIT_FOREVER_MS,
            notify_queued: true,
            // Its limits are those of the wire, which it was checked for.
            items: Items::new(set.items(), &mut buffer).unwrap_or_default(),
            options,
            ..AcquireSet::default()
        };
        self.lane.inlet.follow(b"", |number, out| Request::AcquireSet(acquire).encode(number, out))
    }

    fn release(&self, id: LockId) -> Asked {
        self.lane
            .inlet
            .ask(|number, out| Request::Release(Release { id, key: None, own: false }).encode(number, out))
    }

    async fn send(&mut self, message: Message) -> Result<(), End> {
        self.socket.send(message).await.map_err(|_| End::Lost)
    }
}

/// The code and the words of a refusal.
pub(super) fn refusal_of(reply: &Reply) -> (ErrorCode, String) {
    let Response::Error(error) = reply.response() else { return (ErrorCode::Internal, String::new()) };
    let message = match error.detail {
        ErrorDetail::Text { message, .. } => text(message),
        ErrorDetail::Contention(_) => error.code.name().to_owned(),
    };
    (error.code, message)
}

/// Says the last words, and lets the other side hear them: what it still sends is read and thrown away.
async fn close(mut socket: WebSocketStream<Framed<FrontSocket>>, end: End) {
    let mut reason = String::new();
    let code = match end {
        End::Lost => return,
        End::Left(code) => code,
        End::Violated(code) => Some(code),
        End::Closed(Closing::Stopping) => Some(CLOSE_GOING_AWAY),
        End::Closed(Closing::Denied(message)) => {
            reason = message;
            Some(CLOSE_POLICY)
        }
        End::Closed(Closing::Broken(detail)) => {
            let text = Message::text(format!("communication error: {detail}"));
            if socket.send(text).await.is_err() {
                return;
            }
            Some(CLOSE_BROKEN)
        }
    };
    // The library would repeat the reason of the other side as well.
    let stream = socket.get_mut();
    let farewell = async {
        stream.write_all(&close_frame(code, &reason)).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(WEBSOCKET_LINGER_LEN_MAX), &mut tokio::io::sink()).await
    };
    // Whoever does not listen has to do without.
    let _ = timeout(Duration::from_millis(WEBSOCKET_LINGER_MS), farewell).await;
}

/// A close frame without a reason.
fn close_frame(code: Option<u16>, reason: &str) -> Vec<u8> {
    let mut payload = code.map_or_else(Vec::new, |code| code.to_be_bytes().to_vec());
    if code.is_some() {
        payload.extend_from_slice(&reason.as_bytes()[..reason.floor_char_boundary(CLOSE_REASON_LEN_MAX)]);
    }
    let mut frame = vec![0x88, payload.len() as u8];
    frame.extend(payload);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::front_turn::in_turns;
    use crate::driver::test_local::{continue_one, enter_crowded, in_runtime};
    use crate::front::FrontCaller;
    use crate::front::locktopus::handshake::open_inlet;
    use crate::front::locktopus::namespaces::Namespaces;
    use crate::front::socket::test_socket;
    use std::cell::Cell;
    use std::io::{ErrorKind, Read};
    use std::task::Waker;

    /// A ping without content, masked as clients do.
    const PING: &[u8] = &[0x89, 0x80, 0, 0, 0, 0];
    const PONG: &[u8] = &[0x8a, 0];
    const PING_COUNT: usize = 100;

    async fn serve_messages(messages: Vec<u8>, socket: FrontSocket) {
        let lane = Lane {
            inlet: open_inlet("name", "peer", &FrontCaller::default()).unwrap(),
            namespace: Namespaces::default().open("name"),
            abandon_timeout_ms: 0,
            traceparent: None,
            peer: "peer".into(),
            _counted: None,
        };
        serve(Upgraded { socket, read: messages }, lane).await;
    }

    #[test]
    fn a_connection_without_a_message_does_not_give_way_after_a_long_turn() {
        in_runtime(async {
            let local = enter_crowded();
            let (mut client, socket) = test_socket(&[]).await;
            let mut serving = pin!(serve_messages(PING.to_vec(), socket));
            let mut connection = pin!(in_turns(poll_fn(|context| {
                local.front_turn.borrow_mut().stop_clock();
                assert!(serving.as_mut().poll(context).is_pending());
                local.front_turn.borrow_mut().use_up();
                serving.as_mut().poll(context)
            })));
            let mut context = Context::from_waker(Waker::noop());
            let mut answer = [0; PONG.len()];
            while client.read(&mut answer).is_err() {
                assert!(connection.as_mut().poll(&mut context).is_pending());
                assert!(local.late.is_empty(), "it has nothing to do");
                tokio::task::yield_now().await;
            }
            assert_eq!(answer, PONG);
        });
    }

    /// The library would serve all messages of one read.
    #[test]
    fn messages_that_were_read_wait_while_the_time_of_the_turn_is_over() {
        in_runtime(async {
            let local = enter_crowded();
            let (mut client, socket) = test_socket(PING).await;
            let mut serving = pin!(serve_messages(PING.repeat(PING_COUNT), socket));
            let is_over = Cell::new(true);
            let mut connection = pin!(in_turns(poll_fn(|context| {
                let mut turn = local.front_turn.borrow_mut();
                turn.stop_clock();
                if is_over.get() {
                    turn.use_up();
                }
                drop(turn);
                serving.as_mut().poll(context)
            })));
            let mut context = Context::from_waker(Waker::noop());
            let mut answers = [0; 1_024];
            for _ in 0..3 {
                assert!(connection.as_mut().poll(&mut context).is_pending());
                tokio::task::yield_now().await;
                assert!(!local.late.is_empty(), "it gives way");
                assert_eq!(client.read(&mut answers).unwrap_err().kind(), ErrorKind::WouldBlock);
                continue_one(&local);
            }
            is_over.set(false);
            let mut len = 0;
            while len < PONG.len() * PING_COUNT {
                assert!(connection.as_mut().poll(&mut context).is_pending());
                // The runtime learns that the socket takes bytes.
                tokio::task::yield_now().await;
                len += client.read(&mut answers[len..]).unwrap_or_default();
            }
            assert!(answers[..len].starts_with(PONG));
        });
    }
}
