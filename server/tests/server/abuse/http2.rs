//! HTTP/2, frame by frame: what a library would never send.

use super::hpack;
use crate::harness::{LOOK, Server, WATCHDOG, Watchdog, Witness, is_nothing_yet};
use prost::Message;
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const ACK: u8 = 1;

pub(super) const CANCEL: u32 = 8;
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;

/// The largest window there is.
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// The windows that a connection and its streams begin with.
const WINDOW_DEFAULT: u32 = (1 << 16) - 1;

/// The longest payload that every side takes.
const FRAME_LEN_MAX: usize = 16 << 10;

/// A frame, as bytes.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    let mut bytes = len.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A gRPC message with its prefix.
pub(super) fn prefixed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend_from_slice(message);
    bytes
}

/// The headers of a call.
pub(super) fn call_headers(path: &str) -> Vec<u8> {
    headers_of(path, b"application/grpc")
}

/// The headers of a call whose body is said to be this.
pub(super) fn headers_of(path: &str, content_type: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (&b":method"[..], &b"POST"[..]),
        (b":scheme", b"http"),
        (b":path", path.as_bytes()),
        (b":authority", b"x"),
        (b"content-type", content_type),
        (b"te", b"trailers"),
    ] {
        hpack::put(&mut block, name, value);
    }
    block
}

/// A frame from the server.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Received {
    /// The number at this place of the payload, such as the code of an error.
    fn number(&self, at: usize) -> u32 {
        self.payload
            .get(at..at + 4)
            .map_or(0, |bytes| u32::from_be_bytes(bytes.try_into().unwrap_or_default()))
    }
}

/// How a call ended.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    /// The gRPC status, or `None` where the stream was reset.
    pub(super) status: Option<u32>,
    /// What goes with the status.
    pub(super) message: String,
    /// The status of HTTP.
    pub(super) http_status: Option<u32>,
    /// All messages, each with its prefix.
    pub(super) body: Vec<u8>,
    /// The code with which the stream was reset.
    pub(super) reset: Option<u32>,
}

impl Answer {
    /// Adds a frame of this stream. Returns true if the frame ended the stream.
    pub(super) fn take(&mut self, received: &Received, stream: u32) -> bool {
        assert!(received.kind != GOAWAY, "the connection ends: {received:?}");
        if received.stream != stream {
            return false;
        }
        match received.kind {
            HEADERS => {
                for (name, value) in hpack::read(&received.payload) {
                    match &*name {
                        ":status" => self.http_status = value.parse().ok(),
                        "grpc-status" => self.status = value.parse().ok(),
                        "grpc-message" => self.message = value,
                        _ => {}
                    }
                }
            }
            DATA => self.body.extend(&received.payload),
            RST_STREAM => {
                self.reset = Some(received.number(0));
                return true;
            }
            _ => {}
        }
        matches!(received.kind, HEADERS | DATA) && received.flags & END_STREAM != 0
    }

    /// The message of a call that has one.
    pub(super) fn decode<M: Message + Default>(&self) -> M {
        M::decode(&self.body[5..]).expect("the answer is a message")
    }
}

/// One connection.
pub(super) struct Http2 {
    pub(super) socket: TcpStream,
    received: Vec<u8>,
    next_stream: u32,
    /// Bytes of bodies that the server lets the whole connection send. It says so once it has read the greeting, before or after
    /// anything that it is asked, so whoever reads counts.
    pub(super) window: u32,
    /// Whether pings of the server are answered.
    pub(super) answers_pings: bool,
}

impl Http2 {
    /// A polite connection with windows that never end.
    pub(super) fn connect(server: &Server) -> Self {
        let socket = TcpStream::connect(server.address("grpc")).expect("the server accepts");
        Self::greet(socket, WINDOW_MAX)
    }

    /// A connection whose kernel takes next to nothing of what is not read.
    pub(super) fn connect_narrow(server: &Server) -> Self {
        Self::greet(narrow_socket(server, "grpc"), WINDOW_MAX)
    }

