//! The handle of a client.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use waymaker_protocol::LockId;
use waymaker_protocol::limits::{CREDENTIALS_LEN_MAX, KEY_LEN_MAX, NAMESPACE_LEN_MAX, OWNER_LEN_MAX};

use crate::acquire::AcquireBuilder;
use crate::claim::{check_key, check_len, lease_milliseconds};
use crate::clock::{BootClock, Clock};
use crate::connection;
use crate::error::{Error, Result};
use crate::hold::Key;
use crate::job::{Command, Job, Reply};
use crate::link::Target;
use crate::session::SessionOptions;
use crate::snapshot::{ClaimStatus, HeldLock, KeyStatus};
use crate::url::ServerAddress;

const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// A client of one server: one connection, one session, any number of callers.
///
/// Clones are cheap and share the connection. One task in the runtime that [`Client::connect`] was called in owns the
/// socket; whatever the callers ask for meanwhile leaves in one write, and answers come back in any order.
///
/// If the connection breaks, the task connects again, takes its session up where it was and repeats what was not
/// answered; callers notice nothing but the delay. A caller is told [`Error::Disconnected`] once the connection has
/// been gone for longer than [`ClientBuilder::connect_timeout`], while locks go on being believed in until their local
/// deadlines. A waiting acquire loses its place in the queue when the connection breaks.
///
/// When the last clone and the last [`Lock`](crate::Lock) are dropped, the session ends and the connection is closed.
/// [`Client::close`] does the same and waits for it; a program that ends should call it, since a runtime that shuts
/// down takes what was not sent yet with it.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

/// What every handle and guard can reach.
pub(crate) struct Shared {
    commands: mpsc::UnboundedSender<Command>,
    pub(crate) clock: Arc<dyn Clock>,
    token_next: AtomicU64,
}

impl Shared {
    pub(crate) fn submit(&self, job: Job) -> Result<()> {
        self.command(Command::Submit(job))
    }

    pub(crate) fn command(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| Error::Closed)
    }

    pub(crate) fn next_token(&self) -> u64 {
        self.token_next.fetch_add(1, Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn for_test(clock: Arc<dyn Clock>) -> (Arc<Self>, mpsc::UnboundedReceiver<Command>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        (Arc::new(Self { commands, clock, token_next: AtomicU64::new(0) }), receiver)
    }
}

impl Client {
    /// Connects with defaults: namespace `default`, no owner, a session lease of the server's choice.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// A client with other than default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Asks for the key alone. `client.write("key").await?` waits without limit; see [`AcquireBuilder`].
    pub fn write(&self, key: impl AsRef<[u8]>) -> AcquireBuilder {
        AcquireBuilder::new(Arc::clone(&self.shared), key.as_ref(), false)
    }

    /// Asks for the key shared with other readers; see [`AcquireBuilder`].
    pub fn read(&self, key: impl AsRef<[u8]>) -> AcquireBuilder {
        AcquireBuilder::new(Arc::clone(&self.shared), key.as_ref(), true)
    }

    /// Who holds a key and how many wait for it.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a key that is empty or too long, [`Error::Disconnected`] and [`Error::Closed`].
    pub async fn inspect(&self, key: impl AsRef<[u8]>) -> Result<KeyStatus> {
        check_key(key.as_ref())?;
        let key = Key::from(key.as_ref());
        self.ask(|reply| Job::Inspect { key, reply }).await
    }

    /// The state of one claim.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not_found` if there is no such claim any more, [`Error::Disconnected`] and
    /// [`Error::Closed`].
    pub async fn status(&self, id: LockId) -> Result<ClaimStatus> {
        self.ask(|reply| Job::Status { id, reply }).await
    }

    /// All locks held in the namespace whose keys begin with `prefix`, in no particular order. They are read page by
    /// page: one that is held all the while is listed once, one that comes or goes meanwhile may or may not be.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a prefix that is too long, [`Error::Disconnected`] and [`Error::Closed`].
    pub async fn list(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<HeldLock>> {
        check_len("prefix", prefix.as_ref(), 0, KEY_LEN_MAX)?;
        let prefix = Key::from(prefix.as_ref());
        let mut locks = Vec::new();
        let mut cursor = 0;
        loop {
            let page = self.ask(|reply| Job::List { prefix: prefix.clone(), cursor, reply }).await?;
            locks.extend(page.locks);
            cursor = page.next;
            if cursor == 0 {
                return Ok(locks);
            }
        }
    }

    /// Ends the claim with this id, whoever holds it. The key must be the claim's own. Its holder is told
    /// [`LossReason::Revoked`](crate::LossReason::Revoked).
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not_found` if there is no such claim, [`Error::Disconnected`] and [`Error::Closed`].
    pub async fn release(&self, id: LockId, key: impl AsRef<[u8]>) -> Result<()> {
        check_key(key.as_ref())?;
        let key = Some(Key::from(key.as_ref()));
        self.ask(|reply| Job::Release { id, key, by_guard: false, reply }).await
    }

    /// Sets the end of a lease to `lease` from now on and returns what the server gave.
    ///
    /// A holder elsewhere is told, and believes in the new end from when it hears of it. One that cannot be reached may
    /// believe in a longer lease than it has; the fence covers that.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not_found` if there is no such claim, or if the length is below the server's minimum;
    /// [`Error::Disconnected`] and [`Error::Closed`].
    pub async fn extend(&self, id: LockId, lease: Duration) -> Result<Duration> {
        let lease_ms = lease_milliseconds(lease)?;
        self.ask(|reply| Job::Extend { id, lease_ms, reply }).await
    }

    /// Releases every lock that is still guarded, ends the session and closes the connection. Guards that are left
    /// learn [`LossReason::ClientClosed`](crate::LossReason::ClientClosed), calls that wait get [`Error::Closed`].
    ///
    /// # Errors
    ///
    /// None at present: where the server cannot be reached, the leases end what could not be released.
    pub async fn close(self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        if self.shared.command(Command::Close { reply: Some(reply) }).is_err() {
            return Ok(());
        }
        // If the task is gone, so is the connection.
        answer.await.unwrap_or(Ok(()))
    }

    async fn ask<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.shared.submit(job(Some(reply)))?;
        answer.await.unwrap_or(Err(Error::Closed))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").field("closed", &self.shared.commands.is_closed()).finish()
    }
}

/// Settings of a client.
#[derive(Clone)]
pub struct ClientBuilder {
    namespace: Vec<u8>,
    owner: Vec<u8>,
    credentials: Vec<u8>,
    session_lease: Option<Duration>,
    connect_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            namespace: b"default".to_vec(),
            owner: Vec::new(),
            credentials: Vec::new(),
            session_lease: None,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            clock: BootClock::shared(),
        }
    }
}

