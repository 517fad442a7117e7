//! The settings of a client, and the connection to its server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use waymaker_protocol::limits::{ANY_WORKER, CREDENTIALS_LEN_MAX, NAMESPACE_LEN_MAX, OWNER_LEN_MAX};
use waymaker_protocol::{NamespaceKind, Readable};

use crate::client::Client;
use crate::clock::{BootClock, Clock};
use crate::connection::link::{Endpoint, Target};
use crate::credentials::Credentials;
use crate::error::Result;
use crate::lane::SessionOptions;
use crate::request::check::{check_len, lease_milliseconds};
use crate::router::Router;
use crate::tls::Tls;
use crate::url::ServerAddress;

const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

impl Client {
    /// Connects to the server at `url` with the default settings: namespace `default`, no owner, and the server's
    /// default session lease.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
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
    /// Sets the namespace of all keys, 1 to 256 bytes. Default: `default`.
    #[must_use]
    pub fn namespace(mut self, namespace: impl AsRef<[u8]>) -> Self {
        self.namespace = namespace.as_ref().to_vec();
        self
    }

    /// Sets the owner that other clients see for claims of this client, at most 256 bytes. Default: empty. An acquire
    /// can set another [owner](crate::AcquireBuilder::owner).
    #[must_use]
    pub fn owner(mut self, owner: impl AsRef<[u8]>) -> Self {
        self.owner = owner.as_ref().to_vec();
        self
    }

    /// Sets the credentials that prove the identity of this client, at most 3,072 bytes, for example a token. Default:
    /// none. An unencrypted connection exposes them to the network.
    ///
    /// If the server refuses the credentials, it would refuse the next attempt too. So
    /// [`connect`](ClientBuilder::connect) returns [`Error::Refused`](crate::Error::Refused) with the code
    /// `unauthorized` as soon as the server refuses. If the refusal follows an outage, each call whose request was not
    /// sent yet returns this error. All watches end, and each lock is lost at its local deadline, unless an attempt
    /// succeeds before that.
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

    /// Sets for how long the session survives without a frame from this client. Default: the server's, 10 s unless
    /// configured. The session lease limits how long the client can resume a session, and how long locks on the
    /// session's lease are kept. A session without a connection and without a claim may end earlier.
    #[must_use]
    pub fn session_lease(mut self, lease: Duration) -> Self {
        self.session_lease = Some(lease);
        self
    }

    /// Sets the time limit for connecting, and for how long callers wait during an outage. Default: 5 s. Of several
    /// addresses, each gets an equal part of this time.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets for how long a caller waits for the response to one request. Default: the same as
    /// [`connect_timeout`](ClientBuilder::connect_timeout).
    ///
    /// The limit applies to every request except an acquire that waits: for example to a release, each page of a list,
    /// an acquire with [`try_`](crate::AcquireBuilder::try_), and [`Client::close`]. The limit also holds if the
    /// connection breaks or the network falls silent. The call then returns
    /// [`Error::Uncertain`](crate::Error::Uncertain), or [`Error::Unavailable`](crate::Error::Unavailable) if its
    /// request was never sent; [`Client::close`] returns without an error. An acquire with
    /// [`wait`](crate::AcquireBuilder::wait) instead ends soon after the end of its wait limit.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = Some(timeout);
        self
    }

    /// Opens a connection to each worker of the server. Off by default.
    ///
    /// The client sends each request about one key, pool or bucket to the worker where its shard was when the client
    /// connected. This helps a client that keeps a server with several workers busy. It costs a session for each
    /// worker, and a connection with its task for each kind of namespace that is used there. All other requests use the
    /// session on the first worker, for example multi-key claims, trees, registries, lists and requests by id alone.
    #[must_use]
    pub fn connection_per_worker(mut self, per_worker: bool) -> Self {
        self.per_worker = per_worker;
        self
    }

    /// Sets the trusted authorities and the client certificate of encrypted connections. Only `waymaker+tls://`
    /// addresses use them.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Replaces the clock that measures leases and timeouts, for tests. Default: [`BootClock`].
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Connects to the server at `url`: `waymaker://HOST:PORT`, `waymaker+tls://HOST:PORT` or `waymaker+unix:///PATH`.
    /// Must be called in a tokio runtime of either flavour; the connections live in that runtime. I/O must be enabled
    /// in it, and on systems other than Linux also time.
    ///
    /// `url` may list several addresses, separated by commas: addresses of one server, or of servers of which only one
    /// runs at a time. The client tries them in turn and begins with the address that worked last. All connections of
    /// one session use the same address.
    ///
    /// Locks do not move between servers. A lock survives its server only if the next server has the same data
    /// directory and the lock's [`FenceScope`](crate::FenceScope) covers the failure.
    ///
    /// # Errors
    ///
    /// [`Error::Url`](crate::Error::Url) if the address is malformed, [`Error::Tls`](crate::Error::Tls) if a TLS file
    /// cannot be used, [`Error::Unavailable`](crate::Error::Unavailable) if no server answers in time, the server
    /// accepts no clients now, or it speaks another known protocol such as HTTP,
    /// [`Error::Refused`](crate::Error::Refused) if a setting is outside its limits or the server rejects this client,
    /// [`Error::Protocol`](crate::Error::Protocol) if its response is no valid answer in the Waymaker protocol.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt to connect.
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
        let router = Router::open(target, options, self.clock, self.per_worker).await?;
        Ok(Client::new(router))
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The credentials are secret, so they are left out.
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
