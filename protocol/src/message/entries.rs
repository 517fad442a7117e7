//! Look up one entry of a registry, or list them page by page.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, put_frame};
use crate::id::LockId;
use crate::limits::{KEY_LEN_MAX, LIST_PAGE_MAX, OWNER_LEN_MAX, TYPE_LEN_MAX, VALUE_LEN_MAX};
use crate::message::opcode;

/// Opcode of the answer to `LOOK_UP`.
pub const LOOKED_UP: u8 = opcode::LOOK_UP | opcode::ANSWER;
/// Opcode of the answer to `LIST_ENTRIES`.
pub const ENTRIES_LISTED: u8 = opcode::LIST_ENTRIES | opcode::ANSWER;
/// Flag of `LOOKED_UP`: there is an entry.
pub const FOUND: u16 = 1 << 0;
/// Flag of `LIST_ENTRIES`: entries of every type.
pub const ANY_TYPE: u16 = 1 << 0;
/// Where the length of the key stands in `LOOK_UP`; the key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN;

/// One entry of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Entry<'a> {
    /// Id of the entry, the same as long as its owner is.
    pub id: LockId,
    /// The fence of its owner.
    pub fence: u64,
    /// How long ago it was registered, or kept by a heartbeat.
    pub age_ms: u64,
    /// What is left of its lease; negative where it is over and nobody took the key yet.
    pub remaining_ms: i64,
    /// Its key.
    pub key: &'a [u8],
    /// Whose it is.
    pub owner: &'a [u8],
    /// As given.
    pub value: &'a [u8],
    /// As given.
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

/// Asks for the entry of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LookUp<'a> {
    /// Up to 1024 bytes.
    pub key: &'a [u8],
}

impl<'a> LookUp<'a> {
    /// The question in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let key = cursor.string("key", KEY_LEN_MAX)?;
        cursor.finish()?;
        Ok(Self { key })
    }

    /// Appends the question as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::LOOK_UP, 0, number, |out| put_string(out, self.key));
    }
}

/// The entry of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LookedUp<'a> {
    /// The server's boot-time clock when this was read.
    pub stamp_ms: u64,
    /// There is one.
    pub found: bool,
    /// The entry; the default where there is none.
    pub entry: Entry<'a>,
}

impl<'a> LookedUp<'a> {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(FOUND)?;
        let mut cursor = Cursor::new(frame);
        let stamp_ms = cursor.u64("stamp_ms")?;
        let entry = Entry::decode(&mut cursor)?;
        cursor.finish()?;
        Ok(Self { stamp_ms, found: flags & FOUND != 0, entry })
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, LOOKED_UP, if self.found { FOUND } else { 0 }, number, |out| {
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
            self.entry.encode(out);
        });
    }
}

/// Asks for one page of the entries of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ListEntries<'a> {
    /// 0 for the first page, then what the page before said.
    pub cursor: u64,
    /// Most entries in the page; 0 is as many as fit.
    pub count_max: u16,
    /// Entries of every type, whatever `type_name` is.
    pub any_type: bool,
    /// Only entries of just this type.
    pub type_name: &'a [u8],
}

impl<'a> ListEntries<'a> {
    /// The question in this frame.
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

    /// Appends the question as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::LIST_ENTRIES, if self.any_type { ANY_TYPE } else { 0 }, number, |out| {
            out.extend_from_slice(&self.cursor.to_le_bytes());
            out.extend_from_slice(&self.count_max.to_le_bytes());
            put_string(out, self.type_name);
        });
    }
}

/// One page. It may be empty although others follow, as with `LISTED`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EntriesListed<'a> {
    /// The cursor of the next page; 0 after the last.
    pub next: u64,
    /// The entries.
    pub entries: Vec<Entry<'a>>,
}

impl<'a> EntriesListed<'a> {
    /// The page in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let next = cursor.u64("next")?;
        let count = cursor.count("count", usize::from(LIST_PAGE_MAX))?;
        let entries = (0..count).map(|_| Entry::decode(&mut cursor)).collect::<Result<_, _>>()?;
        cursor.finish()?;
        Ok(Self { next, entries })
    }

    /// Appends the page as a frame. Entries beyond `LIST_PAGE_MAX` would be cut, so whoever fills a page stops there.
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