impl ClientBuilder {
    /// The namespace that all keys are of, 1 to 256 bytes. `default` if not set.
    #[must_use]
    pub fn namespace(mut self, namespace: impl AsRef<[u8]>) -> Self {
        self.namespace = namespace.as_ref().to_vec();
        self
    }

    /// Whom others see when they meet a lock of this client, at most 256 bytes.
    #[must_use]
    pub fn owner(mut self, owner: impl AsRef<[u8]>) -> Self {
        self.owner = owner.as_ref().to_vec();
        self
    }

    /// What the server knows this client by, at most 400 bytes.
    #[must_use]
    pub fn credentials(mut self, credentials: impl AsRef<[u8]>) -> Self {
        self.credentials = credentials.as_ref().to_vec();
        self
    }

    /// How long the session outlives its connection. The server's default, 10 s, if not set. It bounds how long a lost
    /// connection can be taken up again, and how long locks on the session's lease stay.
    #[must_use]
    pub fn session_lease(mut self, lease: Duration) -> Self {
        self.session_lease = Some(lease);
        self
    }

    /// How long to try to connect, and how long callers wait when the connection was lost. 5 s if not set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Another clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Connects to the server at `url`: `waymaker://HOST:PORT` or `waymaker+unix:///PATH`. Must be called in a tokio
    /// runtime with I/O enabled, of either flavour; the connection lives in that runtime.
    ///
    /// # Errors
    ///
    /// [`Error::Url`] if the address is malformed, [`Error::Connect`] if nobody answers there in time,
    /// [`Error::Refused`] if the server does not want this client, [`Error::Protocol`] if it is no Waymaker server.
    pub async fn connect(self, url: &str) -> Result<Client> {
        let address: ServerAddress = url.parse()?;
        check_len("namespace", &self.namespace, 1, NAMESPACE_LEN_MAX)?;
        check_len("owner", &self.owner, 0, OWNER_LEN_MAX)?;
        check_len("credentials", &self.credentials, 0, CREDENTIALS_LEN_MAX)?;
        let options = SessionOptions {
            lease_ms: self.session_lease.map_or(Ok(0), lease_milliseconds)?,
            outage_max: self.connect_timeout,
        };
        let (commands, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared { commands, clock: self.clock, token_next: AtomicU64::new(0) });
        let target = Target {
            address,
            namespace: self.namespace,
            owner: self.owner,
            credentials: self.credentials,
            timeout: self.connect_timeout,
        };
        connection::open(target, options, &shared, receiver).await?;
        Ok(Client { shared })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the credentials.
        formatter
            .debug_struct("ClientBuilder")
            .field("namespace", &format_args!("\"{}\"", self.namespace.escape_ascii()))
            .field("owner", &format_args!("\"{}\"", self.owner.escape_ascii()))
            .field("session_lease", &self.session_lease)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}
