//! A client, in the words of the protocol.

use crate::harness::{LOOK, Server, WATCHDOG, Witness, is_nothing_yet};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::client;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, WebSocket};

/// Interval of the server's pings.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(15);

/// A server with both ports on which Locktopus is spoken.
pub(super) fn server(arguments: &[&str]) -> Server {
    let ports = ["--http-listen", "127.0.0.1:0", "--locktopus-listen", "127.0.0.1:0"];
    Server::start(&[&ports, arguments].concat())
}

/// One with a single worker, and one with several.
pub(super) fn each_size() -> impl Iterator<Item = Server> {
    ["1", "3"].into_iter().map(|workers| server(&["--workers", workers]))
}

/// A raw connection to a port.
pub(crate) fn socket(server: &Server, port: &str) -> TcpStream {
    let socket = TcpStream::connect(server.address(port)).expect("the server accepts");
    socket.set_nodelay(true).expect("a socket");
    socket.set_read_timeout(Some(WATCHDOG)).expect("a socket");
    socket
}

/// Sends a request to `localhost`, unless its headers say otherwise. Asks for the end of the connection, and reads all of the answer.
pub(crate) fn http(server: &Server, port: &str, request: &str) -> String {
    let mut socket = socket(server, port);
    let mut lines = request.lines();
    let line = lines.next().unwrap_or_default();
    let host = if request.contains("\nHost: ") { "" } else { "Host: localhost\r\n" };
    let mut text = format!("{line} HTTP/1.1\r\n{host}Connection: close\r\n");
    lines.for_each(|header| text.extend([header, "\r\n"]));
    text.push_str("\r\n");
    socket.write_all(text.as_bytes()).expect("it is read");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer, and the end of the connection");
    answer
}

/// The status, the headers in small letters and the body of an answer.
pub(crate) fn parts(answer: &str) -> (u16, String, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{head:?}")), format!("{}\r\n", head.to_lowercase()), body)
}

/// The numbers of a namespace.
pub(super) fn statistics(server: &Server, namespace: &str) -> Value {
    let answer = http(server, "http", &format!("GET /stats_v1?namespace={namespace}"));
    let (status, _, body) = parts(&answer);
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(body).expect("JSON")
}

/// The resources of a set such as `W a/b, R []`: what is to be written and read. `""` is an empty segment.
pub(super) fn resources(set: &str) -> Value {
    let segment = |text: &str| if text == "\"\"" { String::new() } else { text.to_owned() };
    let path = |text: &str| match text {
        "[]" => Vec::new(),
        _ => text.split('/').map(segment).collect::<Vec<_>>(),
    };
    set.split(", ")
        .map(|resource| {
            let (lock_type, text) = resource.split_once(' ').expect("a type and a path");
            json!({"type": lock_type, "path": path(text)})
        })
        .collect()
}

/// One connection.
pub(super) struct Locker {
    pub(super) socket: WebSocket<TcpStream>,
}

/// How a connection ended: the text before the close frame if there was one, and the close frame.
#[derive(Debug, PartialEq)]
pub(super) struct Ended {
    pub(super) text: Option<String>,
    pub(super) close: Option<(u16, String)>,
}

impl Locker {
    /// Connects to a namespace.
    pub(super) fn connect(server: &Server, namespace: &str) -> Self {
        Self::connect_with(server, &format!("namespace={namespace}"))
    }

    /// Connects with these parameters.
    pub(super) fn connect_with(server: &Server, parameters: &str) -> Self {
        let url = format!("ws://{}/v1?{parameters}", server.address("locktopus"));
        let (socket, _) = client(url, socket(server, "locktopus")).expect("a WebSocket");
        Self { socket }
    }

    /// Its address, by which operators know it.
    pub(super) fn address(&self) -> String {
        self.socket.get_ref().local_addr().expect("a socket").to_string()
    }

    pub(super) fn send(&mut self, text: &str) {
        self.socket.send(Message::text(text)).expect("the server reads");
    }

    pub(super) fn send_lock(&mut self, set: &str) {
        self.send(&json!({"action": "lock", "resources": resources(set)}).to_string());
    }

