//! Frames that cost their sender little, without end.

use super::bystander::{Delay, assert_abuse_delays};
use super::fill::{Unsent, skip_input};
use super::http2::{
    CANCEL, DATA, END_HEADERS, ENHANCE_YOUR_CALM, HEADERS, Http2, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    call_headers, frame,
};
use super::server;
use crate::harness::{Server, memory_len};
use std::io::Write as _;

const PATH: &str = "/waymaker.WaymakerService/MultiLock";
/// Bytes that a flood makes at once.
const BURST_LEN: usize = 32 << 10;
/// Memory that one connection may take: 1024 requests that did not arrive whole, with the streams that they have.
const CONNECTION_LEN_MAX: u64 = 32 << 20;
/// Memory that each connection of a sender that reads no answers may take. Requests in tiny pieces take about 280 KB.
const UNREAD_LEN_MAX: u64 = 512 << 10;

/// Bounds of the delay by each flood.
const FLOOD: Delay = Delay::of_calls(100, 150);

/// Sends frames on one connection as fast as the server takes them; reconnects after the server has cut it.
struct Flood<'a, N> {
    server: &'a Server,
    /// If false, the answers are not read. A server with too many unread answers reads no more either, so each call of `send` then
    /// opens a connection.
    reads: bool,
    /// Encodes a few frames for the connection.
    next: N,
    client: Option<Http2>,
    /// Connections that were opened.
    connection_count: u64,
    /// The rest of a burst of which only the beginning was sent.
    unsent: Unsent,
}

impl<N: Fn(&mut Http2) -> Vec<u8>> Flood<'_, N> {
    fn send(&mut self) {
        let mut client = self.client.take().filter(|_| self.reads).unwrap_or_else(|| {
            self.unsent = Unsent::default();
            self.connection_count += 1;
            Http2::connect(self.server)
        });
        if self.reads {
            skip_input(&client.socket);
        }
        let socket = client.socket.try_clone().expect("a socket");
        let next = || {
            let mut burst = Vec::new();
            while burst.len() < BURST_LEN {
                burst.extend((self.next)(&mut client));
            }
            burst
        };
        let goes_on = self.unsent.fill(&socket, next);
        self.client = Some(client).filter(|_| goes_on);
    }
}

/// Asserts that a flood barely delays bystanders and takes little memory, with a sender that reads the answers and without.
///
/// A sender that reads none opens a connection for each burst. The server may see all of them end only after the last request of a
/// bystander, so the memory may grow for each.
fn assert_flood_delays(next: impl Fn(&mut Http2) -> Vec<u8>) {
    let server = server();
    let before = memory_len(&server);
    let mut connection_count = 0;
    for reads in [true, false] {
        let mut flood = Flood {
            server: &server,
            reads,
            next: &next,
            client: None,
            connection_count: 0,
            unsent: Unsent::default(),
        };
        assert_abuse_delays(&server, FLOOD, || flood.send());
        connection_count += flood.connection_count;
    }
    let grown = memory_len(&server).saturating_sub(before);
    let most = CONNECTION_LEN_MAX + connection_count * UNREAD_LEN_MAX;
    assert!(grown < most, "{grown} bytes with {connection_count} connections; at most {most}");
}

fn begun_and_reset(client: &mut Http2) -> Vec<u8> {
    let stream = client.stream();
    let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(PATH));
    bytes.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    bytes
}

#[test]
fn calls_that_are_reset_at_once_end_the_connection() {
    let server = server();
    let mut client = Http2::connect(&server);
    let burst: Vec<u8> = (0..1_000).flat_map(|_| begun_and_reset(&mut client)).collect();
    let _ = client.socket.write_all(&burst);
    assert_eq!(client.ended(), Some(ENHANCE_YOUR_CALM));
    server.assert_serves();
}

#[test]
fn calls_that_are_reset_at_once_barely_delay_other_clients() {
    assert_flood_delays(begun_and_reset);
}

#[test]
fn deliberately_invalid_calls_barely_delay_other_clients() {
    // A window that is changed by nothing is a mistake for which the server resets the stream.
    assert_flood_delays(|client| {
        let stream = client.stream();
        let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(PATH));
        bytes.extend(frame(WINDOW_UPDATE, 0, stream, &[0; 4]));
        bytes
    });
}

#[test]
fn pings_barely_delay_other_clients() {
    assert_flood_delays(|_| frame(PING, 0, 0, b"and over"));
}

#[test]
fn settings_frames_barely_delay_other_clients() {
    assert_flood_delays(|_| frame(SETTINGS, 0, 0, &[]));
}

#[test]
fn tiny_pieces_of_a_call_barely_delay_other_clients() {
    for piece in [&b""[..], b"x"] {
        assert_flood_delays(|client| {
            let stream = client.stream();
            let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(PATH));
            bytes.extend(frame(DATA, 0, stream, &[0, 0, 15, 255, 255]));
            bytes.extend(frame(DATA, 0, stream, piece).repeat(500));
            bytes
        });
    }
}

#[test]
fn a_window_beyond_its_limit_ends_its_stream_or_connection() {
    let server = server();
    let too_much = u32::MAX >> 1;
    let mut client = Http2::connect(&server);
    let stream = client.begin(PATH);
    for _ in 0..2 {
        client.write(&frame(WINDOW_UPDATE, 0, stream, &too_much.to_be_bytes()));
    }
    assert_eq!(client.answer(stream).reset, Some(3), "a mistake of flow control");
    client.assert_serves();
    for _ in 0..2 {
        client.write(&frame(WINDOW_UPDATE, 0, 0, &too_much.to_be_bytes()));
    }
    assert_eq!(client.ended(), Some(3));
    server.assert_serves();
}
