//! gRPC: request messages, calls of every method, and bytes of HTTP/2.
//!
//! The first byte of the input selects the meaning of the rest:
//! - 0: a request message, behind a byte for its type
//! - 1: calls on one connection, each with a byte for its method, and its message with a length of two bytes
//! - 2: all bytes of a connection behind the first ones, in pieces with a length of two bytes each
#![no_main]

mod messages;
mod methods;

use libfuzzer_sys::fuzz_target;
use waymaker_fuzz::bytes::Bytes;
use waymaker_fuzz::{http2, memory};
use waymaker_server::fuzzing::serve;
use waymaker_server::port::Port;

/// Most pieces of a connection; each costs several turns of the runtime.
const PIECE_COUNT_MAX: usize = 32;

fuzz_target!(|input: &[u8]| {
    let mut input = Bytes::new(input);
    let mode = input.below(3);
    memory::bounded(memory::LARGE, || match mode {
        0 => messages::check(usize::from(input.u8()), input.rest()),
        1 => {
            let calls: Vec<_> = (0..PIECE_COUNT_MAX as u32)
                .map_while(|number| {
                    (!input.is_empty()).then(|| {
                        let mut call = Vec::new();
                        let path = methods::path(usize::from(input.u8()));
                        http2::put_call(&mut call, 1 + 2 * number, path, input.piece());
                        call
                    })
                })
                .collect();
            check_connection(calls.iter().map(Vec::as_slice));
        }
        _ => {
            let pieces = std::iter::from_fn(|| (!input.is_empty()).then(|| input.piece()));
            check_connection(pieces.take(PIECE_COUNT_MAX));
        }
    });
});

fn check_connection<'a>(pieces: impl Iterator<Item = &'a [u8]>) {
    let pieces: Vec<_> = std::iter::once(http2::GREETING).chain(pieces).collect();
    serve(Port::Grpc, &pieces);
}