    pub(super) fn send_release(&mut self) {
        self.send(r#"{"action":"release"}"#);
    }

    /// The next message that is no ping; those are answered.
    fn read(&mut self) -> Result<Message, Error> {
        loop {
            match self.read_any()? {
                Message::Ping(_) => {}
                other => return Ok(other),
            }
        }
    }

    /// Reads the next message, including pings.
    pub(super) fn read_any(&mut self) -> Result<Message, Error> {
        loop {
            match self.socket.read() {
                Err(Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    /// The next message as it came.
    pub(super) fn receive_text(&mut self) -> String {
        match self.read().expect("a message") {
            Message::Text(text) => text.to_string(),
            other => panic!("{other:?} is no text"),
        }
    }

    /// The next message: id, action and state.
    pub(super) fn receive(&mut self) -> (String, String, String) {
        let text = self.receive_text();
        let message: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text:?} is no JSON"));
        let member = |name: &str| message[name].as_str().unwrap_or_else(|| panic!("{text}")).to_owned();
        (member("id"), member("action"), member("state"))
    }

    /// Waits for a message with this action and state, and says its id.
    pub(super) fn expect(&mut self, action: &str, state: &str) -> String {
        let (id, actual_action, actual_state) = self.receive();
        assert_eq!((&*actual_action, &*actual_state), (action, state), "lock {id}");
        id
    }

    /// Asks for a set that must be free, and says its id.
    pub(super) fn take(&mut self, set: &str) -> String {
        self.send_lock(set);
        self.expect("lock", "acquired")
    }

    /// Asks for a set that must be blocked, and says its id.
    pub(super) fn queue(&mut self, set: &str) -> String {
        self.send_lock(set);
        self.expect("lock", "enqueued")
    }

    /// Whether a set could be had at once; it is given back.
    pub(super) fn is_free(&mut self, set: &str) -> bool {
        self.send_lock(set);
        let (_, action, state) = self.receive();
        assert_eq!(action, "lock");
        self.release();
        match &*state {
            "acquired" => true,
            "enqueued" => false,
            other => panic!("{other}"),
        }
    }

    pub(super) fn release(&mut self) -> String {
        self.send_release();
        self.expect("release", "ready")
    }

    /// Waits for the lock that is enqueued.
    pub(super) fn acquire(&mut self) -> String {
        self.expect("lock", "acquired")
    }

    /// Asserts that nothing was said to it: what it asks now is answered next.
    pub(super) fn expect_nothing(&mut self) {
        self.socket.send(Message::Ping("are you there?".into())).expect("the server reads");
        match self.read().expect("an answer") {
            Message::Pong(bytes) => assert_eq!(&bytes[..], b"are you there?"),
            other => panic!("{other:?}"),
        }
    }

    /// Reads the next message, including pings. It has to come before the witness ends.
    pub(super) fn read_before(&mut self, witness: &mut Witness<TcpStream>, what: &str) -> Message {
        let mut read = None;
        self.socket.get_ref().set_read_timeout(Some(LOOK)).expect("a socket");
        witness.assert_before_end(what, || {
            match self.read_any() {
                Ok(message) => read = Some(message),
                Err(Error::Io(error)) if is_nothing_yet(&error) => {}
                Err(error) => panic!("the connection ended: {error}"),
            }
            read.is_some()
        });
        self.socket.get_ref().set_read_timeout(Some(WATCHDOG)).expect("a socket");
        read.expect("it was read")
    }

    /// Waits for the end that the server makes.
    pub(super) fn ended(mut self) -> Ended {
        let mut text = None;
        loop {
            match self.read() {
                Ok(Message::Text(last)) => text = Some(last.to_string()),
                Ok(Message::Close(frame)) => {
                    let close = frame.map(|CloseFrame { code, reason }| (code.into(), reason.to_string()));
                    return Ended { text, close };
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => panic!("the connection ended without a close frame: {error}"),
            }
        }
    }

    /// Closes it with this code and reason, and says what the server answers.
    pub(super) fn close(mut self, frame: Option<(u16, &str)>) -> Ended {
        let frame =
            frame.map(|(code, reason)| CloseFrame { code: code.into(), reason: reason.to_owned().into() });
        self.socket.close(frame).expect("the server reads");
        self.ended()
    }
}

/// The end that follows an error with this detail.
pub(super) fn broken(detail: &str) -> Ended {
    Ended { text: Some(format!("communication error: {detail}")), close: Some((3000, String::new())) }
}
