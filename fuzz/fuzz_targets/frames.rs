//! Frames and messages of the binary protocol, in both directions.
//!
//! The input is a stream of frames. Its first frame is also tried with the length of the whole input, so that a message of any length is
//! one change away from another. A message that decodes must decode to the same message after it was encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use waymaker_fuzz::memory;
use waymaker_protocol::frame::{HEADER_LEN, LENGTH_LEN};
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Frame, Request, Response, Route, next_frame, route};

fuzz_target!(|input: &[u8]| {
    memory::bounded(memory::SMALL, || {
        let mut rest = input;
        while let Ok(Some(frame)) = next_frame(rest, FRAME_LEN_MAX) {
            check(frame);
            rest = &rest[frame.len()..];
        }
        if input.len() >= HEADER_LEN {
            let mut whole = input.to_vec();
            let length = (input.len() - LENGTH_LEN) as u32;
            whole[..LENGTH_LEN].copy_from_slice(&length.to_le_bytes());
            if let Ok(Some(frame)) = next_frame(&whole, FRAME_LEN_MAX) {
                check(frame);
            }
        }
    });
});

fn check(frame: Frame<'_>) {
    let routed = route(frame);
    match Request::decode(frame) {
        Ok(request) => {
            assert_ne!(routed, Route::Malformed, "a request that decodes has a route");
            // Reads the items of lists, too.
            let _ = format!("{request:?}");
            let mut encoded = Vec::new();
            request.encode(frame.number(), &mut encoded);
            let again = whole(&encoded);
            assert_eq!(Request::decode(again), Ok(request));
            assert_eq!(again.number(), frame.number());
        }
        Err(error) => drop(error.to_string()),
    }
    match Response::decode(frame) {
        Ok(response) => {
            let _ = format!("{response:?}");
            let mut encoded = Vec::new();
            response.encode(frame.number(), &mut encoded);
            assert_eq!(Response::decode(whole(&encoded)), Ok(response));
        }
        Err(error) => drop(error.to_string()),
    }
}

fn whole(bytes: &[u8]) -> Frame<'_> {
    let frame = next_frame(bytes, FRAME_LEN_MAX).expect("an encoded frame is valid").expect("it is whole");
    assert_eq!(frame.len(), bytes.len(), "one message is one frame");
    frame
}
