//! Clever's `lock`, which kept its locks in DynamoDB.
//!
//! A lock is one row of a table: a key, its owner, and until when. Nobody waits for one: each call is one conditional
//! write. At the end of a lease nothing happens. Its owner may revive it with a heartbeat, and anybody else may take it, or
//! take it out, once the lease has been over for [`GRACE`].
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
//! - The clock of the server decides, so clients need not agree about the time. A `lease_end` is an instant of that clock, and a
//!   `lease_duration` counts from when the server serves the call.
//! - Instants are compared as instants, to the millisecond, in whatever time zone they were written.
//! - A call without any lease, with an empty key or an empty owner, or with no keys at all is [`Error::Invalid`]. The original
//!   stored a lock that was over, or an owner without a name, and called no keys unavailable. So is a lease of zero; one that
//!   is over already is written as a `lease_end` that has passed.
//! - What is unavailable names its owner and the end of the lease.
//! - A row is really forgotten [`KEPT`] after the end of its lease.
//! - Background heartbeats never hang on an error that nobody reads.
//! - Each change of owner gives a new [`Lock::fence`], to be shown wherever the owner writes.
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

use waymaker_client::{Client, Registered, Registration, RegistryEntry};

use input::Lease;

/// How long after the end of its lease a lock is its owner's alone.
pub const GRACE: Duration = Duration::from_secs(5);
/// How long after the end of its lease a lock is kept: 48 hours.
pub const KEPT: Duration = Duration::from_secs(48 * 3_600);

