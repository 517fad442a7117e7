//! An operator removes a namespace in which there is nothing.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header, put_frame};
use crate::limits::NAMESPACE_LEN_MAX;
use crate::message::opcode;

/// Opcode of the answer.
pub const NAMESPACE_REMOVED: u8 = opcode::REMOVE_NAMESPACE | opcode::ANSWER;

/// Removes a namespace that is empty, unused and not built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RemoveNamespace<'a> {
    /// The name of the namespace, at least one byte.
    pub name: &'a [u8],
}

/// The namespace is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NamespaceRemoved;

impl<'a> RemoveNamespace<'a> {
    /// The request in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let name = cursor.non_empty_string("namespace", NAMESPACE_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { name })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::REMOVE_NAMESPACE, 0, number, |out| put_string(out, self.name));
    }
}

impl NamespaceRemoved {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        Cursor::new(frame).finish()?;
        Ok(Self)
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(NAMESPACE_REMOVED, 0, number, 0));
    }
}
