//! Databend's distributed semaphore.
//!
//! A semaphore has a fixed number of permits, and its waiters are served in strict order. A permit is a future that ends when
//! the permit is lost; dropping it releases the permit.
//!
//! ```
//! use std::time::Duration;
//! use waymaker_client::Client;
//! use waymaker_dialects::databend::{AcquireError, Semaphore};
//!
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../client/doctest.rs"))(async |client: Client, _: &str| {
//! # let example = async {
//! let mut permit =
//!     Semaphore::new_acquired(client, "queries/running", 2, "query-11", Duration::from_secs(3)).await?;
//! tokio::select! {
//!     () = run_query() => {}
//!     removed = &mut permit => match removed {
//!         Ok(()) => eprintln!("somebody took the permit away"),
//!         Err(closed) => eprintln!("whether it is still held is not known: {closed}"),
//!     },
//! }
//! drop(permit);
//! # Ok::<(), AcquireError>(())
//! # };
//! # Ok(example.await.unwrap())
//! # });
//! # async fn run_query() {}
//! ```
//!
//! | there | here |
//! |---|---|
//! | a client of the meta-service | a [`Client`](waymaker_client::Client), by value; clones are cheap |
//! | `Semaphore`, `Acquirer`, `Permit` (`AcquiredGuard` before) | the same names and calls |
//! | `<prefix>/queue/<seq>` | an entry of the pool `<prefix>`, which `waymaker-ctl` lists and removes |
//! | entry removed: `Ok(())`; connection gone: `Err(ConnectionClosed)` | the same |
//! | a capacity of each client | one capacity, on the server |
//!
//! # What a permit is worth
//!
//! Its lease is renewed in the background after each third of its length. If renewals fail, the permit ends with
//! [`ConnectionClosed`] *before* the server can grant it to another client. This needs no network: the lease is measured from
//! the time at which the last successful renewal was sent.
//!
//! # Differences on purpose
//!
//! - The server stores the capacity. While the semaphore is in use, a request with another capacity fails at once with
//!   [`AcquireError::Refused`]; the original let clients disagree and starve. A request for more permits than the capacity
//!   fails too, and so does any request if the capacity is 0. The original let such a request wait forever and block all
//!   requests behind it.
//! - There is one queue, so the capacity is never exceeded. With [`Semaphore::set_time_based_seq`] a late request with an early
//!   time goes to the front of the waiters, and no further. A time that differs from the clock of the server by more than an
//!   hour is moved to an hour. All users of one semaphore must use the same order: of arrival, or of times.
//! - The order of arrival is the order at the server. No attempt loses a race and tries again.
//! - A queue position lasts as long as the connection, not as long as a lease, so a dead waiter leaves at once. After a broken
//!   connection the client reconnects, and the waiter joins the end of the queue. [`ConnectionClosed`] is returned once this
//!   has failed for [`connect_timeout`](waymaker_client::ClientBuilder::connect_timeout).
//! - Leases are renewed after each third of their length, however long they are. The original renews every two seconds at the
//!   latest, so that silence shows a lost connection. Here the connection itself shows that, and the server reports a removed
//!   entry.
//! - [`Semaphore::set_permits`] acquires several permits as one. The queue of the original supported that, but no call did.
//! - Each grant has a [`Permit::fence`], for the systems to which its holder writes.
//! - The keys and the bytes of entries are not stored, so a program that reads them directly finds nothing.

mod acquirer;
mod error;
mod permit;
mod semaphore;

pub use acquirer::{Acquirer, Queued};
pub use error::{AcquireError, ConnectionClosed, EarlyRemoved};
pub use permit::Permit;
pub use semaphore::Semaphore;
