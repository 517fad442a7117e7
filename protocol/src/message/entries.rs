//! The lookup of one registration, and the paged list of registrations.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, put_frame};
use crate::id::LockId;
use crate::limits::{KEY_LEN_MAX, LIST_PAGE_MAX, OWNER_LEN_MAX, TYPE_LEN_MAX, VALUE_LEN_MAX};
use crate::message::opcode;

/// Opcode of the response to `LOOK_UP`.
pub const LOOKED_UP: u8 = opcode::LOOK_UP | opcode::ANSWER;
/// Opcode of the response to `LIST_ENTRIES`.
pub const ENTRIES_LISTED: u8 = opcode::LIST_ENTRIES | opcode::ANSWER;
/// Flag of `LOOKED_UP`: the registration exists.
pub const FOUND: u16 = 1 << 0;
/// Flag of `LIST_ENTRIES`: list registrations of every type.
pub const ANY_TYPE: u16 = 1 << 0;
/// Offset of the length of the key in `LOOK_UP`, in bytes. The key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN;

/// One registration. If the client has no right to see them, `id` is zero, and `owner` and `value` are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Entry<'a> {
    /// Id of the registration. It stays the same while the owner renews the registration.
    pub id: LockId,
    /// Fence of the registration, higher than those of all earlier registrations of the key. It stays the same while
    /// the owner renews the registration.
    pub fence: u64,
    /// Time since the last `REGISTER` or `HEARTBEAT` of the owner, in milliseconds.
    pub age_ms: u64,
    /// Remaining lease, in milliseconds. It is negative if the lease has expired but the server has not yet removed the
    /// registration.
    pub remaining_ms: i64,
    /// Key of the registration.
    pub key: &'a [u8],
    /// Owner of the registration.
    pub owner: &'a [u8],
    /// Value from the request.
    pub value: &'a [u8],
    /// Type from the request.
    pub type_name: &'a [u8],
}

impl<'a> Entry<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: cursor.id("entry.id", LockId::from_bytes)?,
            fence: cursor.u64("entry.fence")?,
            age_ms: cursor.u64("entry.age_ms")?,
            remaining_ms: cursor.i64("entry.remaining_ms")?,
            key: cursor.string("entry.key", KEY_LEN_MAX)?,
            owner: cursor.string("entry.owner", OWNER_LEN_MAX)?,
            value: cursor.string("entry.value", VALUE_LEN_MAX)?,
            type_name: cursor.string("entry.type", TYPE_LEN_MAX)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_bytes());
        out.extend_from_slice(&self.fence.to_le_bytes());
        out.extend_from_slice(&self.age_ms.to_le_bytes());
        out.extend_from_slice(&self.remaining_ms.to_le_bytes());
        for string in [self.key, self.owner, self.value, self.type_name] {
            put_string(out, string);
        }
    }
}

/// Requests the data that an owner has registered for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LookUp<'a> {
    /// Key, at most 1024 bytes long.
    pub key: &'a [u8],
}

impl<'a> LookUp<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let key = cursor.string("key", KEY_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { key })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::LOOK_UP, 0, number, |out| put_string(out, self.key));
    }
}

/// The registration of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LookedUp<'a> {
    /// Server's boot-time clock when this state was read, in milliseconds.
    pub stamp_ms: u64,
    /// Whether the key is registered.
    pub found: bool,
    /// The registration; the default value if the key is not registered.
    pub entry: Entry<'a>,
}

impl<'a> LookedUp<'a> {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(FOUND)?;
        let mut cursor = Cursor::new(frame);
        let stamp_ms = cursor.u64("stamp_ms")?;
        let entry = Entry::decode(&mut cursor)?;
        cursor.finish()?;
        Ok(Self { stamp_ms, found: flags & FOUND != 0, entry })
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, LOOKED_UP, if self.found { FOUND } else { 0 }, number, |out| {
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
            self.entry.encode(out);
        });
    }
}

/// Requests one page of those registrations of the namespace that the client may list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ListEntries<'a> {
    /// Position of the page: 0 for the first page, then `next` of the previous page.
    pub cursor: u64,
    /// Maximum number of registrations in the page; 0 is as many as fit.
    pub count_max: u16,
    /// Whether to list registrations of every type and ignore `type_name`.
    pub any_type: bool,
    /// Lists only registrations of exactly this type.
    pub type_name: &'a [u8],
}

impl<'a> ListEntries<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(ANY_TYPE)?;
        let mut cursor = Cursor::new(frame);
        let list = Self {
            cursor: cursor.u64("cursor")?,
            count_max: cursor.u16("count_max")?,
            any_type: flags & ANY_TYPE != 0,
            type_name: cursor.string("type", TYPE_LEN_MAX)?,
        };
        cursor.finish()?;
        Ok(list)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::LIST_ENTRIES, if self.any_type { ANY_TYPE } else { 0 }, number, |out| {
            out.extend_from_slice(&self.cursor.to_le_bytes());
            out.extend_from_slice(&self.count_max.to_le_bytes());
            put_string(out, self.type_name);
        });
    }
}

/// One page of registrations. A page may be empty although other pages follow.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EntriesListed<'a> {
    /// Cursor of the next page; 0 after the last page.
    pub next: u64,
    /// The registrations of this page.
    pub entries: Vec<Entry<'a>>,
}

impl<'a> EntriesListed<'a> {
    /// Parses the page from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let next = cursor.u64("next")?;
        let count = cursor.count("count", usize::from(LIST_PAGE_MAX))?;
        let entries = (0..count).map(|_| Entry::decode(&mut cursor)).collect::<Result<_, _>>()?;
        cursor.finish()?;
        Ok(Self { next, entries })
    }

    /// Appends the page as a frame. At most `LIST_PAGE_MAX` registrations are sent and further ones are lost, so the
    /// caller must not add more.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, ENTRIES_LISTED, 0, number, |out| {
            let entries = &self.entries[..self.entries.len().min(usize::from(LIST_PAGE_MAX))];
            out.extend_from_slice(&self.next.to_le_bytes());
            out.extend_from_slice(&(entries.len() as u16).to_le_bytes());
            for entry in entries {
                entry.encode(out);
            }
        });
    }
}
