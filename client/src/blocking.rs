//! The blocking client, for programs that have no tokio runtime.
//!
//! [`connect`] starts a thread that owns the connections, renews the leases and reports losses. Except
//! [`Client::with_lock`], all other calls are the same as in the asynchronous client. Use [`Block::block`] in place of
//! `.await`:
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
//! A blocking call must not be made in an asynchronous task, because it would block a thread that runs tasks.

use std::ops::Deref;
use std::thread::JoinHandle;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::builder::ClientBuilder;
use crate::error::{Error, Result};
use crate::guards::Lock;

/// Waits for a future, or for a value that becomes a future, on the calling thread.
pub trait Block: IntoFuture + Sized {
    /// Blocks until the future is ready, and returns its output.
    ///
    /// # Panics
    ///
    /// Panics in an asynchronous task of a single-threaded runtime. Blocking would stop the only thread of that
    /// runtime. If the runtime also serves the client, the future would wait forever for that thread.
    fn block(self) -> Self::Output {
        if let Ok(runtime) = Handle::try_current()
            && runtime.runtime_flavor() == RuntimeFlavor::CurrentThread
        {
            // Call `block_on` only for its check: tokio's `block_on` panics with a clear message if this thread is
            // running the runtime's tasks. On any other thread, it runs this empty future and returns at once.
            runtime.block_on(async {});
        }
        pollster::block_on(self.into_future())
    }
}

impl<F: IntoFuture> Block for F {}

/// A [`Client`](crate::Client) with a thread of its own. Dropping it closes the client and all clones of it: all
/// guarded locks are released, and remaining guards are lost with
/// [`LossReason::ClientClosed`](crate::LossReason::ClientClosed).
#[derive(Debug)]
pub struct Client {
    client: crate::Client,
    /// Sender that ends the thread when it is dropped.
    running: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Connects with the default settings, as [`Client::connect`](crate::Client::connect) does.
///
/// # Errors
///
/// As [`ClientBuilder::connect_blocking`].
pub fn connect(url: &str) -> Result<Client> {
    crate::Client::builder().connect_blocking(url)
}

impl ClientBuilder {
    /// Connects from a program without a runtime; see [`blocking`](crate::blocking).
    ///
    /// # Errors
    ///
    /// The errors of [`ClientBuilder::connect`], and [`Error::Unavailable`] if the system cannot start the thread of
    /// the client or its runtime.
    pub fn connect_blocking(self, url: &str) -> Result<Client> {
        let (running, ended) = oneshot::channel::<()>();
        let (reply, connected) = oneshot::channel();
        let address = url.to_owned();
        let failed = |error| Error::connect(url.to_owned(), error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let serve = move || {
            runtime.block_on(async {
                let _ = reply.send(self.connect(&address).await);
                // Waits until the client is dropped, or until `connect_blocking` has returned an error.
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
    /// Runs `work` while it holds an exclusive lock on the key, as [`Client::with_lock`](crate::Client::with_lock)
    /// does. Blocking work cannot be stopped when the lock is lost. It should check [`Lock::is_held`] before each
    /// step that needs the lock.
    ///
    /// # Errors
    ///
    /// The errors of [`AcquireBuilder::run`](crate::AcquireBuilder::run). Returns [`Error::Lost`] if the lock was lost
    /// while the work ran.
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
            // The thread returns no value, so its result is ignored.
            let _ = thread.join();
        }
    }
}
