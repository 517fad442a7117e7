//! The handle through which programs use a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol::limits::{KEY_LEN_MAX, NAMESPACE_LEN_MAX};
use waymaker_protocol::{LockId, NamespaceKind};

use crate::allowance::Allowance;
use crate::client_session::ClientSession;
use crate::error::{Error, Result};
use crate::guards::{AcquireBuilder, Lock, MultiLock, Semaphore, Tree};
use crate::handle::Command;
use crate::key::Key;
use crate::limiter::{self, Cost, Limiter};
use crate::operator::Operator;
use crate::registry::Registry;
use crate::request::check::{check_key, check_len, lease_milliseconds};
use crate::request::claim::Wanted;
use crate::request::job::Job;
use crate::request::reply::Reply;
use crate::router::Router;
use crate::snapshot::{
    ClaimStatus, FreezeOutcome, HeldLock, KeyStatus, NamespaceStatus, PoolSummary, ReleasedClaim,
    ServerStatus, Verification, WaitingClaim,
};
use crate::space::Space;
use crate::watch::Watch;

/// Handle to one server; all clones share its session. With
/// [`ClientBuilder::connection_per_worker`](crate::ClientBuilder::connection_per_worker), they share one session for
/// each worker of the server.
///
/// Clones are cheap. Any number of callers may use one client at the same time.
///
/// Keys belong to the namespace that the client was built with. Trees, semaphores, limiters and registries have
/// namespaces of their own, named after it: `tree/NAME`, `sem/NAME`, `limit/NAME`, `registry/NAME` and `lazy/NAME`.
/// Each namespace has its own connection. The connection for plain keys opens when the client connects, the others open
/// at first use. All connections to the same worker belong to the same session.
///
/// For each connection, one task owns the socket. The tasks run in the runtime in which [`Client::connect`] was called.
/// A task usually sends all requests that have collected in one write, and responses may arrive in any order.
///
/// If a connection breaks while it is needed, its task reconnects, resumes the session and repeats the unanswered
/// requests. Most callers notice only the delay. If the outage lasts longer than
/// [`ClientBuilder::connect_timeout`](crate::ClientBuilder::connect_timeout), calls return [`Error::Uncertain`], or
/// [`Error::Unavailable`] if the request was never sent. Guards stay valid until their local deadlines. A waiting
/// acquire loses its queue position when the connection breaks.
///
/// The session ends and the connections close when the last clone, handle made from a clone, guard, watch and pending
/// acquire are dropped. [`Client::close`] ends the session earlier and waits for the end, for a limited time; call it
/// before the program exits. A runtime that shuts down while connected, for example at the end of `main`, still sends
/// the releases of dropped guards. It sends only as many as the socket accepts at once, and does not wait.
///
/// # Errors
///
/// The methods list the errors that are specific to them. Any request to the server may also return [`Error::Refused`]
/// with `unauthorized`, if the access rules of the server do not allow it, and [`Error::Protocol`], if the response
/// does not fit the request.
///
/// # Cancel safety
///
/// Dropping the future of an acquire or of [`Client::watch`] withdraws it. Other calls, such as [`Client::extend`] or
/// [`Client::freeze`], are sent when their future is first polled. Dropping the future later does not withdraw them, so
/// they may still take effect.
#[derive(Clone)]
pub struct Client {
    router: Arc<Router>,
}

impl Client {
    pub(crate) fn new(router: Router) -> Self {
        Self { router: Arc::new(router) }
    }

    /// Starts a request for an exclusive lock on the key. `client.write("key").await?` waits without limit; see
    /// [`AcquireBuilder`].
    pub fn write(&self, key: impl AsRef<[u8]>) -> AcquireBuilder {
        self.acquire(key.as_ref(), false)
    }

    /// Starts a request for a shared lock on the key, which other readers may hold as well; see [`AcquireBuilder`].
    pub fn read(&self, key: impl AsRef<[u8]>) -> AcquireBuilder {
        self.acquire(key.as_ref(), true)
    }

    /// Starts a request for several keys in one step, all or none. Each key is locked exclusively unless it is added
    /// with [`read`](AcquireBuilder::<MultiLock>::read):
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

