//! Frames from the worker for a front end.

use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{CancelReason, ErrorAnswer, ErrorCode, ErrorDetail, Response, next_frame};

/// Offset of the opcode in a frame.
pub(super) const OPCODE_OFFSET: usize = 8;

/// Whether frames with this opcode answer a request. All others are events. An ERROR answers a request only if its
/// number is not 0.
pub(super) fn is_answer(frame_opcode: u8) -> bool {
    frame_opcode < opcode::QUEUED || frame_opcode == opcode::ERROR
}

/// A frame from the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply(pub(super) Box<[u8]>);

impl Reply {
    /// Returns the response in the frame. The worker and the inlet write only responses of this version of the
    /// protocol, so there always is one.
    ///
    /// # Panics
    /// If the frame does not contain such a response.
    pub fn response(&self) -> Response<'_> {
        let frame = next_frame(&self.0, usize::MAX).ok().flatten().expect("a reply is a whole frame");
        Response::decode(frame).expect("the worker speaks the protocol")
    }

    /// Returns the frame.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the frame is the answer to the request, and not an event.
    pub fn is_answer(&self) -> bool {
        is_answer(self.0[OPCODE_OFFSET])
    }
}

impl From<Vec<u8>> for Reply {
    fn from(frame: Vec<u8>) -> Self {
        Self(frame.into())
    }
}

/// Returns the refusal for a request that took over a hold for which the inlet has already sent a RELEASE.
pub(super) fn given_back(number: u32) -> Vec<u8> {
    let message = "the hold of an earlier request with this id is being released; send the request again";
    let reason = CancelReason::Asked.number();
    refusal(number, ErrorCode::Cancelled, reason, b"request_id", message)
}

/// Returns the refusal of a request that is longer than a frame may be.
pub(super) fn too_long(number: u32) -> Vec<u8> {
    let message = format!("the request is too long; the maximum is {FRAME_LEN_MAX} bytes");
    refusal(number, ErrorCode::BadInput, FRAME_LEN_MAX as u64, b"request", &message)
}

fn refusal(number: u32, code: ErrorCode, value: u64, field: &[u8], message: &str) -> Vec<u8> {
    let detail = ErrorDetail::Text { value, field, message: message.as_bytes() };
    let mut refusal = Vec::new();
    ErrorAnswer { code, detail }.encode(number, &mut refusal);
    refusal
}
