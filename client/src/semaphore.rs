//! Permits of a pool.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use waymaker_protocol as wire;
use waymaker_protocol::limits::{KEY_LEN_MAX, REASON_LEN_MAX};
use waymaker_protocol::{NamespaceKind, PoolOrder, Request, Response};

use crate::acquire::{AcquireBuilder, AcquireFuture};
use crate::claim::{Wanted, WantedPermits, check_len, check_positive};
use crate::error::Result;
use crate::guard::guard_of_one_lock;
use crate::hold::Key;
use crate::lock::Lock;
use crate::need::Need;
use crate::snapshot::PoolStatus;
use crate::space::{Shared, Space};

/// A pool of permits, from [`Client::semaphore`](crate::Client::semaphore).
///
/// At most so many permits as its capacity are held at a time. The capacity is kept by the server: whoever comes first
/// brings it, and whoever comes with another one is refused with
/// [`Error::CapacityMismatch`](crate::Error::CapacityMismatch) as long as the pool is in use.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
/// let only_one = client.semaphore("exports", 4).await?;
///
/// let workers = client.semaphore("workers", 8);
/// let permit = workers.acquire().await?;
/// let heavy = workers.permits(3).try_().await?;
/// println!("fences {} and {}", permit.fence(), heavy.fence());
/// println!("{} of {} are taken", workers.describe().await?.held, 8);
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    space: Arc<Space>,
    name: Key,
    capacity: u64,
    any_capacity: bool,
    order: PoolOrder,
    /// Reason for a change of the capacity; empty without one.
    reason: Key,
}

impl Semaphore {
    pub(crate) fn new(space: Arc<Space>, name: &[u8], capacity: u64) -> Self {
        let (order, reason) = (PoolOrder::Arrival, Key::default());
        Self { space, name: name.into(), capacity, any_capacity: false, order, reason }
    }

    /// Takes the pool with whatever capacity and order it has. Its own are only used where the pool is new, and a capacity
    /// of 0 asks that it is not.
    #[must_use]
    pub fn any_capacity(mut self) -> Self {
        self.any_capacity = true;
        self
    }

    /// Serves those who wait by the timestamps that they bring, instead of as they arrive.
    #[must_use]
    pub fn by_timestamp(mut self) -> Self {
        self.order = PoolOrder::Timestamp;
        self
    }

    /// Sets the reason for [`Semaphore::set_capacity`] and [`Semaphore::remove_pool`]: at most 256 bytes, which the server writes to its
    /// audit log. An empty reason is none.
    #[must_use]
    pub fn reason(mut self, reason: impl AsRef<[u8]>) -> Self {
        self.reason = reason.as_ref().into();
        self
    }

    /// Asks for one permit.
    pub fn acquire(&self) -> AcquireBuilder<Permit> {
        self.permits(1)
    }

    /// Asks for so many permits, which are granted together and held as one.
    pub fn permits(&self, permits: u64) -> AcquireBuilder<Permit> {
        let wanted = WantedPermits {
            name: self.name.clone(),
            capacity: self.capacity,
            any_capacity: self.any_capacity,
            permits,
            order: self.order,
            timestamp_us: 0,
        };
        AcquireBuilder::new(self.link(), Wanted::Permits(wanted))
    }

    /// How the pool is: who holds permits and who waits.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`](crate::Error::Refused) for a name that is empty or too long,
    /// [`Error::Unavailable`](crate::Error::Unavailable),
    /// [`Error::Uncertain`](crate::Error::Uncertain) and [`Error::Closed`](crate::Error::Closed).
    pub async fn describe(&self) -> Result<PoolStatus> {
        check_len("name", &self.name, 1, KEY_LEN_MAX)?;
        let name = self.name.clone();
        self.link()?
            .ask(
                move |number, out| {
                    Request::DescribePool(wire::DescribePool { name: &name }).encode(number, out);
                },
                |response| match response {
                    Response::PoolDescribed(described) => Some(described.into()),
                    _ => None,
                },
            )
            .await
    }

    /// Sets the capacity, whoever holds permits, and returns what it was; `None` if there was no such pool. Permits that
    /// are held stay held, also where they are more than the new capacity.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::describe`], and [`Error::Refused`](crate::Error::Refused) with `bad_input` and the field `reason` for a
    /// [reason](Semaphore::reason) if the server is older and lacks [`Capabilities::REASON`](crate::Capabilities): the capacity stays then.
    pub async fn set_capacity(&self, capacity: u64) -> Result<Option<u64>> {
        check_positive("capacity", capacity)?;
        self.put_capacity(capacity).await
    }

    /// Removes a pool whose capacity was set and returns that capacity; `None` if there was no such pool. A pool in use is
    /// refused as busy.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::set_capacity`]. Servers of 0.1.0 refuse it as bad input.
    pub async fn remove_pool(&self) -> Result<Option<u64>> {
        self.put_capacity(0).await
    }

    async fn put_capacity(&self, capacity: u64) -> Result<Option<u64>> {
        check_len("name", &self.name, 1, KEY_LEN_MAX)?;
        check_len("reason", &self.reason, 0, REASON_LEN_MAX)?;
        let (name, order, reason) = (self.name.clone(), self.order, self.reason.clone());
        let need = (!reason.is_empty()).then_some(Need::REASON);
        self.link()?
            .ask_with(
                need,
                move |number, out| {
                    let set = wire::SetCapacity { capacity, order, name: &name, reason: &reason };
                    Request::SetCapacity(set).encode(number, out);
                },
                |response| match response {
                    Response::CapacitySet(set) => Some((set.previous != 0).then_some(set.previous)),
                    _ => None,
                },
            )
            .await
    }

    fn link(&self) -> Result<Arc<Shared>> {
        self.space.link(NamespaceKind::Pool)
    }
}

impl IntoFuture for Semaphore {
    type Output = Result<Permit>;
    type IntoFuture = AcquireFuture<Permit>;

    /// The same as [`Semaphore::acquire`].
    fn into_future(self) -> AcquireFuture<Permit> {
        self.acquire().into_future()
    }
}

impl AcquireBuilder<Permit> {
    /// The place in a pool that serves [by timestamp](Semaphore::by_timestamp); the server's now if not set. What is
    /// more than an hour off is moved to an hour off.
    pub fn timestamp(mut self, timestamp: SystemTime) -> Self {
        if let Wanted::Permits(wanted) = &mut self.claim.wanted {
            let since = timestamp.duration_since(UNIX_EPOCH).unwrap_or_default();
            // 0 would be the server's now.
            wanted.timestamp_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX).max(1);
        }
        self
    }
}

/// Permits that are held. It is a [`Lock`] whose key is the name of the pool.
#[must_use = "dropping the guard releases the permits"]
pub struct Permit {
    lock: Lock,
}

guard_of_one_lock!(Permit);
