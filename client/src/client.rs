//! The handle of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol::limits::{
    ANY_WORKER, CREDENTIALS_LEN_MAX, KEY_LEN_MAX, NAMESPACE_LEN_MAX, OWNER_LEN_MAX,
};
use waymaker_protocol::{LockId, NamespaceKind, Readable};

use crate::acquire::AcquireBuilder;
use crate::claim::{Wanted, check_key, check_len, lease_milliseconds};
use crate::client_session::ClientSession;
use crate::clock::{BootClock, Clock};
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::hold::Key;
use crate::job::{Command, Job};
use crate::lane::SessionOptions;
use crate::limiter::{self, Allowance, Cost, Limiter};
use crate::link::{Endpoint, Target};
use crate::lock::Lock;
use crate::multi::MultiLock;
use crate::operator::Operator;
use crate::registry::Registry;
use crate::reply::Reply;
use crate::semaphore::Semaphore;
use crate::snapshot::{
    ClaimStatus, FreezeOutcome, HeldLock, KeyStatus, NamespaceStatus, PoolSummary, ReleasedClaim,
    ServerStatus, Verification, WaitingClaim,
};
use crate::space::Space;
use crate::spread::Spread;
use crate::tls::Tls;
use crate::tree::Tree;
use crate::url::ServerAddress;
use crate::watch::Watch;

