//! Terms that all acquires have in common: lease, wait and optional fields.

use crate::cursor::{Cursor, put_string};
use crate::decode_error::DecodeError;
use crate::limits::{METADATA_LEN_MAX, OWNER_LEN_MAX, REQUEST_ID_LEN_MAX};
use crate::trace_parent::{TraceParent, TraceParentBytes};

/// Flags of `ACQUIRE`. A flag in `OPTIONAL` adds a field to the body. The added fields follow in the order of the bits
/// of their flags.
pub mod flag {
    /// The lock is shared with other readers. Without this flag it is exclusive.
    pub const SHARED: u16 = 1 << 0;
    /// The hold lasts as long as the session; `lease_ms` must be 0.
    pub const SESSION_LEASE: u16 = 1 << 1;
    /// The server sends `QUEUED` if the claim has to wait.
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

/// Terms of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AcquireTerms<'a> {
    /// Length of the lease, in milliseconds; 0 is the default of the namespace or server, and required with
    /// `session_lease`. The server refuses a lease below its minimum. It shortens a lease above its maximum and reports
    /// this in the grant. For a set of paths, `LEASE_NONE_MS` means no lease and requires `release_after_ms`.
    pub lease_ms: u32,
    /// Longest wait for the grant, in milliseconds. 0 does not wait; `WAIT_FOREVER_MS` waits without a limit.
    pub wait_ms: u32,
    /// Whether the hold lasts as long as the session. If so, `lease_ms` must be 0.
    pub session_lease: bool,
    /// Whether the server sends `QUEUED` if the claim has to wait.
    pub notify_queued: bool,
    /// Optional fields. Acquires of sets of paths and of permits have no `priority`: a priority that is set for them is
    /// not sent.
    pub options: AcquireOptions<'a>,
}

/// The optional fields of an acquire. An absent field (`None`) takes no bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AcquireOptions<'a> {
    /// Delay between the loss of the connection and the release of the hold, in milliseconds. If the client resumes the
    /// lane of the connection within this delay, the hold stays. If the field is absent, the loss of the connection
    /// does not end the hold.
    pub release_after_ms: Option<u32>,
    /// Priority in the queue; absent means 0. The claim queues as if it had arrived 10 s earlier for each unit of
    /// priority, but at most 60 s earlier in total.
    pub priority: Option<u32>,
    /// Least durability of the fence counter: 0 and 1 ephemeral, 2 local, 3 quorum. Absent means ephemeral.
    pub scope: Option<u8>,
    /// Id of the logical acquire. While the claim of the first acquire exists, a repeated acquire finds it instead of
    /// making another claim. It must have the same id and owner, and the same keys, pool or paths.
    pub request_id: Option<&'a [u8]>,
    /// Owner of the claim. If the field is absent, the claim has the owner of the connection.
    pub owner: Option<&'a [u8]>,
    /// Data that the server shows to clients in lists of claims.
    pub metadata: Option<&'a [u8]>,
    /// Span of the caller, for traces of the server. It does not affect the claim.
    pub traceparent: Option<&'a TraceParentBytes>,
}

/// Adds to an acquire message the method `with_terms`, which changes its terms.
macro_rules! with_terms {
    ($frame:ident) => {
        impl<'a> $frame<'a> {
            /// Returns this acquire with changed terms.
            #[must_use]
            pub fn with_terms(mut self, change: impl FnOnce(&mut AcquireTerms<'a>)) -> Self {
                change(&mut self.terms);
                self
            }
        }
    };
}

pub(super) use with_terms;

impl<'a> AcquireTerms<'a> {
    /// Parses lease and wait, in milliseconds, which begin the body of each acquire.
    #[inline(always)]
    pub(super) fn decode_lengths(cursor: &mut Cursor<'a>) -> Result<[u32; 2], DecodeError> {
        Ok([cursor.u32("lease_ms")?, cursor.u32("wait_ms")?])
    }

    /// Returns the terms with these flags, lease, wait and options.
    #[inline(always)]
    pub(super) fn new(flags: u16, [lease_ms, wait_ms]: [u32; 2], options: AcquireOptions<'a>) -> Self {
        Self {
            lease_ms,
            wait_ms,
            session_lease: flags & flag::SESSION_LEASE != 0,
            notify_queued: flags & flag::NOTIFY_QUEUED != 0,
            options,
        }
    }

    /// Appends lease and wait.
    #[inline(always)]
    pub(super) fn encode_lengths(&self, out: &mut Vec<u8>) {
        let mut lengths = [0; 8];
        lengths[..4].copy_from_slice(&self.lease_ms.to_le_bytes());
        lengths[4..].copy_from_slice(&self.wait_ms.to_le_bytes());
        out.extend_from_slice(&lengths);
    }

    /// Returns the flags of these terms.
    #[inline(always)]
    pub(super) fn flags(&self) -> u16 {
        self.options.flags()
            | if self.session_lease { flag::SESSION_LEASE } else { 0 }
            | if self.notify_queued { flag::NOTIFY_QUEUED } else { 0 }
    }

    /// Returns these terms without a priority.
    pub(super) fn without_priority(&self) -> Self {
        Self { options: AcquireOptions { priority: None, ..self.options }, ..*self }
    }
}

impl<'a> AcquireOptions<'a> {
    pub(super) fn decode(flags: u16, cursor: &mut Cursor<'a>) -> Result<Self, DecodeError> {
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

    fn flags(&self) -> u16 {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        bit(self.release_after_ms.is_some(), flag::RELEASE_AFTER)
            | bit(self.priority.is_some(), flag::PRIORITY)
            | bit(self.scope.is_some(), flag::SCOPE)
            | bit(self.request_id.is_some(), flag::REQUEST_ID)
            | bit(self.owner.is_some(), flag::OWNER)
            | bit(self.metadata.is_some(), flag::METADATA)
            | bit(self.traceparent.is_some(), flag::TRACEPARENT)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
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
