//! Watches, which send events when a key is granted or becomes free.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, header, put_frame};
use crate::limits::PATH_KEY_LEN_MAX;
use crate::message::opcode;

/// Opcode of the response to `WATCH`.
pub const WATCHING: u8 = opcode::WATCH | opcode::ANSWER;
/// Opcode of the response to `UNWATCH`.
pub const UNWATCHED: u8 = opcode::UNWATCH | opcode::ANSWER;
/// Flag of `UNWATCHED`: the watch existed.
pub const WAS_WATCHING: u16 = 1 << 0;
/// Offset of the length of the key in `WATCH`, in bytes. The key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN;
/// Offset of the length of the key in `UNWATCH`, in bytes. The key follows it.
pub const UNWATCH_KEY_OFFSET: usize = HEADER_LEN + 4;

/// Requests an event whenever the key is granted or becomes free, until `UNWATCH` or the end of the connection. If the
/// client reads too slowly, events may be dropped. The events carry the number of this request. Pools and tree
/// namespaces have no watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Watch<'a> {
    /// Key to watch, in a flat namespace or of a registration.
    pub key: &'a [u8],
}

impl<'a> Watch<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let key = cursor.string("key", PATH_KEY_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { key })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::WATCH, 0, number, |out| put_string(out, self.key));
    }
}

/// Response to `WATCH`: the state of the key when the watch began. Events report later grants, and when the key becomes
/// free. If a waiter gets the key at once, only its grant is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Watching {
    /// Newest fence of the key.
    pub fence: u64,
    /// Server's boot-time clock when this state was read, in milliseconds.
    pub stamp_ms: u64,
    /// Number of current holders.
    pub holder_count: u32,
    /// Number of current waiters.
    pub waiter_count: u32,
}

impl Watching {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let watching = Self {
            fence: cursor.u64("fence")?,
            stamp_ms: cursor.u64("stamp_ms")?,
            holder_count: cursor.u32("holder_count")?,
            waiter_count: cursor.u32("waiter_count")?,
        };
        cursor.finish()?;
        Ok(watching)
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, WATCHING, 0, number, |out| {
            out.extend_from_slice(&self.fence.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
            out.extend_from_slice(&self.holder_count.to_le_bytes());
            out.extend_from_slice(&self.waiter_count.to_le_bytes());
        });
    }
}

/// Ends a watch of the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Unwatch<'a> {
    /// Number of the `WATCH`.
    pub watch_number: u32,
    /// Key of the `WATCH`.
    pub key: &'a [u8],
}

impl<'a> Unwatch<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let watch_number = cursor.u32("watch_number")?;
        let key = cursor.string("key", PATH_KEY_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { watch_number, key })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::UNWATCH, 0, number, |out| {
            out.extend_from_slice(&self.watch_number.to_le_bytes());
            put_string(out, self.key);
        });
    }
}

/// Response to `UNWATCH`. No event of the watch follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Unwatched {
    /// Whether the watch existed.
    pub was_watching: bool,
}

impl Unwatched {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(WAS_WATCHING)?;
        Cursor::new(frame).finish()?;
        Ok(Self { was_watching: flags & WAS_WATCHING != 0 })
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.was_watching { WAS_WATCHING } else { 0 };
        out.extend_from_slice(&header(UNWATCHED, flags, number, 0));
    }
}
