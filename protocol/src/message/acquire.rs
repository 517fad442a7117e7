//! The acquire of one key, and its grant.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, header, put_frame};
use crate::id::LockId;
use crate::limits::{KEY_LEN_MAX, METADATA_LEN_MAX, OWNER_LEN_MAX, REQUEST_ID_LEN_MAX};
use crate::message::opcode;
use crate::trace_parent::{TraceParent, TraceParentBytes};

/// Flags of `ACQUIRE`. Flags that add a field add it in the order of their bits.
pub mod flag {
    /// The lock is shared with other readers. Without this flag it is exclusive.
    pub const SHARED: u16 = 1 << 0;
    /// The lease is the session's; `lease_ms` must be 0.
    pub const SESSION_LEASE: u16 = 1 << 1;
    /// Send `QUEUED` if the claim has to wait.
    pub const NOTIFY_QUEUED: u16 = 1 << 2;
    /// Adds `release_after_ms`.
    pub const RELEASE_AFTER: u16 = 1 << 3;
    /// Adds `priority`.
    pub const PRIORITY: u16 = 1 << 4;
    /// Adds `scope`.
    pub const SCOPE: u16 = 1 << 5;
    /// Adds `request_id`.
    pub const REQUEST_ID: u16 = 1 << 6;
    /// Adds `owner`.
    pub const OWNER: u16 = 1 << 7;
    /// Adds `metadata`.
    pub const METADATA: u16 = 1 << 8;
    /// Adds `traceparent`.
    pub const TRACEPARENT: u16 = 1 << 9;
    /// All flags that add a field.
    pub const OPTIONAL: u16 = RELEASE_AFTER | PRIORITY | SCOPE | REQUEST_ID | OWNER | METADATA | TRACEPARENT;
    /// All flags of `ACQUIRE`.
    pub const ALL: u16 = SHARED | SESSION_LEASE | NOTIFY_QUEUED | OPTIONAL;
}

/// Flags of `GRANTED`.
pub mod granted_flag {
    /// The requested lease was above the server's maximum; `remaining_ms` follows from the shorter lease.
    pub const CLAMPED: u16 = 1 << 0;
    /// The claim had to wait: for other claims, or until the server had entered all segments of a very large set.
    pub const WAITED: u16 = 1 << 1;
    /// The request id named a claim that was already held.
    pub const REPEATED: u16 = 1 << 2;
    /// The lease is the session's.
    pub const SESSION_LEASE: u16 = 1 << 3;
    /// All flags of `GRANTED`.
    pub const ALL: u16 = CLAMPED | WAITED | REPEATED | SESSION_LEASE;
}

/// Opcode of the response to `ACQUIRE`.
pub const GRANTED: u8 = opcode::ACQUIRE | opcode::ANSWER;
/// Offset of `key_length` in the frame, in bytes. The key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN + 8;

/// Requests one hold on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Acquire<'a> {
    /// Length of the lease, in milliseconds; 0 is the server's default. The server shortens a lease above its maximum
    /// and reports this in the grant.
    pub lease_ms: u32,
    /// Longest wait for the grant, in milliseconds. 0 does not wait; `WAIT_FOREVER_MS` waits until the claim is cancelled.
    pub wait_ms: u32,
    /// Key, 1 to 1024 bytes long.
    pub key: &'a [u8],
    /// Whether the lock is shared with other readers.
    pub shared: bool,
    /// Whether the lease is the session's.
    pub session_lease: bool,
    /// Whether the server sends `QUEUED` if the claim has to wait.
    pub notify_queued: bool,
    /// Optional fields of the acquire.
    pub options: AcquireOptions<'a>,
}

/// The optional fields of an acquire. An absent field takes no bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AcquireOptions<'a> {
    /// Delay between the loss of the connection and the release of the hold, in milliseconds. If absent, the hold lasts
    /// until its lease expires.
    pub release_after_ms: Option<u32>,
    /// Priority in the queue. Waiters with a larger value are served earlier; absent means 0.
    pub priority: Option<u32>,
    /// Durability of the fence counter: 0 and 1 ephemeral, 2 local, 3 quorum.
    pub scope: Option<u8>,
    /// Id of the logical acquire. A repeated acquire with the same id finds the same claim.
    pub request_id: Option<&'a [u8]>,
    /// Owner of the claim, if it is not the owner of the connection.
    pub owner: Option<&'a [u8]>,
    /// Data that the server shows to clients that inspect the claim.
    pub metadata: Option<&'a [u8]>,
    /// The caller's span, for traces of the server. It does not affect the claim.
    pub traceparent: Option<&'a TraceParentBytes>,
}

impl<'a> Acquire<'a> {
    /// Parses the acquire from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    #[inline]
    pub fn decode(frame: Frame<'a>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(flag::ALL)?;
        let mut cursor = Cursor::new(frame);
        let lease_ms = cursor.u32("lease_ms")?;
        let wait_ms = cursor.u32("wait_ms")?;
        let key = cursor.non_empty_string("key", KEY_LEN_MAX)?;
        let with = |options| Self {
            lease_ms,
            wait_ms,
            key,
            shared: flags & flag::SHARED != 0,
            session_lease: flags & flag::SESSION_LEASE != 0,
            notify_queued: flags & flag::NOTIFY_QUEUED != 0,
            options,
        };
        if flags & flag::OPTIONAL == 0 {
            // A separate return, so that the common acquire without optional fields does not copy `AcquireOptions`.
            cursor.finish()?;
            return Ok(with(AcquireOptions::default()));
        }
        let options = AcquireOptions::decode(flags, &mut cursor)?;
        cursor.finish()?;
        Ok(with(options))
    }

