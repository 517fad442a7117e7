//! Locktopus: sets of paths of a tree, over a WebSocket.
//!
//! For code that was written for Locktopus, or by somebody who knows it. One connection belongs to one namespace and has at
//! most one lock at a time, on a set of [`Resource`]s that is granted as a whole. [`LocktopusClient::lock`] says whether it
//! was acquired at once or has a place in the queue, [`LocktopusClient::acquire`] waits for it, and
//! [`LocktopusClient::release`] gives it back, held or not. It speaks the protocol of Locktopus, so it works with the
//! original server as well as with the port of ours for HTTP (`--http-listen`, 7422).
//!
//! ```no_run
//! use waymaker_dialects::locktopus::{LocktopusClient, Resource};
//!
//! # async fn example() -> Result<(), waymaker_dialects::locktopus::LocktopusError> {
//! let client = LocktopusClient::connect("ws://127.0.0.1:7422/v1?namespace=shop").await?;
//! let resources = [Resource::write(["orders", "17"]), Resource::read(["customers"])];
//! if !client.lock(&resources).await? {
//!     println!("somebody else has it: waiting");
//!     client.acquire().await?;
//! }
//! tokio::select! {
//!     () = ship() => client.release().await?,
//!     reason = client.closed() => eprintln!("stopped half-way: {reason}"),
//! }
//! client.close().await;
//! # Ok(())
//! # }
//! # async fn ship() {}
//! ```
//!
//! [`LocktopusClient::hold`] does the first two steps in one, and its guard releases when it is dropped.
//!
//! # How long a lock lasts
//!
//! As long as its connection. There is nothing to renew, and there is no fence. If the connection ends without a release
//! the lock is lost, and the server keeps everybody else out for the abandon timeout only: stop working on the resources
//! when [`LocktopusClient::closed`] resolves. To come back is to connect and to lock anew.
//!
//! # Different on purpose
//!
//! - A namespace may have any characters: [`ConnectionOptions`] encode it, which the clients of Locktopus leave to others.
//! - Resources are given with each lock. The Go client keeps those of the lock before, so its sets grow.
//! - A set may be locked right after a release that nobody waited for. Whatever else comes at the wrong time is a
//!   [`LocktopusError`], and the connection goes on.
//! - A server that died without a word is missed after half a minute, since it is asked whether it is there.
//! - An error of the server comes with its text, as [`CloseReason::Communication`], where the TypeScript client waits for
//!   ever.

mod connection;
mod error;
mod lock;
mod message;
mod options;
mod resource;
mod session;

pub use error::{CloseReason, LocktopusError, Result};
pub use lock::LocktopusLock;
pub use options::ConnectionOptions;
pub use resource::{Access, Resource};

use tokio::sync::{mpsc, watch};
use waymaker_client::{Credentials, Tls};

use connection::{Connection, Order};
use message::Request;
use session::{Progress, Session};

/// One connection to a namespace, with at most one lock.
///
/// All methods may be called from several tasks at once. None of them needs to be seen through: whatever was asked of the
/// server before a future was dropped happens all the same, and later calls go on from there. Dropping the client closes
/// the connection.
#[derive(Debug)]
pub struct LocktopusClient {
    session: watch::Sender<Session>,
    orders: mpsc::UnboundedSender<Order>,
}

