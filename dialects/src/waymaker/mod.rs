//! The gRPC contract `waymaker.WaymakerService`.
//!
//! This dialect is for programs that were written for the contract, and for programmers who know it. It has the calls, fields
//! and result codes of the contract, and the parts that its document leaves to client libraries. The server provides the
//! contract on its gRPC port (`--grpc-listen`, 7421).
//!
//! ```no_run
//! use std::time::Duration;
//! use waymaker_dialects::waymaker::{LockRequest, Waymaker};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let waymaker = Waymaker::connect("http://127.0.0.1:7421").await?;
//! let request = LockRequest::new("reports/daily")
//!     .max_wait_period(Duration::from_secs(5))
//!     .max_lease_period(Duration::from_secs(30))
//!     .requester_application("report-job");
//! let held = waymaker.acquire(request).await?;
//! tokio::select! {
//!     () = write_report(held.fence_token()) => held.unlock().await?,
//!     loss = held.lost() => eprintln!("stopped half-way: {loss}"),
//! }
//! # Ok(())
//! # }
//! # async fn write_report(fence_token: u64) {}
//! ```
//!
//! [`Waymaker::lock`] returns the events themselves, for callers that need to see the wait.
//!
//! # What it does beside the calls
//!
//! - A broken stream is opened again, and the `request_id` confirms the ownership of the lock. A request without a `request_id`
//!   gets a random one. [`LockEvents`] has the details.
//! - A lock ends at a local deadline, without any network: the length of the lease after the request that granted or extended
//!   it was sent, less a margin. The margin is a tenth of the lease, at most 50 ms, plus one percent.
//!
//! # Different on purpose
//!
//! - A `request_id` of the caller may find a lock that was granted long ago, to a process that has ended. The response does not
//!   contain the remaining lease, so the client extends the lease to its whole length before the event `Acquired`. It does the
//!   same if the first stream broke before its first event.
//! - Events of unknown types are skipped.

mod claim;
mod error;
mod event;
mod held;
mod local_deadline;
mod lock_events;
mod request;
mod unlocks;

pub use error::Error;
pub use event::LockEvent;
pub use held::{Held, Loss};
pub use lock_events::LockEvents;
pub use request::{LockRequest, MultiLockRequest};
pub use waymaker_client::FenceScope;
pub use waymaker_proto::waymaker::{AcquiredLock, Lease};

use std::time::Duration;

use waymaker_client::{Credentials, Tls};
use waymaker_proto::waymaker::waymaker_service_client::WaymakerServiceClient;
use waymaker_proto::waymaker::{
    ExtendLeaseRequest, LeaseStatusRequest, ListAcquiredLocksRequest, UnLockRequest,
};

use self::request::milliseconds;
use self::unlocks::Unlocks;
use crate::grpc::{Authorization, Authorized, ConnectError, Target};

/// Interval of the pings. A lost server is noticed within two intervals.
const PING_EVERY: Duration = Duration::from_secs(5);

/// A client of one server. Clones are cheap and share one connection, which reconnects after it broke.
#[derive(Clone, Debug)]
pub struct Waymaker {
    service: WaymakerServiceClient<Authorized>,
    unlocks: Unlocks,
}

impl Waymaker {
    /// Connects to `http://HOST:PORT`, or with TLS and the defaults of [`Tls`] to `https://HOST:PORT`. The default port is
    /// 7421.
    ///
    /// # Errors
    /// If the address is not valid, or no server responds there.
    pub async fn connect(address: &str) -> Result<Self, ConnectError> {
        Self::connect_with(address, &Tls::new()).await
    }

    /// Connects like [`connect`](Self::connect), with TLS settings for an address with `https`.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect), and an error if the settings cannot be used.
    pub async fn connect_with(address: &str, tls: &Tls) -> Result<Self, ConnectError> {
        Self::connect_as(address, tls, &Credentials::default()).await
    }

    /// Connects like [`connect_with`](Self::connect_with), with credentials that every call carries as `authorization: Bearer
    /// CREDENTIALS`. A server that refuses them refuses each call, with [`Error::Transport`] and the status `UNAUTHENTICATED`.
    ///
    /// # Errors
    /// As [`connect_with`](Self::connect_with), or if the credentials cannot be sent.
    pub async fn connect_as(
        address: &str,
        tls: &Tls,
        credentials: &Credentials,
    ) -> Result<Self, ConnectError> {
        let authorization = Authorization::new(credentials)?;
        let channel = Target::new(address, tls)?.ping_every(PING_EVERY).connect().await?;
        // The length of a list has no limit.
        let service =
            WaymakerServiceClient::new(authorization.over(channel)).max_decoding_message_size(usize::MAX);
        Ok(Self { service, unlocks: Unlocks::default() })
    }

