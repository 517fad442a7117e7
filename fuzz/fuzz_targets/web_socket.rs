//! Locktopus: messages, WebSocket frames, and whole connections.
//!
//! The first byte of the input selects the meaning of the rest:
//! - 0: a message, as JSON
//! - 1: frames of a WebSocket, which are followed in two ways of splitting them
//! - 2: all bytes of a connection
//! - 3: pieces of a connection behind its handshake, each with a length of two bytes
//! - 4: messages of a connection, each with the first byte of its frame and a length of two bytes
#![no_main]

use libfuzzer_sys::fuzz_target;
use waymaker_fuzz::bytes::Bytes;
use waymaker_fuzz::{memory, web_socket};
use waymaker_server::fuzzing::{decode_message, note_frames, serve};
use waymaker_server::port::Port;

const HANDSHAKE: &[u8] =
    b"GET /v1?namespace=a&abandon-timeout-ms=100 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// Most pieces of a connection; each costs several turns of the runtime.
const PIECE_COUNT_MAX: usize = 32;

fuzz_target!(|input: &[u8]| {
    let mut input = Bytes::new(input);
    let mode = input.below(5);
    memory::bounded(memory::LARGE, || match mode {
        0 => {
            decode_message(input.rest());
        }
        1 => check_framing(input.rest()),
        2 => drop(serve(Port::Http, &[input.rest()])),
        3 => {
            let pieces = std::iter::from_fn(|| (!input.is_empty()).then(|| input.piece()));
            let pieces: Vec<_> = std::iter::once(HANDSHAKE).chain(pieces).take(PIECE_COUNT_MAX).collect();
            upgraded(&pieces);
        }
        _ => {
            let frames: Vec<_> = std::iter::from_fn(|| {
                let mut frame = Vec::new();
                (!input.is_empty()).then(|| web_socket::put_frame(&mut frame, input.u8(), input.piece()))?;
                Some(frame)
            })
            .take(PIECE_COUNT_MAX)
            .collect();
            let pieces: Vec<_> = std::iter::once(HANDSHAKE).chain(frames.iter().map(Vec::as_slice)).collect();
            upgraded(&pieces);
        }
    });
});

fn check_framing(bytes: &[u8]) {
    let at_once = note_frames([bytes]);
    assert_eq!(note_frames(bytes.chunks(1)), at_once, "framing depends on how bytes are split");
    assert_eq!(note_frames(bytes.chunks(7)), at_once, "framing depends on how bytes are split");
}

fn upgraded(pieces: &[&[u8]]) {
    let output = serve(Port::Locktopus, pieces);
    assert!(output.starts_with(b"HTTP/1.1 101 "), "the handshake is valid");
}