const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// A client of one server: one session, any number of callers.
///
/// Clones are cheap and share everything. Keys are of the namespace that the client was built with. Trees, semaphores,
/// limiters and registries have namespaces of their own beside it, named after it: `tree/NAME`, `sem/NAME`, `limit/NAME`,
/// `registry/NAME` and `lazy/NAME`. Each that is used has a connection, opened when it is first needed, and all connections
/// belong to one session. One task for each, in the runtime that [`Client::connect`] was called in, owns its socket;
/// whatever the callers ask for meanwhile leaves in one write, and answers come back in any order.
///
/// If a connection breaks, its task connects again, takes its part in the session up where it was and repeats what was not
/// answered; callers notice nothing but the delay. Once the connection has been gone for longer than
/// [`ClientBuilder::connect_timeout`], a caller is told [`Error::Uncertain`], or [`Error::Unavailable`] if its request was
/// never sent, while locks go on being believed in until their local deadlines. A waiting acquire loses its place in the queue when the connection breaks.
///
/// When the last clone, the last handle made from one and the last guard are dropped, the session ends and the connections are closed.
/// [`Client::close`] does the same and waits for it; a program that ends should call it. A runtime that shuts down, as at the end
/// of `main`, still sends the releases of guards that were dropped, as far as the socket takes them at once, and waits for nothing.
#[derive(Clone)]
pub struct Client {
    spread: Arc<Spread>,
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
        self.acquire(key.as_ref(), false)
    }

    /// Asks for the key shared with other readers; see [`AcquireBuilder`].
    pub fn read(&self, key: impl AsRef<[u8]>) -> AcquireBuilder {
        self.acquire(key.as_ref(), true)
    }

    /// Asks for several keys in one step, all or none, each alone unless it is added with
    /// [`read`](AcquireBuilder::<MultiLock>::read):
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
    /// use waymaker_client::Readable;
    /// let transfer = client.multi(["accounts/3", "accounts/8"]).read("rates").try_().await?;
    /// for lock in transfer.locks() {
    ///     println!("{}: fence {}", Readable(lock.key()), lock.fence());
    /// }
    /// transfer.release().await
    /// # });
    /// ```
    pub fn multi(&self, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> AcquireBuilder<MultiLock> {
        AcquireBuilder::new(Ok(Arc::clone(&self.space().flat)), Wanted::Keys(Vec::new())).with(keys, false)
    }

    /// Holds the key alone while `work` runs: waits for it without limit, renews it until `work` ends, releases it, and
    /// drops `work` if the lock is lost. [`AcquireBuilder::run`] does the same for anything that can be acquired, with any
    /// settings.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
    /// let sum = client.with_lock("ledger", async |lock| post(lock.fence()).await).await?;
    /// # let _: u64 = sum;
    /// # Ok(())
    /// # });
    /// # async fn post(fence: u64) -> u64 { fence }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`AcquireBuilder::run`].
    pub async fn with_lock<T>(&self, key: impl AsRef<[u8]>, work: impl AsyncFnOnce(&Lock) -> T) -> Result<T> {
        self.write(key).run(work).await
    }

    /// Locks on the paths of a tree.
    pub fn tree(&self) -> Tree {
        Tree::new(Arc::clone(self.space()))
    }

    /// The pool of permits with this name, which has `capacity` of them.
    pub fn semaphore(&self, name: impl AsRef<[u8]>, capacity: u64) -> Semaphore {
        Semaphore::new(Arc::clone(self.home(name.as_ref())), name.as_ref(), capacity)
    }

    /// The bucket of tokens with this name, which gets `rate` of them back in each period and holds at most `burst`.
    pub fn limiter(&self, name: impl AsRef<[u8]>, rate: u32, per: Duration, burst: u32) -> Limiter {
        Limiter::new(Arc::clone(self.home(name.as_ref())), name.as_ref(), rate, per, burst)
    }

    /// Takes tokens of several buckets, 1 to 64: of all, or of none. What comes back is about the tightest of them.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
    /// let second = Duration::from_secs(1);
    /// let (customer, everybody) = (client.limiter("c/7", 10, second, 5), client.limiter("all", 1_000, second, 100));
    /// client.take_all([customer.cost(1), everybody.cost(1)]).await?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Limiter::take`].
    pub async fn take_all(&self, costs: impl IntoIterator<Item = Cost>) -> Result<Allowance> {
        limiter::take_all(self.space(), costs.into_iter().collect(), false).await
    }

    /// Gives back what [`Client::take_all`] took for nothing.
    ///
    /// # Errors
    ///
    /// As [`Limiter::refund`].
    pub async fn refund_all(&self, costs: impl IntoIterator<Item = Cost>) -> Result<Allowance> {
        limiter::take_all(self.space(), costs.into_iter().collect(), true).await
    }

    /// Entries that end with their lease.
    pub fn registry(&self) -> Registry {
        Registry::new(Arc::clone(self.space()), NamespaceKind::Registry)
    }

    /// Entries that stay until somebody else takes the key, some time after their lease is over.
    pub fn lazy(&self) -> Registry {
        Registry::new(Arc::clone(self.space()), NamespaceKind::Lazy)
    }

    /// The sessions as they are now: one, or one for each worker of the server if the client was built with
    /// [`connection_per_worker`](ClientBuilder::connection_per_worker).
    pub fn sessions(&self) -> Vec<ClientSession> {
        self.spread.spaces().iter().map(|space| ClientSession::new(Arc::clone(space))).collect()
    }

    /// The session as it is now; the first of several.
    pub fn session(&self) -> ClientSession {
        ClientSession::new(Arc::clone(self.space()))
    }

    /// Watches a key: how it is now, and each change from then on. Any number of watches may be open.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a key that is empty or too long, or if the server has too many watches;
    /// [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn watch(&self, key: impl AsRef<[u8]>) -> Result<Watch> {
        Watch::begin(Arc::clone(&self.home(key.as_ref()).flat), checked_key(key.as_ref())?).await
    }

    /// Asks whether the grant with this fence is still the newest of the key. A place that is written to asks this when a
    /// writer shows its fence.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a key that is empty or too long, [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn verify(&self, key: impl AsRef<[u8]>, fence: u64) -> Result<Verification> {
        self.home(key.as_ref()).flat.verify(checked_key(key.as_ref())?, fence).await
    }

    /// Who holds a key and who waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a key that is empty or too long, [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn inspect(&self, key: impl AsRef<[u8]>) -> Result<KeyStatus> {
        self.home(key.as_ref()).flat.inspect(checked_key(key.as_ref())?).await
    }

    /// The state of one claim.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not_found` if there is no such claim any more, [`Error::Unavailable`], [`Error::Uncertain`] and
    /// [`Error::Closed`].
    pub async fn status(&self, id: LockId) -> Result<ClaimStatus> {
        self.space().flat.status(id).await
    }

    /// All locks held in the namespace whose keys begin with `prefix`, in no particular order. They are read page by
    /// page: one that is held all the while is listed once, one that comes or goes meanwhile may or may not be.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a prefix that is too long, [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn list(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<HeldLock>> {
        self.operator(NamespaceKind::Flat).list(prefix).await
    }

    /// Returns all claims of the namespace that wait for keys that begin with `prefix`, in no particular order. The client reads
    /// them page by page. A claim that waits all the while is listed once for each of its keys. A claim that begins or ends to wait
    /// meanwhile may be missing.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a prefix that is too long, and with `bad_input` and the field `waiting` if the server is older and lacks
    /// [`Capabilities::LIST_WAITING`](crate::Capabilities); [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn list_waiting(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<WaitingClaim>> {
        self.operator(NamespaceKind::Flat).list_waiting(prefix).await
    }

    /// Returns the pools of the namespace whose names begin with `prefix`, in no particular order: pools in use, and pools whose
    /// capacity was set. The client reads them page by page. A pool that exists all the while is listed once. A pool that comes or
    /// goes meanwhile may be missing.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `bad_input` for a prefix that is too long, [`Error::Unavailable`], [`Error::Uncertain`] and
    /// [`Error::Closed`]. Servers of 0.1.0 refuse the request with `bad_input`.
    pub async fn pools(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<PoolSummary>> {
        check_len("prefix", prefix.as_ref(), 0, KEY_LEN_MAX)?;
        self.space().link(NamespaceKind::Pool)?.pools(prefix.as_ref().into()).await
    }

    /// Ends the claim with this id, whoever holds it or waits. The key must be the claim's own. Its holder is told
    /// [`LossReason::Revoked`](crate::LossReason::Revoked). True if it was still waiting: its acquire is refused with
    /// `cancelled`.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not_found` if there is no such claim, [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn release(&self, id: LockId, key: impl AsRef<[u8]>) -> Result<bool> {
        let (home, key) = (self.home(key.as_ref()), Some(checked_key(key.as_ref())?));
        home.flat.release(id, key).await
    }

    /// What an operator does with the namespace of one kind.
    pub fn operator(&self, kind: NamespaceKind) -> Operator {
        Operator::new(Arc::clone(self.space()), kind)
    }

    /// Ends a claim on keys of the client's namespace; see [`Operator::force_release`].
    ///
    /// # Errors
    ///
    /// As [`Operator::force_release`].
    pub async fn force_release(&self, id: LockId, reason: impl AsRef<[u8]>) -> Result<ReleasedClaim> {
        self.operator(NamespaceKind::Flat).force_release(id, reason).await
    }

    /// Stops new grants of keys of the client's namespace; see [`Operator::freeze`], which can also give a
    /// [reason](Operator::reason).
    ///
    /// # Errors
    ///
    /// As [`Operator::freeze`].
    pub async fn freeze(&self, prefix: impl AsRef<[u8]>) -> Result<FreezeOutcome> {
        self.operator(NamespaceKind::Flat).freeze(prefix).await
    }

    /// Takes back a [`Client::freeze`] of just this prefix.
    ///
    /// # Errors
    ///
    /// As [`Operator::freeze`].
    pub async fn thaw(&self, prefix: impl AsRef<[u8]>) -> Result<FreezeOutcome> {
        self.operator(NamespaceKind::Flat).thaw(prefix).await
    }

    /// Returns the state of the server: its version, readiness, uptime and listeners.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `bad_input` if the server is older and lacks [`Capabilities::SERVER_STATUS`](crate::Capabilities);
    /// [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn server_status(&self) -> Result<ServerStatus> {
        self.space().flat.server_status().await
    }

    /// All namespaces of the server, with what happened in them since it began.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn namespaces(&self) -> Result<Vec<NamespaceStatus>> {
        self.space().flat.namespaces().await
    }

    /// Removes the namespace with this name, which is its name on the wire, such as `sem/jobs`. It must contain nothing but idle
    /// keys, and no connection may use it, not even one of this client.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not_found` if there is no such namespace, or with `bad_input` and the field `namespace` if it belongs to
    /// a front end, `connections` if a connection uses it, or `contents` if it is not empty; [`Error::Unavailable`],
    /// [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn remove_namespace(&self, name: impl AsRef<[u8]>) -> Result<()> {
        check_len("namespace", name.as_ref(), 1, NAMESPACE_LEN_MAX)?;
        self.space().flat.remove_namespace(name.as_ref().into()).await
    }

    /// The kinds of namespaces that there are on the server under the name of the client's, whoever began them.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn kinds(&self) -> Result<Vec<NamespaceKind>> {
        let namespaces = self.namespaces().await?;
        let own = namespaces.iter().filter(|known| self.space().name_of(known.kind) == known.name);
        Ok(own.map(|known| known.kind).collect())
    }

    /// Sets the end of a lease to `lease` from now on and returns what the server gave.
    ///
    /// A holder elsewhere is told, and believes in the new end from when it hears of it. One that cannot be reached may
    /// believe in a longer lease than it has; the fence covers that.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not_found` if there is no such claim, or if the length is below the server's minimum;
    /// [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn extend(&self, id: LockId, lease: Duration) -> Result<Duration> {
        let lease_ms = lease_milliseconds(lease)?;
        let (reply, answer) = Reply::channel();
        self.space().flat.submit(Job::Extend { id, lease_ms, is_own: false, reply })?;
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// Releases everything that is still guarded, ends the session and closes the connections. Guards that are left
    /// learn [`LossReason::ClientClosed`](crate::LossReason::ClientClosed), calls that wait get [`Error::Closed`]. Waits for the
    /// server for at most [`request_timeout`](ClientBuilder::request_timeout).
    ///
    /// # Errors
    ///
    /// None at present: where the server cannot be reached, the leases end what could not be released.
    pub async fn close(self) -> Result<()> {
        let spaces = self.spread.spaces();
        for space in spaces {
            space.session.close();
        }
        let mut answers = Vec::new();
        for link in spaces.iter().flat_map(|space| space.links()) {
            let (reply, answer) = Reply::channel();
            if link.command(Command::Close { reply }).is_ok() {
                answers.push(answer);
            }
        }
        for answer in answers {
            // If the task is gone, so is the connection.
            answer.await.unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    fn acquire(&self, key: &[u8], shared: bool) -> AcquireBuilder {
        AcquireBuilder::new(Ok(Arc::clone(&self.home(key).flat)), Wanted::Key { key: key.into(), shared })
    }

    pub(crate) fn space(&self) -> &Arc<Space> {
        self.spread.first()
    }

    fn home(&self, name: &[u8]) -> &Arc<Space> {
        self.spread.home(name)
    }
}

fn checked_key(key: &[u8]) -> Result<Key> {
    check_key(key)?;
    Ok(key.into())
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").field("space", self.space()).finish_non_exhaustive()
    }
}

