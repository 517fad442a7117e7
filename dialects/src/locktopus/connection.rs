//! The task that owns the socket.

use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WebSocketError, http};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use waymaker_client::internal::Protocol;
use waymaker_client::{BootClock, Clock, Credentials, Timer, Tls};

use super::error::{CloseReason, LocktopusError, Result};
use super::message::Answer;
use super::session::Session;
use crate::bearer::bearer;
use crate::checked::{Checked, Greeting};
use crate::stream::{self, Connector, Stream};

/// Maximum length of a message of a server, in bytes. A response is far shorter, and an error is one sentence.
const MESSAGE_LEN_MAX: usize = 64 << 10;
/// Maximum time to connect, including the WebSocket handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the pings. The original server sends no message on its own.
const PING_PERIOD: Duration = Duration::from_secs(10);
/// Number of unanswered pings after which the server counts as lost.
const PINGS_MISSED_MAX: u32 = 2;
/// Maximum wait for the close frame of the server.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Close code for an error.
const CLOSE_BROKEN: u16 = 3000;
/// Prefix of an error message of the server.
const ERROR_PREFIX: &str = "communication error: ";

/// A connection that must speak HTTP.
type Socket = Checked<Box<dyn Stream>>;

/// Order of the client to the task.
#[derive(Debug)]
pub(super) enum Order {
    Send(String),
    Close,
}

/// An open connection.
pub(super) struct Connection {
    socket: WebSocketStream<Socket>,
    session: watch::Sender<Session>,
    orders: mpsc::UnboundedReceiver<Order>,
    timer: Box<dyn Timer>,
    pings_missed: u32,
}

impl Connection {
    pub(super) async fn open(
        url: &str,
        tls: &Tls,
        credentials: &Credentials,
        session: watch::Sender<Session>,
        orders: mpsc::UnboundedReceiver<Order>,
    ) -> Result<Self> {
        let mut timer = BootClock.timer().map_err(|error| out_of_reach(url, &error))?;
        timer.arm(BootClock.now().after(CONNECT_TIMEOUT));
        let socket = tokio::select! {
            socket = connect(url, tls, credentials) => socket?,
            () = poll_fn(|context| timer.poll_fired(context)) => {
                return Err(out_of_reach(url, &"no response in time"));
            }
        };
        Ok(Self { socket, session, orders, timer, pings_missed: 0 })
    }

    /// Serves the connection until it ends.
    pub(super) async fn run(mut self) {
        self.wait(PING_PERIOD);
        let reason = loop {
            if let Err(reason) = self.step().await {
                break reason;
            }
        };
        let code = match &reason {
            CloseReason::ByClient => Some(CloseCode::Normal),
            CloseReason::Unexpected(_) => Some(CloseCode::from(CLOSE_BROKEN)),
            _ => None,
        };
        self.end_with(reason);
        self.close(code).await;
    }

    /// Handles the next event.
    async fn step(&mut self) -> std::result::Result<(), CloseReason> {
        tokio::select! {
            // Send all orders that came before the end.
            biased;
            order = self.orders.recv() => match order {
                Some(Order::Send(text)) => self.send(Message::text(text)).await,
                Some(Order::Close) | None => Err(CloseReason::ByClient),
            },
            message = self.socket.next() => match message {
                Some(Ok(message)) => {
                    self.pings_missed = 0;
                    self.handle(message)
                }
                Some(Err(error)) => Err(lost(&error)),
                None => Err(lost(&WebSocketError::ConnectionClosed)),
            },
            () = poll_fn(|context| self.timer.poll_fired(context)) => {
                if self.pings_missed == PINGS_MISSED_MAX {
                    return Err(CloseReason::Lost("the server stopped responding".to_owned()));
                }
                self.pings_missed += 1;
                self.wait(PING_PERIOD);
                self.send(Message::Ping(Default::default())).await
            }
        }
    }

    fn handle(&mut self, message: Message) -> std::result::Result<(), CloseReason> {
        match message {
            Message::Text(text) => self.handle_text(&text),
            Message::Binary(bytes) => self.handle_text(&String::from_utf8_lossy(&bytes)),
            Message::Close(frame) => {
                let code = frame.map_or(CloseCode::Status, |frame| frame.code);
                Err(CloseReason::ByServer { code: code.into() })
            }
            // The WebSocket library answers pings.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(()),
        }
    }

    fn handle_text(&mut self, text: &str) -> std::result::Result<(), CloseReason> {
        if let Some(error) = text.trim_end().strip_prefix(ERROR_PREFIX) {
            return Err(CloseReason::Communication(error.to_owned()));
        }
        let unexpected = || CloseReason::Unexpected(text.trim_end().to_owned());
        let answer: Answer = serde_json::from_str(text).map_err(|_| unexpected())?;
        let mut result = Ok(());
        self.session.send_modify(|session| result = session.handle(answer));
        result.map_err(|_| unexpected())
    }

