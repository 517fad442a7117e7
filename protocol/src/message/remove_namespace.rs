//! The removal of an empty namespace by an operator.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, header, put_frame};
use crate::limits::NAMESPACE_LEN_MAX;
use crate::message::opcode;

/// Opcode of the response to `REMOVE_NAMESPACE`.
pub const NAMESPACE_REMOVED: u8 = opcode::REMOVE_NAMESPACE | opcode::ANSWER;

/// Removes a namespace. The namespace must have no claims and no frozen prefix, and no connection or session may use
/// it. It must not belong to a front end or be declared in the configuration of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RemoveNamespace<'a> {
    /// Name of the namespace, 1 to 256 bytes long.
    pub name: &'a [u8],
}

/// Response to a removal: the namespace no longer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NamespaceRemoved;

impl<'a> RemoveNamespace<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        Cursor::new(frame).finish()?;
        Ok(Self)
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&header(NAMESPACE_REMOVED, 0, number, 0));
    }
}
