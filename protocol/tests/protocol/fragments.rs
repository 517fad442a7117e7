//! Decoding of frames from a stream that arrives in pieces.

use proptest::collection::vec;
use proptest::prelude::*;
use waymaker_protocol::limits::{FRAME_LEN_BEFORE_HELLO_MAX, FRAME_LEN_MAX};
use waymaker_protocol::{FrameError, next_frame};

use crate::arbitrary::{config, message};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_fragmentation_of_a_stream_gives_the_same_frames(
        messages in vec(message(), 0..8),
        cuts in vec(any::<prop::sample::Index>(), 0..16),
    ) {
        let frames: Vec<_> = (0..).zip(&messages).map(|(number, message)| message.encode(number)).collect();
        let stream = frames.concat();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|ends| &stream[ends[0]..ends[1]]);
        prop_assert_eq!(receive(pieces), frames);
    }

    #[test]
    fn a_frame_is_complete_only_with_its_last_byte(message in message()) {
        let bytes = message.encode(1);
        for end in 0..bytes.len() {
            prop_assert_eq!(next_frame(&bytes[..end], FRAME_LEN_MAX), Ok(None));
        }
        let frame = next_frame(&bytes, FRAME_LEN_MAX).expect("the length is in range");
        prop_assert_eq!(frame.expect("the frame is whole").bytes(), &bytes);
    }
}

/// Returns the frames that a receiver decodes. It keeps the bytes of an incomplete frame.
fn receive<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut received = Vec::new();
    let mut buffer = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Some(frame) = next_frame(&buffer, FRAME_LEN_MAX).expect("all lengths are in range") {
            let len = frame.len();
            received.push(frame.bytes().to_vec());
            buffer.drain(..len);
        }
    }
    assert!(buffer.is_empty(), "{} bytes are left over", buffer.len());
    received
}

#[test]
fn a_length_above_the_limit_is_rejected_before_the_frame_arrives() {
    for limit in [FRAME_LEN_BEFORE_HELLO_MAX, FRAME_LEN_MAX] {
        let length = u32::try_from(limit - 4).expect("the limit is a u32");
        assert_eq!(next_frame(&length.to_le_bytes(), limit), Ok(None), "just the limit is not above it");
        let error = FrameError::TooLong { len: limit as u64 + 1, limit };
        assert_eq!(next_frame(&(length + 1).to_le_bytes(), limit), Err(error));
    }
    let error = FrameError::TooLong { len: u64::from(u32::MAX) + 4, limit: FRAME_LEN_MAX };
    assert_eq!(next_frame(&u32::MAX.to_le_bytes(), FRAME_LEN_MAX), Err(error));
}

#[test]
fn a_length_shorter_than_a_header_is_rejected() {
    for length in 0..8_u32 {
        let error = FrameError::TooShort { length };
        assert_eq!(next_frame(&length.to_le_bytes(), FRAME_LEN_MAX), Err(error));
    }
    assert_eq!(next_frame(&8_u32.to_le_bytes(), FRAME_LEN_MAX), Ok(None));
}
