//! Registrations: their creation, renewal and removal.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, header, put_frame};
use crate::id::LockId;
use crate::limits::{KEY_LEN_MAX, OWNER_LEN_MAX, TYPE_LEN_MAX, VALUE_LEN_MAX};
use crate::message::opcode;
use crate::trace_parent::{TraceParent, TraceParentBytes};

/// Opcode of the response to `REGISTER`.
pub const REGISTERED: u8 = opcode::REGISTER | opcode::ANSWER;
/// Opcode of the response to `UNREGISTER`.
pub const UNREGISTERED: u8 = opcode::UNREGISTER | opcode::ANSWER;
/// Flag of `REGISTER` and `HEARTBEAT`: `lease_ms` is the end of the lease, in milliseconds since 1970, not its length.
pub const ABSOLUTE: u16 = 1 << 0;
/// Flag of `REGISTER`: the registration need not survive a crash of the server.
pub const EPHEMERAL: u16 = 1 << 1;
/// Flag of `REGISTER`: adds `traceparent`.
pub const TRACEPARENT: u16 = 1 << 2;
const REGISTER_FLAGS: u16 = ABSOLUTE | EPHEMERAL | TRACEPARENT;
/// Flag of `REGISTERED`: the owner already had this registration.
pub const RENEWED: u16 = 1 << 0;
/// Flag of `UNREGISTERED`: the registration belonged to another owner, and its lease and grace period had expired.
pub const WAS_EXPIRED: u16 = 1 << 0;
/// Offset of the length of the key in `REGISTER` and `HEARTBEAT`, in bytes. The key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN + 8;
/// Offset of the length of the key in `UNREGISTER`, in bytes. The key follows it.
pub const UNREGISTER_KEY_OFFSET: usize = HEADER_LEN;

/// Registers a key for `owner`, unless it has another owner. In a lazy namespace, replaces the registration of another
/// owner whose lease and grace period have expired. If `owner` already has the registration, renews its lease and
/// replaces value and type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Register<'a> {
    /// Lease in milliseconds: its length from now, or its end since 1970 if `absolute` is set.
    pub lease_ms: i64,
    /// Whether `lease_ms` is the end of the lease.
    pub absolute: bool,
    /// Whether the registration need not survive a crash of a server with a log. `HEARTBEAT` lacks this field and does
    /// not change the setting.
    pub ephemeral: bool,
    /// Key, at most 1024 bytes long. Only namespaces of kind registry accept an empty key.
    pub key: &'a [u8],
    /// Owner of the registration, 1 to 256 bytes long.
    pub owner: &'a [u8],
    /// Value that lookups return.
    pub value: &'a [u8],
    /// Type of the registration; `LIST_ENTRIES` can select by it.
    pub type_name: &'a [u8],
    /// The caller's span, for traces of the server. `HEARTBEAT` has no such field.
    pub traceparent: Option<&'a TraceParentBytes>,
}

/// Renews an existing registration like `REGISTER`. The server refuses the heartbeat with `not_found` if the key is not
/// registered, and with `not_owner` if the registration has another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Heartbeat<'a>(pub Register<'a>);

impl<'a> Register<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        Register::decode_with(frame, ABSOLUTE).map(Self)
    }

    /// Appends the request as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        self.0.encode_with(opcode::HEARTBEAT, ABSOLUTE, number, out);
    }
}

/// Response to a registration or heartbeat: the caller owns the registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Registered {
    /// Id of the registration. It stays the same while the owner renews the registration.
    pub id: LockId,
    /// Fence of the registration, higher than those of all earlier registrations of the key. It stays the same while
    /// the owner renews the registration.
    pub fence: u64,
    /// Remaining lease at `stamp_ms`, in milliseconds. It is negative if the requested end has already passed, which
    /// only a lazy namespace accepts.
    pub remaining_ms: i64,
    /// Time when the server determined the content of this message, in milliseconds of its boot-time clock.
    pub stamp_ms: u64,
    /// Whether the owner already had this registration.
    pub renewed: bool,
}

impl Registered {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_frame(out, REGISTERED, if self.renewed { RENEWED } else { 0 }, number, |out| {
            out.extend_from_slice(&self.id.to_bytes());
            out.extend_from_slice(&self.fence.to_le_bytes());
            out.extend_from_slice(&self.remaining_ms.to_le_bytes());
            out.extend_from_slice(&self.stamp_ms.to_le_bytes());
        });
    }
}

/// Removes the registration of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Unregister<'a> {
    /// Key, at most 1024 bytes long.
    pub key: &'a [u8],
    /// Owner that removes the registration, at most 256 bytes long.
    pub owner: &'a [u8],
}

impl<'a> Unregister<'a> {
    /// Parses the request from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
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

/// Response to `UNREGISTER`: the key is no longer registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Unregistered {
    /// Whether the registration belonged to another owner and its lease and grace period had expired.
    pub was_expired: bool,
}

impl Unregistered {
    /// Parses the response from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(WAS_EXPIRED)?;
        Cursor::new(frame).finish()?;
        Ok(Self { was_expired: flags & WAS_EXPIRED != 0 })
    }

    /// Appends the response as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.was_expired { WAS_EXPIRED } else { 0 };
        out.extend_from_slice(&header(UNREGISTERED, flags, number, 0));
    }
}
