//! Register an entry, keep it, and take it out again.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, header, put_frame};
use crate::id::LockId;
use crate::limits::{KEY_LEN_MAX, OWNER_LEN_MAX, TYPE_LEN_MAX, VALUE_LEN_MAX};
use crate::message::opcode;
use crate::trace_parent::{TraceParent, TraceParentBytes};

/// Opcode of the answer to `REGISTER` and `HEARTBEAT`.
pub const REGISTERED: u8 = opcode::REGISTER | opcode::ANSWER;
/// Opcode of the answer to `UNREGISTER`.
pub const UNREGISTERED: u8 = opcode::UNREGISTER | opcode::ANSWER;
/// Flag of `REGISTER` and `HEARTBEAT`: the lease is an instant, in milliseconds since 1970.
pub const ABSOLUTE: u16 = 1 << 0;
/// Flag of `REGISTER`: the entry need not outlive the server.
pub const EPHEMERAL: u16 = 1 << 1;
/// Flag of `REGISTER`: brings `traceparent`.
pub const TRACEPARENT: u16 = 1 << 2;
const REGISTER_FLAGS: u16 = ABSOLUTE | EPHEMERAL | TRACEPARENT;
/// Flag of `REGISTERED`: the entry was this owner's already.
pub const RENEWED: u16 = 1 << 0;
/// Flag of `UNREGISTERED`: the entry was somebody else's, whose time was over.
pub const WAS_EXPIRED: u16 = 1 << 0;
/// Where the length of the key stands in `REGISTER` and `HEARTBEAT`; the key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN + 8;
/// Where the length of the key stands in `UNREGISTER`; the key follows it.
pub const UNREGISTER_KEY_OFFSET: usize = HEADER_LEN;

/// Makes `owner` the owner of a key, unless it has another. The same owner renews its lease and overwrites what it
/// said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Register<'a> {
    /// The lease in milliseconds: its length from now, or its end since 1970 with `absolute`.
    pub lease_ms: i64,
    /// `lease_ms` is the end of the lease.
    pub absolute: bool,
    /// It need not outlive the server, though that has a log. Not in `HEARTBEAT`, which changes nothing about that.
    pub ephemeral: bool,
    /// Up to 1024 bytes. Only namespaces of kind registry have an empty key.
    pub key: &'a [u8],
    /// 1 to 256 bytes: whose the entry is.
    pub owner: &'a [u8],
    /// Shown to whoever looks the entry up.
    pub value: &'a [u8],
    /// What kind of thing is registered; entries can be listed by it.
    pub type_name: &'a [u8],
    /// The span of the caller, for traces of the server. Not in `HEARTBEAT`.
    pub traceparent: Option<&'a TraceParentBytes>,
}

/// Like `REGISTER`, for an entry that there is: refused with `not_found` or `not_owner` where it is not this owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Heartbeat<'a>(pub Register<'a>);

impl<'a> Register<'a> {
    /// The request in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        Self::decode_with(frame, REGISTER_FLAGS)
    }

    fn decode_with(frame: Frame<'a>, known_flags: u16) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(known_flags)?;
        let mut cursor = Cursor::new(frame);
        let register = Self {
            lease_ms: cursor.i64("lease_ms")?,
            absolute: flags & ABSOLUTE != 0,
            ephemeral: flags & EPHEMERAL != 0,
            key: cursor.string("key", KEY_LEN_MAX)?,
            owner: cursor.non_empty_string("owner", OWNER_LEN_MAX)?,
            value: cursor.string("value", VALUE_LEN_MAX)?,
            type_name: cursor.string("type", TYPE_LEN_MAX)?,
            traceparent: (flags & TRACEPARENT != 0).then(|| TraceParent::decode(&mut cursor)).transpose()?,
        };
        cursor.finish()?;
        Ok(register)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        self.encode_with(opcode::REGISTER, REGISTER_FLAGS, number, out);
    }

    fn encode_with(&self, opcode: u8, known_flags: u16, number: u32, out: &mut Vec<u8>) {
        let flags = if self.absolute { ABSOLUTE } else { 0 }
            | if self.ephemeral { EPHEMERAL } else { 0 }
            | if self.traceparent.is_some() { TRACEPARENT } else { 0 };
        let flags = flags & known_flags;
        put_frame(out, opcode, flags, number, |out| {
            out.extend_from_slice(&self.lease_ms.to_le_bytes());
            for string in [self.key, self.owner, self.value, self.type_name] {
                put_string(out, string);
            }
            if flags & TRACEPARENT != 0
                && let Some(traceparent) = self.traceparent
            {
                out.extend_from_slice(traceparent);
            }
        });
    }
}

impl<'a> Heartbeat<'a> {
    /// The request in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        Register::decode_with(frame, ABSOLUTE).map(Self)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        self.0.encode_with(opcode::HEARTBEAT, ABSOLUTE, number, out);
    }
}

/// The entry is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Registered {
    /// Id of the entry, the same as long as its owner is.
    pub id: LockId,
    /// Rises by one with each new owner.
    pub fence: u64,
    /// What was left of the lease at `stamp_ms`; negative where the lease that was given is over.
    pub remaining_ms: i64,
    /// The server's boot-time clock when this was decided.
    pub stamp_ms: u64,
    /// The entry was this owner's already.
    pub renewed: bool,
}

impl Registered {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(RENEWED)?;
        let mut cursor = Cursor::new(frame);
        let registered = Self {
            id: cursor.id("id", LockId::from_bytes)?,
            fence: cursor.u64("fence")?,
            remaining_ms: cursor.i64("remaining_ms")?,
            stamp_ms: cursor.u64("stamp_ms")?,
            renewed: flags & RENEWED != 0,
        };
        cursor.finish()?;
        Ok(registered)
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, REGISTERED, if self.renewed { RENEWED } else { 0 }, number, |out| {
            out.extend_from_slice(&self.id.to_bytes());
            out.extend_from_slice(&self.fence.to_le_bytes());
            out.extend_from_slice(&self.remaining_ms.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
        });
    }
}

/// Takes out the entry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Unregister<'a> {
    /// Up to 1024 bytes.
    pub key: &'a [u8],
    /// Up to 256 bytes: who asks.
    pub owner: &'a [u8],
}

impl<'a> Unregister<'a> {
    /// The request in this frame.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        frame.checked_flags(0)?;
        let mut cursor = Cursor::new(frame);
        let unregister =
            Self { key: cursor.string("key", KEY_LEN_MAX)?, owner: cursor.string("owner", OWNER_LEN_MAX)? };
        cursor.finish()?;
        Ok(unregister)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, opcode::UNREGISTER, 0, number, |out| {
            put_string(out, self.key);
            put_string(out, self.owner);
        });
    }
}

/// The key has no entry any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Unregistered {
    /// It was somebody else's, whose lease and grace were over.
    pub was_expired: bool,
}

impl Unregistered {
    /// The answer in this frame.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(WAS_EXPIRED)?;
        Cursor::new(frame).finish()?;
        Ok(Self { was_expired: flags & WAS_EXPIRED != 0 })
    }

    /// Appends the answer as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.was_expired { WAS_EXPIRED } else { 0 };
        out.extend_from_slice(&header(UNREGISTERED, flags, number, 0));
    }
}