    /// Appends the acquire as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = self.options.flags()
            | if self.shared { flag::SHARED } else { 0 }
            | if self.session_lease { flag::SESSION_LEASE } else { 0 }
            | if self.notify_queued { flag::NOTIFY_QUEUED } else { 0 };
        put_frame(out, opcode::ACQUIRE, flags, number, |out| {
            let mut fixed = [0; 8];
            fixed[..4].copy_from_slice(&self.lease_ms.to_le_bytes());
            fixed[4..].copy_from_slice(&self.wait_ms.to_le_bytes());
            out.extend_from_slice(&fixed);
            put_string(out, self.key);
            if flags & flag::OPTIONAL != 0 {
                self.options.encode(out);
            }
        });
    }
}

impl<'a> AcquireOptions<'a> {
    pub(crate) fn decode(flags: u16, cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        let has = |bit: u16| flags & bit != 0;
        Ok(Self {
            release_after_ms: has(flag::RELEASE_AFTER).then(|| cursor.u32("release_after_ms")).transpose()?,
            priority: has(flag::PRIORITY).then(|| cursor.u32("priority")).transpose()?,
            scope: has(flag::SCOPE).then(|| cursor.u8("scope")).transpose()?,
            request_id: has(flag::REQUEST_ID)
                .then(|| cursor.non_empty_string("request_id", REQUEST_ID_LEN_MAX))
                .transpose()?,
            owner: has(flag::OWNER).then(|| cursor.string("owner", OWNER_LEN_MAX)).transpose()?,
            metadata: has(flag::METADATA).then(|| cursor.string("metadata", METADATA_LEN_MAX)).transpose()?,
            traceparent: has(flag::TRACEPARENT).then(|| TraceParent::decode(cursor)).transpose()?,
        })
    }

    pub(crate) fn flags(&self) -> u16 {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        bit(self.release_after_ms.is_some(), flag::RELEASE_AFTER)
            | bit(self.priority.is_some(), flag::PRIORITY)
            | bit(self.scope.is_some(), flag::SCOPE)
            | bit(self.request_id.is_some(), flag::REQUEST_ID)
            | bit(self.owner.is_some(), flag::OWNER)
            | bit(self.metadata.is_some(), flag::METADATA)
            | bit(self.traceparent.is_some(), flag::TRACEPARENT)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if let Some(release_after_ms) = self.release_after_ms {
            out.extend_from_slice(&release_after_ms.to_le_bytes());
        }
        if let Some(priority) = self.priority {
            out.extend_from_slice(&priority.to_le_bytes());
        }
        if let Some(scope) = self.scope {
            out.push(scope);
        }
        for string in [self.request_id, self.owner, self.metadata].into_iter().flatten() {
            put_string(out, string);
        }
        if let Some(traceparent) = self.traceparent {
            out.extend_from_slice(traceparent);
        }
    }
}

/// Grant of a claim: the response to an acquire, immediately or after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Granted {
    /// Id of the hold, needed to release and renew it. Any client that knows it may release the hold.
    pub id: LockId,
    /// Fencing token. It rises by one with each grant of the key; the holder presents it with its writes.
    pub fence: u64,
    /// Remaining lease at `stamp_ms`, in milliseconds.
    pub remaining_ms: u32,
    /// Server's boot-time clock when the server decided this, in milliseconds.
    pub stamp_ms: u64,
    /// Whether the requested lease was above the server's maximum and was shortened.
    pub clamped: bool,
    /// Whether the claim had to wait: for other claims, or until the server had entered all segments of a very large set.
    pub waited: bool,
    /// Whether the request id named a claim that was already held.
    pub repeated: bool,
    /// Whether the lease is the session's.
    pub session_lease: bool,
}

impl Granted {
    /// Length of the frame in bytes.
    pub const FRAME_LEN: usize = HEADER_LEN + 36;

    /// Parses the grant from this frame.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the body is malformed or a flag is unknown.
    #[inline]
    pub fn decode(frame: Frame<'_>) -> Result<Self, DecodeError> {
        let flags = frame.checked_flags(granted_flag::ALL)?;
        let mut cursor = Cursor::new(frame);
        let granted = Self {
            id: cursor.id("id", LockId::from_bytes)?,
            fence: cursor.u64("fence")?,
            remaining_ms: cursor.u32("remaining_ms")?,
            stamp_ms: cursor.u64("stamp_ms")?,
            clamped: flags & granted_flag::CLAMPED != 0,
            waited: flags & granted_flag::WAITED != 0,
            repeated: flags & granted_flag::REPEATED != 0,
            session_lease: flags & granted_flag::SESSION_LEASE != 0,
        };
        cursor.finish()?;
        Ok(granted)
    }

    /// Appends the grant as a frame.
    #[inline]
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        let flags = if self.clamped { granted_flag::CLAMPED } else { 0 }
            | if self.waited { granted_flag::WAITED } else { 0 }
            | if self.repeated { granted_flag::REPEATED } else { 0 }
            | if self.session_lease { granted_flag::SESSION_LEASE } else { 0 };
        let mut frame = [0; Self::FRAME_LEN];
        frame[..12].copy_from_slice(&header(GRANTED, flags, number, Self::FRAME_LEN - HEADER_LEN));
        frame[12..28].copy_from_slice(&self.id.to_bytes());
        frame[28..36].copy_from_slice(&self.fence.to_le_bytes());
        frame[36..40].copy_from_slice(&self.remaining_ms.to_le_bytes());
        frame[40..48].copy_from_slice(&self.stamp_ms.to_le_bytes());
        out.extend_from_slice(&frame);
    }
}
