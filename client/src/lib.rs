//! The Rust client of Waymaker: locks with guards, automatic renewal and detection of loss.
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
//!     // Presents the fence with each write.
//! }
//! ```
//!
//! An overview of the calls follows; the chapters after it explain the guarantees of a lock:
//!
//! | Call | Result |
//! |---|---|
//! | [`client.write(key)`](Client::write), [`client.read(key)`](Client::read) | a [`Lock`], exclusive or shared |
//! | [`client.with_lock(key, work)`](Client::with_lock) | the output of the work, done while the lock was held |
//! | [`client.multi(keys)`](Client::multi) | a [`MultiLock`]: a lock for each key, all in one step or none |
//! | [`client.tree()`](Client::tree) | a [`TreeLock`] on paths and everything below them |
//! | [`client.semaphore(name, capacity)`](Client::semaphore) | a [`Permit`] of a pool |
//! | [`client.pools(prefix)`](Client::pools) | the pools of the namespace |
//! | [`client.limiter(name, rate, per, burst)`](Client::limiter) | tokens, or the time until they are available |
//! | [`client.registry()`](Client::registry), [`client.lazy()`](Client::lazy) | registrations that name their owner |
//! | [`client.watch(key)`](Client::watch), [`client.inspect(key)`](Client::inspect), [`client.verify(key, fence)`](Client::verify) | the state of a key |
//! | [`client.session()`](Client::session) | the session that all claims depend on |
//! | [`client.operator(kind)`](Client::operator) | force-release, freeze, thaw |
//! | [`blocking::connect(url)`](blocking::connect) | the same calls without a runtime |
//!
//! `examples/leader.rs` is a leader election, ready to run and to change. The crate `waymaker-dialects` has clients
//! with the names and rules of five other lock systems.
//!
//! # Guarantees of a lock
//!
//! The server ends a hold when its lease expires, even if the holder is still working. So a holder must stop in time
//! by itself, even if it cannot reach the server. Each guard therefore has a local deadline, which lies before the
//! end of the lease on the server, however slow the network was. [`Lock`] describes the guarantees and their limits.
//! Beyond those limits only a fence protects: a number that rises with each grant. The holder presents the fence
//! where it writes, and the resource refuses writers with an older fence.
//!
//! The simplest way to stop in time is [`Client::with_lock`], or [`AcquireBuilder::run`] for every other kind of claim.
//! Both renew the lease while the work runs, unless [`AcquireBuilder::renew`] turned this off, and release the lock
//! when the work ends. If the lock is lost, they drop the future of the work at its current await:
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
//! let total = client.with_lock("ledger", async |lock| post(lock.fence()).await).await?;
//! assert_eq!(total, 42);
//! # Ok(())
//! # });
//!
//! async fn post(fence: u64) -> u32 {
//!     // Sends the fence along. If the lock is lost, the client drops this future at its current await.
//!     42
//! }
//! ```
//!
//! # Acquiring
//!
//! Every claim is built with the settings of an [`AcquireBuilder`] and then awaited. Without settings, it waits in the
//! queue without limit. Dropping the awaited future gives up the queue position. Dropping a guard releases its lock, on
//! any thread, with or without a runtime.
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
//! [`FenceScope`] selects how durable a fence is: it keeps rising only while the server runs, also after restarts of
//! the server, or even after the loss of the server's disk.
//!
//! # Errors
//!
//! [`Error`] is a closed set. The most important distinction is whether the request took effect. [`Error::Unavailable`]
//! means that the server has not served the request. [`Error::Uncertain`] means that the outcome is unknown; the caller
//! can query it later:
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
//! The client repairs a broken connection by itself, with pauses that differ from client to client, and resumes the
//! session. A guard stays valid if the server confirms its hold before the guard's local deadline. Requests are
//! repeated under their numbers. The server does not serve a repeated request twice, unless the session ended or the
//! server restarted before the repetition. Callers notice only the delay, until it exceeds a timeout such as
//! [`ClientBuilder::connect_timeout`]. [`ClientBuilder::connect`] accepts several addresses of a server.
//!
//! # Many requests
//!
//! All callers of a client share its connections. Requests that arrive together are sent in one write, and responses
//! may arrive in any order. So one client per process is enough, cloned as often as needed. A client that keeps a
//! server with several cores busy may open [a connection to each worker](ClientBuilder::connection_per_worker).
//!
//! # Servers of other versions
//!
//! The client speaks versions 1 and 2 of the protocol. A server of version 1 refuses the HELLO of version 2. The client
//! then connects a second time with version 1; callers notice nothing. When the client has lost its connection, it
//! tries version 2 again, since the server may have been upgraded. [`ClientSession::protocol_version`] and
//! [`ClientSession::server_capabilities`] return the negotiated version and the capabilities.
//!
//! # Tracing
//!
//! With a `tracing` subscriber at level debug, each claim has a span `acquire` from the request to the response, and a
//! span `hold` from the grant to the end of the guard. The work of [`Client::with_lock`] runs in the span `hold`.
//! Events report connections that open or break, and locks that are lost. Without a subscriber, the cost is too small
//! to measure.
//!
//! # Architecture
//!
//! ```text
//!  Client ----+                     one task for each connection
//!  Client ----+--- commands --->   connection/   <--- bytes ---> server
//!  Lock ------+   (no runtime        owns
//!  Acquire ---+     needed)        lane/   (no I/O, no clock: a value that is told what happened)
//! ```
//!
//! All types of this crate may be used from any thread. The tasks that serve the connections live in the runtime in
//! which the client connected. If that runtime shuts down, the connections and renewals end, and every guard is lost.

