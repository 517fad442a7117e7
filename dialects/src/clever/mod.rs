//! Clever's `lock`, which kept its locks in DynamoDB.
//!
//! A lock is one row of a table: a key, its owner, and the end of its lease. Each call is one conditional write, so no call
//! waits for a lock. At the end of a lease nothing happens: its owner may revive it with a heartbeat. Once the lease has been
//! expired for [`GRACE`], every other owner may take or remove the lock.
//!
//! ```
//! use std::time::Duration;
//! use waymaker_dialects::clever::{AcquireLockInput, Locker};
//!
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../client/doctest.rs"))(async |_: waymaker_client::Client, url: &str| {
//! # let example = async {
//! let locker = Locker::connect(url, "imports").await?; // waymaker://127.0.0.1:7420
//! let lock = locker
//!     .acquire_lock(AcquireLockInput {
//!         key: "customers".to_owned(),
//!         owner: "host-7".to_owned(),
//!         lease_duration: Some(Duration::from_secs(300)),
//!         ..AcquireLockInput::default()
//!     })
//!     .await?;
//! let mut heartbeats =
//!     locker.start_background_heartbeats(&lock, Duration::from_secs(60), Duration::from_secs(300))?;
//! tokio::select! {
//!     () = import() => {}
//!     error = heartbeats.error() => eprintln!("stopped half-way: {error:?}"),
//! }
//! heartbeats.stop();
//! locker.release_lock(&lock).await
//! # };
//! # Ok(example.await.unwrap())
//! # });
//! # async fn import() {}
//! ```
//!
//! | there | here |
//! |---|---|
//! | `NewLocker(api, table, logger)` | [`Locker::connect`], or [`Locker::new`] with a client of the namespace `clever/TABLE` |
//! | `AcquireLock`, `AcquireAnyLock`, `HeartbeatLock`, `ReleaseLock`, `GetCurrentLock` | the methods of [`Locker`] with these names |
//! | `UnavailableError` | [`Error::Unavailable`] |
//! | `StartBackgroundHeartbeats(ctx, &lock, …)` | [`Locker::start_background_heartbeats`]: the lock is [`BackgroundHeartbeats::lock`], the channel [`BackgroundHeartbeats::error`], the end of the context [`BackgroundHeartbeats::stop`] |
//!
//! # Differences on purpose
//!
//! - The clock of the server decides, so clients need not agree about the time. A `lease_end` is an instant of that clock. A
//!   `lease_duration` starts when the server serves the call.
//! - Instants are compared as instants, to the millisecond; their time zones do not matter.
//! - A call without a lease, with an empty key, with an empty owner, or without keys returns [`Error::Invalid`]. The original
//!   stored an expired lock, or an owner without a name, and reported no keys as unavailable. A lease of zero is invalid too;
//!   write an expired lease as a `lease_end` that has passed.
//! - The error for an unavailable lock names the owner and the end of the lease.
//! - The server deletes a row [`KEPT`] after the end of its lease.
//! - Background heartbeats never hang on an unread error.
//! - Each change of owner gives a new [`Lock::fence`], for the systems to which the owner writes.
//!
//! The rows of a table are the lazy entries ([`Client::lazy`]) of the namespace `clever/TABLE`, and the locks of
//! `OwnedLockService` in the gRPC interface of the server.

mod error;
mod heartbeats;
mod input;

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

pub use error::{Error, KeyError, Result, Unavailable};
pub use heartbeats::BackgroundHeartbeats;
pub use input::{AcquireAnyLockInput, AcquireLockInput, HeartbeatLockInput};

use waymaker_client::{Client, Registered, Registration, RegistrationStatus};

use input::Lease;

/// Time after the end of a lease during which no other owner may take the lock.
pub const GRACE: Duration = Duration::from_secs(5);
/// Time after the end of a lease after which the server deletes the lock: 48 hours.
pub const KEPT: Duration = Duration::from_secs(48 * 3_600);

