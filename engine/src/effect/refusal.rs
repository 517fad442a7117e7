//! Reasons to refuse a request.

use super::Contention;
use crate::ids::Scope;
use std::borrow::Cow;

/// Reason for a refusal. The server sends it as an error code of the protocol, with details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The acquire may not wait and another claim is in its way, another owner has registered the key, or the pool to
    /// remove is in use.
    Busy(Box<Contention>),
    /// The wait ended before the claim was granted.
    Timeout(Box<Contention>),
    /// The claim was given up while it waited.
    Cancelled(CancelReason),
    /// There is no such claim or registration, or the client may not act on it.
    NotFound,
    /// No namespace has this name.
    NamespaceNotFound,
    /// The claim still waits, and the request is for holds only.
    NotHeld,
    /// Another owner has registered the key, or the client may not act for the owner.
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
        /// Limit that the field violates, a maximum or a minimum; 0 if the mistake is another one.
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
    /// The present write of the log takes too long. Until it ends, acquires whose fences must be durable are refused.
    LogStalled,
    /// The disk of the log has no room for new durable grants.
    NoSpace,
    /// The log failed. The outcome of the request is unknown until the server restarts.
    Unknown,
    /// The cluster that keeps the fence counters of quorum scope does not respond.
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
    /// Returns the refusal of a wrong field. `limit` is the maximum or minimum that the field violates, or 0.
    pub fn bad_input(field: &'static str, limit: u64, message: impl Into<Cow<'static, str>>) -> Self {
        Self::BadInput { field, limit, message: message.into() }
    }
}

/// Reason why a waiting claim was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// A client cancelled the acquire or released the claim.
    Asked,
    /// A newer acquire with the same request id took the claim over.
    Superseded,
    /// An operator ended the claim.
    Forced,
    /// The connection of the claim was lost. If the session resumes, the client can send the acquire again.
    ConnectionLost,
}
