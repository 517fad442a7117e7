//! Codec that cuts the byte stream of the server into frames.

use bytes::BytesMut;
use tokio_util::codec::Decoder;
use waymaker_protocol::{FrameError, next_frame};

use crate::error::Error;

/// Finds whole frames in the bytes read so far, and splits them off without copying.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameCodec {
    /// Maximum length of a frame from the server, in bytes.
    pub(crate) frame_len_max: usize,
}

/// Reason for which the stream cannot be read further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodecError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl Decoder for FrameCodec {
    /// One whole frame, header included.
    type Item = BytesMut;
    type Error = CodecError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<BytesMut>, CodecError> {
        let len = next_frame(buffer, self.frame_len_max)?.map(waymaker_protocol::Frame::len);
        Ok(len.map(|len| buffer.split_to(len)))
    }
}

impl From<CodecError> for Error {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Io(error) => Self::disconnected(error.to_string()),
            CodecError::Frame(error) => {
                Self::disconnected(format!("the server sent a broken frame: {error}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waymaker_protocol::{KeepAlive, Request};

    #[test]
    fn frames_are_decoded_whole_however_the_bytes_are_split() {
        let mut stream = Vec::new();
        for number in 1..=3 {
            Request::KeepAlive(KeepAlive).encode(number, &mut stream);
        }
        let mut codec = FrameCodec { frame_len_max: 64 };
        let mut buffer = BytesMut::new();
        let mut numbers = Vec::new();
        for byte in stream {
            buffer.extend_from_slice(&[byte]);
            while let Some(bytes) = codec.decode(&mut buffer).unwrap() {
                numbers.push(next_frame(&bytes, 64).unwrap().unwrap().number());
            }
        }
        assert_eq!(numbers, [1, 2, 3]);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_frame_length_above_the_limit_fails_before_the_body_arrives() {
        let mut codec = FrameCodec { frame_len_max: 64 };
        let mut buffer = BytesMut::from(&100_u32.to_le_bytes()[..]);
        assert!(matches!(codec.decode(&mut buffer), Err(CodecError::Frame(FrameError::TooLong { .. }))));
    }
}
