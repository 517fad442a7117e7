//! Frames that cost their sender little, without end.

use super::bystander::{Delay, assert_abuse_delays};
use super::fill::Unsent;
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

/// A connection that sends as much as is taken, and another one once it is cut.
struct Flood<'a, N> {
    server: &'a Server,
    /// Whether it reads the answers. If not, the server stops reading too, so a new connection goes on each time.
    reads: bool,
    /// Makes some frames.
    next: N,
    client: Option<Http2>,
    /// Frames that are begun and not sent whole.
    unsent: Unsent,
}

impl<N: Fn(&mut Http2) -> Vec<u8>> Flood<'_, N> {
    fn send(&mut self) {
        let mut client = self.client.take().filter(|_| self.reads).unwrap_or_else(|| {
            self.unsent = Unsent::default();
            Http2::connect(self.server)
        });
        if self.reads {
            client.skip_input();
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

/// Asserts that a flood delays bystanders by no more than this, whether its sender reads or not, and that it costs no memory.
fn assert_flood_delays(most: Delay, next: impl Fn(&mut Http2) -> Vec<u8>) {
    let server = server();
    let before = memory_len(&server);
    for reads in [true, false] {
        let mut flood =
            Flood { server: &server, reads, next: &next, client: None, unsent: Unsent::default() };
        assert_abuse_delays(&server, most, || flood.send());
    }
    let grown = memory_len(&server).saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
}

fn begun_and_reset(client: &mut Http2) -> Vec<u8> {
    let stream = client.stream();
    let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(PATH));
    bytes.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    bytes
}

#[test]
fn calls_that_are_reset_at_once_cut_the_connection() {
    let server = server();
    let mut client = Http2::connect(&server);
    let burst: Vec<u8> = (0..1_000).flat_map(|_| begun_and_reset(&mut client)).collect();
    let _ = client.socket.write_all(&burst);
    assert_eq!(client.ended(), Some(ENHANCE_YOUR_CALM));
    server.assert_serves();
}

#[test]
fn calls_that_are_reset_at_once_are_not_noticed() {
    assert_flood_delays(Delay { median_calls: 100000, p90_calls: 100000 }, begun_and_reset);
}

#[test]
fn calls_that_are_wrong_on_purpose_are_not_noticed() {
    // A window that is changed by nothing is a mistake for which the server resets the stream.
    assert_flood_delays(Delay { median_calls: 100000, p90_calls: 100000 }, |client| {
        let stream = client.stream();
        let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(PATH));
        bytes.extend(frame(WINDOW_UPDATE, 0, stream, &[0; 4]));
        bytes
    });
}

#[test]
fn pings_are_not_noticed() {
    assert_flood_delays(Delay { median_calls: 100000, p90_calls: 100000 }, |_| {
        frame(PING, 0, 0, b"and over")
    });
}

#[test]
fn settings_are_not_noticed() {
    assert_flood_delays(Delay { median_calls: 100000, p90_calls: 100000 }, |_| frame(SETTINGS, 0, 0, &[]));
}

#[test]
fn tiny_pieces_of_a_call_are_not_noticed() {
    for piece in [&b""[..], b"x"] {
        assert_flood_delays(Delay { median_calls: 100000, p90_calls: 100000 }, |client| {
            let stream = client.stream();
            let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(PATH));
            bytes.extend(frame(DATA, 0, stream, &[0, 0, 15, 255, 255]));
            bytes.extend(frame(DATA, 0, stream, piece).repeat(500));
            bytes
        });
    }
}

#[test]
fn a_window_beyond_its_limit_cuts_what_it_is_for() {
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
