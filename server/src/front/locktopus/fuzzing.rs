//! Entry points of the fuzz target for WebSockets.

use super::framing::Framing;
use super::message::Message;

/// Decodes a message of a client. Returns whether it asks for something that the server can ask its worker for.
pub fn decode_message(bytes: &[u8]) -> bool {
    let Ok(message) = Message::decode(bytes) else { return false };
    let is_action = message.action().is_ok();
    let Ok(set) = message.into_set() else { return is_action };
    assert!(set.items().count() > 0, "a checked set has the items that were checked");
    is_action
}

/// Follows the frames in these pieces of a stream. Returns the number of the message that is not complete.
pub fn note_frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
    let mut framing = Framing::default();
    pieces.into_iter().for_each(|piece| framing.note(piece));
    framing.partial()
}
