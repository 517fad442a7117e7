//! The layout of a frame, learned from the decoder: for a frame truncated anywhere, it names the truncated field.

use waymaker_protocol::DecodeError;
use waymaker_protocol::frame::HEADER_LEN;

use crate::direction::{Message, Sender, only_frame, patch_length};

/// A field of a frame. A string includes its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// The fields of the header. No decoder truncates these.
pub(crate) const HEADER: [Field; 5] = [
    Field { name: "length", offset: 0, len: 4 },
    Field { name: "number", offset: 4, len: 4 },
    Field { name: "opcode", offset: 8, len: 1 },
    Field { name: "zero", offset: 9, len: 1 },
    Field { name: "flags", offset: 10, len: 2 },
];

/// Returns all fields of a frame in order, without gap or overlap.
pub(crate) fn layout(sender: Sender, bytes: &[u8]) -> Vec<Field> {
    let mut fields = HEADER.to_vec();
    while let Some(field) = field_at_end_of(&fields, sender, bytes) {
        match fields.last_mut() {
            Some(last) if last.name == field.name => last.len += field.len,
            _ => fields.push(field),
        }
    }
    assert_eq!(end(&fields), bytes.len(), "the last field ends where the frame does");
    fields
}

fn end(fields: &[Field]) -> usize {
    fields.last().map_or(0, |last| last.offset + last.len)
}

fn field_at_end_of(fields: &[Field], sender: Sender, bytes: &[u8]) -> Option<Field> {
    let cut = end(fields);
    if cut == bytes.len() {
        return None;
    }
    match cut_error(sender, bytes, cut) {
        DecodeError::Truncated { field, offset, need, have } => {
            assert_eq!((offset, have), (cut, cut), "{field} begins where the field before it ends");
            Some(Field { name: field, offset, len: need })
        }
        // The decoder checks the magic before anything else, so its error names only the magic.
        DecodeError::BadMagic => Some(Field { name: "magic", offset: HEADER_LEN, len: 8 }),
        error => panic!("cut at {cut}: {error}"),
    }
}

/// Returns the decoder's error for the frame without the bytes from `cut` on.
pub(crate) fn cut_error(sender: Sender, bytes: &[u8], cut: usize) -> DecodeError {
    let mut bytes = bytes[..cut].to_vec();
    patch_length(&mut bytes);
    Message::decode(sender, only_frame(&bytes)).expect_err("a frame that is cut does not decode")
}
