//! The requests of clients, as clients and the auditor remember them.

use crate::clock::unix_us;
use crate::form::Form;
use crate::key::Key;
use waymaker_engine::Scope;
use waymaker_protocol as wire;
use waymaker_protocol::{LockId, NamespaceKind};

/// Parameters of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acquire {
    pub(crate) key: Key,
    pub(crate) shared: bool,
    pub(crate) wait_ms: u32,
    pub(crate) lease_ms: u32,
    pub(crate) session_lease: bool,
    pub(crate) notify_queued: bool,
    pub(crate) release_after_ms: Option<u32>,
    pub(crate) priority: Option<u32>,
    pub(crate) request_id: Option<u8>,
    /// Number that the claim carries as metadata. With a label the claim names another owner than its client.
    pub(crate) label: Option<u32>,
    pub(crate) form: Form,
    /// Scope of the fence, which determines the failures that the fence survives.
    pub(crate) scope: Scope,
}

impl Acquire {
    /// Returns the keys on which the claim is held.
    pub(crate) fn keys(&self) -> Vec<(Key, bool)> {
        self.form.keys(self.key, self.shared)
    }

    /// Returns whether `later` is the same acquire for the rest of its wait.
    pub(crate) fn is_repeated_by(&self, later: &Self) -> bool {
        later.wait_ms <= self.wait_ms && Self { wait_ms: self.wait_ms, ..*later } == *self
    }

    /// Returns whether the acquire asks for one key without any option.
    pub(crate) fn is_plain(&self) -> bool {
        let Self { session_lease, release_after_ms, priority, request_id, label, form, scope, .. } = self;
        let has_options = *session_lease
            || release_after_ms.is_some()
            || priority.is_some()
            || request_id.is_some()
            || label.is_some()
            || scope.is_durable();
        matches!(form, Form::One) && !has_options
    }

    /// Returns whether the hold has no lease and ends only with its connection.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self.form, Form::Paths(_)) && self.lease_ms == u32::MAX
    }
}

/// Request for one page of a walk over all pages of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Number of the walk. Each walk of a client has a different number.
    pub(crate) walk: u32,
    pub(crate) kind: NamespaceKind,
    pub(crate) cursor: u64,
    pub(crate) count_max: u16,
    /// Restricts the list to keys that begin with the name of this key.
    pub(crate) prefix: Option<Key>,
}

/// Rate limit of a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) rate: u32,
    pub(crate) burst: u32,
    pub(crate) period_ns: u64,
}

/// Request that takes tokens from buckets, or returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Withdrawal {
    /// The bucket and the cost.
    pub(crate) first: (Key, u32),
    /// The second bucket and its cost, if one request asks for two buckets.
    pub(crate) second: Option<(Key, u32)>,
    pub(crate) refund: bool,
}

impl Withdrawal {
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Key, u32)> {
        std::iter::once(self.first).chain(self.second)
    }
}

/// Request that sets a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) key: Key,
    /// Length of the lease, or its end in milliseconds since 1970 if `absolute` is set.
    pub(crate) lease_ms: i64,
    pub(crate) absolute: bool,
    /// The value, which is different in each request.
    pub(crate) value: u32,
    pub(crate) heartbeat: bool,
}

impl Registration {
    /// Returns the remaining lease at `server_ms` if the entry is registered at that time.
    pub(crate) fn remaining_ms(&self, server_ms: u64) -> i64 {
        let now_ms = (unix_us(server_ms) / 1000) as i64;
        if self.absolute { self.lease_ms.saturating_sub(now_ms) } else { self.lease_ms }
    }

    /// Returns the earliest end of the lease if the request was sent at `server_ms`.
    pub(crate) fn end_ms(&self, server_ms: u64) -> u64 {
        server_ms.saturating_add_signed(self.remaining_ms(server_ms))
    }
}

/// Returns the type of a registration, which depends on its value.
pub(crate) fn type_of(value: u32) -> &'static [u8] {
    [b"odd".as_slice(), b"even"][usize::from(value.is_multiple_of(2))]
}

/// Request for one page of a walk over registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegistrationListing {
    /// Number of the walk, as for other lists.
    pub(crate) walk: u32,
    pub(crate) kind: NamespaceKind,
    pub(crate) cursor: u64,
    pub(crate) count_max: u16,
    /// Restricts the list to registrations of the same type as this value.
    pub(crate) like: Option<u32>,
}

