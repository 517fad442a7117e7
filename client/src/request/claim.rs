//! Claims: everything that one acquire requests.

use waymaker_protocol::limits::{
    FRAME_LEN_MAX, ITEM_COUNT_MAX, KEY_LEN_MAX, KEYS_BYTES_MAX, METADATA_LEN_MAX, OWNER_LEN_MAX,
    REQUEST_ID_LEN_MAX, WAIT_FOREVER_MS,
};
use waymaker_protocol::{
    Acquire, AcquireKeys, AcquireOptions, AcquirePermits, AcquireSet, AcquireTerms, Capabilities, ErrorCode,
    Items, KeyItem, PathItem, PathKey, PoolOrder, Request, SessionId, TraceParent,
};

use super::check::{check_key, check_len, check_positive, milliseconds};
use crate::clock::BootTime;
use crate::error::Error;
use crate::hold::WITHOUT_LEASE_MS;
use crate::key::Key;

/// Required durability of a hold and of the fence counter of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FenceScope {
    /// Kept in memory: the fence rises until the server crashes, or stops without a data directory.
    Ephemeral,
    /// Kept in the server's log: the fence rises over restarts and crashes of the server.
    Local,
    /// A cluster keeps the fence counter, so the fence rises even if the server's disk is lost. The server's log, if
    /// there is one, keeps the hold.
    Quorum,
}

impl FenceScope {
    /// Returns the number of this scope on the wire.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Ephemeral => 1,
            Self::Local => 2,
            Self::Quorum => 3,
        }
    }
}

/// Lease of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// A lease of its own, of `ms` milliseconds; 0 selects the server's default.
    Own { ms: u32 },
    /// The session's lease.
    Session,
    /// No lease: held until a client or an operator releases it, or until the claim's `release_after` has passed since
    /// the connection was lost.
    Without,
}

/// Upper bound for the length of a request in bytes, without its items (the keys or paths of the claim), owner,
/// metadata and request id.
const FRAME_REST_LEN: usize = 64;
/// Length in bytes that a request needs for one item (a key or path of the claim), in addition to the key or path
/// itself.
const ITEM_REST_LEN: usize = 3;

/// Longest time for which an acquire waits for its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// No wait: a try.
    Try,
    /// Until this instant. An instant, not a length, so that a repeated request does not restart the wait.
    Until(BootTime),
    /// Without limit, until the caller drops its future.
    Forever,
}

/// Subject of a claim.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// One key.
    Key { key: Key, shared: bool },
    /// Several keys, each as a hold of its own.
    Keys(Vec<WantedKey>),
    /// Several paths of a tree as one hold.
    Paths(Vec<WantedPath>),
    /// Permits of a pool.
    Permits(WantedPermits),
}

/// One key of a multi-key claim.
#[derive(Clone, Debug)]
pub(crate) struct WantedKey {
    pub(crate) key: Key,
    pub(crate) shared: bool,
}

/// One path of a claim on a tree, encoded as a path key.
#[derive(Clone, Debug)]
pub(crate) struct WantedPath {
    pub(crate) path: Key,
    pub(crate) write: bool,
}

/// Some permits of one pool.
#[derive(Clone, Debug)]
pub(crate) struct WantedPermits {
    pub(crate) name: Key,
    pub(crate) capacity: u64,
    pub(crate) any_capacity: bool,
    pub(crate) permits: u64,
    pub(crate) order: PoolOrder,
    pub(crate) timestamp_us: u64,
}

/// One acquire, with owned fields.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) wanted: Wanted,
    pub(crate) lease: Lease,
    pub(crate) release_after_ms: Option<u32>,
    pub(crate) priority: Option<u32>,
    pub(crate) scope: Option<FenceScope>,
    pub(crate) request_id: Option<Box<[u8]>>,
    /// Whether the client generated the request id, so that no other acquire has it.
    is_request_id_own: bool,
    pub(crate) owner: Option<Box<[u8]>>,
    pub(crate) metadata: Option<Box<[u8]>>,
    pub(crate) traceparent: Option<TraceParent>,
}

