//! What the calls of a [`Locker`](super::Locker) are given.

use std::time::{Duration, SystemTime};

use super::{Error, Lock, Result};

/// Of [`Locker::acquire_lock`](super::Locker::acquire_lock). There must be one lease: an end or a duration.
#[derive(Clone, Debug, Default)]
pub struct AcquireLockInput {
    /// What to lock, 1 to 1024 bytes.
    pub key: String,
    /// For whom, 1 to 256 bytes. Whoever uses the same name is the same owner.
    pub owner: String,
    /// When the lease is to end, by the clock of the server; it may have passed. At most ten years from now.
    pub lease_end: Option<SystemTime>,
    /// How long the lease is to last from now on; what is above 49 days is cut.
    pub lease_duration: Option<Duration>,
}

/// Of [`Locker::acquire_any_lock`](super::Locker::acquire_any_lock). There must be one lease: an end or a duration.
#[derive(Clone, Debug, Default)]
pub struct AcquireAnyLockInput {
    /// What to lock one of, at least one key.
    pub keys: Vec<String>,
    /// For whom, 1 to 256 bytes.
    pub owner: String,
    /// The keys are tried in a random order, another one each time, instead of as they stand.
    pub randomize_order: bool,
    /// As in [`AcquireLockInput`].
    pub lease_end: Option<SystemTime>,
    /// As in [`AcquireLockInput`].
    pub lease_duration: Option<Duration>,
}

/// Of [`Locker::heartbeat_lock`](super::Locker::heartbeat_lock). There must be one lease: an end or a duration.
#[derive(Clone, Debug)]
pub struct HeartbeatLockInput {
    /// The lock to keep. Only its key and its owner count.
    pub original_lock: Lock,
    /// As in [`AcquireLockInput`].
    pub lease_end: Option<SystemTime>,
    /// As in [`AcquireLockInput`].
    pub lease_duration: Option<Duration>,
}

/// The one lease that was given.
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

/// Says no to a name that is missing.
pub(super) fn required(field: &'static str, given: &str) -> Result<()> {
    if given.is_empty() { Err(Error::invalid(field, "must not be empty")) } else { Ok(()) }
}
