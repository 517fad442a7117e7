//! The semaphore and its settings.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use waymaker_client::Client;

use super::{AcquireError, Acquirer, Permit};

/// A semaphore of which a permit can be acquired.
#[derive(Debug)]
pub struct Semaphore {
    client: Client,
    /// Name without slashes at its end.
    prefix: String,
    capacity: u64,
    permits: u64,
    /// Time of the request, for the order of times; `None` for the order of arrival.
    timestamp: Option<SystemTime>,
    permit_ttl: Duration,
}

impl Semaphore {
    /// Acquires a permit of the semaphore `prefix`, which has `capacity` permits, in order of arrival. Waits until it is
    /// granted; dropping the future gives up the queue position.
    ///
    /// Operators see `id`; it need not be unique. `lease` is the time for which the permit outlasts its holder.
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

    /// Acquires a permit like [`Semaphore::new_acquired`], in the order of the times of all requests. `seq_timestamp` is the
    /// time of this request since the Unix epoch; the default is the time of this machine.
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

    /// Returns the semaphore `prefix`, which has `capacity` permits. Slashes at the end of the name are dropped. This sends
    /// nothing to the server.
    pub async fn new(client: Client, prefix: impl ToString, capacity: u64, permit_ttl: Duration) -> Self {
        let prefix = prefix.to_string().trim_end_matches('/').to_owned();
        Self { client, prefix, capacity, permits: 1, timestamp: None, permit_ttl }
    }

    /// Selects the order of times, with this time since the Unix epoch; by default the time of this machine.
    pub fn set_time_based_seq(&mut self, timestamp: Option<Duration>) {
        let time = timestamp.map_or_else(|| Some(SystemTime::now()), |since| UNIX_EPOCH.checked_add(since));
        self.timestamp = Some(time.unwrap_or_else(SystemTime::now));
    }

    /// Selects the order of arrival, which is the default.
    pub fn set_storage_based_seq(&mut self) {
        self.timestamp = None;
    }

    /// Sets the number of permits, which are granted together and held as one: 1 by default, at most the capacity.
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

    /// Returns an acquirer, which acquires a permit step by step.
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
