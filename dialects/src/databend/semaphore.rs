//! One semaphore, before it is acquired.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use waymaker_client::Client;

use super::{AcquireError, Acquirer, Permit};

/// A semaphore of which one permit is to be acquired.
#[derive(Debug)]
pub struct Semaphore {
    client: Client,
    /// Without slashes at its end.
    prefix: String,
    capacity: u64,
    permits: u64,
    /// The place in the order of times; `None` where the order is that of arrival.
    timestamp: Option<SystemTime>,
    permit_ttl: Duration,
}

impl Semaphore {
    /// Acquires a permit of the semaphore with this name, which has so many, in order of arrival. Waits until it is granted;
    /// dropping the future gives up the place in the queue.
    ///
    /// `id` is what operators see, and need not be unique. `lease` is for how long the permit outlives its holder.
    ///
    /// # Errors
    ///
    /// As [`Acquirer::acquire`].
    pub async fn new_acquired(
        client: Client,
        prefix: impl ToString,
        capacity: u64,
        id: impl ToString,
        lease: Duration,
    ) -> Result<Permit, AcquireError> {
        Self::new(client, prefix, capacity, lease).await.acquire(id).await
    }

    /// The same in the order of the times that those who wait bring, since the Unix epoch; this machine's now if not given.
    ///
    /// # Errors
    ///
    /// As [`Acquirer::acquire`].
    pub async fn new_acquired_by_time(
        client: Client,
        prefix: impl ToString,
        capacity: u64,
        id: impl ToString,
        seq_timestamp: Option<Duration>,
        lease: Duration,
    ) -> Result<Permit, AcquireError> {
        let mut semaphore = Self::new(client, prefix, capacity, lease).await;
        semaphore.set_time_based_seq(seq_timestamp);
        semaphore.acquire(id).await
    }

    /// The semaphore with this name, which has so many permits. Slashes at the end of the name are dropped. Nothing is asked
    /// of the server yet.
    pub async fn new(client: Client, prefix: impl ToString, capacity: u64, permit_ttl: Duration) -> Self {
        let prefix = prefix.to_string().trim_end_matches('/').to_owned();
        Self { client, prefix, capacity, permits: 1, timestamp: None, permit_ttl }
    }

    /// Waits in the order of times: at this one, since the Unix epoch, or at this machine's now.
    pub fn set_time_based_seq(&mut self, timestamp: Option<Duration>) {
        let time = timestamp.map_or_else(|| Some(SystemTime::now()), |since| UNIX_EPOCH.checked_add(since));
        self.timestamp = Some(time.unwrap_or_else(SystemTime::now));
    }

    /// Waits in order of arrival, as is done without any setting.
    pub fn set_storage_based_seq(&mut self) {
        self.timestamp = None;
    }

    /// Asks for so many permits at once, which are granted together and held as one; 1 if not set, at most the capacity.
    pub fn set_permits(&mut self, permits: u64) {
        self.permits = permits;
    }

    /// Acquires a permit.
    ///
    /// # Errors
    ///
    /// As [`Acquirer::acquire`].
    pub async fn acquire(self, id: impl ToString) -> Result<Permit, AcquireError> {
        let lease = self.permit_ttl;
        self.new_acquirer(id, lease).acquire().await
    }

    /// What acquires a permit step by step.
    #[expect(clippy::needless_pass_by_value, reason = "a label of any type, as in the original")]
    pub fn new_acquirer(self, id: impl ToString, lease: Duration) -> Acquirer {
        let id = id.to_string();
        let name = format!("Semaphore({})-Acquirer(id={id})", self.prefix);
        let pool = self.client.semaphore(&self.prefix, self.capacity);
        let builder = match self.timestamp {
            Some(timestamp) => pool.by_timestamp().permits(self.permits).timestamp(timestamp),
            None => pool.permits(self.permits),
        };
        Acquirer::new(name, builder.owner(id).lease(lease))
    }
}
