//! Encoding a message and decoding it returns the same message.

use proptest::prelude::*;
use waymaker_protocol::{Contention, ErrorAnswer, ErrorCode, ErrorDetail, Response};

use crate::arbitrary::{config, message};
use crate::direction::{Message, only_frame};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_message_round_trips_through_its_encoding(message in message(), number: u32) {
        let bytes = message.encode(number);
        let frame = only_frame(&bytes);
        prop_assert_eq!(frame.number(), number);
        prop_assert_eq!(Message::decode(message.sender(), frame), Ok(message));
    }

    #[test]
    fn encoding_appends_and_keeps_existing_bytes(message in message(), before: Vec<u8>) {
        let mut out = before.clone();
        match &message {
            Message::Request(request) => request.encode(7, &mut out),
            Message::Response(response) => response.encode(7, &mut out),
        }
        prop_assert_eq!(&out[..before.len()], &before);
        prop_assert_eq!(&out[before.len()..], message.encode(7));
    }
}

#[test]
fn an_error_with_a_mismatched_detail_still_decodes() {
    let text = ErrorDetail::Text { value: 1, field: b"key", message: b"no" };
    let contention = ErrorDetail::Contention(Contention { held: true, ..Contention::default() });
    // Decoding turns `Other` with the number of a known code into that code, so encoding must write it as that code.
    for (code, detail) in [
        (ErrorCode::Busy, text),
        (ErrorCode::NotOwner, text),
        (ErrorCode::NotFound, contention),
        (ErrorCode::Other(ErrorCode::Timeout.number()), contention),
    ] {
        let bytes = Message::Response(Response::Error(ErrorAnswer { code, detail })).encode(1);
        let Ok(Response::Error(answer)) = Response::decode(only_frame(&bytes)) else {
            panic!("{code:?} does not decode");
        };
        assert_eq!(answer.code.number(), code.number());
    }
}

#[test]
fn an_error_text_above_its_limit_is_truncated() {
    let long = [b'x'; 2000];
    let detail = ErrorDetail::Text { value: 0, field: &long, message: &long };
    let bytes =
        Message::Response(Response::Error(ErrorAnswer { code: ErrorCode::Internal, detail })).encode(1);
    let cut = ErrorDetail::Text { value: 0, field: &long[..1024], message: &long[..1024] };
    let answer = ErrorAnswer { code: ErrorCode::Internal, detail: cut };
    assert_eq!(Response::decode(only_frame(&bytes)), Ok(Response::Error(answer)));
}
