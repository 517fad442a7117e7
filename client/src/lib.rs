//! The Rust client of Waymaker: guards, renewal, loss.
//!
//! ```no_run
//! use std::time::Duration;
//! use waymaker_client::Client;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> waymaker_client::Result<()> {
//!     let client = Client::builder().owner("report-job").connect("waymaker://127.0.0.1:7420").await?;
//!
//!     let lock = client.write("reports/daily").wait(Duration::from_secs(5)).await?;
//!     // The lease is renewed in the background. Work, until done or until the lock is lost.
//!     tokio::select! {
//!         () = write_report(lock.fence()) => lock.release().await?,
//!         reason = lock.lost() => eprintln!("stopped half-way: {reason}"),
//!     }
//!     client.close().await
//! }
//!
//! async fn write_report(fence: u64) {
//!     // Shows the fence wherever it writes.
//! }
//! ```
//!
//! A whole program, a leader election, is in `examples/leader.rs`.
//!
//! # What a lock is worth
//!
//! The server ends a hold when its lease is over, whatever the holder is doing. So a holder must stop in time by
//! itself, also when it cannot reach the server, and this crate tells it when: each guard has a local deadline, worked
//! out so that it lies before the end of the lease on the server whatever the network did. See [`Lock`] for what is
//! promised and what only a fence can do.
//!
//! # What there is
//!
//! | ask | and get |
//! |---|---|
//! | [`client.write(key)`](Client::write), [`client.read(key)`](Client::read) | a [`Lock`], alone or shared |
//! | [`client.multi(keys)`](Client::multi) | a [`MultiLock`]: a lock for each key, all in one step or none |
//! | [`client.tree()`](Client::tree) | a [`TreeLock`] on paths and all that lies below them |
//! | [`client.semaphore(name, capacity)`](Client::semaphore) | a [`Permit`] of a pool |
//! | [`client.limiter(name, rate, per, burst)`](Client::limiter) | tokens, or when to come again |
//! | [`client.registry()`](Client::registry), [`client.lazy()`](Client::lazy) | entries that name their owner |
//! | [`client.watch(key)`](Client::watch), [`client.inspect(key)`](Client::inspect), [`client.verify(key, fence)`](Client::verify) | how a key is |
//! | [`client.session()`](Client::session) | what all of it hangs on |
//! | [`client.operator(kind)`](Client::operator) | force-release, freeze, thaw |
//!
//! Whatever is acquired is asked for with the settings of an [`AcquireBuilder`]: `try_()`, `wait(..)`, `lease(..)` and so
//! on, and then awaited.
//!
//! # Who does what
//!
//! ```text
//!  Client ----+                     one task for each connection
//!  Client ----+--- commands --->  connection.rs  <--- bytes ---> server
//!  Lock ------+   (no runtime        owns
//!  Acquire ---+     needed)        session/   (no I/O, no clock: a value that is told what happened)
//! ```
//!
//! Everything may be used from any thread. The tasks live in the runtime in which the client was connected; if that
//! runtime goes, so do the connections and the renewals, and every guard learns it.

mod acquire;
pub mod blocking;
mod claim;
mod client;
mod client_session;
mod clock;
mod codec;
mod connection;
mod contention;
mod deadline;
pub mod dialect;
mod enqueue;
mod error;
mod grant;
mod guard;
mod hold;
mod job;
mod limiter;
mod link;
mod lock;
mod loss;
mod multi;
mod operator;
mod questions;
mod registry;
mod reply;
mod semaphore;
mod session;
mod shared_session;
mod snapshot;
mod space;
mod tls;
mod tree;
mod uncertain;
mod url;
mod watch;

pub use acquire::{AcquireBuilder, AcquireFuture, Guard};
pub use claim::FenceScope;
pub use client::{Client, ClientBuilder};
pub use client_session::ClientSession;
pub use clock::{BootClock, BootTime, Clock, Timer};
pub use contention::Contention;
pub use enqueue::{Enqueued, QueuePlace, Queued};
pub use error::{Error, Result, Unavailable};
pub use limiter::{Allowance, Cost, Limiter};
pub use lock::Lock;
pub use loss::LossReason;
pub use multi::MultiLock;
pub use operator::Operator;
pub use registry::{Registered, Registration, Registry, RegistryEntry};
pub use semaphore::{Permit, Semaphore};
pub use snapshot::{
    ClaimStatus, FreezeOutcome, HeldLock, Holder, KeyStatus, LockState, NamespaceStatus, PermitStatus,
    PoolStatus, ReleasedClaim, Verification, Waiter,
};
pub use tls::{Tls, TlsError};
pub use tree::{Tree, TreeLock, path_segments};
pub use uncertain::{Outcome, Uncertain};
pub use url::{DEFAULT_PORT, ServerAddress, UrlError};
pub use watch::{KeyHolder, KeyState, Watch};
pub use waymaker_protocol::{DecodeError, ErrorCode, LockId, NamespaceKind, RevokeReason, SessionId};
