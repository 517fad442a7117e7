//! Events of a stream.

use waymaker_proto::waymaker::{self as contract, LockEventType};

use super::Error;

/// Event of an attempt to acquire a lock. Times are milliseconds since 1970 by the clock of the server.
#[derive(Debug)]
pub enum LockEvent {
    /// The claim is queued. This event is repeated, with another id, if the queue position was lost with the connection.
    Waiting {
        /// Id of the claim. A client that knows it can give up the queue position, and later the lock.
        id: String,
        /// End of the wait.
        waiting_expires_at: i64,
    },
    /// The lock is granted.
    Acquired {
        /// Of the lock.
        id: String,
        /// End of the lease, unless it is extended.
        lease_expires_at: i64,
        /// When it was granted.
        acquired_at: i64,
        /// Fence, which rises with each grant of the key.
        fence_token: u64,
    },
    /// The lock is still held. This event renews nothing.
    Heartbeat {
        /// Of the lock.
        id: String,
        /// Current end of the lease.
        lease_expires_at: i64,
        /// When it was granted.
        acquired_at: i64,
    },
    /// The lock will not be granted. No event follows.
    Failed {
        /// Id of the waiting claim; empty if there was none.
        id: String,
        /// Reason.
        error: Error,
    },
    /// The lock is no longer held. No event follows.
    Expired {
        /// Of the lock.
        id: String,
        /// Last known end of the lease.
        lease_expires_at: i64,
        /// Whether the local deadline passed without an event of the server.
        local: bool,
        /// Reason, for people.
        message: String,
    },
}

impl LockEvent {
    /// Converts an event of the contract; `None` if its type is unknown.
    pub(super) fn of(event: contract::LockEvent) -> Option<Self> {
        let event_type = event.event_type();
        let contract::LockEvent { message, id, lease_expires_at, acquired_at, .. } = event;
        Some(match event_type {
            LockEventType::Unknown => return None,
            LockEventType::Waiting => Self::Waiting { id, waiting_expires_at: event.waiting_expires_at },
            LockEventType::Acquired => {
                Self::Acquired { id, lease_expires_at, acquired_at, fence_token: event.fence_token }
            }
            LockEventType::Heartbeat => Self::Heartbeat { id, lease_expires_at, acquired_at },
            LockEventType::Failed => Self::Failed { id, error: Error::of_event(&message) },
            LockEventType::Expired => Self::Expired { id, lease_expires_at, local: false, message },
        })
    }
}
