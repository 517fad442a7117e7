//! Entry points of the WebSocket fuzz target.

use super::framing::FrameTracker;
use super::message::Message;

/// Decodes a client message. Returns whether it has a known action; its resources may still be invalid.
pub fn decode_message(bytes: &[u8]) -> bool {
    let Ok(message) = Message::decode(bytes) else { return false };
    let is_action = message.action().is_ok();
    let Ok(set) = message.into_set() else { return is_action };
    assert!(set.items().count() > 0, "a checked set has the items that were checked");
    is_action
}

/// Passes these consecutive pieces of a client's stream to a `FrameTracker`, which finds the frames in them. Returns
/// the number of the message, or control frame between messages, that is incomplete after the last piece, if any.
pub fn note_frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
    let mut framing = FrameTracker::default();
    pieces.into_iter().for_each(|piece| framing.note(piece));
    framing.partial()
}
