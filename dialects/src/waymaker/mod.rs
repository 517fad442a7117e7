//! The gRPC contract `waymaker.WaymakerService`.
//!
//! For programs that were written for it, or that know it: its calls, its fields and its result codes, and what its document
//! leaves to the library of the client. The server speaks it on the port for gRPC (`--grpc-listen`, 7421).
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
//! [`Waymaker::lock`] has the events themselves, for whoever wants to see who waits and when.
//!
//! # What it does beside the calls
//!
//! - A stream that breaks is opened again, and ownership confirmed, by the `request_id`; one is made up where none is given.
//!   [`LockEvents`] says how.
//! - A lock ends at a local deadline: the lease after the moment at which what granted or extended it was sent, less a
//!   margin of a tenth of the lease, at most 50 ms, and a hundredth. No network is needed to notice it.
//!
//! # Different on purpose
//!
//! - A `request_id` that is given may find a lock that was granted long ago, to a process that is no more. Nothing in its answer
//!   says how much of the lease is left, so the lease is extended to its whole length before `Acquired` is told. So it is where
//!   the first stream broke before it said anything.
//! - An event of a type that is not known is left out.

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

/// How often a server is asked whether it is still there. One that is gone is noticed within twice as long.
const PING_EVERY: Duration = Duration::from_secs(5);

/// A client of one server. Clones are cheap and share its connection, which is opened again whenever it breaks.
#[derive(Clone, Debug)]
pub struct Waymaker {
    service: WaymakerServiceClient<Authorized>,
    unlocks: Unlocks,
}

impl Waymaker {
    /// Connects to `http://HOST:PORT`, or encrypted to `https://HOST:PORT` with the defaults of [`Tls`]. The port is 7421 where none
    /// is named.
    ///
    /// # Errors
    /// If the address is no address, or nobody answers there.
    pub async fn connect(address: &str) -> Result<Self, ConnectError> {
        Self::connect_with(address, &Tls::new()).await
    }

    /// The same with settings of TLS, for an address with `https`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), or if the settings cannot be used.
    pub async fn connect_with(address: &str, tls: &Tls) -> Result<Self, ConnectError> {
        Self::connect_as(address, tls, &Credentials::default()).await
    }

    /// The same with credentials, which every call carries as `authorization: Bearer CREDENTIALS`. A server that refuses them refuses each
    /// call, with [`Error::Transport`] and the status `UNAUTHENTICATED`.
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
        // A list may be as long as it likes.
        let service =
            WaymakerServiceClient::new(authorization.over(channel)).max_decoding_message_size(usize::MAX);
        Ok(Self { service, unlocks: Unlocks::default() })
    }

    /// `Lock`: for one alone. Asked for when the first event is waited for.
    pub fn lock(&self, request: LockRequest) -> LockEvents {
        LockEvents::new(self.clone(), request, false)
    }

    /// `ReadLock`: together with other readers.
    pub fn read_lock(&self, request: LockRequest) -> LockEvents {
        LockEvents::new(self.clone(), request, true)
    }

    /// `Lock`, waited for and guarded. Dropping the future gives up the place in the queue. If the lock was granted just then, it is unlocked,
    /// unless the request has a `request_id`: then it stays to the end of its lease, and the next attempt finds it.
    ///
    /// # Errors
    /// What the event `Failed` said, or why there is none.
    pub async fn acquire(&self, request: LockRequest) -> Result<Held, Error> {
        Held::acquire(self.lock(request)).await
    }

    /// `ReadLock`, waited for and guarded.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_read(&self, request: LockRequest) -> Result<Held, Error> {
        Held::acquire(self.read_lock(request)).await
    }

    /// `UnLock`: releases what is held, or gives up what waits.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no lock of this key has this id, so also the second time.
    pub async fn unlock(&self, key: &str, id: &str) -> Result<(), Error> {
        let request = UnLockRequest { key: key.to_owned(), id: id.to_owned() };
        let answer = self.service.clone().un_lock(request).await?.into_inner();
        answer.success.then_some(()).ok_or_else(|| Error::of(&answer.result_code, &answer.message))
    }

    /// `ExtendLease`: moves the end of the lease to `lease_timeout` from now on, which may also shorten it. Whoever has a
    /// [`Held`] or [`LockEvents`] of the lock extends it there, so that it is believed in for longer too.
    ///
    /// # Errors
    /// [`Error::NotHeld`] if it waits, [`Error::NotFound`] if it is over, [`Error::BadInput`] for zero.
    pub async fn extend_lease(&self, key: &str, id: &str, lease_timeout: Duration) -> Result<Lease, Error> {
        let lease_timeout = milliseconds(lease_timeout);
        let request = ExtendLeaseRequest { key: key.to_owned(), id: id.to_owned(), lease_timeout };
        let answer = self.service.clone().extend_lease(request).await?.into_inner();
        lease(answer.lease, &answer.result_code, &answer.message)
    }

    /// `LeaseStatus`: how a lock is, or a place in its queue.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no lock of this key has this id.
    pub async fn lease_status(&self, key: &str, id: &str) -> Result<Lease, Error> {
        let request = LeaseStatusRequest { key: key.to_owned(), id: id.to_owned() };
        let answer = self.service.clone().lease_status(request).await?.into_inner();
        lease(answer.lease, &answer.result_code, &answer.message)
    }

    /// `MultiLock`: all keys in one step, or none. One lease for each key, in the order of their bytes, each of which is extended and
    /// unlocked by itself. Whoever gives a `request_id` may repeat a call whose answer was lost.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::NoKeys`], [`Error::InvalidScope`] and the like. Nothing is held then.
    pub async fn multi_lock(&self, request: MultiLockRequest) -> Result<Vec<Lease>, Error> {
        let answer = self.service.clone().multi_lock(request.0).await?.into_inner();
        match answer.success {
            true => Ok(answer.leases),
            false => Err(Error::of(&answer.result_code, &answer.message)),
        }
    }

    /// `ListAcquiredLocks`: all locks that are held of keys that begin with this, in the order of the keys. Who waits is not
    /// among them.
    ///
    /// # Errors
    /// [`Error::Transport`].
    pub async fn list_acquired_locks(&self, key_prefix: &str) -> Result<Vec<AcquiredLock>, Error> {
        let request = ListAcquiredLocksRequest { key_prefix: key_prefix.to_owned() };
        Ok(self.service.clone().list_acquired_locks(request).await?.into_inner().locks)
    }
}

/// The lease of an answer that has one.
fn lease(lease: Option<Lease>, result_code: &str, message: &str) -> Result<Lease, Error> {
    lease.ok_or_else(|| Error::of(result_code, message))
}
