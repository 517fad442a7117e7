//! What a stream says.

use waymaker_proto::waymaker::{self as contract, LockEventType};

use super::Error;

/// One event of an attempt. Times are milliseconds since 1970 by the server's clock.
#[derive(Debug)]
pub enum LockEvent {
    /// It is queued. Comes again, with another id, if the place in the queue was lost with the connection.
    Waiting {
        /// Whoever knows it may give up the place, and later the lock.
        id: String,
        /// Until when it waits at most.
        waiting_expires_at: i64,
    },
    /// It is granted.
    Acquired {
        /// Of the lock.
        id: String,
        /// When the lease ends, unless it is extended.
        lease_expires_at: i64,
        /// When it was granted.
        acquired_at: i64,
        /// Rises with each grant of the key.
        fence_token: u64,
    },
    /// It is held still. This renews nothing.
    Heartbeat {
        /// Of the lock.
        id: String,
        /// When the lease ends, as it is now.
        lease_expires_at: i64,
        /// When it was granted.
        acquired_at: i64,
    },
    /// It will not be granted. Nothing follows.
    Failed {
        /// Of what waited; empty if nothing did.
        id: String,
        /// Why.
        error: Error,
    },
    /// It is held no more. Nothing follows.
    Expired {
        /// Of the lock.
        id: String,
        /// When the lease ended, as far as was known.
        lease_expires_at: i64,
        /// The local deadline passed; the server was not heard of.
        local: bool,
        /// Why, for people.
        message: String,
    },
}

impl LockEvent {
    /// `None` for an event of a type that came into the contract later.
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
