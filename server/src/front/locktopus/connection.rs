//! Serves one WebSocket: a [`Session`] translates between its messages and the worker.

use super::framing::FramedSocket;
use super::message::{LockSet, MESSAGE_LEN_MAX};
use super::namespaces::Namespace;
use super::session::{Closing, Reaction, Session};
use crate::driver::front_turn::poll_turn;
use crate::driver::{ClosedLane, Inlet, Local, Reply, ReplyFuture, ReplyStream};
use crate::front::conversion::text;
use crate::front::http::UpgradedConnection;
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
    AcquireOptions, AcquireSet, AcquireTerms, ErrorCode, ErrorDetail, Event, Items, LockId, Release, Request,
    Response, RevokeReason, TraceParent,
};

/// Close code for an invalid message, a refused lock or release, and a lost lock. Clients of the original Locktopus
/// server know it.
const CLOSE_BROKEN: u16 = 3000;
/// Close code for frames that violate the WebSocket protocol.
const CLOSE_PROTOCOL: u16 = 1002;
/// Close code for text that is not UTF-8.
const CLOSE_NOT_UTF8: u16 = 1007;
/// Close code for a client that does not finish a message in time, or that has lost its identity or a right.
const CLOSE_POLICY: u16 = 1008;
/// Close code for a message that is too long.
const CLOSE_TOO_LONG: u16 = 1009;
/// Close code for a server shutdown. Also used if the worker ended the lane for a reason other than a lost identity or
/// right.
const CLOSE_GOING_AWAY: u16 = 1001;

/// Maximum length of the reason in a close frame, in bytes. The close code takes two more bytes.
const CLOSE_REASON_LEN_MAX: usize = 123;

/// Everything that a Locktopus connection needs except its socket.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) inlet: Inlet,
    pub(super) namespace: Arc<Namespace>,
    /// Time for which a held lock stays held after the connection has ended, in milliseconds.
    pub(super) abandon_timeout_ms: u32,
    /// The trace context of the upgrade request, for all locks of the connection.
    pub(super) traceparent: Option<TraceParent>,
    /// Description of the client, for the log.
    pub(super) peer: Box<str>,
    /// Counts the connection against the quota of its identity.
    pub(super) _counted: Option<Counted>,
}

/// Serves a WebSocket until it closes.
pub(super) async fn serve(upgraded: UpgradedConnection, lane: Lane) {
    let mut connection = Connection::new(upgraded, lane).await;
    let end = connection.run().await;
    let Connection { socket, lane, .. } = connection;
    tracing::debug!(target: "locktopus::clients", peer = lane.peer, ?end, "closed");
    // Close the lane now, before the closing handshake of the WebSocket: the abandon timeout starts when the lane
    // closes.
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
    socket: WebSocketStream<FramedSocket<FrontSocket>>,
    session: Session,
    /// Worker replies to the acquire of the lock, with the events of the claim; `None` without a lock.
    lock: Option<ReplyStream>,
    /// Pending worker reply to the release.
    release: Option<ReplyFuture>,
    lane: Lane,
    pings: Interval,
    pings_missed: u32,
    /// Number of the unfinished message and the deadline for its end.
    unfinished: Option<(u64, Pin<Box<Sleep>>)>,
    /// Number of messages and control frames taken from the socket.
    taken_count: u64,
}

/// How a connection ends.
#[derive(Debug)]
enum End {
    /// The client closed it, with this code.
    Left(Option<u16>),
    /// The connection was lost, or the client sent nothing after several pings.
    Lost,
    /// The client violated the WebSocket protocol, or a limit for messages. The server closes with this code and
    /// without a reason, as RFC 6455 allows.
    Violated(u16),
    /// The server closes the connection for this reason.
    Closed(Closing),
}

/// Next event of a connection.
enum ConnectionEvent {
    Received(Option<Result<Message, WebSocketError>>),
    /// The worker reported on the lock, or ended the lane.
    Told(Result<Reply, ClosedLane>),
    /// The worker answered the release, or ended the lane.
    ReleaseAnswered(Result<Reply, ClosedLane>),
    /// A message was begun but not finished in time.
    MessageIsLate,
    PingIsDue,
    Finishing,
}

