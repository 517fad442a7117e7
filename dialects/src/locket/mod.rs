//! Locket: locks and presences that their owners keep alive.
//!
//! This dialect is for programs that were written for Cloud Foundry's Locket. It has its four calls with their errors, and the
//! runners of its Go library, which hold a lock for as long as a program runs. The server provides Locket on its gRPC port
//! (`--grpc-listen`, 7421). The dialect also works with the original server.
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
//! - The runners have the same steps, times and error messages. A runner that holds a lock and cannot renew it ends at once,
//!   before another owner can get the lock. Its time to live may not be over by then.
//! - Every call carries a `uuid`, which the server logs.
//!
//! # Different on purpose
//!
//! - Errors are a closed type. Five errors have a variant of their own, and all others are [`Error::Status`].
//! - A token stops a runner, and the runner reports over a channel that it is ready. They replace the two channels of Ifrit.
//! - Only the client checks a deadline. The server still serves such a request, as the original does.

mod error;
mod joint_lock;
mod lock_runner;
mod presence_runner;
mod runner;
mod tenure;

pub use error::Error;
pub use joint_lock::{JointError, JointLock};
pub use lock_runner::{LockRunner, LostLock};
pub use presence_runner::PresenceRunner;
pub use runner::{BoxError, Runner};
pub use waymaker_proto::locket::{FetchAllRequest, Resource, TypeCode};

use std::time::Duration;

use tonic::Request;
use uuid::Uuid;
use waymaker_client::{Credentials, Tls};
use waymaker_proto::locket::locket_client::LocketClient;
use waymaker_proto::locket::{FetchRequest, LockRequest, ReleaseRequest};

use crate::grpc::{Authorization, Authorized, ConnectError, Target};

/// Default time to live of the lock of a runner: 15 seconds.
pub const DEFAULT_TTL: Duration = Duration::from_secs(15);
/// Default interval in which a runner renews its lock, or requests it again: 5 seconds.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// A client of one server. Clones are cheap and share one connection, which reconnects after it broke.
#[derive(Clone, Debug)]
pub struct Locket {
    service: LocketClient<Authorized>,
}

impl Locket {
    /// Connects to `http://HOST:PORT`, or with TLS and the defaults of [`Tls`] to `https://HOST:PORT`. The default port is
    /// 7421.
    ///
    /// # Errors
    /// If the address is not valid, or no server responds there.
    pub async fn connect(address: &str) -> Result<Self, ConnectError> {
        Self::connect_with(address, &Tls::new()).await
    }

    /// Connects like [`connect`](Self::connect), with TLS settings for an address with `https`. The original server requires a
    /// client certificate.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect), and an error if the settings cannot be used.
    pub async fn connect_with(address: &str, tls: &Tls) -> Result<Self, ConnectError> {
        Self::connect_as(address, tls, &Credentials::default()).await
    }

    /// Connects like [`connect_with`](Self::connect_with), with credentials that every call carries as `authorization: Bearer
    /// CREDENTIALS`. The original server ignores them.
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

    /// Connects when the first call is made, as the original does, so a runner may start before the server. Must be called
    /// inside a runtime.
    ///
    /// # Errors
    /// If the address is not valid, or the TLS settings cannot be used.
    pub fn connect_lazily(address: &str, tls: &Tls) -> Result<Self, ConnectError> {
        Self::connect_lazily_as(address, tls, &Credentials::default())
    }

    /// Connects like [`connect_lazily`](Self::connect_lazily), with credentials as in [`connect_as`](Self::connect_as).
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
        // The length of a list has no limit.
        Self { service: LocketClient::new(channel).max_decoding_message_size(usize::MAX) }
    }

    /// `Lock`: acquires a free key, or renews the lock of the same owner. Replaces its value, type and time to live. Never
    /// waits. The owner must lock the key again before the time to live is over.
    ///
    /// # Errors
    /// [`Error::LockCollision`] if another owner has the key, [`Error::InvalidType`], [`Error::InvalidTtl`],
    /// [`Error::InvalidOwner`].
    pub async fn lock(&self, resource: Resource, ttl_in_seconds: i64) -> Result<(), Error> {
        self.lock_as(&new_uuid(), resource, ttl_in_seconds).await
    }

    /// `Fetch`: returns the owner of the key and the data that is stored with it.
    ///
    /// # Errors
    /// [`Error::ResourceNotFound`] if the key is free.
    pub async fn fetch(&self, key: &str) -> Result<Resource, Error> {
        let request = request(&new_uuid(), FetchRequest { key: key.to_owned() });
        let answer = self.service.clone().fetch(request).await?.into_inner();
        answer.resource.ok_or(Error::ResourceNotFound)
    }

    /// `Release`: releases the key. Only `key` and `owner` of the resource are used.
    ///
    /// # Errors
    /// [`Error::LockCollision`] if another owner has the key. [`Error::ResourceNotFound`] if the key is free, unless an option
    /// of the server permits that.
    pub async fn release(&self, resource: Resource) -> Result<(), Error> {
        let request = request(&new_uuid(), ReleaseRequest { resource: Some(resource) });
        self.service.clone().release(request).await?;
        Ok(())
    }

    /// `FetchAll`: returns all resources of one type.
    ///
    /// # Errors
    /// [`Error::InvalidType`] if the type is missing or unknown.
    pub async fn fetch_all(&self, filter: FetchAllRequest) -> Result<Vec<Resource>, Error> {
        let request = request(&new_uuid(), filter);
        Ok(self.service.clone().fetch_all(request).await?.into_inner().resources)
    }

    /// `Lock` with a `uuid` that the caller chose.
    async fn lock_as(&self, uuid: &str, resource: Resource, ttl_in_seconds: i64) -> Result<(), Error> {
        let request = request(uuid, LockRequest { resource: Some(resource), ttl_in_seconds });
        self.service.clone().lock(request).await?;
        Ok(())
    }
}

/// Returns a `uuid` for a new call.
fn new_uuid() -> String {
    Uuid::new_v4().to_string()
}

/// Returns a request with this `uuid`, which the server logs.
fn request<T>(uuid: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Ok(uuid) = uuid.parse() {
        request.metadata_mut().insert("uuid", uuid);
    }
    request
}