impl Claim {
    pub(crate) fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            lease: Lease::Own { ms: 0 },
            release_after_ms: None,
            priority: None,
            scope: None,
            request_id: None,
            is_request_id_own: false,
            owner: None,
            metadata: None,
            traceparent: None,
        }
    }

    /// Returns a claim on one key.
    #[cfg(test)]
    pub(crate) fn key(key: &[u8], shared: bool) -> Self {
        Self::new(Wanted::Key { key: Key::from(key), shared })
    }

    /// Rejects empty keys, names and request ids, lists without items, fields above their limits, 0 permits, and the
    /// capacity 0 unless the claim accepts any capacity. So a checked claim fits into a frame.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.wanted.check()?;
        if let Some(request_id) = &self.request_id {
            check_len("request_id", request_id, 1, REQUEST_ID_LEN_MAX)?;
        }
        check_len("owner", self.owner.as_deref().unwrap_or_default(), 0, OWNER_LEN_MAX)?;
        check_len("metadata", self.metadata.as_deref().unwrap_or_default(), 0, METADATA_LEN_MAX)
    }

    /// Gives a multi-key claim a request id, unless it has one. The id consists of the session, the lane and the token
    /// of the acquire.
    ///
    /// The lock id that the server reports while the claim waits differs from the ids of its holds. If the claim is
    /// granted but the response is lost, the number of the acquire may become too old to be repeated. Then only the
    /// request id finds the holds.
    pub(crate) fn name_if_multi_key(&mut self, session: SessionId, lane: u16, token: u64) {
        if let (Wanted::Keys(_), None) = (&self.wanted, &self.request_id) {
            let name = [&session.to_bytes()[..], &lane.to_le_bytes(), &token.to_le_bytes()].concat();
            self.request_id = Some(name.into());
            self.is_request_id_own = true;
        }
    }

    /// Returns whether the caller set the request id of this claim, so that another acquire with the same id may take
    /// over its holds.
    pub(crate) fn may_be_taken_up(&self) -> bool {
        self.request_id.is_some() && !self.is_request_id_own
    }

    /// Returns the key of the hold that this claim becomes, and whether it is shared. Of several keys or paths, returns
    /// the first.
    pub(crate) fn hold_key(&self) -> (Key, bool) {
        match &self.wanted {
            Wanted::Key { key, shared } => (key.clone(), *shared),
            Wanted::Keys(keys) => {
                keys.first().map_or_else(no_key, |wanted| (wanted.key.clone(), wanted.shared))
            }
            Wanted::Paths(paths) => {
                paths.first().map_or_else(no_key, |wanted| (wanted.path.clone(), !wanted.write))
            }
            Wanted::Permits(permits) => (permits.name.clone(), false),
        }
    }

    /// Returns the key that a cancellation of this claim must name: its key, of several keys the smallest, for permits
    /// the name of the pool, and for paths the empty key.
    pub(crate) fn cancel_key(&self) -> Key {
        match &self.wanted {
            Wanted::Key { key, .. } => key.clone(),
            Wanted::Keys(keys) => keys.iter().map(|wanted| &wanted.key).min().cloned().unwrap_or_default(),
            Wanted::Paths(_) => Key::default(),
            Wanted::Permits(permits) => permits.name.clone(),
        }
    }

    /// Returns whether a hold that the server lists with this key may belong to this claim. Always false for a path
    /// that the server cuts in the list, because its path key is longer than the maximum length of a key.
    pub(crate) fn may_hold(&self, other: &[u8]) -> bool {
        match &self.wanted {
            Wanted::Key { key, .. } => **key == *other,
            Wanted::Keys(keys) => keys.iter().any(|wanted| *wanted.key == *other),
            Wanted::Paths(paths) => paths.iter().any(|wanted| *wanted.path == *other),
            Wanted::Permits(permits) => *permits.name == *other,
        }
    }

    /// Appends the acquire as a frame, for a server that offers these capabilities. `now` determines the rest of the
    /// wait.
    pub(crate) fn encode(
        &self,
        number: u32,
        wait: Wait,
        now: BootTime,
        offered: Capabilities,
        out: &mut Vec<u8>,
    ) {
        let (lease_ms, session_lease) = match self.lease {
            Lease::Own { ms } => (ms, false),
            Lease::Session => (0, true),
            Lease::Without => (WITHOUT_LEASE_MS, false),
        };
        let wait_ms = match wait {
            Wait::Try => 0,
            Wait::Until(at) => milliseconds(at.since(now)).min(WAIT_FOREVER_MS - 1),
            Wait::Forever => WAIT_FOREVER_MS,
        };
        // Ask for the event QUEUED, which has the id of the waiting claim. A try does not wait, but with a request id
        // of its caller it may find an older claim that waits.
        let notify_queued = wait != Wait::Try || self.may_be_taken_up();
        let options = AcquireOptions {
            release_after_ms: self.release_after_ms,
            priority: self.priority,
            scope: self.scope.map(FenceScope::number),
            request_id: self.request_id.as_deref(),
            owner: self.owner.as_deref(),
            metadata: self.metadata.as_deref(),
            // A server without the capability `TRACEPARENT` would refuse the acquire because of the unknown field, so
            // leave the trace context out.
            traceparent: self
                .traceparent
                .as_ref()
                .filter(|_| offered.contains(Capabilities::TRACEPARENT))
                .map(TraceParent::as_bytes),
        };
        let terms = AcquireTerms { lease_ms, wait_ms, session_lease, notify_queued, options };
        let mut buffer = Vec::new();
        let request = match &self.wanted {
            Wanted::Key { key, shared } => {
                let shared = *shared;
                Request::Acquire(Acquire { key, shared, terms })
            }
            Wanted::Keys(keys) => {
                let items = keys.iter().map(|wanted| KeyItem { shared: wanted.shared, key: &wanted.key });
                let items = Items::new(items, &mut buffer).expect("the claim was checked");
                Request::AcquireKeys(AcquireKeys { items, terms })
            }
            Wanted::Paths(paths) => {
                let items = paths.iter().map(|wanted| PathItem {
                    write: wanted.write,
                    path: PathKey::new(&wanted.path).expect("made as a path key"),
                });
                let items = Items::new(items, &mut buffer).expect("the claim was checked");
                Request::AcquireSet(AcquireSet { items, terms })
            }
            Wanted::Permits(wanted) => Request::AcquirePermits(AcquirePermits {
                capacity: wanted.capacity,
                permits: wanted.permits,
                order: wanted.order,
                timestamp_us: wanted.timestamp_us,
                name: &wanted.name,
                any_capacity: wanted.any_capacity,
                terms,
            }),
        };
        request.encode(number, out);
    }
}

