//! Inputs of the calls of a [`Locker`](super::Locker).

use std::time::{Duration, SystemTime};

use super::{Error, Lock, Result};

/// Input of [`Locker::acquire_lock`](super::Locker::acquire_lock). Exactly one of `lease_end` and `lease_duration` must be set.
#[derive(Clone, Debug, Default)]
pub struct AcquireLockInput {
    /// Key to lock, 1 to 1024 bytes.
    pub key: String,
    /// Owner of the lock, 1 to 256 bytes. Callers with the same name are the same owner.
    pub owner: String,
    /// End of the lease, by the clock of the server. It may have passed, and is at most ten years from now.
    pub lease_end: Option<SystemTime>,
    /// Length of the lease from now on; at most 49 days, a longer lease is shortened.
    pub lease_duration: Option<Duration>,
}

/// Input of [`Locker::acquire_any_lock`](super::Locker::acquire_any_lock). Exactly one of `lease_end` and `lease_duration` must
/// be set.
#[derive(Clone, Debug, Default)]
pub struct AcquireAnyLockInput {
    /// Keys of which one is locked; at least one.
    pub keys: Vec<String>,
    /// Owner of the lock, 1 to 256 bytes.
    pub owner: String,
    /// Whether to try the keys in a random order, a new one for each call, instead of in the given order.
    pub randomize_order: bool,
    /// As in [`AcquireLockInput`].
    pub lease_end: Option<SystemTime>,
    /// As in [`AcquireLockInput`].
    pub lease_duration: Option<Duration>,
}

/// Input of [`Locker::heartbeat_lock`](super::Locker::heartbeat_lock). Exactly one of `lease_end` and `lease_duration` must be
/// set.
#[derive(Clone, Debug)]
pub struct HeartbeatLockInput {
    /// The lock to keep. Only its key and its owner are used.
    pub original_lock: Lock,
    /// As in [`AcquireLockInput`].
    pub lease_end: Option<SystemTime>,
    /// As in [`AcquireLockInput`].
    pub lease_duration: Option<Duration>,
}

/// The lease that the caller set.
#[derive(Clone, Copy)]
pub(super) enum Lease {
    Until(SystemTime),
    Lasting(Duration),
}

impl Lease {
    pub(super) fn new(end: Option<SystemTime>, duration: Option<Duration>) -> Result<Self> {
        match (end, duration) {
            (Some(end), None) => Ok(Self::Until(end)),
            (None, Some(duration)) => Ok(Self::Lasting(duration)),
            (Some(_), Some(_)) => {
                Err(Error::invalid("lease", "both an end and a duration are set; set only one"))
            }
            (None, None) => Err(Error::invalid("lease", "neither an end nor a duration is set; set one")),
        }
    }
}

/// Refuses an empty name.
pub(super) fn required(field: &'static str, given: &str) -> Result<()> {
    if given.is_empty() { Err(Error::invalid(field, "must not be empty")) } else { Ok(()) }
}