impl LocktopusClient {
    /// Connects to `ws://HOST:PORT/v1?namespace=NAME`, or encrypted to `wss://` with the defaults of [`Tls`], optionally with
    /// `&abandon-timeout-ms=NUMBER`. To be called in a tokio runtime, in which the connection lives.
    ///
    /// # Errors
    ///
    /// [`LocktopusError::Url`] for another address, [`LocktopusError::Connect`] where no server answers, and
    /// [`LocktopusError::Refused`] where it wants no such connection.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_tls(url, &Tls::new()).await
    }

    /// Connects like [`LocktopusClient::connect`]. The TLS settings are for an address with `wss://`.
    ///
    /// # Errors
    ///
    /// As [`LocktopusClient::connect`], and [`LocktopusError::Tls`] if the settings cannot be used.
    pub async fn connect_tls(url: &str, tls: &Tls) -> Result<Self> {
        Self::connect_as(url, tls, &Credentials::default()).await
    }

    /// Connects like [`LocktopusClient::connect_tls`], with credentials in the header `authorization: Bearer CREDENTIALS`. The original
    /// server ignores them.
    ///
    /// # Errors
    ///
    /// As [`LocktopusClient::connect_tls`], and [`LocktopusError::Credentials`] if the credentials cannot be sent. A server that refuses
    /// them returns [`LocktopusError::Refused`] with the status 401.
    pub async fn connect_as(url: &str, tls: &Tls, credentials: &Credentials) -> Result<Self> {
        let session = watch::Sender::default();
        let (orders, receiver) = mpsc::unbounded_channel();
        let connection = Connection::open(url, tls, credentials, session.clone(), receiver).await?;
        tokio::spawn(connection.run());
        Ok(Self { session, orders })
    }

    /// The same by options.
    ///
    /// # Errors
    ///
    /// As [`LocktopusClient::connect_tls`].
    pub async fn connect_with(options: &ConnectionOptions) -> Result<Self> {
        let default = Tls::new();
        Self::connect_tls(&options.url(), options.tls_settings().unwrap_or(&default)).await
    }

    /// Asks for all of these resources together. True if they were acquired at once; false if the lock has its place in the
    /// queue, for [`LocktopusClient::acquire`] to wait for.
    ///
    /// # Errors
    ///
    /// [`LocktopusError::NoResources`] for an empty set, [`LocktopusError::Locked`] while this connection has a lock or
    /// waits for one, [`LocktopusError::ReleasedBeforeAcquired`] if another task released it before the answer,
    /// and [`LocktopusError::Closed`].
    pub async fn lock(&self, resources: &[Resource]) -> Result<bool> {
        let number = self.ask_lock(resources).await?;
        self.answered(number).await
    }

    /// Waits until all of these resources are held, and releases them when the guard is dropped. Dropping the future gives
    /// up the place in the queue.
    ///
    /// # Errors
    ///
    /// As [`LocktopusClient::lock`].
    pub async fn hold(&mut self, resources: &[Resource]) -> Result<LocktopusLock<'_>> {
        let lock = LocktopusLock::new(self, self.ask_lock(resources).await?);
        lock.acquired().await?;
        Ok(lock)
    }

    /// Waits until the lock is acquired, without limit; returns at once if it is. May be dropped and called again.
    ///
    /// # Errors
    ///
    /// [`LocktopusError::NotLocked`] if no lock was asked for, [`LocktopusError::ReleasedBeforeAcquired`] if it was
    /// released, before this call or meanwhile, and [`LocktopusError::Closed`].
    pub async fn acquire(&self) -> Result<()> {
        let number = self.session.borrow().current()?;
        self.acquired(number).await
    }

    /// Releases the lock, or gives up its place in the queue. Nothing is held any more when it returns.
    ///
    /// # Errors
    ///
    /// [`LocktopusError::NotLocked`] if there is no lock, and [`LocktopusError::Closed`].
    pub async fn release(&self) -> Result<()> {
        let (number, _) = self.ask(&Request::Release, Session::ask_release)?;
        let has_ended = |progress: &Progress| matches!(progress, Progress::Released | Progress::Over(_));
        match self.progress(number, has_ended).await {
            Progress::Over(reason) => Err(LocktopusError::Closed(reason)),
            _ => Ok(()),
        }
    }

    /// What the server calls the lock, or the last one after its release: a number that rises with each lock of the
    /// namespace. `None` before the first.
    pub fn lock_id(&self) -> Option<String> {
        self.session.borrow().lock_id().map(str::to_owned)
    }

    /// The lock is held now. It is not while it waits, once it was released, or after the connection ended.
    pub fn is_acquired(&self) -> bool {
        self.session.borrow().is_acquired()
    }

    /// Resolves when the connection ends, and says why. From then on the lock is lost.
    pub fn closed(&self) -> impl Future<Output = CloseReason> + Send + use<> {
        let mut session = self.session.subscribe();
        async move {
            let ended = session.wait_for(|session| session.end().is_some()).await;
            ended.ok().and_then(|session| session.end().cloned()).unwrap_or(CloseReason::ByClient)
        }
    }

    /// Closes the connection with code 1000, and returns when it is closed. A lock that was not released stays for the
    /// abandon timeout. Once closed there is nothing left to do.
    pub async fn close(&self) {
        self.session.send_if_modified(|session| session.end_with(CloseReason::ByClient));
        // It fails if the connection has ended.
        let _ = self.orders.send(Order::Close);
        self.orders.closed().await;
    }

    /// Asks for a lock and says its number, once a release under way has ended.
    async fn ask_lock(&self, resources: &[Resource]) -> Result<u64> {
        if resources.is_empty() {
            return Err(LocktopusError::NoResources);
        }
        let request = Request::Lock { resources };
        let mut session = self.session.subscribe();
        loop {
            // It cannot fail: a sender is kept here.
            let _ = session.wait_for(|session| !session.is_releasing()).await;
            if let (number, true) = self.ask(&request, Session::ask_lock)? {
                return Ok(number);
            }
        }
    }

    /// Changes the session and, if it says so, sends the request: both in one step, so that the server hears of everything
    /// in the order in which it was decided. The number of the lock, and whether something was sent.
    fn ask(&self, request: &Request<'_>, change: fn(&mut Session) -> Result<bool>) -> Result<(u64, bool)> {
        let mut result = Ok(false);
        let mut number = 0;
        self.session.send_if_modified(|session| {
            result = change(session);
            number = session.number();
            let is_sent = matches!(result, Ok(true));
            if is_sent {
                // It fails if the connection has ended, which the session will say.
                let _ = self.orders.send(Order::Send(request.encode()));
            }
            is_sent
        });
        result.map(|is_sent| (number, is_sent))
    }

    /// Waits until so much has become of a lock.
    async fn progress(&self, number: u64, is_enough: fn(&Progress) -> bool) -> Progress {
        let mut session = self.session.subscribe();
        loop {
            let progress = session.borrow_and_update().progress(number);
            if is_enough(&progress) {
                return progress;
            }
            // It cannot fail: a sender is kept here.
            let _ = session.changed().await;
        }
    }

    /// Waits until the server has said whether a lock has to wait: false if so.
    async fn answered(&self, number: u64) -> Result<bool> {
        self.progress(number, |progress| *progress != Progress::Asked).await.outcome()
    }

    /// Waits until a lock is acquired.
    async fn acquired(&self, number: u64) -> Result<()> {
        let has_waited = |progress: &Progress| !matches!(progress, Progress::Asked | Progress::Enqueued);
        self.progress(number, has_waited).await.outcome().map(|_| ())
    }
}