/// A row of the table.
///
/// Its times are by the clock of this machine, and up to a round trip early; but a `lease_end` stands as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// What is locked.
    pub key: String,
    /// For whom.
    pub owner: String,
    /// The end of the lease. It may have passed.
    pub leased_until: SystemTime,
    /// The last acquire or heartbeat.
    pub created_at: SystemTime,
    /// When the row is forgotten: [`KEPT`] after the end of the lease.
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
    /// [`Error::Invalid`] for an empty name of a table, and [`Error::System`] if there is no connection.
    pub async fn connect(url: &str, table: &str) -> Result<Self> {
        input::required("table", table)?;
        let client = Client::builder().namespace(format!("clever/{table}")).connect(url).await?;
        Ok(Self::new(client))
    }

    /// Locks in the namespace of this client, which is `clever/TABLE` where others are to find them.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Takes a lock that is free, one's own, or over for longer than [`GRACE`]. One's own gets the new lease, be it longer or
    /// shorter.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if it is another owner's, [`Error::Invalid`] if the input makes no sense, [`Error::System`] for
    /// anything else.
    pub async fn acquire_lock(&self, input: AcquireLockInput) -> Result<Lock> {
        let lease = Lease::new(input.lease_end, input.lease_duration)?;
        let entry = self.entry(&input.key, &input.owner)?;
        let asked = SystemTime::now();
        let registered = match lease {
            Lease::Until(end) => entry.register_until(end).await,
            Lease::Lasting(lease) => entry.register(lease).await,
        };
        Ok(Lock::granted(input.key, input.owner, lease, asked, registered?))
    }

    /// Takes the first of several locks that can be had, in this order or in a random one.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if all of them are other owners', [`Error::NoneOfSeveral`] if some of them failed for another
    /// reason. [`Error::Invalid`] comes at once, also for a key that was only reached after others had failed.
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

    /// Gives a new lease to a lock that is there and its owner's, also if the lease is over. Of the original lock only key and
    /// owner count. It cannot tell whether the same owner has acquired the lock anew in between.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if another owner took the lock, also if that owner has released it since; otherwise as
    /// [`Locker::acquire_lock`].
    pub async fn heartbeat_lock(&self, input: HeartbeatLockInput) -> Result<Lock> {
        let lease = Lease::new(input.lease_end, input.lease_duration)?;
        let Lock { key, owner, .. } = input.original_lock;
        let entry = self.entry(&key, &owner)?;
        let asked = SystemTime::now();
        let registered = match lease {
            Lease::Until(end) => entry.heartbeat_until(end).await,
            Lease::Lasting(lease) => entry.heartbeat(lease).await,
        };
        Ok(Lock::granted(key, owner, lease, asked, registered?))
    }

    /// Keeps a lock in the background by heartbeats: the first one interval from now, and then one in each interval, until
    /// one fails, or until they are stopped or dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an interval or a lease of zero, [`Error::System`] if there can be no timer.
    pub fn start_background_heartbeats(
        &self,
        lock: &Lock,
        heartbeat_interval: Duration,
        lease_duration: Duration,
    ) -> Result<BackgroundHeartbeats> {
        BackgroundHeartbeats::start(self.clone(), lock.clone(), heartbeat_interval, lease_duration)
    }

    /// Takes out a lock that is its owner's, or another's and over for longer than [`GRACE`]: whoever comes back to it so late
    /// learns it from the next heartbeat. One that is not there is fine. Only key and owner count.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if it is another owner's: the caller has it no more. After any other error the caller may
    /// have it still.
    pub async fn release_lock(&self, lock: &Lock) -> Result<()> {
        match self.entry(&lock.key, &lock.owner)?.unregister().await.map_err(Error::from) {
            Ok(_) | Err(Error::Unavailable(Unavailable::Gone)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The lock of this key as it stands, also if it is over; `None` if there is none. For people who look why a lock cannot be
    /// had: an acquire may fail or succeed whatever this says.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an empty key or one that is too long, and [`Error::System`].
    pub async fn get_current_lock(&self, key: &str) -> Result<Option<Lock>> {
        input::required("key", key)?;
        let asked = SystemTime::now();
        let found = self.client.lazy().look_up(key).await?;
        Ok(found.map(|entry| Lock::found(&entry, asked)))
    }

    /// Closes the connection and waits for it, for a program that ends. Locks stay to the end of their leases.
    ///
    /// # Errors
    ///
    /// As [`Client::close`].
    pub async fn close(self) -> Result<()> {
        Ok(self.client.close().await?)
    }

    fn entry(&self, key: &str, owner: &str) -> Result<Registration> {
        input::required("key", key)?;
        input::required("owner", owner)?;
        Ok(self.client.lazy().entry(key).owner(owner))
    }
}

impl Lock {
    fn granted(key: String, owner: String, lease: Lease, asked: SystemTime, registered: Registered) -> Self {
        let leased_until = match lease {
            Lease::Until(end) => end,
            // The server may have cut a lease that was too long.
            Lease::Lasting(_) => leased_until(asked, registered.remaining, registered.overdue),
        };
        Self::of(key, owner, leased_until, asked, registered.fence)
    }

    fn found(entry: &RegistryEntry, asked: SystemTime) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let leased_until = leased_until(asked, entry.remaining, entry.overdue);
        let created_at = earlier(asked, entry.age);
        Self::of(text(&entry.key), text(&entry.owner), leased_until, created_at, entry.fence)
    }

    fn of(key: String, owner: String, leased_until: SystemTime, created_at: SystemTime, fence: u64) -> Self {
        Self { key, owner, leased_until, created_at, ttl: later(leased_until, KEPT), fence }
    }
}

/// The end of a lease that was asked about at this instant.
fn leased_until(asked: SystemTime, remaining: Option<Duration>, overdue: Option<Duration>) -> SystemTime {
    earlier(later(asked, remaining.unwrap_or_default()), overdue.unwrap_or_default())
}

/// So much later, unless no clock goes so far.
fn later(time: SystemTime, by: Duration) -> SystemTime {
    time.checked_add(by).unwrap_or(time)
}

/// So much earlier, unless no clock goes so far.
fn earlier(time: SystemTime, by: Duration) -> SystemTime {
    time.checked_sub(by).unwrap_or(time)
}

/// Puts keys in the order of hashes that are others each time.
fn shuffle(keys: &mut Vec<String>) {
    let random = RandomState::new();
    let mut ranked: Vec<_> = std::mem::take(keys).into_iter().enumerate().collect();
    ranked.sort_by_cached_key(|(index, _)| random.hash_one(index));
    keys.extend(ranked.into_iter().map(|(_, key)| key));
}
