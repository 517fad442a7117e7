//! The Rust client of Waymaker: guards, renewal, loss.
//!
//! ```
//! use std::time::Duration;
//! use waymaker_client::Client;
//!
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |_: waymaker_client::Client, url: &str| {
//! let client = Client::builder().owner("report-job").connect(url).await?; // waymaker://127.0.0.1:7420
//!
//! let lock = client.write("reports/daily").wait(Duration::from_secs(5)).await?;
//! // The lease is renewed in the background. Work, until done or until the lock is lost.
//! tokio::select! {
//!     () = write_report(lock.fence()) => lock.release().await?,
//!     reason = lock.lost() => eprintln!("stopped half-way: {reason}"),
//! }
//! client.close().await
//! # });
//!
//! async fn write_report(fence: u64) {
//!     // Shows the fence wherever it writes.
//! }
//! ```
//!
//! Read on for what a lock is worth, or start from what there is:
//!
//! | ask | and get |
//! |---|---|
//! | [`client.write(key)`](Client::write), [`client.read(key)`](Client::read) | a [`Lock`], alone or shared |
//! | [`client.with_lock(key, work)`](Client::with_lock) | what the work returns, done while the lock was held |
//! | [`client.multi(keys)`](Client::multi) | a [`MultiLock`]: a lock for each key, all in one step or none |
//! | [`client.tree()`](Client::tree) | a [`TreeLock`] on paths and all that lies below them |
//! | [`client.semaphore(name, capacity)`](Client::semaphore) | a [`Permit`] of a pool |
//! | [`client.pools(prefix)`](Client::pools) | the pools of the namespace |
//! | [`client.limiter(name, rate, per, burst)`](Client::limiter) | tokens, or when to come again |
//! | [`client.registry()`](Client::registry), [`client.lazy()`](Client::lazy) | entries that name their owner |
//! | [`client.watch(key)`](Client::watch), [`client.inspect(key)`](Client::inspect), [`client.verify(key, fence)`](Client::verify) | how a key is |
//! | [`client.session()`](Client::session) | what all of it hangs on |
//! | [`client.operator(kind)`](Client::operator) | force-release, freeze, thaw |
//! | [`blocking::connect(url)`](blocking::connect) | all of it without a runtime |
//!
//! `examples/leader.rs` is a leader election, to run and to change. The crate `waymaker-dialects` has clients with the names and rules
//! of five other lock systems.
//!
//! # What a lock is worth
//!
//! The server ends a hold when its lease is over, whatever the holder is doing. So a holder must stop in time by itself, also when
//! it cannot reach the server, and this crate tells it when: each guard has a local deadline, worked out so that it lies before the
//! end of the lease on the server whatever the network did. [`Lock`] says what is promised, and what only a fence can do: a number
//! that rises with each grant, to be shown where the holder writes, so that writers that came too late are refused there.
//!
//! The simplest way to stop in time is not to think of it. [`Client::with_lock`], and [`AcquireBuilder::run`] for everything else,
//! renew the lease while the work runs, release when it ends, and drop it where it awaits if the lock is lost:
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
//! let total = client.with_lock("ledger", async |lock| post(lock.fence()).await).await?;
//! assert_eq!(total, 42);
//! # Ok(())
//! # });
//!
//! async fn post(fence: u64) -> u32 {
//!     // Sends the fence along; if the lock is lost, whatever is awaited here is dropped.
//!     42
//! }
//! ```
//!
//! # Asking
//!
//! Whatever is acquired is asked for with the settings of an [`AcquireBuilder`], and then awaited. Without settings it waits for its
//! turn, as long as it takes. Dropping the future gives up the place in the queue; dropping a guard releases what it holds, on any
//! thread, with or without a runtime.
//!
//! ```
//! use std::time::Duration;
//! use waymaker_client::{Error, FenceScope};
//!
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
//! let lock = client.write("orders/17").lease(Duration::from_secs(10)).await?;
//! match client.write("orders/17").try_().await {
//!     Err(Error::Busy(contention)) => println!("{contention}"), // held by "report-job" for 2.1 s, lease ends in 7.9 s ...
//!     other => panic!("{other:?}"),
//! }
//! // One message keeps alive any number of locks on the session's lease.
//! let many = client.multi(["a", "b", "c"]).session_lease().await?;
//! let shop = client.tree().write(["shop", "orders", "17"]).read(["shop", "prices"]).await?;
//! let permit = client.semaphore("exports", 4).acquire().wait(Duration::from_secs(1)).await?;
//! # Ok(())
//! # });
//! ```
//!
//! [`FenceScope`] says what a fence must survive: the server's process, its disk, or the loss of both.
//!
//! # When something goes wrong
//!
//! [`Error`] is a closed table. What matters most is whether the request took effect, so two kinds never mix:
//! [`Error::Unavailable`] says that nothing was done, and [`Error::Uncertain`] that nobody knows, and can be asked later:
//!
//! ```
//! use waymaker_client::{Error, Outcome};
//!
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
//! let lock = client.write("orders/17").await?;
//! match lock.release().await {
//!     Ok(()) => {}
//!     Err(Error::Uncertain(uncertain)) => match uncertain.resolve().await {
//!         Outcome::Done => println!("released after all"),
//!         Outcome::NotDone | Outcome::Unknown => println!("its lease ends it"),
//!     },
//!     Err(Error::Lost(reason)) => println!("what was done last was not protected: {reason}"),
//!     Err(error) => return Err(error),
//! }
//! # Ok(())
//! # });
//! ```
//!
//! A connection that breaks is made again, with pauses that differ from client to client, and takes up its session: guards stay
//! valid, requests are repeated under their numbers and never served twice. Callers notice nothing but the delay, until it takes longer
//! than [`ClientBuilder::connect_timeout`]. [`ClientBuilder::connect`] takes several addresses of a server.
//!
//! # Many requests
//!
//! All callers of a client share its connections: what they ask for meanwhile leaves in one write, and answers come back in any order.
//! So one client for a process is enough, cloned as often as needed. One that keeps a server with several cores busy may ask for
//! [a connection to each of its workers](ClientBuilder::connection_per_worker).
//!
//! # Servers of other versions
//!
//! The client speaks versions 1 and 2 of the protocol. A server of version 1 refuses the HELLO of version 2, so the client connects to
//! it a second time with the older one; callers notice nothing. It does so again after each outage, since the server may have been
//! upgraded. [`ClientSession::protocol_version`] and [`ClientSession::server_capabilities`] return the negotiated version and the capabilities.
//!
//! # What it tells
//!
//! Those who install a `tracing` subscriber see a span `acquire` from asking to the answer, a span `hold` from the grant to the end of
//! the guard, in which the work of [`Client::with_lock`] runs, and events for connections that are made and lost and for locks that are
//! lost. Without a subscriber they cost nothing that could be measured.
//!
//! # Who does what
//!
//! ```text
//!  Client ----+                     one task for each connection
//!  Client ----+--- commands --->  connection.rs  <--- bytes ---> server
//!  Lock ------+   (no runtime        owns
//!  Acquire ---+     needed)        lane/   (no I/O, no clock: a value that is told what happened)
//! ```
//!
//! Everything may be used from any thread. The tasks live in the runtime in which the client was connected; if that
//! runtime goes, so do the connections and the renewals, and every guard learns it.

mod acquire;
mod backoff;
pub mod blocking;
mod claim;
mod client;
mod client_session;
mod clock;
mod codec;
mod connection;
mod contention;
mod credentials;
mod deadline;
mod enqueue;
mod error;
mod grant;
mod guard;
mod guarded_lane;
#[doc(hidden)]
pub mod harness;
mod hold;
#[doc(hidden)]
pub mod internal;
mod job;
mod lane;
mod limiter;
mod link;
mod lock;
mod loss;
mod multi;
mod need;
mod one_or_more;
mod operator;
mod questions;
mod registry;
mod reply;
mod semaphore;
mod shared_session;
mod snapshot;
mod space;
mod spoken;
mod spread;
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
pub use credentials::{Credentials, CredentialsError};
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
    PoolStatus, PoolSummary, ReleasedClaim, ServerReason, ServerStatus, Verification, Waiter, WaitingClaim,
};
pub use tls::{Tls, TlsError};
pub use tree::{Tree, TreeLock, path_segments};
pub use uncertain::{Outcome, Uncertain};
pub use url::{DEFAULT_PORT, ServerAddress, UrlError};
pub use watch::{KeyHolder, KeyState, Watch};
pub use waymaker_protocol::{
    CancelReason, Capabilities, DecodeError, ErrorCode, LockId, NamespaceKind, Quoted, Readable, Readiness,
    RevokeReason, SessionId, TraceParent, TraceParentError,
};