impl Wanted {
    fn check(&self) -> Result<(), Error> {
        match self {
            Self::Key { key, .. } => check_key(key),
            Self::Keys(keys) => {
                for wanted in keys {
                    check_key(&wanted.key)?;
                }
                check_items("keys", keys.iter().map(|wanted| &wanted.key), KEYS_BYTES_MAX)
            }
            Self::Paths(paths) => {
                let options_max = FRAME_REST_LEN + OWNER_LEN_MAX + METADATA_LEN_MAX + REQUEST_ID_LEN_MAX;
                check_items("paths", paths.iter().map(|wanted| &wanted.path), FRAME_LEN_MAX - options_max)
            }
            Self::Permits(wanted) => {
                check_len("name", &wanted.name, 1, KEY_LEN_MAX)?;
                check_positive("permits", wanted.permits)?;
                if wanted.any_capacity { Ok(()) } else { check_positive("capacity", wanted.capacity) }
            }
        }
    }
}

fn no_key() -> (Key, bool) {
    (Key::default(), false)
}

fn check_items<'a>(
    field: &'static str,
    items: impl ExactSizeIterator<Item = &'a Key>,
    bytes_max: usize,
) -> Result<(), Error> {
    let bad = |limit: usize, problem: String| {
        Err(Error::refused(ErrorCode::BadInput, field, limit as u64, problem))
    };
    match items.len() {
        0 => return bad(1, "must not be empty".to_owned()),
        count if count > ITEM_COUNT_MAX => {
            return bad(ITEM_COUNT_MAX, format!("{count} items; the maximum is {ITEM_COUNT_MAX}"));
        }
        _ => {}
    }
    let bytes: usize = items.map(|item| ITEM_REST_LEN + item.len()).sum();
    if bytes > bytes_max {
        return bad(bytes_max, format!("{bytes} bytes in total; the maximum is {bytes_max}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_above_their_limit_are_rejected_before_sending() {
        let mut claim = Claim::key(&[b'k'; KEY_LEN_MAX], false);
        claim.check().unwrap();
        claim.owner = Some([0; OWNER_LEN_MAX + 1].into());
        assert_eq!(claim.check().unwrap_err().to_string(), "bad_input: owner: 257 bytes; the maximum is 256");
        assert_eq!(
            Claim::key(b"", false).check().unwrap_err().to_string(),
            "bad_input: key: must not be empty"
        );
    }

    #[test]
    fn lists_above_their_limit_are_rejected_before_sending() {
        let wanted = |len: usize| WantedKey { key: vec![b'k'; len].into(), shared: false };
        for (wanted, text) in [
            (Wanted::Keys(Vec::new()), "keys: must not be empty"),
            (Wanted::Paths(Vec::new()), "paths: must not be empty"),
            (Wanted::Keys(vec![wanted(1); 1025]), "keys: 1025 items; the maximum is 1024"),
            (Wanted::Keys(vec![wanted(1024); 1000]), "keys: 1027000 bytes in total; the maximum is 131072"),
            (Wanted::Keys(vec![wanted(1), wanted(0)]), "key: must not be empty"),
        ] {
            assert_eq!(Claim::new(wanted).check().unwrap_err().to_string(), format!("bad_input: {text}"));
        }
        Claim::new(Wanted::Keys(vec![wanted(1); 1024])).check().unwrap();
    }

    /// Some keys are prefixes of others. The server knows the claim by its smallest key in byte order.
    #[test]
    fn a_multi_key_claim_is_cancelled_by_its_smallest_key() {
        let wanted = |key: &str| WantedKey { key: key.as_bytes().into(), shared: false };
        let claim = Claim::new(Wanted::Keys(vec![wanted("b"), wanted("aa"), wanted("a")]));
        assert_eq!(&*claim.cancel_key(), b"a");
    }
}
