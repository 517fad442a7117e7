//! Databend's distributed semaphore.
//!
//! At most so many permits of a semaphore are held at a time, and those who wait are served in strict order. A permit is a
//! future that ends when it is lost; dropping it gives it back.
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
//! Its lease is renewed in the background, each time a third of it is over. If that fails, the permit ends with
//! [`ConnectionClosed`] *before* the server can grant it to anybody else, without any network: the lease is measured from when
//! the last renewal that succeeded was sent.
//!
//! # Differences on purpose
//!
//! - The capacity is kept by the server. Whoever comes with another one while the semaphore is in use is refused at once with
//!   [`AcquireError::Refused`], where clients would have disagreed and starved. So is who asks for more permits than there are, or
//!   for one of none: there it would have waited for ever and blocked all behind it.
//! - There is one queue, so the capacity is never exceeded. With [`Semaphore::set_time_based_seq`] a request that comes late with
//!   an early time goes to the front of those who wait, and no further. Times more than an hour off are moved to an hour off.
//!   One semaphore is used either in order of arrival or of times, not both at once.
//! - The order of arrival is that at the server, without attempts that lose a race and try again.
//! - A place in the queue lasts as long as the connection, not as long as a lease: a waiter that is gone leaves at once. A
//!   connection that breaks is taken up again, and the waiter asks anew, behind the others; [`ConnectionClosed`] comes once that
//!   has failed for [`connect_timeout`](waymaker_client::ClientBuilder::connect_timeout).
//! - Leases are renewed each third of their length however long they are; there every two seconds at the latest, so that silence
//!   tells of a lost connection. Here the connection itself tells, and the server tells of a removed entry.
//! - [`Semaphore::set_permits`] asks for several permits as one; there the queue knew of it and no call did.
//! - Each grant has a [`Permit::fence`], to be shown wherever its holder writes.
//! - Neither keys nor the bytes of entries are stored, so nothing that reads them directly finds them.

mod acquirer;
mod error;
mod permit;
mod semaphore;

pub use acquirer::{Acquirer, Queued};
pub use error::{AcquireError, ConnectionClosed, EarlyRemoved};
pub use permit::Permit;
pub use semaphore::Semaphore;
