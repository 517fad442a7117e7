//! Frames of WebSockets that are not what they should be, and such as never end.

use super::bystander::{Delay, assert_abuse_delays};
use super::fill::{Unsent, skip_input};
use super::server;
use super::web_socket::{CLOSE, LOCK, PING, PONG, TEXT, WebSocket, frame};
use crate::harness::{Server, WATCHDOG, memory_len};
use std::io::{ErrorKind, Write as _};
use std::time::{Duration, Instant};

/// Time in which a message has to arrive whole.
const MESSAGE_LIMIT: Duration = Duration::from_secs(10);
/// A text that goes on in further frames, and such a frame.
const TEXT_BEGINS: u8 = 0x01;
const GOES_ON: u8 = 0x00;

#[test]
fn invalid_frames_end_the_connection_with_the_standard_close_code() {
    let server = server();
    let mut unmasked = frame(TEXT, LOCK);
    unmasked[1] &= 0x7f;
    let long = |first: u8, len: u64| [&[first, 0x80 | 127][..], &len.to_be_bytes(), &[0; 4]].concat();
    for (what, bytes, code) in [
        ("no mask", unmasked, 1002),
        ("reserved bits", frame(TEXT | 0x70, LOCK), 1002),
        ("an unknown kind", frame(0x83, LOCK), 1002),
        ("an unknown kind of control", frame(0x8b, b""), 1002),
        ("a ping in pieces", frame(0x09, b"ping"), 1002),
        ("a long ping", frame(PING, &[b'x'; 126]), 1002),
        ("a piece of nothing", frame(GOES_ON | 0x80, LOCK), 1002),
        ("a text in a text", [frame(TEXT_BEGINS, LOCK), frame(TEXT, LOCK)].concat(), 1002),
        ("a byte too much", long(TEXT, (1 << 20) + 1), 1009),
        ("an impossible length", long(TEXT, u64::MAX), 1009),
        ("no text", frame(TEXT, &[0xff; 10]), 1007),
    ] {
        let mut client = WebSocket::connect(&server, "cut");
        client.write(&bytes);
        let last = client.receive();
        assert_eq!(last, (CLOSE, u16::to_be_bytes(code).to_vec()), "{what}: a close frame and nothing else");
        let mut next = WebSocket::connect(&server, "cut");
        next.pair();
    }
}

/// Each byte, and each frame, came in time, but the message never ended.
#[test]
fn a_message_must_be_completed_in_time() {
    let server = server();
    let half = &frame(TEXT, LOCK)[..20];
    let begun = Instant::now();
    let mut silent = WebSocket::connect(&server, "silent");
    silent.write(half);
    let mut dribbling = WebSocket::connect(&server, "dribbling");
    dribbling.write(&frame(TEXT_BEGINS, b" "));
    let mut witness = server.witness(2 * MESSAGE_LIMIT);
    let mut code = None;
    witness.assert_before_end("the end of a message in pieces", || {
        // An end that is written to a closed connection fails.
        let _ = dribbling.socket.write_all(&[frame(GOES_ON, b" "), frame(PING, b"")].concat());
        while let Some((first, payload)) = dribbling.take_in() {
            if first == CLOSE {
                code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                return true;
            }
        }
        false
    });
    assert!(begun.elapsed() >= MESSAGE_LIMIT, "too early: {:?}", begun.elapsed());
    assert_eq!(code, Some(1008));
    assert_eq!(silent.ended(), Some(1008));
}

#[test]
fn endless_fragments_are_cut_off_at_the_message_limit() {
    let server = server();
    let before = memory_len(&server);
    for piece in [&[b' '; 60_000][..], b" ", b""] {
        let mut client = WebSocket::connect(&server, "pieces");
        client.write(&frame(TEXT_BEGINS, b" "));
        let pieces = frame(GOES_ON, piece).repeat(1 + 100_000 / (1 + piece.len()));
        // Empty frames never reach the limit.
        let rounds = if piece.is_empty() { 20 } else { 1_000 };
        client.socket.set_write_timeout(Some(WATCHDOG)).expect("a socket");
        let is_cut = (0..rounds).any(|_| match client.socket.write_all(&pieces) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("the server reads no more: {error}")
            }
            written => written.is_err(),
        });
        assert!(is_cut || piece.is_empty(), "{} bytes at a time", piece.len());
        server.assert_serves();
    }
    let grown = memory_len(&server).saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
}

#[test]
fn pings_are_answered_and_barely_delay_other_clients() {
    let server = server();
    let mut polite = WebSocket::connect(&server, "polite");
    polite.write(&frame(PING, b"there?"));
    assert_eq!(polite.receive(), (PONG, b"there?".to_vec()));
    for (next, most) in [
        (frame(PING, b""), Delay::of_calls(80, 120)),
        (frame(PONG, b""), Delay::of_calls(40, 60)),
        (frame(GOES_ON, b""), Delay::of_calls(40, 60)),
    ] {
        let bytes = next.repeat((8 << 10) / next.len());
        let mut flood = Flood { server: &server, bytes: &bytes, client: None, unsent: Unsent::default() };
        assert_abuse_delays(&server, most, || flood.send());
    }
}

/// Sends `bytes` over and over on one connection and reads the answers; reconnects after the server has cut it. Continuation
/// frames follow the first frame of a text.
struct Flood<'a> {
    server: &'a Server,
    bytes: &'a [u8],
    client: Option<WebSocket>,
    unsent: Unsent,
}

impl Flood<'_> {
    fn send(&mut self) {
        let client = self.client.take().unwrap_or_else(|| {
            self.unsent = Unsent::default();
            let mut client = WebSocket::begin(self.server, "flood");
            if self.bytes[0] == GOES_ON {
                client.write(&frame(TEXT_BEGINS, b""));
            }
            client
        });
        skip_input(&client.socket);
        let goes_on = self.unsent.fill(&client.socket, || self.bytes.to_vec());
        self.client = Some(client).filter(|_| goes_on);
    }
}
