//! Reasons to refuse a request.

use super::Contention;
use crate::ids::Scope;
use std::borrow::Cow;

/// Reason for a refusal. The server sends it as an error code of the protocol, with details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another claim blocks the request, which may not wait: an acquire, the registration of a key, or the removal of a
    /// pool.
    Busy(Box<Contention>),
    /// The wait ended before the claim was granted.
    Timeout(Box<Contention>),
    /// The claim was given up while it waited. Or the request was limited to a claim of the caller's lane, and another
    /// lane has the claim.
    Cancelled(CancelReason),
    /// There is no such claim or registration, or the client may not act on it.
    NotFound,
    /// No namespace has this name.
    NamespaceNotFound,
    /// The claim still waits, and the request is for holds only.
    NotHeld,
    /// Another owner registered the key, or another identity did and the client has no right to act for it.
    NotOwner(Box<Contention>),
    /// The pool has another capacity than the acquire says.
    CapacityMismatch {
        /// Capacity of the pool.
        capacity: u64,
    },
    /// An operator froze a prefix of the key.
    Frozen,
    /// A field of the request is malformed, out of range, or contradicts another field or the object of the request.
    BadInput {
        /// Field of the request.
        field: &'static str,
        /// Maximum or minimum that the field violates; 0 if only `message` describes the mistake.
        limit: u64,
        /// Description of the mistake.
        message: Cow<'static, str>,
    },
    /// A limit of the server, or a quota, is reached.
    Overloaded {
        /// Name of the limit.
        limit: &'static str,
        /// Value of the limit.
        value: u64,
    },
    /// This server does not offer the scope.
    ScopeUnavailable(Scope),
    /// The present write of the log takes too long. Until it ends, acquires and registrations that must be durable are
    /// refused.
    LogStalled,
    /// The disk of the log has no room for new durable grants.
    NoSpace,
    /// The log failed. The outcome of the request is unknown until the server restarts.
    Unknown,
    /// The cluster that keeps the fence counters of quorum scope does not respond, or did not count the grant.
    QuorumUnavailable,
    /// Holds may have been lost from the log. Grants resume when the longest possible lease has expired.
    Recovering {
        /// Time until grants resume, in milliseconds.
        remaining_ms: u64,
    },
    /// The server is stopping.
    Shutdown,
}

impl Refusal {
    /// Returns the refusal of a wrong field. `limit` is the maximum or minimum that the field violates, or 0 if only
    /// `message` describes the mistake.
    pub fn bad_input(field: &'static str, limit: u64, message: impl Into<Cow<'static, str>>) -> Self {
        Self::BadInput { field, limit, message: message.into() }
    }
}

/// Reason of [`Refusal::Cancelled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// A client cancelled the acquire or released the claim.
    Asked,
    /// A newer acquire with the same request id took the claim over. Or the request was limited to a claim of the
    /// caller's lane, and another lane has the claim.
    Superseded,
    /// An operator ended the claim.
    Forced,
    /// The connection of the claim was lost. If the session resumes, the client can send the acquire again.
    ConnectionLost,
}
