//! The acquire of several keys in one step. Each key gets its own hold.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, put_frame};
use crate::id::LockId;
use crate::items::{Item, Items};
use crate::limits::{ITEM_COUNT_MAX, KEY_LEN_MAX, KEYS_BYTES_MAX};
use crate::message::acquire::granted_flag;
use crate::message::acquire_terms::{AcquireOptions, AcquireTerms, flag, with_terms};
use crate::message::opcode;

/// The flags of `ACQUIRE_KEYS`: those of `ACQUIRE` without `SHARED`. Instead of `SHARED`, each key has its own mode.
pub const FLAGS: u16 = flag::ALL & !flag::SHARED;
/// Opcode of the response to `ACQUIRE_KEYS`.
pub const GRANTED_KEYS: u8 = opcode::ACQUIRE_KEYS | opcode::ANSWER;

/// Requests a hold on each of several keys of a flat namespace. The server grants all of them in one step, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AcquireKeys<'a> {
    /// 1 to `ITEM_COUNT_MAX` keys in any order, at most `KEYS_BYTES_MAX` bytes on the wire together. A repeated key
    /// counts once; it is exclusive if one of its items is.
    pub items: Items<'a, KeyItem<'a>>,
    /// Terms of the acquire, for each of the holds.
    pub terms: AcquireTerms<'a>,
}

/// One key of a multi-key claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeyItem<'a> {
    /// Whether the lock is shared with other readers.
    pub shared: bool,
    /// Key, 1 to 1024 bytes long.
    pub key: &'a [u8],
}

with_terms!(AcquireKeys);

impl<'a> AcquireKeys<'a> {
    /// Parses the acquire from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(FLAGS)?;
        let mut cursor = Cursor::new(frame);
        let lengths = AcquireTerms::decode_lengths(&mut cursor)?;
        let items: Items<'_, KeyItem<'_>> = Items::decode(&mut cursor)?;
        if items.bytes_len() > KEYS_BYTES_MAX {
            return Err(DecodeError::TooLong {
                field: "items",
                actual: items.bytes_len(),
                limit: KEYS_BYTES_MAX,
            });
        }
        let options = AcquireOptions::decode(flags, &mut cursor)?;
        cursor.finish()?;
        Ok(Self { items, terms: AcquireTerms::new(flags, lengths, options) })
    }

    /// Appends the acquire as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::ACQUIRE_KEYS, self.terms.flags(), number, |out| {
            self.terms.encode_lengths(out);
            self.items.encode(out);
            self.terms.options.encode(out);
        });
    }
}

impl<'a> Item<'a> for KeyItem<'a> {
    const COUNT_MAX: usize = ITEM_COUNT_MAX;

    #[inline]
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            shared: cursor.bool("item.shared")?,
            key: cursor.non_empty_string("item.key", KEY_LEN_MAX)?,
        })
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.shared));
        put_string(out, self.key);
    }
}

/// Grant of all keys of an `ACQUIRE_KEYS`. Each hold is released and renewed separately.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GrantedKeys<'a> {
    /// Time when the server determined the content of this message, in milliseconds of its boot-time clock.
    pub stamp_ms: u64,
    /// Whether the requested lease was above the server's maximum and was shortened.
    pub clamped: bool,
    /// Whether the claim had to wait.
    pub waited: bool,
    /// Whether the request id names a claim whose keys were already held. The server then returns these holds and does
    /// not renew their leases.
    pub repeated: bool,
    /// Whether the holds last as long as the session.
    pub session_lease: bool,
    /// The holds, one for each distinct key, sorted by key.
    pub keys: Vec<GrantedKey<'a>>,
}

/// The hold on one key of a multi-key claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GrantedKey<'a> {
    /// Id of the hold, needed to release and renew it.
    pub id: LockId,
    /// Fencing token, higher than those of all earlier grants of the key.
    pub fence: u64,
    /// Remaining lease at `stamp_ms`, in milliseconds; if the hold lasts as long as the session, that of the session.
    pub remaining_ms: u32,
    /// Whether the lock is shared with other readers.
    pub shared: bool,
    /// Key of the hold.
    pub key: &'a [u8],
}

impl<'a> GrantedKeys<'a> {
    /// Parses the grant from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(granted_flag::ALL)?;
        let mut cursor = Cursor::new(frame);
        let stamp_ms = cursor.u64("stamp_ms")?;
        let count = cursor.count("count", ITEM_COUNT_MAX)?;
        let keys = (0..count).map(|_| GrantedKey::decode(&mut cursor)).collect::<Result<_, _>>()?;
        cursor.finish()?;
        Ok(Self {
            stamp_ms,
            clamped: flags & granted_flag::CLAMPED != 0,
            waited: flags & granted_flag::WAITED != 0,
            repeated: flags & granted_flag::REPEATED != 0,
            session_lease: flags & granted_flag::SESSION_LEASE != 0,
            keys,
        })
    }

    /// Appends the grant as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.clamped { granted_flag::CLAMPED } else { 0 }
            | if self.waited { granted_flag::WAITED } else { 0 }
            | if self.repeated { granted_flag::REPEATED } else { 0 }
            | if self.session_lease { granted_flag::SESSION_LEASE } else { 0 };
        put_frame(out, GRANTED_KEYS, flags, number, |out| {
            let keys = &self.keys[..self.keys.len().min(ITEM_COUNT_MAX)];
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
            out.extend_from_slice(&(keys.len() as u16).to_le_bytes());
            for key in keys {
                key.encode(out);
            }
        });
    }
}

impl<'a> GrantedKey<'a> {
    fn decode(cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: cursor.id("lock.id", LockId::from_bytes)?,
            fence: cursor.u64("lock.fence")?,
            remaining_ms: cursor.u32("lock.remaining_ms")?,
            shared: cursor.bool("lock.shared")?,
            key: cursor.string("lock.key", KEY_LEN_MAX)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_bytes());
        out.extend_from_slice(&self.fence.to_le_bytes());
        out.extend_from_slice(&self.remaining_ms.to_le_bytes());
        out.push(u8::from(self.shared));
        put_string(out, self.key);
    }
}
