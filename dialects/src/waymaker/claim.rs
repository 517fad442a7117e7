//! A claim with an id on the server, which is unlocked in the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use waymaker_client::internal::Backoff;
use waymaker_client::{BootClock, Clock};

use super::{Error, Waymaker};

/// Maximum time for attempts to unlock; afterwards the lease ends the lock.
const PATIENCE: Duration = Duration::from_secs(10);

/// A lock, or a queue position. When it is dropped, a task of the runtime in which it was created unlocks it.
#[derive(Debug)]
pub(super) struct Claim {
    client: Waymaker,
    key: String,
    id: String,
    runtime: Handle,
    is_armed: bool,
    is_superseded: Arc<AtomicBool>,
}

impl Claim {
    /// Creates a claim. Must be called inside a runtime.
    pub(super) fn new(client: &Waymaker, key: &str, id: String) -> Self {
        let (client, key) = (client.clone(), key.to_owned());
        let (runtime, is_superseded) = (Handle::current(), Arc::default());
        Self { client, key, id, runtime, is_armed: true, is_superseded }
    }

    pub(super) fn client(&self) -> &Waymaker {
        &self.client
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Unlocks the claim in the background.
    pub(super) fn give_back(self) {}

    /// Drops the claim without unlocking it.
    pub(super) fn forget(self) {
        drop(self.disarmed());
    }

    /// Returns the claim, which is no longer unlocked when it is dropped.
    pub(super) fn disarmed(mut self) -> Self {
        self.is_armed = false;
        self
    }

    /// Returns the flag that is set once another stream with the same `request_id` has the lock. Then this claim unlocks nothing.
    pub(super) fn superseded(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_superseded)
    }

    /// Unlocks the claim and waits for the response. If the caller drops the future, the claim is unlocked in the background.
    pub(super) async fn unlock(self) -> Result<(), Error> {
        // Dropped after the claim, so no attempt gets between an unlock that is given up and the one in the background.
        let _unlocking = self.client.unlocks.begin(&self.key);
        let mut claim = self;
        if claim.is_superseded.load(Ordering::Acquire) {
            return Err(Error::Superseded);
        }
        let result = unlock(&claim.client, &claim.key, &claim.id).await;
        claim.is_armed = false;
        result
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_armed && !self.is_superseded.load(Ordering::Acquire) {
            let (client, key, id) = (self.client.clone(), self.key.clone(), self.id.clone());
            let unlocking = client.unlocks.begin(&key);
            self.runtime.spawn(async move {
                // There is no caller left for the result.
                let _ = unlock(&client, &key, &id).await;
                drop(unlocking);
            });
        }
    }
}

async fn unlock(client: &Waymaker, key: &str, id: &str) -> Result<(), Error> {
    let (ends, mut backoff) = (Instant::now() + PATIENCE, Backoff::default());
    loop {
        match client.unlock(key, id).await {
            Err(error) if error.is_passing() && Instant::now() < ends => {
                sleep(backoff.next(BootClock.now())).await;
            }
            // The previous call may have succeeded although its response was lost.
            Err(Error::NotFound(_)) if !backoff.is_fresh() => return Ok(()),
            answer => return answer,
        }
    }
}
