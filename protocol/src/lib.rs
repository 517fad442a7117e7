//! The binary wire format of Waymaker.
//!
//! Client and server exchange [`Frame`]s. A frame has a length, a request number, an opcode, flags and a body, whose
//! fields have a fixed order. Numbers are little endian. A client sends [`Request`]s, the server sends [`Response`]s.
//! Decoding borrows from the receive buffer; encoding appends to the send buffer. This crate reads no socket, clock or
//! random number, and never panics on bytes from a peer.
//!
//! Each file under `message/` has the messages of one subject: usually a request and its response.
//! `docs/reference/wire.md` describes every byte; the golden files under `tests/golden/` pin the format.

pub mod capabilities;
pub mod cursor;
pub mod decode_error;
pub mod error_code;
pub mod frame;
pub mod id;
pub mod items;
pub mod limits;
pub mod message;
pub mod path;
pub mod readable;
pub mod slot;
pub mod trace_parent;

pub use capabilities::Capabilities;
pub use decode_error::DecodeError;
pub use error_code::ErrorCode;
pub use frame::{Frame, FrameError, next_frame};
pub use id::{LockId, SessionId};
pub use items::Items;
pub use message::acquire::{Acquire, Granted};
pub use message::acquire_keys::{AcquireKeys, GrantedKey, GrantedKeys, KeyItem};
pub use message::acquire_permits::AcquirePermits;
pub use message::acquire_set::{AcquireSet, PathItem};
pub use message::acquire_terms::{AcquireOptions, AcquireTerms};
pub use message::cancel::{Cancel, Cancelled};
pub use message::entries::{EntriesListed, Entry, ListEntries, LookUp, LookedUp};
pub use message::error::{CancelReason, Contention, ErrorAnswer, ErrorDetail};
pub use message::event::{Event, RevokeReason};
pub use message::extend::{Extend, Extended};
pub use message::force_release::{ForceRelease, ForceReleased};
pub use message::freeze::{Freeze, Frozen};
pub use message::goodbye::{Farewell, Goodbye};
pub use message::hello::{Hello, NamespaceKind, SessionRequest, Welcome};
pub use message::holds::Holds;
pub use message::inspect::{Holder, Inspect, Inspected, Waiter};
pub use message::keep_alive::{KeepAlive, KeptAlive};
pub use message::list::{List, Listed, ListedLock};
pub use message::list_pools::{ListPools, ListedPool, PoolsListed};
pub use message::namespaces::{ListedNamespace, Namespaces, NamespacesListed};
pub use message::pong::Pong;
pub use message::pool::{
    CapacitySet, DescribePool, PermitHolder, PermitWaiter, PoolDescribed, PoolOrder, SetCapacity,
};
pub use message::registry::{Heartbeat, Register, Registered, Unregister, Unregistered};
pub use message::release::{Release, Released};
pub use message::remove_namespace::{NamespaceRemoved, RemoveNamespace};
pub use message::server_status::{Readiness, ServerReason, ServerStatus, ServerStatusAnswer};
pub use message::status::{LockState, Status, StatusAnswer};
pub use message::throttle::{Bucket, Throttle, ThrottleAll, Throttled};
pub use message::tree_statistics::{TreeStatistics, TreeStatisticsAnswer};
pub use message::verify::{Verified, Verify};
pub use message::watch::{Unwatch, Unwatched, Watch, Watching};
pub use message::{Request, Response, Route, route};
pub use path::PathKey;
pub use readable::{Hex, Quoted, Readable};
pub use trace_parent::{TraceParent, TraceParentBytes, TraceParentError};

/// Oldest version of the protocol that this crate speaks.
pub const VERSION_MIN: u16 = 1;
/// Newest version of the protocol that this crate speaks: version 1 plus capabilities in `HELLO` and `WELCOME`.
pub const VERSION: u16 = 2;