    /// Runs `work` while it holds an exclusive lock on the key.
    ///
    /// Waits for the lock without limit, renews it until `work` ends, and then releases it. Drops `work` if the lock is
    /// lost. [`AcquireBuilder::run`] runs work under every other kind of claim, with any settings.
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
    ///
    /// # Cancel safety
    ///
    /// As [`AcquireBuilder::run`].
    pub async fn with_lock<T>(&self, key: impl AsRef<[u8]>, work: impl AsyncFnOnce(&Lock) -> T) -> Result<T> {
        self.write(key).run(work).await
    }

    /// Returns a handle for locks on the paths of a tree.
    pub fn tree(&self) -> Tree {
        Tree::new(Arc::clone(self.space()))
    }

    /// Returns a handle for the pool with this name. If an acquire through this handle creates the pool, the pool gets
    /// `capacity` permits.
    pub fn semaphore(&self, name: impl AsRef<[u8]>, capacity: u64) -> Semaphore {
        Semaphore::new(Arc::clone(self.home(name.as_ref())), name.as_ref(), capacity)
    }

    /// Returns a handle for the token bucket with this name. It regains `rate` tokens in each period of length `per`
    /// and holds at most `burst`.
    pub fn limiter(&self, name: impl AsRef<[u8]>, rate: u32, per: Duration, burst: u32) -> Limiter {
        Limiter::new(Arc::clone(self.home(name.as_ref())), name.as_ref(), rate, per, burst)
    }

    /// Takes tokens from 1 to 64 buckets: from all of them or from none. The returned allowance describes the tightest
    /// bucket.
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
    /// [`Error::Throttled`] if a bucket has too few tokens; it contains the time until another attempt can succeed, if
    /// waiting helps. [`Error::Refused`] for no bucket, more than 64 buckets, or a bucket with an invalid name or rule.
    /// [`Error::Unavailable`] if there is no connection or the server cannot serve the request now.
    /// [`Error::Uncertain`] if no response to the sent request arrived in time: the tokens may be taken.
    /// [`Error::Closed`] if the client was closed.
    pub async fn take_all(&self, costs: impl IntoIterator<Item = Cost>) -> Result<Allowance> {
        limiter::take_all(self.space(), costs.into_iter().collect(), false).await
    }

    /// Refunds tokens that [`Client::take_all`] took for work that was not done. A refund fills no bucket above its
    /// burst.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for no bucket, more than 64 buckets, or a bucket with an invalid name or rule.
    /// [`Error::Unavailable`] if there is no connection or the server cannot serve the request now.
    /// [`Error::Uncertain`] if no response to the sent request arrived in time: the tokens may be refunded.
    /// [`Error::Closed`] if the client was closed.
    pub async fn refund_all(&self, costs: impl IntoIterator<Item = Cost>) -> Result<Allowance> {
        limiter::take_all(self.space(), costs.into_iter().collect(), true).await
    }

    /// Returns the registry whose registrations end when their lease expires.
    pub fn registry(&self) -> Registry {
        Registry::new(Arc::clone(self.space()), NamespaceKind::Registry)
    }

    /// Returns the registry whose registrations survive their lease. Another owner may take the key five seconds after
    /// the lease expired. If none does, the server removes the registration 48 hours after the lease expired.
    pub fn lazy(&self) -> Registry {
        Registry::new(Arc::clone(self.space()), NamespaceKind::Lazy)
    }

    /// Returns the sessions in their current state: one session, or one for each worker of the server if the client
    /// was built with [`connection_per_worker`](crate::ClientBuilder::connection_per_worker).
    pub fn sessions(&self) -> Vec<ClientSession> {
        self.router.spaces().iter().map(|space| ClientSession::new(Arc::clone(space))).collect()
    }

    /// Returns the session in its current state. If the client has several sessions, returns the first of
    /// [`Client::sessions`].
    pub fn session(&self) -> ClientSession {
        ClientSession::new(Arc::clone(self.space()))
    }

    /// Watches a key: reports its current state, then its changes. A slow reader misses states, but never the newest. A
    /// key may have several watches.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a key that is empty or too long, [`Error::Unavailable`], for example if the server has
    /// too many watches, [`Error::Uncertain`] and [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch.
    pub async fn watch(&self, key: impl AsRef<[u8]>) -> Result<Watch> {
        Watch::begin(Arc::clone(&self.home(key.as_ref()).flat), checked_key(key.as_ref())?).await
    }

