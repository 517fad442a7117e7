//! Headers that are too much.

use super::bystander::{Delay, assert_abuse_delays};
use super::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, Http2, call_headers, frame,
    prefixed,
};
use super::{hpack, server};
use crate::harness::memory_len;
use std::collections::VecDeque;
use std::io::Write as _;

const PATH: &str = "/waymaker.WaymakerService/MultiLock";

#[test]
fn endless_continuation_frames_end_the_connection() {
    let server = server();
    for fragment in [&b""[..], b"\0\x01x\x01y", &[b'x'; 16 << 10]] {
        let mut client = Http2::connect(&server);
        let stream = client.stream();
        client.write(&frame(HEADERS, 0, stream, &call_headers(PATH)));
        let next = frame(CONTINUATION, 0, stream, fragment);
        // It may be closed in the middle.
        let _ = (0..10_000).try_for_each(|_| client.socket.write_all(&next));
        client.ended();
    }
    server.assert_serves();
}

#[test]
fn endless_continuation_frames_barely_delay_other_clients() {
    let server = server();
    let before = memory_len(&server);
    // The server cuts each of them, so a new one joins before each request of the bystander.
    let mut clients = VecDeque::new();
    assert_abuse_delays(&server, Delay::of_calls(40, 60), || {
        let mut client = Http2::connect(&server);
        let stream = client.stream();
        client.write(&frame(HEADERS, 0, stream, &call_headers(PATH)));
        let next = frame(CONTINUATION, 0, stream, &[b'x'; 1 << 10]);
        let _ = (0..100).try_for_each(|_| client.socket.write_all(&next));
        clients.push_back(client);
        if clients.len() > 10 {
            clients.pop_front();
        }
    });
    let grown = memory_len(&server).saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
}

#[test]
fn a_header_list_beyond_the_limit_fails_only_its_call() {
    let server = server();
    let mut client = Http2::connect(&server);
    // Each counts for 32 bytes more than it has.
    for (count, is_within) in [(400, true), (600, false)] {
        let mut block = call_headers(PATH);
        (0..count).for_each(|_| hpack::put(&mut block, b"x", b"y"));
        let stream = client.stream();
        client.write(&frame(HEADERS, END_HEADERS, stream, &block));
        client.write(&frame(DATA, END_STREAM, stream, &prefixed(&[])));
        let answer = client.answer(stream);
        assert_eq!(answer.status == Some(0), is_within, "{count}: {answer:?}");
        client.assert_serves();
    }
}

#[test]
fn a_header_block_beyond_the_limit_ends_the_connection() {
    let server = server();
    let mut client = Http2::connect(&server);
    let mut block = call_headers(PATH);
    (0..40).for_each(|_| hpack::put(&mut block, b"x-filler", &[b'x'; 1_000]));
    let stream = client.stream();
    client.write(&frame(HEADERS, 0, stream, &block[..16 << 10]));
    let _ = client.socket.write_all(&frame(CONTINUATION, END_HEADERS, stream, &block[16 << 10..32 << 10]));
    assert!(client.ended().is_some());
    server.assert_serves();
}

#[test]
fn an_invalid_header_block_ends_the_connection() {
    let server = server();
    for block in [&[0xff; 100][..], &[0x40, 0x7f], &[0xbe; 8]] {
        let mut client = Http2::connect(&server);
        let stream = client.stream();
        client.write(&frame(HEADERS, END_HEADERS, stream, block));
        let code = client.ended();
        assert!(code.is_some_and(|code| code != ENHANCE_YOUR_CALM), "{block:?}: {code:?}");
    }
    server.assert_serves();
}