/// A row of the table.
///
/// The times are by the clock of this machine, and up to a round trip early; a `lease_end` is returned as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Key of the lock.
    pub key: String,
    /// Owner of the lock.
    pub owner: String,
    /// End of the lease. It may have passed.
    pub leased_until: SystemTime,
    /// Time of the last acquire or heartbeat.
    pub created_at: SystemTime,
    /// Time at which the server deletes the row: [`KEPT`] after the end of the lease.
    pub ttl: SystemTime,
    /// Rises by one with each new owner of the key. The original has nothing like it.
    pub fence: u64,
}

/// Acquires and releases locks on the keys of one table. Clones are cheap and share everything.
#[derive(Clone, Debug)]
pub struct Locker {
    client: Client,
}

impl Locker {
    /// Connects to a server for the locks of one table.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an empty table name, and [`Error::System`] if the server cannot be reached.
    pub async fn connect(url: &str, table: &str) -> Result<Self> {
        input::required("table", table)?;
        let client = Client::builder().namespace(format!("clever/{table}")).connect(url).await?;
        Ok(Self::new(client))
    }

    /// Creates a locker in the namespace of this client. Other clients of a table use the namespace `clever/TABLE`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Acquires a lock that is free, belongs to this owner, or has been expired for longer than [`GRACE`]. A lock of this owner
    /// gets the new lease, which may be shorter.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if another owner has the lock, [`Error::Invalid`] if the input is not valid, and
    /// [`Error::System`] for other errors.
    pub async fn acquire_lock(&self, input: AcquireLockInput) -> Result<Lock> {
        let lease = Lease::new(input.lease_end, input.lease_duration)?;
        let registration = self.registration(&input.key, &input.owner)?;
        let asked = SystemTime::now();
        let registered = match lease {
            Lease::Until(end) => registration.register_until(end).await,
            Lease::Lasting(lease) => registration.register(lease).await,
        };
        Ok(Lock::granted(input.key, input.owner, lease, asked, registered?))
    }

    /// Acquires the first available lock of several, in the given order or in a random order.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if other owners have all locks, and [`Error::NoneOfSeveral`] if some failed for another reason.
    /// The first invalid key ends the call with [`Error::Invalid`], also after other keys have failed.
    pub async fn acquire_any_lock(&self, input: AcquireAnyLockInput) -> Result<Lock> {
        let AcquireAnyLockInput { mut keys, owner, randomize_order, lease_end, lease_duration } = input;
        if keys.is_empty() {
            return Err(Error::invalid("keys", "must not be empty"));
        }
        if randomize_order {
            shuffle(&mut keys);
        }
        let mut errors = Vec::new();
        for key in keys {
            let one = AcquireLockInput { key: key.clone(), owner: owner.clone(), lease_end, lease_duration };
            match self.acquire_lock(one).await {
                Err(error @ Error::Invalid { .. }) => return Err(error),
                Err(error) => errors.push(KeyError { key, error }),
                lock => return lock,
            }
        }
        match errors.iter().all(|failed| failed.error.is_unavailable()) {
            true => Err(Error::Unavailable(Unavailable::All(errors))),
            false => Err(Error::NoneOfSeveral(errors)),
        }
    }

    /// Gives a new lease to an existing lock of its owner, also if its lease has expired. Of the original lock only key and
    /// owner are used. The call cannot detect that the same owner has acquired the lock again in between.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if another owner took the lock, also if that owner has released it since. Otherwise the errors of
    /// [`Locker::acquire_lock`].
    pub async fn heartbeat_lock(&self, input: HeartbeatLockInput) -> Result<Lock> {
        let lease = Lease::new(input.lease_end, input.lease_duration)?;
        let Lock { key, owner, .. } = input.original_lock;
        let registration = self.registration(&key, &owner)?;
        let asked = SystemTime::now();
        let registered = match lease {
            Lease::Until(end) => registration.heartbeat_until(end).await,
            Lease::Lasting(lease) => registration.heartbeat(lease).await,
        };
        Ok(Lock::granted(key, owner, lease, asked, registered?))
    }

