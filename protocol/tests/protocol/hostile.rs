//! Frames of a hostile client that knows the format.

use proptest::collection::vec;
use proptest::prelude::*;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Request, Response, TraceParent, next_frame, route};

use crate::arbitrary::{config, message, request, traceparent};
use crate::direction::{Message, Sender, only_frame, patch_length};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn decoding_arbitrary_bytes_never_panics(bytes in vec(any::<u8>(), 0..256)) {
        let mut rest = &bytes[..];
        while let Ok(Some(frame)) = next_frame(rest, FRAME_LEN_MAX) {
            decode_all(frame.bytes());
            rest = &rest[frame.len()..];
        }
    }

    #[test]
    fn decoding_an_arbitrary_body_never_panics(header: [u8; 12], body in vec(any::<u8>(), 0..256)) {
        let mut bytes = [&header[..], &body].concat();
        patch_length(&mut bytes);
        // Use every opcode, so that every decoder parses these bytes.
        for opcode in 0..=u8::MAX {
            bytes[8] = opcode;
            decode_all(&bytes);
        }
    }

    #[test]
    fn the_text_of_a_trace_context_is_read_as_it_is_written(context in traceparent(), place in 0..55_usize, byte: char) {
        let text = context.to_string();
        prop_assert_eq!(text.parse(), Ok(context));
        // Parsing must not panic. The damaged text may still be a valid trace context.
        let damaged = format!("{}{byte}{}", &text[..place], &text[place + 1..]);
        if let Ok(read) = damaged.parse::<TraceParent>() {
            prop_assert_eq!(read.to_string()[2..].to_owned(), damaged[2..55].to_owned());
        }
    }

    #[test]
    fn decoding_a_damaged_frame_never_panics(message in message(), damage in damage()) {
        decode_all(&damaged(message.encode(1), &damage));
    }

    #[test]
    fn a_damaged_frame_that_decodes_encodes_to_the_same_bytes(message in message(), damage in damage()) {
        let bytes = damaged(message.encode(1), &damage);
        let frame = only_frame(&bytes);
        match Message::decode(message.sender(), frame) {
            // Decoding drops the fields that the session mode does not use.
            Ok(Message::Request(Request::Hello(_))) | Err(_) => {}
            Ok(decoded) => prop_assert_eq!(decoded.encode(frame.number()), bytes),
        }
    }
}

type Damage = Vec<(prop::sample::Index, u8)>;

fn damage() -> impl Strategy<Value = Damage> {
    vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
}

/// Generates the bytes of requests, some of them damaged, with a correct length field.
pub(crate) fn request_bytes() -> impl Strategy<Value = Vec<u8>> {
    (request(), damage()).prop_map(|(request, damage)| damaged(Message::Request(request).encode(1), &damage))
}

fn damaged(mut bytes: Vec<u8>, damage: &Damage) -> Vec<u8> {
    for (index, byte) in damage {
        let index = index.index(bytes.len());
        bytes[index] = *byte;
    }
    patch_length(&mut bytes);
    bytes
}

/// Runs everything that parses bytes from a peer, and prints every error, because printing must not panic either.
fn decode_all(bytes: &[u8]) {
    let frame = only_frame(bytes);
    let _ = route(frame);
    for sender in [Sender::Client, Sender::Server] {
        match Message::decode(sender, frame) {
            Ok(Message::Response(Response::Error(answer))) => assert!(!answer.to_string().is_empty()),
            Ok(_) => {}
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
