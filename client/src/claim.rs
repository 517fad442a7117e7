//! What a caller asks for.

use std::time::Duration;

use waymaker_protocol::limits::{
    KEY_LEN_MAX, METADATA_LEN_MAX, OWNER_LEN_MAX, REQUEST_ID_LEN_MAX, WAIT_FOREVER_MS,
};
use waymaker_protocol::{Acquire, AcquireOptions, ErrorCode, Request};

use crate::clock::BootTime;
use crate::error::Error;
use crate::hold::Key;

/// How durable the fence counter of a key must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FenceScope {
    /// Kept in memory: rises while the server lives.
    Ephemeral,
    /// Kept in the server's log: rises over its restarts.
    Local,
    /// Kept by a cluster: rises even if the server's disk is lost.
    Quorum,
}

/// Whose lease is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// One of its own of so many milliseconds; 0 is the server's default.
    Own { ms: u32 },
    /// The session's.
    Session,
}

/// How long to wait for the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    Try,
    /// Until this instant, kept as such so that a repeated request does not wait anew.
    Until(BootTime),
    /// Until somebody cancels.
    Forever,
}

/// One acquire, owned.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) key: Key,
    pub(crate) shared: bool,
    pub(crate) lease: Lease,
    pub(crate) release_after_ms: Option<u32>,
    pub(crate) priority: Option<u32>,
    pub(crate) scope: Option<FenceScope>,
    pub(crate) request_id: Option<Box<[u8]>>,
    pub(crate) owner: Option<Box<[u8]>>,
    pub(crate) metadata: Option<Box<[u8]>>,
}

impl Claim {
    pub(crate) fn new(key: &[u8], shared: bool) -> Self {
        Self {
            key: Key::from(key),
            shared,
            lease: Lease::Own { ms: 0 },
            release_after_ms: None,
            priority: None,
            scope: None,
            request_id: None,
            owner: None,
            metadata: None,
        }
    }

    /// Says no to what the server would refuse, and to what would not fit a frame.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_key(&self.key)?;
        if let Some(request_id) = &self.request_id {
            check_len("request_id", request_id, 1, REQUEST_ID_LEN_MAX)?;
        }
        check_len("owner", self.owner.as_deref().unwrap_or_default(), 0, OWNER_LEN_MAX)?;
        check_len("metadata", self.metadata.as_deref().unwrap_or_default(), 0, METADATA_LEN_MAX)
    }

    pub(crate) fn encode(&self, number: u32, wait: Wait, now: BootTime, out: &mut Vec<u8>) {
        let (lease_ms, session_lease) = match self.lease {
            Lease::Own { ms } => (ms, false),
            Lease::Session => (0, true),
        };
        let acquire = Acquire {
            lease_ms,
            wait_ms: match wait {
                Wait::Try => 0,
                Wait::Until(at) => milliseconds(at.since(now)).min(WAIT_FOREVER_MS - 1),
                Wait::Forever => WAIT_FOREVER_MS,
            },
            key: &self.key,
            shared: self.shared,
            session_lease,
            // Where it waits, the id tells later what became of it.
            notify_queued: wait != Wait::Try,
            options: AcquireOptions {
                release_after_ms: self.release_after_ms,
                priority: self.priority,
                scope: self.scope.map(|scope| match scope {
                    FenceScope::Ephemeral => 1,
                    FenceScope::Local => 2,
                    FenceScope::Quorum => 3,
                }),
                request_id: self.request_id.as_deref(),
                owner: self.owner.as_deref(),
                metadata: self.metadata.as_deref(),
            },
        };
        Request::Acquire(acquire).encode(number, out);
    }
}

/// A duration in whole milliseconds, rounded up so that something never becomes nothing.
pub(crate) fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

/// A lease in milliseconds. Zero would silently ask for the server's default, so it is refused.
pub(crate) fn lease_milliseconds(lease: Duration) -> Result<u32, Error> {
    match milliseconds(lease) {
        0 => Err(Error::refused(ErrorCode::BadInput, "lease", 0, "a lease of zero protects nothing")),
        ms => Ok(ms),
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    check_len("key", key, 1, KEY_LEN_MAX)
}

pub(crate) fn check_len(field: &'static str, bytes: &[u8], min: usize, max: usize) -> Result<(), Error> {
    let problem = match bytes.len() {
        len if len < min => "must not be empty".to_owned(),
        len if len > max => format!("{len} bytes, the limit is {max}"),
        _ => return Ok(()),
    };
    Err(Error::refused(ErrorCode::BadInput, field, max as u64, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_up_to_whole_milliseconds() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(milliseconds(Duration::from_micros(1_001)), 2);
        assert_eq!(milliseconds(Duration::MAX), u32::MAX);
    }

    #[test]
    fn fields_beyond_their_limits_are_refused_before_they_are_sent() {
        let mut claim = Claim::new(&[b'k'; KEY_LEN_MAX], false);
        claim.check().unwrap();
        claim.owner = Some([0; OWNER_LEN_MAX + 1].into());
        assert_eq!(claim.check().unwrap_err().to_string(), "bad_input: owner: 257 bytes, the limit is 256");
        assert_eq!(
            Claim::new(b"", false).check().unwrap_err().to_string(),
            "bad_input: key: must not be empty"
        );
    }
}
