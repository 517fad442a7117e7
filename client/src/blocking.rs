//! The client for programs without a runtime of their own.
//!
//! There is no second interface to learn. [`connect`] starts a thread that owns the connections, renews the leases and tells
//! of losses; everything else is the same as everywhere, and [`Block::block`] waits for what would be awaited:
//!
//! ```
//! use std::time::Duration;
//! use waymaker_client::blocking::{self, Block};
//!
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |_: waymaker_client::Client, url: &str| {
//! let client = blocking::connect(url)?;
//! let lock = client.write("reports/daily").wait(Duration::from_secs(5)).block()?;
//! println!("fence {}", lock.fence());
//! lock.release().block()?;
//! client.with_lock("ledger", |lock| println!("posting under fence {}", lock.fence()))
//! # });
//! ```
//!
//! A call that blocks must not be made in an asynchronous task, which would hold up all others of its thread.

use std::ops::Deref;
use std::thread::JoinHandle;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::client::ClientBuilder;
use crate::error::{Error, Result};
use crate::lock::Lock;

/// Waits for a future, or for what becomes one, on the thread that calls.
pub trait Block: IntoFuture + Sized {
    /// Blocks until it is ready.
    ///
    /// # Panics
    ///
    /// In an asynchronous task of a runtime with one thread: the thread that would have to serve the client would wait for it.
    fn block(self) -> Self::Output {
        if let Ok(runtime) = Handle::try_current()
            && runtime.runtime_flavor() == RuntimeFlavor::CurrentThread
        {
            // Panics with an explanation if this thread drives the runtime, and only then.
            runtime.block_on(async {});
        }
        pollster::block_on(self.into_future())
    }
}

impl<F: IntoFuture> Block for F {}

/// A [`Client`](crate::Client) with a thread of its own. Dropping it closes it: everything that is still guarded is released,
/// and guards that are left learn [`LossReason::ClientClosed`](crate::LossReason::ClientClosed).
#[derive(Debug)]
pub struct Client {
    client: crate::Client,
    /// Ends the thread when it is dropped.
    running: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Connects with defaults, as [`Client::connect`](crate::Client::connect) does.
///
/// # Errors
///
/// As [`ClientBuilder::connect`].
pub fn connect(url: &str) -> Result<Client> {
    crate::Client::builder().connect_blocking(url)
}

impl ClientBuilder {
    /// Connects from a program without a runtime; see [`blocking`](crate::blocking).
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    pub fn connect_blocking(self, url: &str) -> Result<Client> {
        let (running, ended) = oneshot::channel::<()>();
        let (reply, connected) = oneshot::channel();
        let address = url.to_owned();
        let failed = |error| Error::connect(url.to_owned(), error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let serve = move || {
            runtime.block_on(async {
                let _ = reply.send(self.connect(&address).await);
                // Until the client is dropped.
                let _ = ended.await;
            });
        };
        let thread =
            std::thread::Builder::new().name("waymaker-client".to_owned()).spawn(serve).map_err(failed)?;
        let client = pollster::block_on(connected).unwrap_or(Err(Error::Closed))?;
        Ok(Client { client, running: Some(running), thread: Some(thread) })
    }
}

impl Client {
    /// Holds the key alone while `work` runs, as [`Client::with_lock`](crate::Client::with_lock) does. Work that blocks
    /// cannot be stopped when the lock is lost: it should look at [`Lock::is_held`] before it does what must be protected.
    ///
    /// # Errors
    ///
    /// As [`AcquireBuilder::run`](crate::AcquireBuilder::run), with [`Error::Lost`] if the lock was lost while the work ran.
    pub fn with_lock<T>(&self, key: impl AsRef<[u8]>, work: impl FnOnce(&Lock) -> T) -> Result<T> {
        pollster::block_on(self.client.with_lock(key, async |lock| work(lock)))
    }
}

impl Deref for Client {
    type Target = crate::Client;

    fn deref(&self) -> &crate::Client {
        &self.client
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = pollster::block_on(self.client.clone().close());
        drop(self.running.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}