    /// `Lock`: requests an exclusive lock. The request is sent when the first event is awaited.
    pub fn lock(&self, request: LockRequest) -> LockEvents {
        LockEvents::new(self.clone(), request, false)
    }

    /// `ReadLock`: requests a lock that is shared with other readers.
    pub fn read_lock(&self, request: LockRequest) -> LockEvents {
        LockEvents::new(self.clone(), request, true)
    }

    /// `Lock`: waits for the grant and returns a guard. Dropping the future gives up the queue position. If the lock was
    /// granted just then, it is unlocked, unless the request has a `request_id`: then it stays until its lease ends, and the
    /// next attempt finds it.
    ///
    /// # Errors
    /// The error of the event `Failed`, or the reason why no event came.
    pub async fn acquire(&self, request: LockRequest) -> Result<Held, Error> {
        Held::acquire(self.lock(request)).await
    }

    /// `ReadLock`: waits for the grant and returns a guard.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_read(&self, request: LockRequest) -> Result<Held, Error> {
        Held::acquire(self.read_lock(request)).await
    }

    /// `UnLock`: releases a lock, or removes a waiting claim.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no lock of this key has this id, for example after an earlier unlock.
    pub async fn unlock(&self, key: &str, id: &str) -> Result<(), Error> {
        let request = UnLockRequest { key: key.to_owned(), id: id.to_owned() };
        let answer = self.service.clone().un_lock(request).await?.into_inner();
        answer.success.then_some(()).ok_or_else(|| Error::of(&answer.result_code, &answer.message))
    }

    /// `ExtendLease`: moves the end of the lease to `lease_timeout` from now on, which may also shorten it. The methods
    /// `extend` of [`Held`] and [`LockEvents`] also move their local deadline, which this call does not.
    ///
    /// # Errors
    /// [`Error::NotHeld`] if the claim waits, [`Error::NotFound`] if it has ended, and [`Error::BadInput`] for zero.
    pub async fn extend_lease(&self, key: &str, id: &str, lease_timeout: Duration) -> Result<Lease, Error> {
        let lease_timeout = milliseconds(lease_timeout);
        let request = ExtendLeaseRequest { key: key.to_owned(), id: id.to_owned(), lease_timeout };
        let answer = self.service.clone().extend_lease(request).await?.into_inner();
        lease(answer.lease, &answer.result_code, &answer.message)
    }

    /// `LeaseStatus`: returns the state of a lock, or of a waiting claim.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no lock of this key has this id.
    pub async fn lease_status(&self, key: &str, id: &str) -> Result<Lease, Error> {
        let request = LeaseStatusRequest { key: key.to_owned(), id: id.to_owned() };
        let answer = self.service.clone().lease_status(request).await?.into_inner();
        lease(answer.lease, &answer.result_code, &answer.message)
    }

    /// `MultiLock`: acquires all keys in one step, or none. Returns one lease for each key, in the order of the bytes of the
    /// keys. Each lease is extended and unlocked separately. A call with a `request_id` may be repeated if its response was
    /// lost.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::NoKeys`], [`Error::InvalidScope`] and others. No key is held after an error.
    pub async fn multi_lock(&self, request: MultiLockRequest) -> Result<Vec<Lease>, Error> {
        let answer = self.service.clone().multi_lock(request.0).await?.into_inner();
        match answer.success {
            true => Ok(answer.leases),
            false => Err(Error::of(&answer.result_code, &answer.message)),
        }
    }

    /// `ListAcquiredLocks`: returns all held locks whose keys start with this prefix, in the order of the keys, without waiting
    /// claims.
    ///
    /// # Errors
    /// [`Error::Transport`].
    pub async fn list_acquired_locks(&self, key_prefix: &str) -> Result<Vec<AcquiredLock>, Error> {
        let request = ListAcquiredLocksRequest { key_prefix: key_prefix.to_owned() };
        Ok(self.service.clone().list_acquired_locks(request).await?.into_inner().locks)
    }
}

/// Returns the lease of a response, or its error.
fn lease(lease: Option<Lease>, result_code: &str, message: &str) -> Result<Lease, Error> {
    lease.ok_or_else(|| Error::of(result_code, message))
}