    /// Keeps a lock by heartbeats in the background: the first after one interval, then one in each interval. They end when one
    /// fails, or when they are stopped or dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an interval or a lease of zero, and [`Error::System`] if no timer is available.
    pub fn start_background_heartbeats(
        &self,
        lock: &Lock,
        heartbeat_interval: Duration,
        lease_duration: Duration,
    ) -> Result<BackgroundHeartbeats> {
        BackgroundHeartbeats::start(self.clone(), lock.clone(), heartbeat_interval, lease_duration)
    }

    /// Releases a lock of its owner. It also removes a lock of another owner that has been expired for longer than [`GRACE`];
    /// that owner learns it from its next heartbeat. A missing lock is no error. Only key and owner are used.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if another owner has the lock, so the caller no longer has it. After any other error the caller
    /// may still have the lock.
    pub async fn release_lock(&self, lock: &Lock) -> Result<()> {
        match self.registration(&lock.key, &lock.owner)?.unregister().await.map_err(Error::from) {
            Ok(_) | Err(Error::Unavailable(Unavailable::Gone)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the current lock of this key, also if its lease has expired; `None` if there is none. It helps people to find
    /// out why a lock is unavailable. A later acquire may succeed or fail regardless of the result.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an empty or too long key, and [`Error::System`].
    pub async fn get_current_lock(&self, key: &str) -> Result<Option<Lock>> {
        input::required("key", key)?;
        let asked = SystemTime::now();
        let found = self.client.lazy().look_up(key).await?;
        Ok(found.map(|registration| Lock::found(&registration, asked)))
    }

    /// Closes the connection and waits until it is closed. Locks stay until their leases expire.
    ///
    /// # Errors
    ///
    /// As [`Client::close`].
    pub async fn close(self) -> Result<()> {
        Ok(self.client.close().await?)
    }

    fn registration(&self, key: &str, owner: &str) -> Result<Registration> {
        input::required("key", key)?;
        input::required("owner", owner)?;
        Ok(self.client.lazy().registration(key).owner(owner))
    }
}

impl Lock {
    fn granted(key: String, owner: String, lease: Lease, asked: SystemTime, registered: Registered) -> Self {
        let leased_until = match lease {
            Lease::Until(end) => end,
            // The server may have shortened the lease.
            Lease::Lasting(_) => leased_until(asked, registered.remaining, registered.overdue),
        };
        Self::of(key, owner, leased_until, asked, registered.fence)
    }

    fn found(registration: &RegistrationStatus, asked: SystemTime) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let leased_until = leased_until(asked, registration.remaining, registration.overdue);
        let created_at = earlier(asked, registration.age);
        Self::of(
            text(&registration.key),
            text(&registration.owner),
            leased_until,
            created_at,
            registration.fence,
        )
    }

    fn of(key: String, owner: String, leased_until: SystemTime, created_at: SystemTime, fence: u64) -> Self {
        Self { key, owner, leased_until, created_at, ttl: later(leased_until, KEPT), fence }
    }
}

/// Returns the end of a lease from the response to a request sent at `asked`.
fn leased_until(asked: SystemTime, remaining: Option<Duration>, overdue: Option<Duration>) -> SystemTime {
    earlier(later(asked, remaining.unwrap_or_default()), overdue.unwrap_or_default())
}

/// Returns the time `by` later, or the same time if the clock cannot represent it.
fn later(time: SystemTime, by: Duration) -> SystemTime {
    time.checked_add(by).unwrap_or(time)
}

/// Returns the time `by` earlier, or the same time if the clock cannot represent it.
fn earlier(time: SystemTime, by: Duration) -> SystemTime {
    time.checked_sub(by).unwrap_or(time)
}

/// Shuffles keys by hashes that differ for each call.
fn shuffle(keys: &mut Vec<String>) {
    let random = RandomState::new();
    let mut ranked: Vec<_> = std::mem::take(keys).into_iter().enumerate().collect();
    ranked.sort_by_cached_key(|(index, _)| random.hash_one(index));
    keys.extend(ranked.into_iter().map(|(_, key)| key));
}