    /// A connection that gives the server no more window than it begins with.
    pub(super) fn connect_without_window(server: &Server) -> Self {
        let socket = TcpStream::connect(server.address("grpc")).expect("the server accepts");
        Self::greet(socket, WINDOW_DEFAULT)
    }

    fn greet(mut socket: TcpStream, window: u32) -> Self {
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(WATCHDOG)).expect("a socket");
        let mut bytes = PREFACE.to_vec();
        let mut settings = vec![0, 1, 0, 0, 0, 0, 0, 4];
        settings.extend(window.to_be_bytes());
        bytes.extend(frame(SETTINGS, 0, 0, &settings));
        if window > WINDOW_DEFAULT {
            bytes.extend(frame(WINDOW_UPDATE, 0, 0, &(window - WINDOW_DEFAULT).to_be_bytes()));
        }
        socket.write_all(&bytes).expect("the server reads");
        let (received, window) = (Vec::new(), WINDOW_DEFAULT);
        Self { socket, received, next_stream: 1, window, answers_pings: true }
    }

    /// The number of a new stream.
    pub(super) fn stream(&mut self) -> u32 {
        self.next_stream += 2;
        self.next_stream - 2
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server reads");
    }

    /// Begins a call, without its message.
    pub(super) fn begin(&mut self, path: &str) -> u32 {
        let stream = self.stream();
        self.write(&frame(HEADERS, END_HEADERS, stream, &call_headers(path)));
        stream
    }

    /// Sends a call whole.
    pub(super) fn send(&mut self, path: &str, message: &impl Message) -> u32 {
        let stream = self.stream();
        let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(path));
        bytes.extend(frame(DATA, END_STREAM, stream, &prefixed(&message.encode_to_vec())));
        self.write(&bytes);
        stream
    }

    /// Sends the body of a call and its end, as fast as the server lets it. The connection's other bodies are too short to count.
    pub(super) fn send_body(&mut self, stream: u32, body: &[u8]) {
        let mut window = WINDOW_DEFAULT;
        for piece in body.chunks(FRAME_LEN_MAX) {
            let len = piece.len() as u32;
            while self.window.min(window) < len {
                let received = self.receive();
                if received.stream == stream {
                    assert_eq!(received.kind, WINDOW_UPDATE, "it takes no more: {received:?}");
                    window += received.number(0);
                }
            }
            self.window -= len;
            window -= len;
            self.write(&frame(DATA, 0, stream, piece));
        }
        self.write(&frame(DATA, END_STREAM, stream, &[]));
    }

    /// The next frame; `None` where the server closed the connection.
    pub(super) fn try_receive(&mut self) -> io::Result<Option<Received>> {
        loop {
            if let Some(frame) = self.parse() {
                return Ok(Some(frame));
            }
            let mut buffer = [0; 16 << 10];
            match self.socket.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => self.received.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn receive(&mut self) -> Received {
        self.try_receive().expect("the server answers").expect("the server closed the connection")
    }

    /// Returns the next frame from the bytes that were read before.
    pub(super) fn parse(&mut self) -> Option<Received> {
        let head = self.received.first_chunk::<9>()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let [_, _, _, kind, flags, stream @ ..] = *head;
        let payload = self.received.get(9..9 + len)?.to_vec();
        self.received.drain(..9 + len);
        let frame = Received { kind, flags, stream: u32::from_be_bytes(stream), payload };
        if frame.kind == WINDOW_UPDATE && frame.stream == 0 {
            self.window += frame.number(0);
        }
        self.be_polite(&frame);
        Some(frame)
    }

    /// Reads all bytes that have arrived, for [`Self::parse`].
    pub(super) fn take_in(&mut self) {
        self.socket.set_nonblocking(true).expect("a socket");
        let mut buffer = [0; 16 << 10];
        while let Ok(len @ 1..) = self.socket.read(&mut buffer) {
            self.received.extend_from_slice(&buffer[..len]);
        }
        self.socket.set_nonblocking(false).expect("a socket");
    }

    /// Confirms all that has arrived, and forgets it. A connection without calls stays alive by this.
    pub(super) fn stay_alive(&mut self) {
        self.take_in();
        while self.parse().is_some() {}
    }

    /// Confirms what has to be confirmed.
    fn be_polite(&mut self, received: &Received) {
        let kind = received.kind;
        if (kind == SETTINGS || kind == PING && self.answers_pings) && received.flags & ACK == 0 {
            let payload = if kind == PING { &received.payload[..] } else { &[] };
            // Whoever is about to be closed need not be heard.
            let _ = self.socket.write_all(&frame(kind, ACK, 0, payload));
        }
    }

    /// Waits for the end of this call. Other frames in between are ignored.
    pub(super) fn answer(&mut self, stream: u32) -> Answer {
        let mut answer = Answer::default();
        let mut watchdog = Watchdog::start();
        while !answer.take(&self.receive(), stream) {
            watchdog.look_again(|| "the end of a call".to_owned());
        }
        answer
    }

    /// Waits for the end of this call, which has to come before the witness ends.
    pub(super) fn answer_before<S: Read + Write>(&mut self, witness: &mut Witness<S>, stream: u32) -> Answer {
        let mut answer = Answer::default();
        self.assert_before(witness, "the end of a call", |received| {
            answer.take(&received.expect("the server closed the connection"), stream)
        });
        answer
    }

    /// Waits until the server ends the connection, which has to come before the witness ends.
    pub(super) fn assert_ends_before<S: Read + Write>(&mut self, witness: &mut Witness<S>) {
        self.assert_before(witness, "the end of a connection", |received| received.is_none());
    }

    /// Reads frames until `is_it` returns true of one, or of the end of the connection.
    fn assert_before<S: Read + Write>(
        &mut self,
        witness: &mut Witness<S>,
        what: &str,
        mut is_it: impl FnMut(Option<Received>) -> bool,
    ) {
        self.socket.set_read_timeout(Some(LOOK)).expect("a socket");
        witness.assert_before_end(what, || {
            loop {
                match self.try_receive() {
                    Ok(received) => {
                        if is_it(received) {
                            return true;
                        }
                    }
                    Err(error) if is_nothing_yet(&error) => return false,
                    Err(error) => panic!("the server does not answer: {error}"),
                }
            }
        });
        self.socket.set_read_timeout(Some(WATCHDOG)).expect("a socket");
    }

    /// Calls, and says how that ended.
    pub(super) fn call(&mut self, path: &str, message: &impl Message) -> Answer {
        let stream = self.send(path, message);
        self.answer(stream)
    }

    /// Calls what has to succeed, and reads the answer.
    pub(super) fn ask<M: Message + Default>(&mut self, path: &str, message: &impl Message) -> M {
        let answer = self.call(path, message);
        assert_eq!(answer.status, Some(0), "{path}: {answer:?}");
        answer.decode()
    }

    /// Waits until the server ends the connection. The code of its GOAWAY, if there was one.
    pub(super) fn ended(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(received) = self.try_receive().expect("the server closes the connection") {
            if received.kind == GOAWAY {
                code = Some(received.number(4));
            }
        }
        code
    }

    /// Asserts that the connection serves.
    pub(super) fn assert_serves(&mut self) {
        self.write(&frame(PING, 0, 0, b"hereIam?"));
        while !matches!(self.receive(), Received { kind: PING, flags: ACK, .. }) {}
    }
}

/// A socket whose kernel takes next to nothing of what is not read.
pub(super) fn narrow_socket(server: &Server, port: &str) -> TcpStream {
    let address: SocketAddr = server.address(port).parse().expect("an address");
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4 << 10).expect("a socket");
    socket.connect(&address.into()).expect("the server accepts");
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(WATCHDOG)).expect("a socket");
    socket
}
