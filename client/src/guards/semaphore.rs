//! Permits of a pool.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use waymaker_protocol as wire;
use waymaker_protocol::limits::{KEY_LEN_MAX, REASON_LEN_MAX};
use waymaker_protocol::{NamespaceKind, PoolOrder, Request, Response};

use super::acquire::{AcquireBuilder, AcquireFuture};
use super::guard::guard_of_one_lock;
use super::lock::Lock;
use crate::error::Result;
use crate::handle::Handle;
use crate::key::Key;
use crate::request::check::{check_len, check_positive};
use crate::request::claim::{Wanted, WantedPermits};
use crate::request::need::Need;
use crate::snapshot::PoolStatus;
use crate::space::Space;

/// A pool of permits, from [`Client::semaphore`](crate::Client::semaphore).
///
/// No grant makes the total of held permits exceed the capacity. The server stores the capacity: the first client sets
/// it, or [`Semaphore::set_capacity`]. While permits are held or requested, and after `set_capacity`, a client with
/// another capacity is refused with [`Error::CapacityMismatch`](crate::Error::CapacityMismatch), unless it called
/// [`Semaphore::any_capacity`].
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

    /// Accepts any capacity and order of an existing pool. The capacity and order of this handle apply only if the
    /// pool is new. With a capacity of 0, the pool must already exist.
    #[must_use]
    pub fn any_capacity(mut self) -> Self {
        self.any_capacity = true;
        self
    }

    /// Serves waiters by the timestamps of their requests, instead of in order of arrival. A pool with the other order
    /// refuses the request with `bad_input` and the field `order`, unless [`Semaphore::any_capacity`] was called.
    #[must_use]
    pub fn by_timestamp(mut self) -> Self {
        self.order = PoolOrder::Timestamp;
        self
    }

    /// Sets the reason for [`Semaphore::set_capacity`] and [`Semaphore::remove_pool`], at most 256 bytes. The server
    /// writes it to its audit log. An empty reason counts as none.
    #[must_use]
    pub fn reason(mut self, reason: impl AsRef<[u8]>) -> Self {
        self.reason = reason.as_ref().into();
        self
    }

    /// Starts a request for one permit; see [`AcquireBuilder`].
    pub fn acquire(&self) -> AcquireBuilder<Permit> {
        self.permits(1)
    }

    /// Starts a request for this many permits, which are granted together and held as one.
    pub fn permits(&self, permits: u64) -> AcquireBuilder<Permit> {
        let wanted = WantedPermits {
            name: self.name.clone(),
            capacity: self.capacity,
            any_capacity: self.any_capacity,
            permits,
            order: self.order,
            timestamp_us: 0,
        };
        AcquireBuilder::new(self.handle(), Wanted::Permits(wanted))
    }

    /// Returns the state of the pool, with its holders and waiters.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`](crate::Error::Refused) for a name that is empty or too long,
    /// [`Error::Unavailable`](crate::Error::Unavailable),
    /// [`Error::Uncertain`](crate::Error::Uncertain) and [`Error::Closed`](crate::Error::Closed).
    pub async fn describe(&self) -> Result<PoolStatus> {
        check_len("name", &self.name, 1, KEY_LEN_MAX)?;
        let name = self.name.clone();
        self.handle()?
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

    /// Sets the capacity, even while permits are held, and returns the previous capacity; `None` if there was no such
    /// pool. Held permits stay held, even if they exceed the new capacity.
    ///
    /// # Errors
    ///
    /// The errors of [`Semaphore::describe`]. Also [`Error::Refused`](crate::Error::Refused) with `bad_input` for the
    /// capacity 0. If this handle has a [reason](Semaphore::reason), but the server is older and lacks
    /// [`Capabilities::REASON`](crate::Capabilities), the refusal has the field `reason`. A refused call leaves the
    /// capacity unchanged.
    pub async fn set_capacity(&self, capacity: u64) -> Result<Option<u64>> {
        check_positive("capacity", capacity)?;
        self.put_capacity(capacity).await
    }

    /// Removes a pool whose capacity was set and returns that capacity; `None` if there was no such pool.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`](crate::Error::Busy) if permits of the pool are held or requested.
    /// [`Error::Refused`](crate::Error::Refused) for a name that is empty or too long, and for a
    /// [reason](Semaphore::reason) that is too long. Also for any reason, with the field `reason`, if the server is
    /// older and lacks [`Capabilities::REASON`](crate::Capabilities). [`Error::Unavailable`](crate::Error::Unavailable)
    /// if there is no connection or the server cannot serve the request now.
    /// [`Error::Uncertain`](crate::Error::Uncertain) if no response to the sent request arrived in time: the pool may
    /// be removed. [`Error::Closed`](crate::Error::Closed) if the client was closed. Servers of version 0.1.0 refuse
    /// the request with `bad_input`.
    pub async fn remove_pool(&self) -> Result<Option<u64>> {
        self.put_capacity(0).await
    }

    /// Sets the capacity; 0 removes the pool. Returns the previous capacity, or `None` if the pool did not exist.
    async fn put_capacity(&self, capacity: u64) -> Result<Option<u64>> {
        check_len("name", &self.name, 1, KEY_LEN_MAX)?;
        check_len("reason", &self.reason, 0, REASON_LEN_MAX)?;
        let (name, order, reason) = (self.name.clone(), self.order, self.reason.clone());
        let need = (!reason.is_empty()).then_some(Need::REASON);
        self.handle()?
            .change(
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

    fn handle(&self) -> Result<Arc<Handle>> {
        self.space.handle(NamespaceKind::Pool)
    }
}

impl IntoFuture for Semaphore {
    type Output = Result<Permit>;
    type IntoFuture = AcquireFuture<Permit>;

    /// Acquires one permit, like [`Semaphore::acquire`].
    fn into_future(self) -> AcquireFuture<Permit> {
        self.acquire().into_future()
    }
}

impl AcquireBuilder<Permit> {
    /// Sets the timestamp that orders this request in a pool that serves [by timestamp](Semaphore::by_timestamp).
    /// Default: the server's current time. The server moves a timestamp that differs by more than one hour from its own
    /// time to that limit.
    pub fn timestamp(mut self, timestamp: SystemTime) -> Self {
        if let Wanted::Permits(wanted) = &mut self.claim.wanted {
            let since = timestamp.duration_since(UNIX_EPOCH).unwrap_or_default();
            // 0 would select the server's current time.
            wanted.timestamp_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX).max(1);
        }
        self
    }
}

/// Guard of held permits. It is a [`Lock`] whose key is the name of the pool.
#[must_use = "dropping the guard releases the permits"]
pub struct Permit {
    lock: Lock,
}

guard_of_one_lock!(Permit);