    /// Returns whether the grant with this fence is still the newest grant of the key, and whether it is still held. A
    /// resource calls this when a writer presents its fence.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a key that is empty or too long. [`Error::Unavailable`] if there is no connection or the
    /// server cannot serve the request now. [`Error::Uncertain`] if no response to the sent request arrived in time.
    /// [`Error::Closed`] if the client was closed.
    pub async fn verify(&self, key: impl AsRef<[u8]>, fence: u64) -> Result<Verification> {
        self.home(key.as_ref()).flat.verify(checked_key(key.as_ref())?, fence).await
    }

    /// Returns the holders of a key and its waiters, at most 64 of each.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a key that is empty or too long, [`Error::Unavailable`], [`Error::Uncertain`] and
    /// [`Error::Closed`].
    pub async fn inspect(&self, key: impl AsRef<[u8]>) -> Result<KeyStatus> {
        self.home(key.as_ref()).flat.inspect(checked_key(key.as_ref())?).await
    }

    /// Returns the state of the claim with this id, on a key of the client's namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not_found` if the claim does not exist any more, [`Error::Unavailable`],
    /// [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn status(&self, id: LockId) -> Result<ClaimStatus> {
        self.space().flat.status(id).await
    }

    /// Returns all locks held in the namespace whose keys begin with `prefix` and that this client may list, in no
    /// particular order. The client reads them page by page. A lock that is held while the client reads all pages is
    /// listed once. A lock that is granted or released while the client reads may be missing.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a prefix that is too long, [`Error::Unavailable`], [`Error::Uncertain`] and
    /// [`Error::Closed`].
    pub async fn list(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<HeldLock>> {
        self.operator(NamespaceKind::Flat).list(prefix).await
    }

    /// Returns all claims of the namespace that wait for keys that begin with `prefix` and that this client may list,
    /// in no particular order. The client reads them page by page. A claim that waits while the client reads all pages
    /// is listed once for each of its keys. A claim that begins or stops waiting while the client reads may be missing.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a prefix that is too long. Also [`Error::Refused`], with `bad_input` and the field
    /// `waiting`, if the server is older and lacks [`Capabilities::LIST_WAITING`](crate::Capabilities).
    /// [`Error::Unavailable`] if there is no connection or the server cannot serve the request now.
    /// [`Error::Uncertain`] if no response to the sent request arrived in time. [`Error::Closed`] if the client was
    /// closed.
    pub async fn list_waiting(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<WaitingClaim>> {
        self.operator(NamespaceKind::Flat).list_waiting(prefix).await
    }

    /// Returns the pools of the namespace whose names begin with `prefix` and that this client may list, in no
    /// particular order: pools in use, and pools whose capacity was set. The client reads them page by page. A pool
    /// that exists while the client reads all pages is listed once. A pool that is created or removed while the client
    /// reads may be missing.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `bad_input` for a prefix that is too long, [`Error::Unavailable`], [`Error::Uncertain`]
    /// and [`Error::Closed`]. Servers of version 0.1.0 refuse the request with `bad_input`.
    pub async fn pools(&self, prefix: impl AsRef<[u8]>) -> Result<Vec<PoolSummary>> {
        check_len("prefix", prefix.as_ref(), 0, KEY_LEN_MAX)?;
        self.space().handle(NamespaceKind::Pool)?.pools(prefix.as_ref().into()).await
    }

    /// Ends the claim with this id, held or waiting, regardless of its owner. The key must be a key of the claim. The
    /// guard of a connected holder is lost with [`LossReason::Revoked`](crate::LossReason::Revoked).
    ///
    /// Returns `true` if the claim was still waiting. The acquire of a waiting claim then fails with
    /// [`Error::Cancelled`].
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a key that is empty or too long, and with `not_found` if there is no claim with this id
    /// and key; [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn release(&self, id: LockId, key: impl AsRef<[u8]>) -> Result<bool> {
        let (home, key) = (self.home(key.as_ref()), Some(checked_key(key.as_ref())?));
        home.flat.release(id, key).await
    }

    /// Returns the operator's commands for one namespace of the client: the namespace of plain keys, tree paths, pools,
    /// limiters or registrations, as `kind` selects.
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

    /// Ends a [`Client::freeze`] of exactly this prefix.
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
    /// [`Error::Refused`] with `bad_input` if the server is older and lacks
    /// [`Capabilities::SERVER_STATUS`](crate::Capabilities); [`Error::Unavailable`], [`Error::Uncertain`] and
    /// [`Error::Closed`].
    pub async fn server_status(&self) -> Result<ServerStatus> {
        self.space().flat.server_status().await
    }

    /// Returns the namespaces of the server in which this client may list claims, with their counters since the server
    /// started.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn namespaces(&self) -> Result<Vec<NamespaceStatus>> {
        self.space().flat.namespaces().await
    }

    /// Removes the namespace with this name, which is its name on the wire, such as `sem/jobs`. No connection, session
    /// or DynamoDB table may use the namespace, not even a connection of this client. It must have no claims,
    /// registrations, frozen prefixes, pools with a set capacity, or buckets that are not full.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not_found` if there is no such namespace, or with `bad_input` and the field `namespace`
    /// if it is built in or declared in the server's configuration, `connections` if a connection, a session or a
    /// DynamoDB table uses it, or `contents` if it is not empty; [`Error::Unavailable`], [`Error::Uncertain`] and
    /// [`Error::Closed`].
    pub async fn remove_namespace(&self, name: impl AsRef<[u8]>) -> Result<()> {
        check_len("namespace", name.as_ref(), 1, NAMESPACE_LEN_MAX)?;
        self.space().flat.remove_namespace(name.as_ref().into()).await
    }

    /// Returns the kinds of namespaces that exist on the server under this client's namespace name, regardless of who
    /// created them. Like [`Client::namespaces`], leaves out namespaces in which this client may not list claims.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], [`Error::Uncertain`] and [`Error::Closed`].
    pub async fn kinds(&self) -> Result<Vec<NamespaceKind>> {
        let namespaces = self.namespaces().await?;
        let own = namespaces.iter().filter(|known| self.space().name_of(known.kind) == known.name);
        Ok(own.map(|known| known.kind).collect())
    }

    /// Sets the lease of the hold with this id to end `lease` from now, and returns the lease that the server granted.
    ///
    /// If the hold belongs to another client, the server notifies that client. The holder's local deadline follows the
    /// new lease from the moment the notification arrives. If the notification cannot arrive, the holder may assume a
    /// longer lease than it has. Only a resource that checks the fence then rejects its writes.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `not_found` if there is no such claim, and with `bad_input` if `lease` is below the
    /// server's minimum or the hold has no lease of its own; [`Error::Unavailable`], [`Error::Uncertain`] and
    /// [`Error::Closed`].
    pub async fn extend(&self, id: LockId, lease: Duration) -> Result<Duration> {
        let lease_ms = lease_milliseconds(lease)?;
        let (reply, answer) = Reply::channel();
        self.space().flat.submit(Job::Extend { id, lease_ms, is_own: false, reply })?;
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// Releases all guarded locks, ends the session and closes the connections.
    ///
    /// Remaining guards are lost with [`LossReason::ClientClosed`](crate::LossReason::ClientClosed), watches end, and
    /// waiting acquires return [`Error::Closed`]. Forgotten holds with a lease of their own stay until it expires.
    /// Waits for the server for at most [`request_timeout`](crate::ClientBuilder::request_timeout).
    ///
    /// # Errors
    ///
    /// None at present. If the server is unreachable, unreleased locks end when their leases expire.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future after its first poll does not stop the close.
    pub async fn close(self) -> Result<()> {
        let spaces = self.router.spaces();
        for space in spaces {
            space.session.close();
        }
        let mut answers = Vec::new();
        for handle in spaces.iter().flat_map(|space| space.handles()) {
            let (reply, answer) = Reply::channel();
            if handle.command(Command::Close { reply }).is_ok() {
                answers.push(answer);
            }
        }
        for answer in answers {
            // A dropped answer means that the connection task has ended. The task has then closed its connection, so
            // the close has succeeded.
            answer.await.unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    fn acquire(&self, key: &[u8], shared: bool) -> AcquireBuilder {
        AcquireBuilder::new(Ok(Arc::clone(&self.home(key).flat)), Wanted::Key { key: key.into(), shared })
    }

    pub(crate) fn space(&self) -> &Arc<Space> {
        self.router.first()
    }

    fn home(&self, name: &[u8]) -> &Arc<Space> {
        self.router.home(name)
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
