//! The held locks or the waiting claims of a namespace, page by page.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::LockId;
use crate::limits::{LIST_PAGE_MAX, METADATA_LEN_MAX, OWNER_LEN_MAX, PATH_KEY_LEN_MAX, REQUEST_ID_LEN_MAX};
use crate::message::opcode;

/// Opcode of the response to `LIST`.
pub const LISTED: u8 = opcode::LIST | opcode::ANSWER;

/// Flag of `LIST`: list waiting claims instead of held locks.
pub const WAITING: u16 = 1 << 0;

/// Requests one page of the namespace's held locks or waiting claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct List<'a> {
    /// Position of the page: 0 for the first page, then `next` of the previous page.
    pub cursor: u64,
    /// Maximum number of locks or claims in the page; 0 is as many as fit.
    pub count_max: u16,
    /// Lists only claims whose key begins with these bytes. In a tree namespace, these bytes are a path key: lists only
    /// sets with that path or a path below it.
    pub prefix: &'a [u8],
    /// Whether to list waiting claims instead of held locks.
    pub waiting: bool,
}

impl<'a> List<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(WAITING)?;
        let mut cursor = Cursor::new(frame);
        let list = Self {
            cursor: cursor.u64("cursor")?,
            count_max: cursor.u16("count_max")?,
            prefix: cursor.string("prefix", PATH_KEY_LEN_MAX)?,
            waiting: flags & WAITING != 0,
        };
        cursor.finish()?;
        Ok(list)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.waiting { WAITING } else { 0 };
        put_frame(out, opcode::LIST, flags, number, |out| {
            out.extend_from_slice(&self.cursor.to_le_bytes());
            out.extend_from_slice(&self.count_max.to_le_bytes());
            put_string(out, self.prefix);
        });
    }
}

/// One held lock, or one waiting claim. If the client has no right to see them, `id` is zero, and `owner`, `request_id`
/// and `metadata` are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ListedLock<'a> {
    /// Id of the hold or of the waiting claim.
    pub id: LockId,
    /// Whether the lock is shared with other readers.
    pub shared: bool,
    /// Fence of the grant; 0 for a waiting claim.
    pub fence: u64,
    /// Time since the grant, or since the claim began to wait, in milliseconds.
    pub held_ms: u64,
    /// Remaining lease, or remaining wait, in milliseconds; `u32::MAX` if it has no end.
    pub remaining_ms: u32,
    /// Priority that the acquire requested.
    pub priority: u32,
    /// Key of the lock, name of its pool, or first path of its set. Of a path, only as many whole segments as the
    /// maximum length of a key allows.
    pub key: &'a [u8],
    /// Owner of the claim.
    pub owner: &'a [u8],
    /// Request id of the acquire; may be empty.
    pub request_id: &'a [u8],
    /// Metadata from the acquire.
    pub metadata: &'a [u8],
}

/// One page of locks, or of waiting claims. A page may be empty although other pages follow. A lock that is held from
/// the first page to the last is in exactly one page. The order is unspecified.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Listed<'a> {
    /// Cursor of the next page; 0 after the last page.
    pub next: u64,
    /// The locks of this page.
    pub locks: Vec<ListedLock<'a>>,
}

impl<'a> Listed<'a> {
    /// Parses the page from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let next = cursor.u64("next")?;
        let count = cursor.count("count", usize::from(LIST_PAGE_MAX))?;
        let locks = (0..count).map(|_| ListedLock::decode(&mut cursor)).collect::<Result<_, _>>()?;
        cursor.finish()?;
        Ok(Self { next, locks })
    }

    /// Appends the page as a frame. At most `LIST_PAGE_MAX` locks are sent and further ones are lost, so the caller
    /// must not add more.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, LISTED, 0, number, |out| {
            let locks = &self.locks[..self.locks.len().min(usize::from(LIST_PAGE_MAX))];
            out.extend_from_slice(&self.next.to_le_bytes());
            out.extend_from_slice(&(locks.len() as u16).to_le_bytes());
            for lock in locks {
                lock.encode(out);
            }
        });
    }
}

impl<'a> ListedLock<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: cursor.id("lock.id", LockId::from_bytes)?,
            shared: cursor.bool("lock.shared")?,
            fence: cursor.u64("lock.fence")?,
            held_ms: cursor.u64("lock.held_ms")?,
            remaining_ms: cursor.u32("lock.remaining_ms")?,
            priority: cursor.u32("lock.priority")?,
            key: cursor.string("lock.key", PATH_KEY_LEN_MAX)?,
            owner: cursor.string("lock.owner", OWNER_LEN_MAX)?,
            request_id: cursor.string("lock.request_id", REQUEST_ID_LEN_MAX)?,
            metadata: cursor.string("lock.metadata", METADATA_LEN_MAX)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_bytes());
        out.push(u8::from(self.shared));
        out.extend_from_slice(&self.fence.to_le_bytes());
        out.extend_from_slice(&self.held_ms.to_le_bytes());
        out.extend_from_slice(&self.remaining_ms.to_le_bytes());
        out.extend_from_slice(&self.priority.to_le_bytes());
        for string in [self.key, self.owner, self.request_id, self.metadata] {
            put_string(out, string);
        }
    }
}
