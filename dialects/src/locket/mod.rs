//! Locket: locks and presences that their owners keep alive.
//!
//! For programs that were written for Cloud Foundry's Locket: its four calls with its errors, and the runners that its Go library
//! has for those who only want to hold something for as long as they run. The server speaks it on the port for gRPC
//! (`--grpc-listen`, 7421); the original server is spoken to as well.
//!
//! ```no_run
//! use tokio::sync::oneshot;
//! use tokio_util::sync::CancellationToken;
//! use waymaker_dialects::locket::{LockRunner, Locket};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let locket = Locket::connect("http://127.0.0.1:7421").await?;
//! let (signal, (ready, is_ready)) = (CancellationToken::new(), oneshot::channel());
//! let runner = LockRunner::new(locket, "auctioneer", "auctioneer-0").value("10.0.0.7:9016");
//! let running = tokio::spawn(runner.run(signal.clone(), ready));
//! if is_ready.await.is_ok() {
//!     // The lock is held, and renewed until the signal. If it is lost, `running` ends with the reason.
//! }
//! signal.cancel();
//! running.await??;
//! # Ok(())
//! # }
//! ```
//!
//! # The same
//!
//! - The steps of the runners, their times and the words of their errors. A runner that holds a lock and cannot renew it ends at
//!   once, although the time to live may not be over, so it ends before anybody else gets the lock.
//! - Every call carries a `uuid` that the server writes down.
//!
//! # Different on purpose
//!
//! - Errors are a closed type; what is none of the five is the status of gRPC.
//! - A runner is told to stop by a token, and tells that it is ready over a channel, in place of Ifrit's two channels.
//! - A deadline is kept by the client alone. The server carries a request out all the same, as the original does.

mod error;
mod joint_lock;
mod lock_runner;
mod presence_runner;
mod runner;
mod tenure;
mod uuid;

pub use error::Error;
pub use joint_lock::{JointError, JointLock};
pub use lock_runner::{LockRunner, LostLock};
pub use presence_runner::PresenceRunner;
pub use runner::{BoxError, Runner};
pub use waymaker_proto::locket::{FetchAllRequest, Resource, TypeCode};

use std::time::Duration;

use tonic::Request;
use waymaker_client::{Credentials, Tls};
use waymaker_proto::locket::locket_client::LocketClient;
use waymaker_proto::locket::{FetchRequest, LockRequest, ReleaseRequest};

use crate::grpc::{Authorization, Authorized, ConnectError, Target};

/// How long what a runner holds outlives it, unless it is told otherwise: 15 seconds.
pub const DEFAULT_TTL: Duration = Duration::from_secs(15);
/// How often a runner renews what it holds, and asks for what it does not, unless it is told otherwise: 5 seconds.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// A client of one server. Clones are cheap and share its connection, which is opened again whenever it breaks.
#[derive(Clone, Debug)]
pub struct Locket {
    service: LocketClient<Authorized>,
}

impl Locket {
    /// Connects to `http://HOST:PORT`, or encrypted to `https://HOST:PORT` with the defaults of [`Tls`]. The port is 7421 where none
    /// is named.
    ///
    /// # Errors
    /// If the address is no address, or nobody answers there.
    pub async fn connect(address: &str) -> Result<Self, ConnectError> {
        Self::connect_with(address, &Tls::new()).await
    }

    /// The same with settings of TLS, for an address with `https`. The original demands a certificate of its clients.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), or if the settings cannot be used.
    pub async fn connect_with(address: &str, tls: &Tls) -> Result<Self, ConnectError> {
        Self::connect_as(address, tls, &Credentials::default()).await
    }

    /// The same with credentials, which every call carries as `authorization: Bearer CREDENTIALS`. The original server ignores them.
    ///
    /// # Errors
    /// As [`connect_with`](Self::connect_with), or if the credentials cannot be sent.
    pub async fn connect_as(
        address: &str,
        tls: &Tls,
        credentials: &Credentials,
    ) -> Result<Self, ConnectError> {
        let authorization = Authorization::new(credentials)?;
        Ok(Self::over(authorization.over(Target::new(address, tls)?.connect().await?)))
    }

    /// Connects when the first call is made, as the original does, so that a runner may start before the server. Called
    /// inside a runtime.
    ///
    /// # Errors
    /// If the address is no address, or the settings of TLS cannot be used.
    pub fn connect_lazily(address: &str, tls: &Tls) -> Result<Self, ConnectError> {
        Self::connect_lazily_as(address, tls, &Credentials::default())
    }

    /// The same with credentials, as in [`connect_as`](Self::connect_as).
    ///
    /// # Errors
    /// As [`connect_lazily`](Self::connect_lazily), or if the credentials cannot be sent.
    pub fn connect_lazily_as(
        address: &str,
        tls: &Tls,
        credentials: &Credentials,
    ) -> Result<Self, ConnectError> {
        let authorization = Authorization::new(credentials)?;
        Ok(Self::over(authorization.over(Target::new(address, tls)?.connect_lazily())))
    }

    fn over(channel: Authorized) -> Self {
        // A list may be as long as it likes.
        Self { service: LocketClient::new(channel).max_decoding_message_size(usize::MAX) }
    }

    /// `Lock`: takes what is free, and renews what the owner has already; value, type and time to live are replaced. Never
    /// waits. The owner must lock it again before the time is over.
    ///
    /// # Errors
    /// [`Error::LockCollision`] if another owner has the key, [`Error::InvalidType`], [`Error::InvalidTtl`],
    /// [`Error::InvalidOwner`].
    pub async fn lock(&self, resource: Resource, ttl_in_seconds: i64) -> Result<(), Error> {
        self.lock_as(&uuid::v4(), resource, ttl_in_seconds).await
    }

    /// `Fetch`: who has the key, and what else is kept with it.
    ///
    /// # Errors
    /// [`Error::ResourceNotFound`] if nobody has it.
    pub async fn fetch(&self, key: &str) -> Result<Resource, Error> {
        let request = request(&uuid::v4(), FetchRequest { key: key.to_owned() });
        let answer = self.service.clone().fetch(request).await?.into_inner();
        answer.resource.ok_or(Error::ResourceNotFound)
    }

    /// `Release`: gives the key back. Of the resource only `key` and `owner` matter.
    ///
    /// # Errors
    /// [`Error::LockCollision`] if another owner has the key, [`Error::ResourceNotFound`] if nobody has, unless the server was
    /// told to find nothing wrong with that.
    pub async fn release(&self, resource: Resource) -> Result<(), Error> {
        let request = request(&uuid::v4(), ReleaseRequest { resource: Some(resource) });
        self.service.clone().release(request).await?;
        Ok(())
    }

    /// `FetchAll`: everything of one type.
    ///
    /// # Errors
    /// [`Error::InvalidType`] without a type that there is.
    pub async fn fetch_all(&self, filter: FetchAllRequest) -> Result<Vec<Resource>, Error> {
        let request = request(&uuid::v4(), filter);
        Ok(self.service.clone().fetch_all(request).await?.into_inner().resources)
    }

    /// `Lock`, under a name that the caller knows.
    async fn lock_as(&self, uuid: &str, resource: Resource, ttl_in_seconds: i64) -> Result<(), Error> {
        let request = request(uuid, LockRequest { resource: Some(resource), ttl_in_seconds });
        self.service.clone().lock(request).await?;
        Ok(())
    }
}

/// A call with its name, which the server writes down.
fn request<T>(uuid: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Ok(uuid) = uuid.parse() {
        request.metadata_mut().insert("uuid", uuid);
    }
    request
}