/// Settings of a client.
#[derive(Clone)]
pub struct ClientBuilder {
    namespace: Vec<u8>,
    owner: Vec<u8>,
    credentials: Credentials,
    session_lease: Option<Duration>,
    connect_timeout: Duration,
    request_timeout: Option<Duration>,
    per_worker: bool,
    tls: Tls,
    clock: Arc<dyn Clock>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            namespace: b"default".to_vec(),
            owner: Vec::new(),
            credentials: Credentials::default(),
            session_lease: None,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            request_timeout: None,
            per_worker: false,
            tls: Tls::new(),
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

    /// The owner that others see when they meet a lock of this client, at most 256 bytes.
    #[must_use]
    pub fn owner(mut self, owner: impl AsRef<[u8]>) -> Self {
        self.owner = owner.as_ref().to_vec();
        self
    }

    /// Proof of the identity of this client, at most 400 bytes, such as the text of a token. None if not set. An unencrypted connection
    /// shows it to the network.
    ///
    /// A server that refuses them refuses the next attempt too. So [`connect`](ClientBuilder::connect) and, after an outage, each call
    /// return [`Error::Refused`] with the code `unauthorized` at once. Watches end then, and a lock is lost at its local deadline.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use waymaker_client::{Client, Credentials};
    /// let credentials = Credentials::from_file("/run/secrets/billing.token")?;
    /// let client = Client::builder().credentials(credentials).connect("waymaker+tls://locks.example").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn credentials(mut self, credentials: impl AsRef<[u8]>) -> Self {
        self.credentials = Credentials::new(credentials);
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