mod allowance;
pub mod blocking;
mod builder;
mod client;
mod client_session;
mod clock;
mod connection;
mod contention;
mod credentials;
mod deadline;
mod error;
mod guards;
mod handle;
#[doc(hidden)]
pub mod harness;
mod hold;
#[doc(hidden)]
pub mod internal;
mod key;
mod lane;
mod limiter;
mod loss;
mod one_or_more;
mod operator;
mod registry;
mod request;
mod router;
mod session;
mod snapshot;
mod space;
mod tls;
mod uncertain;
mod url;
mod watch;

pub use allowance::Allowance;
pub use builder::ClientBuilder;
pub use client::Client;
pub use client_session::ClientSession;
pub use clock::{BootClock, BootTime, Clock, Timer};
pub use contention::Contention;
pub use credentials::{Credentials, CredentialsError};
pub use error::{Error, Result, Unavailable};
pub use guards::{
    AcquireBuilder, AcquireFuture, Enqueued, Guard, Lock, MultiLock, Permit, Queued, Semaphore, Tree,
    TreeLock, path_segments,
};
pub use key::{KeyHolder, KeyState};
pub use limiter::{Cost, Limiter};
pub use loss::LossReason;
pub use operator::Operator;
pub use registry::{Registered, Registration, RegistrationStatus, Registry};
pub use request::claim::FenceScope;
pub use request::queue_place::QueuePlace;
pub use snapshot::{
    ClaimStatus, FreezeOutcome, HeldLock, Holder, KeyStatus, LockState, NamespaceStatus, PermitStatus,
    PoolStatus, PoolSummary, ReleasedClaim, ServerReason, ServerStatus, Verification, Waiter, WaitingClaim,
};
pub use tls::{Tls, TlsError};
pub use uncertain::{Outcome, Uncertain};
pub use url::{DEFAULT_PORT, ServerAddress, UrlError};
pub use watch::Watch;
pub use waymaker_protocol::{
    CancelReason, Capabilities, DecodeError, ErrorCode, LockId, NamespaceKind, Quoted, Readable, Readiness,
    RevokeReason, SessionId, TraceParent, TraceParentError,
};
