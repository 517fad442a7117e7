//! Acquire a key, and the grant.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::frame::{Frame, HEADER_LEN, header, put_frame};
use crate::id::LockId;
use crate::limits::{KEY_LEN_MAX, METADATA_LEN_MAX, OWNER_LEN_MAX, REQUEST_ID_LEN_MAX};
use crate::message::opcode;
use crate::trace_parent::{TraceParent, TraceParentBytes};

/// Flags of `ACQUIRE`. Those that bring a field bring it in the order of their bits.
pub mod flag {
    /// Shared with other readers; without it, exclusive.
    pub const SHARED: u16 = 1 << 0;
    /// The lease is the session's; `lease_ms` must be 0.
    pub const SESSION_LEASE: u16 = 1 << 1;
    /// Send `QUEUED` when the claim has to wait.
    pub const NOTIFY_QUEUED: u16 = 1 << 2;
    /// Brings `release_after_ms`.
    pub const RELEASE_AFTER: u16 = 1 << 3;
    /// Brings `priority`.
    pub const PRIORITY: u16 = 1 << 4;
    /// Brings `scope`.
    pub const SCOPE: u16 = 1 << 5;
    /// Brings `request_id`.
    pub const REQUEST_ID: u16 = 1 << 6;
    /// Brings `owner`.
    pub const OWNER: u16 = 1 << 7;
    /// Brings `metadata`.
    pub const METADATA: u16 = 1 << 8;
    /// Brings `traceparent`.
    pub const TRACEPARENT: u16 = 1 << 9;
    /// Those that bring a field.
    pub const OPTIONAL: u16 = RELEASE_AFTER | PRIORITY | SCOPE | REQUEST_ID | OWNER | METADATA | TRACEPARENT;
    /// All there are.
    pub const ALL: u16 = SHARED | SESSION_LEASE | NOTIFY_QUEUED | OPTIONAL;
}

/// Flags of `GRANTED`.
pub mod granted_flag {
    /// The lease asked for was above the cap; `remaining_ms` is what was given.
    pub const CLAMPED: u16 = 1 << 0;
    /// The claim had to wait: for others, or, as a set of very many segments, until the server had entered all of it.
    pub const WAITED: u16 = 1 << 1;
    /// The request id named a claim that was held already.
    pub const REPEATED: u16 = 1 << 2;
    /// The lease is the session's.
    pub const SESSION_LEASE: u16 = 1 << 3;
    /// All there are.
    pub const ALL: u16 = CLAMPED | WAITED | REPEATED | SESSION_LEASE;
}

/// Opcode of the grant.
pub const GRANTED: u8 = opcode::ACQUIRE | opcode::ANSWER;
/// Where `key_length` stands in the frame; the key follows it.
pub const KEY_OFFSET: usize = HEADER_LEN + 8;

/// Asks for one hold on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Acquire<'a> {
    /// Length of the lease; 0 is the server's default. The server clamps what is above its cap and says so.
    pub lease_ms: u32,
    /// How long to wait for the grant; 0 is a try, `WAIT_FOREVER_MS` waits until cancelled.
    pub wait_ms: u32,
    /// 1 to 1024 bytes.
    pub key: &'a [u8],
    /// Shared with other readers.
    pub shared: bool,
    /// The lease is the session's.
    pub session_lease: bool,
    /// Send `QUEUED` when the claim has to wait.
    pub notify_queued: bool,
    /// What most claims leave out.
    pub options: AcquireOptions<'a>,
}

/// The optional fields of an acquire; they cost bytes only where they are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AcquireOptions<'a> {
    /// End the hold so long after its connection was lost. Without it the hold stays to the end of its lease.
    pub release_after_ms: Option<u32>,
    /// Larger is served earlier; 0 is the same as none.
    pub priority: Option<u32>,
    /// Durability of the fence counter: 0 and 1 ephemeral, 2 local, 3 quorum.
    pub scope: Option<u8>,
    /// Names one logical acquire, so that its repetition finds the same claim.
    pub request_id: Option<&'a [u8]>,
    /// For whom the claim is, where that is not the connection's owner.
    pub owner: Option<&'a [u8]>,
    /// Shown to whoever inspects the key.
    pub metadata: Option<&'a [u8]>,
    /// The span of the caller, for traces of the server. The claim does not depend on it.
    pub traceparent: Option<&'a TraceParentBytes>,
}

impl<'a> Acquire<'a> {
    /// The acquire in this frame.
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
            // A return of its own, so that no options are copied that are not there.
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

/// The claim is held. The answer to an acquire, at once or after it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Granted {
    /// Shown at release and renewal. Whoever knows it may release.
    pub id: LockId,
    /// Rises by one with each grant of the key; shown wherever the holder writes.
    pub fence: u64,
    /// What was left of the lease at `stamp_ms`.
    pub remaining_ms: u32,
    /// The server's boot-time clock when this was decided.
    pub stamp_ms: u64,
    /// The lease asked for was above the cap.
    pub clamped: bool,
    /// The claim had to wait: for others, or, as a set of very many segments, until the server had entered all of it.
    pub waited: bool,
    /// The request id named a claim that was held already.
    pub repeated: bool,
    /// The lease is the session's.
    pub session_lease: bool,
}

impl Granted {
    /// Length of the frame in bytes.
    pub const FRAME_LEN: usize = HEADER_LEN + 36;

    /// The grant in this frame.
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
