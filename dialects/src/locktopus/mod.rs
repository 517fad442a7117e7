//! Locktopus: sets of paths of a tree, over a WebSocket.
//!
//! This dialect is for code that was written for Locktopus, and for programmers who know it. A connection belongs to one
//! namespace. It has at most one lock at a time, on a set of [`Resource`]s that is granted as a whole.
//! [`LocktopusClient::lock`] returns whether the lock was acquired at once or waits in the queue. [`LocktopusClient::acquire`]
//! waits for the lock, and [`LocktopusClient::release`] releases it or removes it from the queue. The dialect speaks the
//! protocol of Locktopus, so it works with the original server and with the HTTP port of Waymaker (`--http-listen`, 7422).
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
//! [`LocktopusClient::hold`] combines the first two steps, and its guard releases the lock when it is dropped.
//!
//! # How long a lock lasts
//!
//! A lock lasts as long as its connection. It needs no renewal and has no fence. If the connection ends without a release, the
//! lock is lost, and the server excludes other clients only for the abandon timeout. Stop working on the resources when
//! [`LocktopusClient::closed`] resolves. To continue, connect again and request a new lock.
//!
//! # Different on purpose
//!
//! - A namespace may contain any characters: [`ConnectionOptions`] encode them. The clients of Locktopus leave that to their
//!   callers.
//! - Each lock names its resources. The Go client adds them to the resources of the previous lock, so its sets grow.
//! - A set may be locked right after a release, without a wait for the response. Every other call at a wrong time returns a
//!   [`LocktopusError`], and the connection goes on.
//! - The client sends pings, so it notices a dead server after half a minute.
//! - An error of the server is returned with its text, as [`CloseReason::Communication`]. The TypeScript client waits forever.

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
/// Several tasks may call all methods at the same time. A request stays in effect if its future is dropped, and later calls
/// continue from there. Dropping the client closes the connection.
#[derive(Debug)]
pub struct LocktopusClient {
    session: watch::Sender<Session>,
    orders: mpsc::UnboundedSender<Order>,
}

impl LocktopusClient {
    /// Connects to `ws://HOST:PORT/v1?namespace=NAME`, or with TLS and the defaults of [`Tls`] to `wss://`, optionally with
    /// `&abandon-timeout-ms=NUMBER`. Must be called inside a tokio runtime, in which the connection lives.
    ///
    /// # Errors
    ///
    /// [`LocktopusError::Url`] for another address, [`LocktopusError::Connect`] if no server responds, and
    /// [`LocktopusError::Refused`] if the server refuses the connection.
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

    /// Connects with these options.
    ///
    /// # Errors
    ///
    /// As [`LocktopusClient::connect_tls`].
    pub async fn connect_with(options: &ConnectionOptions) -> Result<Self> {
        let default = Tls::new();
        Self::connect_tls(&options.url(), options.tls_settings().unwrap_or(&default)).await
    }

    /// Requests all of these resources together. Returns true if they were acquired at once, and false if the lock waits in the
    /// queue; [`LocktopusClient::acquire`] then waits for it.
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

    /// Waits until all of these resources are held. The guard releases them when it is dropped. Dropping the future gives up
    /// the queue position.
    ///
    /// # Errors
    ///
    /// As [`LocktopusClient::lock`].
    pub async fn hold(&mut self, resources: &[Resource]) -> Result<LocktopusLock<'_>> {
        let lock = LocktopusLock::new(self, self.ask_lock(resources).await?);
        lock.acquired().await?;
        Ok(lock)
    }

    /// Waits until the lock is acquired, without limit; returns at once if it is. The future may be dropped and the call
    /// repeated.
    ///
    /// # Errors
    ///
    /// [`LocktopusError::NotLocked`] without a request for a lock, [`LocktopusError::ReleasedBeforeAcquired`] if the lock was
    /// released before or during this call, and [`LocktopusError::Closed`].
    pub async fn acquire(&self) -> Result<()> {
        let number = self.session.borrow().current()?;
        self.acquired(number).await
    }

    /// Releases the lock, or gives up its queue position. The connection holds nothing when this returns.
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

    /// Returns the id of the lock, or of the last lock after its release: a number that rises with each lock of the namespace.
    /// `None` before the first lock.
    pub fn lock_id(&self) -> Option<String> {
        self.session.borrow().lock_id().map(str::to_owned)
    }

    /// Returns whether the lock is held now. It is not held while it waits, after its release, or after the end of the
    /// connection.
    pub fn is_acquired(&self) -> bool {
        self.session.borrow().is_acquired()
    }

    /// Returns a future that resolves when the connection ends, with the reason. The lock is lost from then on.
    pub fn closed(&self) -> impl Future<Output = CloseReason> + Send + use<> {
        let mut session = self.session.subscribe();
        async move {
            let ended = session.wait_for(|session| session.end().is_some()).await;
            ended.ok().and_then(|session| session.end().cloned()).unwrap_or(CloseReason::ByClient)
        }
    }

    /// Closes the connection with code 1000, and waits until it is closed. An unreleased lock stays for the abandon timeout.
    /// Later calls have no effect.
    pub async fn close(&self) {
        self.session.send_if_modified(|session| session.end_with(CloseReason::ByClient));
        // The connection may have ended; ignore the error.
        let _ = self.orders.send(Order::Close);
        self.orders.closed().await;
    }

    /// Requests a lock and returns its number, after a pending release has ended.
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

    /// Changes the session and, if `change` returns true, sends the request. Both are one step, so the server receives requests
    /// in the order of the changes. Returns the number of the lock and whether the request was sent.
    fn ask(&self, request: &Request<'_>, change: fn(&mut Session) -> Result<bool>) -> Result<(u64, bool)> {
        let mut result = Ok(false);
        let mut number = 0;
        self.session.send_if_modified(|session| {
            result = change(session);
            number = session.number();
            let is_sent = matches!(result, Ok(true));
            if is_sent {
                // The connection may have ended; the session reports that.
                let _ = self.orders.send(Order::Send(request.encode()));
            }
            is_sent
        });
        result.map(|is_sent| (number, is_sent))
    }

    /// Waits until the progress of a lock is enough, and returns it.
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

    /// Waits until the server reports whether a lock was acquired (true) or waits (false).
    async fn answered(&self, number: u64) -> Result<bool> {
        self.progress(number, |progress| *progress != Progress::Requested).await.outcome()
    }

    /// Waits until a lock is acquired.
    async fn acquired(&self, number: u64) -> Result<()> {
        let has_waited = |progress: &Progress| !matches!(progress, Progress::Requested | Progress::Enqueued);
        self.progress(number, has_waited).await.outcome().map(|_| ())
    }
}