    /// How long a caller waits for the answer to one request: a release, an extend, a question such as [`Client::inspect`], each page
    /// of a list, an acquire with [`try_`](AcquireBuilder::try_), and [`Client::close`]. The same as
    /// [`connect_timeout`](ClientBuilder::connect_timeout) if not set.
    ///
    /// The limit also holds if the connection breaks or the network falls silent. The call then returns
    /// [`Error::Uncertain`], or [`Error::Unavailable`] if its request was never sent. An acquire with
    /// [`wait`](AcquireBuilder::wait) ends soon after its wait instead.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = Some(timeout);
        self
    }

    /// Opens a connection to each worker of the server and sends each request about a key, a pool or a bucket to the worker
    /// where it lives. Worth it for a client that keeps a server with several workers busy; it costs a session and a task for
    /// each worker. Claims over several keys, trees and registries use the first connection. Not so if not set.
    #[must_use]
    pub fn connection_per_worker(mut self, per_worker: bool) -> Self {
        self.per_worker = per_worker;
        self
    }

    /// Whom to believe, and whom to be, on encrypted connections. Other addresses than `waymaker+tls://` have no use for it.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Another clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Connects to the server at `url`: `waymaker://HOST:PORT`, `waymaker+tls://HOST:PORT` or `waymaker+unix:///PATH`. Must
    /// be called in a tokio runtime with I/O enabled, of either flavour; the connection lives in that runtime.
    ///
    /// Several addresses, with commas between them, are those under which the server may be found: the ways to one server, or
    /// those to servers of which only one runs at a time. They are tried in turn, beginning with the one that worked last, and
    /// all connections of the client go to the same. Locks do not move from one server to another by themselves: what is held
    /// is lost with its server, unless the other has its data directory.
    ///
    /// # Errors
    ///
    /// [`Error::Url`] if the address is malformed, [`Error::Tls`] if a file of TLS cannot be used,
    /// [`Error::Unavailable`] if nobody answers there in time,
    /// [`Error::Refused`] if the server does not want this client, [`Error::Protocol`] if it is no Waymaker server.
    pub async fn connect(self, url: &str) -> Result<Client> {
        let addresses = ServerAddress::list(url)?;
        check_len("namespace", &self.namespace, 1, NAMESPACE_LEN_MAX)?;
        check_len("owner", &self.owner, 0, OWNER_LEN_MAX)?;
        check_len("credentials", self.credentials.as_ref(), 0, CREDENTIALS_LEN_MAX)?;
        let options = SessionOptions {
            lease_ms: self.session_lease.map_or(Ok(0), lease_milliseconds)?,
            outage_max: self.connect_timeout,
            request_timeout: self.request_timeout.unwrap_or(self.connect_timeout),
        };
        let endpoint = |address| -> Result<Endpoint> {
            let tls = match &address {
                ServerAddress::Tls { host, .. } => Some(self.tls.connector(host)?),
                ServerAddress::Tcp { .. } | ServerAddress::Unix(_) => None,
            };
            Ok(Endpoint { address, tls })
        };
        let target = Target {
            endpoints: addresses.into_iter().map(endpoint).collect::<Result<_>>()?,
            worker: ANY_WORKER,
            kind: NamespaceKind::Flat,
            namespace: self.namespace,
            owner: self.owner,
            credentials: self.credentials,
            timeout: self.connect_timeout,
        };
        let spread = Spread::open(target, options, self.clock, self.per_worker).await?;
        Ok(Client { spread: Arc::new(spread) })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the credentials.
        formatter
            .debug_struct("ClientBuilder")
            .field("namespace", &format_args!("\"{}\"", Readable(&self.namespace)))
            .field("owner", &format_args!("\"{}\"", Readable(&self.owner)))
            .field("session_lease", &self.session_lease)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}
