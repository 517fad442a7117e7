//! Terms that acquires of all kinds have in common.

use crate::ids::Scope;

/// Terms of an acquire. By default, it does not wait and asks for the default lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcquireTerms<'a> {
    /// Length of the lease in milliseconds; 0 for the default. For a set of paths, `u32::MAX` means no lease;
    /// `release_after_ms` must then be set, so that the loss of the connection ends the hold.
    pub lease_ms: u32,
    /// Maximum wait in milliseconds. 0 refuses an acquire that would have to wait; `u32::MAX` means no limit.
    pub wait_ms: u32,
    /// Whether the hold lasts as long as the session of its lane.
    pub session_lease: bool,
    /// Whether to send the event `Queued` to the client if the claim waits.
    pub notify_queued: bool,
    /// Rarely used options. Only acquires of one or several keys may have a priority, not acquires of permits or paths.
    pub options: Option<&'a AcquireOptions<'a>>,
}

impl<'a> AcquireTerms<'a> {
    /// Returns the options, or the defaults.
    #[inline]
    pub(super) fn options(&self) -> &'a AcquireOptions<'a> {
        self.options.unwrap_or(&AcquireOptions::NONE)
    }

    /// Returns the required durability.
    #[inline]
    pub(super) fn scope(&self) -> Scope {
        self.options.map_or(Scope::Ephemeral, |options| options.scope)
    }
}

/// Rarely used options of an acquire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcquireOptions<'a> {
    /// Time in milliseconds after the loss of the connection at which the hold ends, unless its lease ends or its lane
    /// is resumed before. `None`: the loss does not end the hold.
    pub release_after_ms: Option<u32>,
    /// Priority of a waiter. Larger values move it ahead in the queue, by a limited time.
    pub priority: u32,
    /// Required durability of the fence counter.
    pub scope: Scope,
    /// Request id, which identifies one logical acquire.
    pub request_id: Option<&'a [u8]>,
    /// Owner of the claim; `None` for the owner of its lane.
    pub owner: Option<&'a [u8]>,
    /// Text for operators.
    pub metadata: Option<&'a [u8]>,
}

impl AcquireOptions<'_> {
    /// Options of an acquire that sets none.
    pub const NONE: AcquireOptions<'static> = AcquireOptions {
        release_after_ms: None,
        priority: 0,
        scope: Scope::Ephemeral,
        request_id: None,
        owner: None,
        metadata: None,
    };

    /// Returns the number of bytes of the options that a claim stores: its owner, its metadata and its request id.
    pub(super) fn len(&self) -> usize {
        [self.owner, self.metadata, self.request_id].into_iter().flatten().map(<[u8]>::len).sum()
    }
}
