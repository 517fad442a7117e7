//! Heartbeats in the background.

use std::future::poll_fn;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, watch};
use waymaker_client::internal::{self, margin};
use waymaker_client::{BootTime, LossReason, Timer};

use super::{Error, HeartbeatLockInput, Lock, Locker, Result};

/// A lock kept by background heartbeats, from
/// [`Locker::start_background_heartbeats`](super::Locker::start_background_heartbeats). Dropping it stops the heartbeats; the
/// lock stays.
#[must_use = "dropping it stops the heartbeats"]
#[derive(Debug)]
pub struct BackgroundHeartbeats {
    lock: watch::Receiver<Lock>,
    errors: mpsc::Receiver<Error>,
}

/// The task that sends the heartbeats.
struct Heartbeats {
    locker: Locker,
    interval: Duration,
    lease: Duration,
    lock: watch::Sender<Lock>,
    errors: mpsc::Sender<Error>,
}

impl BackgroundHeartbeats {
    pub(super) fn start(locker: Locker, lock: Lock, interval: Duration, lease: Duration) -> Result<Self> {
        for (field, duration) in [("heartbeat_interval", interval), ("lease_duration", lease)] {
            if duration.is_zero() {
                return Err(Error::invalid(field, "must not be 0"));
            }
        }
        let client = locker.client.clone();
        let timer = internal::timer(&client)?;
        let (lock_sender, lock) = watch::channel(lock);
        // The heartbeats end with their first error, so one place is enough and the task never waits for a reader.
        let (error_sender, errors) = mpsc::channel(1);
        let heartbeats = Heartbeats { locker, interval, lease, lock: lock_sender, errors: error_sender };
        internal::spawn(&client, heartbeats.run(timer));
        Ok(Self { lock, errors })
    }

    /// Returns the lock as of the last successful heartbeat.
    pub fn lock(&self) -> Lock {
        self.lock.borrow().clone()
    }

    /// Returns the error that ended the heartbeats, once. Returns `None` after that error, and after the heartbeats were
    /// stopped. Dropping the future loses no error.
    pub async fn error(&mut self) -> Option<Error> {
        self.errors.recv().await
    }

    /// Stops the heartbeats. The server may still serve a heartbeat that is already sent.
    pub fn stop(&mut self) {
        self.errors.close();
    }
}

/// Returns the part of a lease in which its owner may believe.
fn usable(lease: Duration) -> Duration {
    lease.saturating_sub(margin(lease))
}

impl Heartbeats {
    async fn run(self, timer: Box<dyn Timer>) {
        tokio::select! {
            () = self.errors.closed() => {}
            error = self.keep(timer) => {
                // The receiver may be dropped; ignore the error.
                let _ = self.errors.try_send(Error::Heartbeat(Box::new(error)));
            }
        }
    }

    /// Sends heartbeats until one fails or the local deadline passes. The deadline lies before the end of the lease on the
    /// server.
    async fn keep(&self, mut timer: Box<dyn Timer>) -> Error {
        let clock = internal::clock(&self.locker.client);
        let mut due = clock.now();
        let left = self.lock.borrow().leased_until.duration_since(SystemTime::now()).unwrap_or_default();
        // A heartbeat may revive an expired lock.
        let mut deadline = if left.is_zero() { BootTime::NEVER } else { due.after(usable(left)) };
        loop {
            // A slow heartbeat may leave no time for the next ones; skip these.
            due = due.after(self.interval).max(clock.now());
            timer.arm(due.min(deadline));
            poll_fn(|context| timer.poll_fired(context)).await;
            let sent = clock.now();
            timer.arm(deadline);
            let original_lock = self.lock.borrow().clone();
            let input =
                HeartbeatLockInput { original_lock, lease_end: None, lease_duration: Some(self.lease) };
            let answer = tokio::select! {
                biased;
                answer = self.locker.heartbeat_lock(input) => answer,
                () = poll_fn(|context| timer.poll_fired(context)) => {
                    return Error::System(waymaker_client::Error::Lost(LossReason::LocalDeadline));
                }
            };
            match answer {
                Ok(lock) => self.lock.send_replace(lock),
                Err(error) => return error,
            };
            deadline = sent.after(usable(self.lease));
        }
    }
}