impl Connection {
    /// Begins to serve a socket after its upgrade.
    async fn new(UpgradedConnection { socket, read }: UpgradedConnection, lane: Lane) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(WEBSOCKET_BUFFER_LEN)
            .write_buffer_size(0)
            .max_write_buffer_size(WEBSOCKET_OUTPUT_LEN_MAX)
            .max_message_size(Some(MESSAGE_LEN_MAX))
            .max_frame_size(Some(MESSAGE_LEN_MAX));
        let socket = FramedSocket::new(socket, &read);
        let socket = WebSocketStream::from_partially_read(socket, read, Role::Server, Some(config)).await;
        Self {
            socket,
            session: Session::new(Arc::clone(&lane.namespace)),
            lane,
            lock: None,
            release: None,
            pings: pings(),
            pings_missed: 0,
            unfinished: None,
            taken_count: 0,
        }
    }

    async fn run(&mut self) -> End {
        let mut finishing = Local::with(Local::finishing);
        let mut finishing = pin!(finishing.wait_for(|finishing| *finishing));
        loop {
            let event = poll_fn(|context| match self.poll_event(context) {
                Poll::Pending => finishing.as_mut().poll(context).map(|_| ConnectionEvent::Finishing),
                happened => happened,
            })
            .await;
            if let Err(end) = self.handle(event).await {
                return end;
            }
        }
    }

    /// Polls for the next event. Worker events that have arrived go before client messages. So no message acts on a
    /// lock state that such an event has changed.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<ConnectionEvent> {
        if let Some(release) = &mut self.release
            && let Poll::Ready(answered) = Pin::new(release).poll(context)
        {
            return Poll::Ready(ConnectionEvent::ReleaseAnswered(answered));
        }
        if let Some(lock) = &mut self.lock
            && let Poll::Ready(told) = lock.poll_reply(context)
        {
            return Poll::Ready(ConnectionEvent::Told(told));
        }
        if !self.session.wants_message() {
            // After an acquire or a release, the session reads no message before the worker has answered that request.
            // The rest of an unfinished message may wait in the socket until then, so stop the deadline by which the
            // client must finish its message.
            self.unfinished = None;
        } else if self.holds_message() && poll_turn(context).is_pending() {
            // The time of the turn is used up, so the messages that were already read wait for the next turn.
            Local::with(|local| local.front_turn.borrow_mut().serve_later());
        } else if let Poll::Ready(received) = self.socket.poll_next_unpin(context) {
            self.taken_count += 1;
            return Poll::Ready(ConnectionEvent::Received(received));
        } else if self.poll_unfinished(context).is_ready() {
            return Poll::Ready(ConnectionEvent::MessageIsLate);
        }
        self.pings.poll_tick(context).map(|_| ConnectionEvent::PingIsDue)
    }

    /// Returns whether a message or control frame was read from the socket but not taken. Only then does the connection
    /// give way after a long turn. Otherwise it has nothing to serve, and its client's next message would wait until
    /// all connections that gave way earlier have continued.
    fn holds_message(&self) -> bool {
        self.socket.get_ref().framing.complete_count() > self.taken_count
    }

    /// Returns ready if a message was begun and not finished within the frame timeout, however many of its frames
    /// arrived.
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

    async fn handle(&mut self, event: ConnectionEvent) -> Result<(), End> {
        let reaction = match event {
            ConnectionEvent::Received(received) => self.handle_received(received)?,
            ConnectionEvent::Told(Ok(reply)) => self.handle_told(&reply),
            ConnectionEvent::ReleaseAnswered(Ok(reply)) => {
                self.release = None;
                self.lock = None;
                self.handle_release_answer(&reply)
            }
            ConnectionEvent::MessageIsLate => return Err(End::Violated(CLOSE_POLICY)),
            ConnectionEvent::PingIsDue => {
                if self.pings_missed == WEBSOCKET_PINGS_MISSED_MAX {
                    return Err(End::Lost);
                }
                self.pings_missed += 1;
                return self.send(Message::Ping(Default::default())).await;
            }
            ConnectionEvent::Told(Err(closed)) | ConnectionEvent::ReleaseAnswered(Err(closed)) => {
                Reaction::Close(
                    closed.denial.map_or(Closing::Stopping, |denial| Closing::Denied(refusal_of(&denial).1)),
                )
            }
            ConnectionEvent::Finishing => Reaction::Close(Closing::Stopping),
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
            // The library answers pings while it reads.
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

    fn handle_release_answer(&mut self, reply: &Reply) -> Reaction {
        match reply.response() {
            // The worker does not know the lock if it has ended in the meantime, for example because an operator
            // released it.
            Response::Error(error) if error.code != ErrorCode::NotFound => {
                self.session.handle_release_refused(error.code, &refusal_of(reply).1)
            }
            _ => self.session.handle_released(),
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

    /// Requests a hold that lasts until its release or revocation, or until the abandon timeout after the end of the
    /// connection.
    fn acquire(&self, set: &LockSet) -> ReplyStream {
        tracing::debug!(target: "locktopus::locks", peer = self.lane.peer, ?set, "lock requested");
        let mut buffer = Vec::new();
        let options = AcquireOptions {
            release_after_ms: Some(self.lane.abandon_timeout_ms),
            traceparent: self.lane.traceparent.as_ref().map(TraceParent::as_bytes),
            ..AcquireOptions::default()
        };
        let acquire = AcquireSet {
            // `Items::new` never fails, because the set was validated against the limits of the wire format.
            items: Items::new(set.items(), &mut buffer).unwrap_or_default(),
            terms: AcquireTerms {
                lease_ms: LEASE_NONE_MS,
                wait_ms: WAIT_FOREVER_MS,
                notify_queued: true,
                options,
                ..AcquireTerms::default()
            },
        };
        self.lane.inlet.follow(b"", |number, out| Request::AcquireSet(acquire).encode(number, out))
    }

    fn release(&self, id: LockId) -> ReplyFuture {
        self.lane
            .inlet
            .ask(|number, out| Request::Release(Release { id, key: None, own: false }).encode(number, out))
    }

    async fn send(&mut self, message: Message) -> Result<(), End> {
        self.socket.send(message).await.map_err(|_| End::Lost)
    }
}

/// Returns the error code and message of a refusal; `Internal` and an empty message for any other response.
pub(super) fn refusal_of(reply: &Reply) -> (ErrorCode, String) {
    let Response::Error(error) = reply.response() else { return (ErrorCode::Internal, String::new()) };
    let message = match error.detail {
        ErrorDetail::Text { message, .. } => text(message),
        ErrorDetail::Contention(_) => error.code.name().to_owned(),
    };
    (error.code, message)
}

/// Sends the close frame, then reads and discards remaining input so that the client can receive the frame. Before the
/// frame, sends a text message if the server closes because of an error. Does nothing if the connection is lost.
async fn close(mut socket: WebSocketStream<FramedSocket<FrontSocket>>, end: End) {
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
    // Write the frame directly, because the library would repeat the client's reason in its close frame.
    let stream = socket.get_mut();
    let farewell = async {
        stream.write_all(&close_frame(code, &reason)).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(WEBSOCKET_LINGER_LEN_MAX), &mut tokio::io::sink()).await
    };
    // A client that does not read in time misses the close frame; ignore the error.
    let _ = timeout(Duration::from_millis(WEBSOCKET_LINGER_MS), farewell).await;
}

/// Encodes a close frame. The reason is truncated to `CLOSE_REASON_LEN_MAX` bytes and sent only with a code.
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

    /// An empty ping, masked as clients must.
    const PING: &[u8] = &[0x89, 0x80, 0, 0, 0, 0];
    const PONG: &[u8] = &[0x8a, 0];
    const PING_COUNT: usize = 100;

    fn open_lane() -> Lane {
        Lane {
            inlet: open_inlet("name", "peer", &FrontCaller::default()).unwrap(),
            namespace: Namespaces::default().open("name"),
            abandon_timeout_ms: 0,
            traceparent: None,
            peer: "peer".into(),
            _counted: None,
        }
    }

    async fn serve_messages(messages: Vec<u8>, socket: FrontSocket) {
        serve(UpgradedConnection { socket, read: messages }, open_lane()).await;
    }

    #[test]
    fn a_lane_that_closes_during_a_release_closes_the_connection() {
        in_runtime(async {
            let _local = enter_crowded();
            let (_client, socket) = test_socket(&[]).await;
            let mut connection =
                Connection::new(UpgradedConnection { socket, read: Vec::new() }, open_lane()).await;
            let closed = ConnectionEvent::ReleaseAnswered(Err(ClosedLane { denial: None }));
            let end = connection.handle(closed).await;
            assert!(matches!(end, Err(End::Closed(Closing::Stopping))), "{end:?}");
        });
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

    /// If the connection ignored the time limit of its turns, the WebSocket library would return all messages of one
    /// read in a row. The session would then serve them at once.
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
                // Yield so that the runtime notices the writable socket.
                tokio::task::yield_now().await;
                len += client.read(&mut answers[len..]).unwrap_or_default();
            }
            assert!(answers[..len].starts_with(PONG));
        });
    }
}
