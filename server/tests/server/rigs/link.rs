//! A connection that may end at any moment.

use super::history::{Micros, now};
use crate::harness::{Received, WATCHDOG, default_hello};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{ErrorCode, Hello, Request, Response, SessionRequest, Welcome, next_frame};

/// The connection ended, and whatever was asked has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

/// What the clock of a server may be behind the moment in which it answers.
const STAMP_MARGIN: Micros = 5_000;

/// One open connection.
#[derive(Debug)]
pub(crate) struct Link {
    socket: TcpStream,
    received: Vec<u8>,
    /// The server's clock did not show `welcome.stamp_ms` before this.
    sent: Micros,
    pub(crate) welcome: Welcome,
}

impl Link {
    /// Opens a connection, or says why the server does not want it.
    pub(crate) fn open(
        address: &str,
        owner: &str,
        session: SessionRequest,
    ) -> Result<Result<Self, ErrorCode>, Lost> {
        let mut socket = TcpStream::connect(address).map_err(|_| Lost)?;
        socket.set_nodelay(true).map_err(|_| Lost)?;
        socket.set_read_timeout(Some(WATCHDOG)).map_err(|_| Lost)?;
        let sent = now();
        let hello = Request::Hello(Hello { owner: owner.as_bytes(), session, ..default_hello() });
        let mut received = Vec::new();
        write(&mut socket, 1, hello)?;
        let answer = read(&mut socket, &mut received)?;
        match answer.response() {
            Response::Welcome(welcome) => Ok(Ok(Self { socket, received, sent, welcome })),
            Response::Error(error) => Ok(Err(error.code)),
            other => panic!("{other:?} instead of a welcome"),
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&mut self, number: u32, request: Request<'_>) -> Result<Received, Lost> {
        write(&mut self.socket, number, request)?;
        loop {
            let received = read(&mut self.socket, &mut self.received)?;
            if received.number() == number && !matches!(received.response(), Response::Event(_)) {
                return Ok(received);
            }
        }
    }

    /// Until when something lasts of which so much was left at this stamp of the server.
    pub(crate) fn until(&self, stamp_ms: u64, remaining_ms: u32) -> Micros {
        let since_welcome_ms = stamp_ms as i64 - self.welcome.stamp_ms as i64 + i64::from(remaining_ms);
        self.sent.saturating_add_signed(since_welcome_ms * 1000).saturating_sub(STAMP_MARGIN)
    }
}

fn write(socket: &mut TcpStream, number: u32, request: Request<'_>) -> Result<(), Lost> {
    let mut bytes = Vec::new();
    request.encode(number, &mut bytes);
    socket.write_all(&bytes).map_err(|_| Lost)
}

fn read(socket: &mut TcpStream, received: &mut Vec<u8>) -> Result<Received, Lost> {
    loop {
        if let Some(frame) = next_frame(received, FRAME_LEN_MAX).expect("frames from the server are whole") {
            let len = frame.len();
            return Ok(Received::new(received.drain(..len).collect()));
        }
        let mut buffer = [0; 4096];
        match socket.read(&mut buffer) {
            Ok(0) => return Err(Lost),
            Ok(len) => received.extend_from_slice(&buffer[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the server lives and does not answer")
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(Lost),
        }
    }
}
