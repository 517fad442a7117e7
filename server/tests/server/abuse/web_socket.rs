//! WebSocket, frame by frame.

use super::http2::narrow_socket;
use crate::harness::{Server, WATCHDOG};
use std::io::{Read, Write};
use std::net::TcpStream;

pub(super) const TEXT: u8 = 0x81;
pub(super) const CLOSE: u8 = 0x88;
pub(super) const PING: u8 = 0x89;
pub(super) const PONG: u8 = 0x8a;

/// What asks for the only lock of a test, and what gives it back.
pub(super) const LOCK: &[u8] = br#"{"action":"lock","resources":[{"type":"w","path":["a"]}]}"#;
pub(super) const RELEASE: &[u8] = br#"{"action":"release"}"#;

/// A frame of a client with a mask of zeros, which changes nothing.
pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..126 => bytes.push(0x80 | len as u8),
        len @ 126..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend((len as u16).to_be_bytes());
        }
        len => {
            bytes.push(0x80 | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}

/// One connection.
pub(crate) struct WebSocket {
    pub(super) socket: TcpStream,
}

impl WebSocket {
    /// A connection to a namespace of its own.
    pub(crate) fn connect(server: &Server, namespace: &str) -> Self {
        Self::connect_with(server, namespace, "")
    }

    /// A connection whose upgrade request has this header, a line with its end.
    pub(crate) fn connect_with(server: &Server, namespace: &str, header: &str) -> Self {
        let socket = TcpStream::connect(server.address("locktopus")).expect("the server accepts");
        socket.set_nodelay(true).expect("a socket");
        socket.set_read_timeout(Some(WATCHDOG)).expect("a socket");
        Self::open(socket, namespace, header)
    }

    /// The same, but its kernel takes next to nothing of what is not read.
    pub(super) fn connect_narrow(server: &Server, namespace: &str) -> Self {
        Self::open(narrow_socket(server, "locktopus"), namespace, "")
    }

    /// Connects without waiting for the answer to the handshake.
    pub(super) fn begin(server: &Server, namespace: &str) -> Self {
        let mut socket = TcpStream::connect(server.address("locktopus")).expect("the server accepts");
        Self::ask_for_upgrade(&mut socket, namespace, "");
        Self { socket }
    }

    fn open(mut socket: TcpStream, namespace: &str, header: &str) -> Self {
        Self::ask_for_upgrade(&mut socket, namespace, header);
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).expect("the server answers");
            answer.extend(byte);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
        Self { socket }
    }

    fn ask_for_upgrade(socket: &mut TcpStream, namespace: &str, header: &str) {
        let upgrade = "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
        let request = format!("GET /v1?namespace={namespace} HTTP/1.1\r\n{header}{upgrade}");
        socket.write_all(request.as_bytes()).expect("the server reads");
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the server reads");
    }

    /// Returns the first byte and the payload of the next frame; `None` if the server closed the connection. Answers pings of the
    /// server and skips them.
    pub(super) fn try_receive(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let (first, payload) = self.read_frame()?;
            if first != PING {
                return Some((first, payload));
            }
            // A connection that is about to be closed takes no answer.
            let _ = self.socket.write_all(&frame(PONG, &payload));
        }
    }

    fn read_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.socket.read_exact(&mut head).ok()?;
        let len = match head[1] {
            126 => {
                let mut len = [0; 2];
                self.socket.read_exact(&mut len).ok()?;
                usize::from(u16::from_be_bytes(len))
            }
            len => usize::from(len),
        };
        let mut payload = vec![0; len];
        self.socket.read_exact(&mut payload).ok()?;
        Some((head[0], payload))
    }

    /// Returns the next frame that has arrived, if there is one. Answers pings of the server and skips them.
    pub(super) fn take_in(&mut self) -> Option<(u8, Vec<u8>)> {
        while self.has_input() {
            let (first, payload) = self.read_frame().expect("the server goes on");
            if first != PING {
                return Some((first, payload));
            }
            self.write(&frame(PONG, &payload));
        }
        None
    }

    fn has_input(&self) -> bool {
        self.socket.set_nonblocking(true).expect("a socket");
        let has_input = self.socket.peek(&mut [0]).is_ok();
        self.socket.set_nonblocking(false).expect("a socket");
        has_input
    }

    pub(super) fn receive(&mut self) -> (u8, Vec<u8>) {
        self.try_receive().expect("the server closed the connection")
    }

    /// Takes the lock and gives it back.
    pub(crate) fn pair(&mut self) {
        for message in [LOCK, RELEASE] {
            self.write(&frame(TEXT, message));
            assert_eq!(self.receive().0, TEXT);
        }
    }

    /// Waits until the server ends the connection. The code of its close frame, if there was one.
    pub(super) fn ended(&mut self) -> Option<u16> {
        let mut code = None;
        while let Some((first, payload)) = self.try_receive() {
            if first == CLOSE {
                code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
            }
        }
        code
    }
}
