//! The binary wire format of Waymaker.
//!
//! Everything on the wire is a [`Frame`]: a length, a request number, an opcode, flags and a body with fixed offsets,
//! little endian. A client sends [`Request`]s, the server sends [`Response`]s; both are decoded in place, borrowing
//! from the receive buffer, and encoded by appending to the send buffer. Nothing here reads a socket, a clock or a
//! random number, and nothing here panics on bytes from outside.
//!
//! One message and its answer live in one file under `message/`. `docs/wire.md` has every byte as a table, and the
//! golden files under `tests/golden/` keep them so.

pub mod cursor;
pub mod decode_error;
pub mod error_code;
pub mod frame;
pub mod id;
pub mod limits;
pub mod message;
pub mod slot;

pub use decode_error::DecodeError;
pub use error_code::ErrorCode;
pub use frame::{Frame, FrameError, next_frame};
pub use id::{LockId, SessionId};
pub use message::acquire::{Acquire, AcquireOptions, Granted};
pub use message::cancel::{Cancel, Cancelled};
pub use message::error::{Contention, ErrorAnswer, ErrorDetail};
pub use message::event::{Event, RevokeReason};
pub use message::extend::{Extend, Extended};
pub use message::goodbye::{Farewell, Goodbye};
pub use message::hello::{Hello, NamespaceKind, SessionRequest, Welcome};
pub use message::inspect::{Holder, Inspect, Inspected};
pub use message::keep_alive::{KeepAlive, KeptAlive};
pub use message::list::{List, Listed, ListedLock};
pub use message::release::{Release, Released};
pub use message::status::{LockState, Status, StatusAnswer};
pub use message::{Request, Response, Route, route};

/// The one version of the protocol there is so far.
pub const VERSION: u16 = 1;