/// One request of a client. To add a kind of request, add a variant here, let `client` send it and handle its
/// response, and let `auditor` judge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Acquire(Acquire),
    /// Release of a claim. `forged`: the id was changed so that it names nothing. `own`: the request affects
    /// the claim only if it belongs to this lane.
    Release {
        id: LockId,
        forged: bool,
        own: bool,
    },
    /// Extend of a lease. `own`: the request affects the claim only if it belongs to this lane.
    Extend {
        id: LockId,
        lease_ms: u32,
        own: bool,
    },
    Cancel {
        acquire: u32,
        key: Key,
    },
    Status {
        id: LockId,
    },
    Inspect {
        key: Key,
    },
    /// Lists everything held in the namespace, page by page.
    List(Listing),
    /// Lists the holds of the lane, page by page.
    Holds {
        cursor: u64,
    },
    Verify {
        key: Key,
        fence: u64,
    },
    Watch {
        key: Key,
    },
    Unwatch {
        watch: u32,
        key: Key,
    },
    ForceRelease {
        id: LockId,
    },
    /// Freezes or thaws keys that begin with the name of this key, or the whole namespace.
    Freeze {
        kind: NamespaceKind,
        prefix: Option<Key>,
        thaw: bool,
    },
    Describe {
        pool: Key,
    },
    /// Lists the pools of the namespace, page by page.
    ListPools(Listing),
    SetCapacity {
        pool: Key,
        capacity: u64,
    },
    Take(Withdrawal),
    Register(Registration),
    Unregister {
        key: Key,
    },
    LookUp {
        key: Key,
    },
    /// Lists the registrations of the namespace, page by page.
    ListEntries(RegistrationListing),
    Namespaces {
        cursor: u64,
        count_max: u16,
    },
    KeepAlive,
    Goodbye,
    Hello {
        session: wire::SessionRequest,
        worker: u16,
        kind: NamespaceKind,
    },
}

/// Message of operators to clients whose holds they end.
pub(crate) const FORCED: &[u8] = b"an operator of the simulation";

/// Returns whether a connection asks for an event when one of its holds is taken up by another request.
pub(crate) fn hears_taken_up(connection: usize) -> bool {
    connection.is_multiple_of(2)
}

/// Returns the number of a scope on the wire. `None` selects the first scope.
pub(crate) fn scope_number(scope: Scope) -> Option<u8> {
    match scope {
        Scope::Ephemeral => None,
        Scope::Local => Some(2),
        Scope::Quorum => Some(3),
    }
}

/// First number of request ids that a client library generated. Their names are not known in advance.
pub(crate) const MADE_UP_REQUEST_ID: u8 = 64;

/// Returns the name of a request id.
pub(crate) fn request_id(number: u8) -> [u8; 2] {
    [b'r', b'0'.wrapping_add(number)]
}

/// Returns the owner and the metadata of a claim with a label.
pub(crate) fn label_of(label: u32) -> (Vec<u8>, Vec<u8>) {
    (format!("deputy-{label}").into_bytes(), label.to_string().into_bytes())
}

/// Splits the grant of several keys into one grant for each key.
pub(crate) fn granted_one_by_one(granted: &wire::GrantedKeys<'_>) -> Vec<wire::Granted> {
    let one = |one: &wire::GrantedKey<'_>| wire::Granted {
        id: one.id,
        fence: one.fence,
        remaining_ms: one.remaining_ms,
        stamp_ms: granted.stamp_ms,
        clamped: granted.clamped,
        waited: granted.waited,
        repeated: granted.repeated,
        session_lease: granted.session_lease,
    };
    granted.keys.iter().map(one).collect()
}

impl Operation {
    /// Returns whether a later request with the same number repeats this request.
    pub(crate) fn is_repeated_by(&self, later: &Self) -> bool {
        match (self, later) {
            (Self::Acquire(acquire), Self::Acquire(later)) => acquire.is_repeated_by(later),
            _ => self == later,
        }
    }

    /// Returns whether this is an acquire that does not wait.
    pub(crate) fn is_try(&self) -> bool {
        matches!(self, Self::Acquire(Acquire { wait_ms: 0, .. }))
    }

    /// Returns whether the server keeps the response for repetitions.
    pub(crate) fn has_effect(&self) -> bool {
        matches!(
            self,
            Self::Acquire(_)
                | Self::Release { .. }
                | Self::Extend { .. }
                | Self::Cancel { .. }
                | Self::ForceRelease { .. }
                | Self::Freeze { .. }
                | Self::SetCapacity { .. }
                | Self::Take(_)
                | Self::Register(_)
                | Self::Unregister { .. }
        )
    }
}
