//! Heartbeats in the background.

use std::future::poll_fn;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, watch};
use waymaker_client::internal::{self, margin};
use waymaker_client::{BootTime, LossReason, Timer};

use super::{Error, HeartbeatLockInput, Lock, Locker, Result};

/// A lock that is kept in the background, from
/// [`Locker::start_background_heartbeats`](super::Locker::start_background_heartbeats). Dropping it stops the heartbeats; the
/// lock stays.
#[must_use = "dropping it stops the heartbeats"]
#[derive(Debug)]
pub struct BackgroundHeartbeats {
    lock: watch::Receiver<Lock>,
    errors: mpsc::Receiver<Error>,
}

/// The task that sends them.
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
        // Room for the one error that there can be: it waits for no reader.
        let (error_sender, errors) = mpsc::channel(1);
        let heartbeats = Heartbeats { locker, interval, lease, lock: lock_sender, errors: error_sender };
        internal::spawn(&client, heartbeats.run(timer));
        Ok(Self { lock, errors })
    }

    /// The lock as of the last heartbeat that succeeded.
    pub fn lock(&self) -> Lock {
        self.lock.borrow().clone()
    }

    /// The error that ended the heartbeats, once, or `None` after it or if they were stopped: there will be no more. May be
    /// dropped at any time without missing it.
    pub async fn error(&mut self) -> Option<Error> {
        self.errors.recv().await
    }

    /// Sends no more heartbeats. One that is on its way may still be served.
    pub fn stop(&mut self) {
        self.errors.close();
    }
}

/// How much of a lease its owner may believe in.
fn usable(lease: Duration) -> Duration {
    lease.saturating_sub(margin(lease))
}

impl Heartbeats {
    async fn run(self, timer: Box<dyn Timer>) {
        tokio::select! {
            () = self.errors.closed() => {}
            error = self.keep(timer) => {
                // Without a reader nobody wants to know.
                let _ = self.errors.try_send(Error::Heartbeat(Box::new(error)));
            }
        }
    }

    /// Ends with the first error, or at the local deadline. The deadline lies before the end of the lease on the server.
    async fn keep(&self, mut timer: Box<dyn Timer>) -> Error {
        let clock = internal::clock(&self.locker.client);
        let mut due = clock.now();
        let left = self.lock.borrow().leased_until.duration_since(SystemTime::now()).unwrap_or_default();
        // A heartbeat may revive an expired lock.
        let mut deadline = if left.is_zero() { BootTime::NEVER } else { due.after(usable(left)) };
        loop {
            // Those that a slow one has left no time for are left out.
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
