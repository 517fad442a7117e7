//! The acquire of a set of paths as one hold.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::items::{Item, Items};
use crate::limits::{ITEM_COUNT_MAX, PATH_KEY_LEN_MAX};
use crate::message::acquire_terms::{AcquireOptions, AcquireTerms, flag, with_terms};
use crate::message::opcode;
use crate::path::PathKey;

/// The flags of `ACQUIRE` that `ACQUIRE_SET` accepts. Each path has its own mode, and sets have no priority: they wait
/// in order of arrival.
pub const FLAGS: u16 = flag::ALL & !(flag::SHARED | flag::PRIORITY);

/// Requests one hold on several paths of a tree namespace. The server grants all paths or none. The response is
/// `GRANTED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AcquireSet<'a> {
    /// 1 to `ITEM_COUNT_MAX` paths. Paths may overlap or repeat: paths of one set do not conflict with each other.
    pub items: Items<'a, PathItem<'a>>,
    /// Terms of the acquire.
    pub terms: AcquireTerms<'a>,
}

/// One path of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PathItem<'a> {
    /// Whether the hold excludes all others from the path and everything below it. If not, it is shared with other
    /// readers.
    pub write: bool,
    /// Path to hold. The path without segments is the whole namespace.
    pub path: PathKey<'a>,
}

with_terms!(AcquireSet);

impl<'a> AcquireSet<'a> {
    /// Parses the acquire from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(FLAGS)?;
        let mut cursor = Cursor::new(frame);
        let lengths = AcquireTerms::decode_lengths(&mut cursor)?;
        let acquire = Self {
            items: Items::decode(&mut cursor)?,
            terms: AcquireTerms::new(flags, lengths, AcquireOptions::decode(flags, &mut cursor)?),
        };
        cursor.finish()?;
        Ok(acquire)
    }

    /// Appends the acquire as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let terms = self.terms.without_priority();
        put_frame(out, opcode::ACQUIRE_SET, terms.flags(), number, |out| {
            terms.encode_lengths(out);
            self.items.encode(out);
            terms.options.encode(out);
        });
    }
}

impl<'a> Item<'a> for PathItem<'a> {
    const COUNT_MAX: usize = ITEM_COUNT_MAX;

    #[inline]
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        let write = cursor.bool("item.write")?;
        let path = cursor.string("item.path", PATH_KEY_LEN_MAX)?;
        Ok(Self { write, path: PathKey::of_field("item.path", path)? })
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.write));
        put_string(out, self.path.as_bytes());
    }
}