    async fn send(&mut self, message: Message) -> std::result::Result<(), CloseReason> {
        self.socket.send(message).await.map_err(|error| lost(&error))
    }

    fn wait(&mut self, time: Duration) {
        self.timer.arm(BootClock.now().after(time));
    }

    fn end_with(&self, reason: CloseReason) {
        self.session.send_if_modified(|session| session.end_with(reason));
    }

    /// Sends a close frame with this code, or with the code of the server, and waits a while for the response.
    async fn close(&mut self, code: Option<CloseCode>) {
        self.wait(FAREWELL_MAX);
        let frame = code.map(|code| CloseFrame { code, reason: "".into() });
        let farewell = async {
            self.socket.close(frame).await?;
            while let Some(message) = self.socket.next().await {
                if message?.is_close() {
                    break;
                }
            }
            Ok::<(), WebSocketError>(())
        };
        // The server may already be gone; ignore errors.
        tokio::select! {
            _ = farewell => {}
            () = poll_fn(|context| self.timer.poll_fired(context)) => {}
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // This changes the session only if the task was dropped before its end.
        self.end_with(CloseReason::Lost("the runtime of the connection has shut down".to_owned()));
    }
}

async fn connect(url: &str, tls: &Tls, credentials: &Credentials) -> Result<WebSocketStream<Socket>> {
    let refused = |problem: String| LocktopusError::Url { url: url.to_owned(), problem };
    let mut request = url.into_client_request().map_err(|error| refused(error.to_string()))?;
    if let Some(bearer) = bearer(credentials) {
        let mut value = http::HeaderValue::from_bytes(&bearer).map_err(|_| LocktopusError::Credentials)?;
        value.set_sensitive(true);
        request.headers_mut().insert(http::header::AUTHORIZATION, value);
    }
    let uri = request.uri();
    let (is_encrypted, default_port) = match uri.scheme_str() {
        Some("ws") => (false, 80),
        Some("wss") => (true, 443),
        _ => return Err(refused("the scheme is neither ws:// nor wss://".to_owned())),
    };
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = port_of(uri, default_port)
        .ok_or_else(|| refused("the port is not between 0 and 65535".to_owned()))?;
    let connector = is_encrypted.then(|| Connector::new(tls, &host, b"http/1.1")).transpose();
    let connector = connector.map_err(|error| LocktopusError::Tls { problem: error.to_string() })?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_LEN_MAX))
        .max_frame_size(Some(MESSAGE_LEN_MAX));
    let stream = stream::open(&host, port, connector.as_ref()).await;
    let stream = stream.map_err(|error| out_of_reach(url, &explained(&error)))?;
    let socket = Checked::new(stream, Protocol::Http, "WebSocket", watch::Sender::new(Greeting::Awaited));
    match client_async_with_config(request, socket, Some(config)).await {
        Ok((socket, _)) => Ok(socket),
        Err(WebSocketError::Http(answer)) => Err(unwanted(url, &answer)),
        // With TLS 1.3 the client learns only now whether the server accepts its certificate.
        Err(WebSocketError::Io(error)) => Err(out_of_reach(url, &explained(&error))),
        Err(error) => Err(out_of_reach(url, &error)),
    }
}

/// Describes an error of the socket, with a hint if there is one.
fn explained(error: &io::Error) -> String {
    let hint = match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(rustls::Error::InvalidMessage(_)) => "the server may not use TLS there; then use ws://",
        _ => Tls::hint(error),
    };
    if hint.is_empty() { error.to_string() } else { format!("{error} ({hint})") }
}

fn out_of_reach(url: &str, error: &impl Display) -> LocktopusError {
    LocktopusError::Connect { url: url.to_owned(), problem: error.to_string() }
}

/// Returns the error for a response that does not switch protocols.
fn unwanted(url: &str, answer: &http::Response<Option<Vec<u8>>>) -> LocktopusError {
    let message = answer.body().as_deref().unwrap_or_default();
    LocktopusError::Refused {
        url: url.to_owned(),
        status: answer.status().as_u16(),
        message: String::from_utf8_lossy(message).trim_end().to_owned(),
    }
}

fn lost(error: &WebSocketError) -> CloseReason {
    CloseReason::Lost(error.to_string())
}

/// Returns the port of an address, or `default_port` if the address names none. Returns `None` for a wrong port, which
/// `Uri::port` treats like a missing one.
fn port_of(uri: &http::Uri, default_port: u16) -> Option<u16> {
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    let host_and_port = authority.rsplit('@').next()?;
    match host_and_port.strip_prefix(uri.host()?)? {
        "" | ":" => Some(default_port),
        port => port.strip_prefix(':')?.parse().ok(),
    }
}
