//! Frames that cost their sender little, without end.

use super::good_client::{Abuse, assert_unnoticed};
use super::http2::{
    CANCEL, DATA, END_HEADERS, ENHANCE_YOUR_CALM, HEADERS, Http2, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    call_headers, frame,
};
use super::process::memory_len;
use super::server;
use crate::harness::Server;
use std::io::Write as _;
use std::time::Duration;

const PATH: &str = "/waymaker.WaymakerService/MultiLock";
/// Bytes that a flood sends before it rests: much to do for the server, without taking its processor from it.
const BURST_LEN: usize = 32 << 10;
const REST: Duration = Duration::from_millis(5);

/// Sends this over and over for as long as the abuse goes on, on a new connection wherever the old one is cut. `reads` what
/// comes back, or not.
fn flood(server: &Server, abuse: &Abuse, reads: bool, mut next: impl FnMut(&mut Http2) -> Vec<u8>) {
    while abuse.goes_on() {
        let mut client = Http2::connect(server);
        client.socket.set_write_timeout(Some(Duration::from_millis(100))).expect("a socket");
        let mut reader = client.socket.try_clone().expect("a socket");
        std::thread::scope(|scope| {
            if reads {
                scope.spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
            }
            while abuse.goes_on() {
                let mut burst = Vec::new();
                while burst.len() < BURST_LEN {
                    burst.extend(next(&mut client));
                }
                if client.socket.write_all(&burst).is_err() {
                    break;
                }
                std::thread::sleep(REST);
            }
            let _ = client.socket.shutdown(std::net::Shutdown::Both);
        });
    }
}

/// Asserts that nobody notices this flood, whether its sender reads or not, and that it costs no memory.
fn assert_flood_unnoticed(next: impl Fn(&mut Http2) -> Vec<u8> + Sync) {
    let server = server();
    let before = memory_len(&server);
    for reads in [true, false] {
        assert_unnoticed(&server, |abuse| flood(&server, abuse, reads, &next));
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
    assert_flood_unnoticed(begun_and_reset);
}

#[test]
fn calls_that_are_wrong_on_purpose_are_not_noticed() {
    // A window that is changed by nothing is a mistake for which the server resets the stream.
    assert_flood_unnoticed(|client| {
        let stream = client.stream();
        let mut bytes = frame(HEADERS, END_HEADERS, stream, &call_headers(PATH));
        bytes.extend(frame(WINDOW_UPDATE, 0, stream, &[0; 4]));
        bytes
    });
}

#[test]
fn pings_are_not_noticed() {
    assert_flood_unnoticed(|_| frame(PING, 0, 0, b"and over"));
}

#[test]
fn settings_are_not_noticed() {
    assert_flood_unnoticed(|_| frame(SETTINGS, 0, 0, &[]));
}

#[test]
fn tiny_pieces_of_a_call_are_not_noticed() {
    for piece in [&b""[..], b"x"] {
        assert_flood_unnoticed(|client| {
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
