//! A message of either direction, so that one test covers both.

use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{DecodeError, Frame, Request, Response, next_frame};

/// The sender of a frame, which determines its decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    Server,
}

/// A message of a client or of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    Request(Request<'a>),
    Response(Response<'a>),
}

impl<'a> Message<'a> {
    pub(crate) fn sender(&self) -> Sender {
        match self {
            Self::Request(_) => Sender::Client,
            Self::Response(_) => Sender::Server,
        }
    }

    pub(crate) fn decode(sender: Sender, frame: Frame<'a>) -> Result<Self, DecodeError> {
        match sender {
            Sender::Client => Request::decode(frame).map(Self::Request),
            Sender::Server => Response::decode(frame).map(Self::Response),
        }
    }

    pub(crate) fn encode(&self, number: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Request(request) => request.encode(number, &mut bytes),
            Self::Response(response) => response.encode(number, &mut bytes),
        }
        bytes
    }
}

/// Returns the only frame in these bytes.
pub(crate) fn only_frame(bytes: &[u8]) -> Frame<'_> {
    let frame =
        next_frame(bytes, FRAME_LEN_MAX).expect("the length is in range").expect("the frame is whole");
    assert_eq!(frame.len(), bytes.len(), "nothing follows the frame");
    frame
}

/// Sets the length field to the real length, so that the decoder of the body sees the modified bytes.
pub(crate) fn patch_length(bytes: &mut [u8]) {
    let length = u32::try_from(bytes.len() - 4).expect("a frame is short");
    bytes[..4].copy_from_slice(&length.to_le_bytes());
}
