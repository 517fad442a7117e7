//! What clients ask for, as clients and the auditor remember it.

use waymaker_protocol as wire;
use waymaker_protocol::{LockId, Request};

/// A key by its number.
pub(crate) type Key = u8;

/// What an acquire asks for.
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
}

/// One request. To add one, give it a shape here, let `workload` choose it, let `client` take its answer, and let
/// `auditor` judge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Acquire(Acquire),
    /// `forged`: the id was changed so that it names nothing.
    Release {
        id: LockId,
        forged: bool,
    },
    Extend {
        id: LockId,
        lease_ms: u32,
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
    List {
        cursor: u64,
    },
    KeepAlive,
    Goodbye,
    Hello {
        session: wire::SessionRequest,
        worker: u16,
    },
}

/// The name of a request id.
pub(crate) fn request_id(number: u8) -> [u8; 2] {
    [b'r', b'0' + number]
}

impl Operation {
    /// Its answer is kept for repetitions.
    pub(crate) fn has_effect(&self) -> bool {
        matches!(self, Self::Acquire(_) | Self::Release { .. } | Self::Extend { .. } | Self::Cancel { .. })
    }

    /// The frame that asks for it.
    pub(crate) fn encode(&self, number: u32, keys: &[Vec<u8>], owner: &[u8], out: &mut Vec<u8>) {
        let name = |key: Key| keys[usize::from(key)].as_slice();
        match *self {
            Self::Acquire(acquire) => {
                let id = acquire.request_id.map(request_id);
                let options = wire::AcquireOptions {
                    release_after_ms: acquire.release_after_ms,
                    priority: acquire.priority,
                    request_id: id.as_ref().map(<[u8; 2]>::as_slice),
                    ..wire::AcquireOptions::default()
                };
                let acquire = wire::Acquire {
                    lease_ms: acquire.lease_ms,
                    wait_ms: acquire.wait_ms,
                    key: name(acquire.key),
                    shared: acquire.shared,
                    session_lease: acquire.session_lease,
                    notify_queued: acquire.notify_queued,
                    options,
                };
                Request::Acquire(acquire).encode(number, out);
            }
            Self::Release { id, .. } => {
                Request::Release(wire::Release { id, key: None }).encode(number, out);
            }
            Self::Extend { id, lease_ms } => {
                Request::Extend(wire::Extend { id, lease_ms, key: None }).encode(number, out);
            }
            Self::Cancel { acquire, key } => {
                let cancel = wire::Cancel { acquire_number: acquire, key: name(key) };
                Request::Cancel(cancel).encode(number, out);
            }
            Self::Status { id } => Request::Status(wire::Status { id, key: None }).encode(number, out),
            Self::Inspect { key } => {
                Request::Inspect(wire::Inspect { key: name(key) }).encode(number, out);
            }
            Self::List { cursor } => {
                Request::List(wire::List { cursor, count_max: 0, prefix: b"" }).encode(number, out);
            }
            Self::KeepAlive => Request::KeepAlive(wire::KeepAlive).encode(number, out),
            Self::Goodbye => Request::Goodbye(wire::Goodbye).encode(number, out),
            Self::Hello { session, worker } => {
                let hello = wire::Hello {
                    version_min: waymaker_protocol::VERSION,
                    version_max: waymaker_protocol::VERSION,
                    session,
                    worker,
                    namespace: b"simulated",
                    owner,
                    ..wire::Hello::default()
                };
                Request::Hello(hello).encode(number, out);
            }
        }
    }
}
