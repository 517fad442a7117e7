//! The steps of both runners.

use std::error::Error as _;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{ConnectError, Status};
use waymaker_proto::locket::{Resource, TypeCode};

use super::{DEFAULT_TTL, Error, Locket, RETRY_INTERVAL, new_uuid};

/// Pause before the next attempt to reach a server.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The resource to hold, and the settings of its runner.
#[derive(Clone, Debug)]
pub(super) struct Tenure {
    pub(super) locket: Locket,
    pub(super) resource: Resource,
    pub(super) ttl_in_seconds: i64,
    pub(super) retry_interval: Duration,
}

/// A failed attempt.
pub(super) struct Failure {
    pub(super) uuid: String,
    pub(super) cause: Error,
}

impl Tenure {
    pub(super) fn new(locket: Locket, key: String, owner: String, type_code: TypeCode) -> Self {
        let resource = Resource { key, owner, type_code: type_code.into(), ..Resource::default() };
        let ttl_in_seconds = DEFAULT_TTL.as_secs() as i64;
        Self { locket, resource, ttl_in_seconds, retry_interval: RETRY_INTERVAL }
    }

    /// Holds the resource until the signal, and releases it then. Ends earlier if `on_loss` returns an error for a failed
    /// renewal.
    pub(super) async fn run<E>(
        self,
        signal: CancellationToken,
        ready: oneshot::Sender<()>,
        on_loss: impl Fn(Failure) -> Result<(), E>,
    ) -> Result<(), E> {
        self.hold(&signal, ready, on_loss).await?;
        self.release().await;
        Ok(())
    }

    async fn hold<E>(
        &self,
        signal: &CancellationToken,
        ready: oneshot::Sender<()>,
        on_loss: impl Fn(Failure) -> Result<(), E>,
    ) -> Result<(), E> {
        let Resource { key, owner, .. } = &self.resource;
        tracing::info!(key, owner, "started");
        let mut ready = Some(ready);
        let mut is_held = false;
        let mut attempt = tokio::select! {
            attempt = self.lock(None) => attempt,
            () = signal.cancelled() => return Ok(()),
        };
        if let Err(failure) = &attempt {
            let holder =
                self.locket.fetch(key).await.map_or_else(|error| error.to_string(), |found| found.owner);
            tracing::warn!(key, owner, holder, uuid = failure.uuid, error = %failure.cause, "failed to acquire lock");
        }
        let mut is_first = true;
        loop {
            match attempt {
                Ok(()) if is_held => {}
                Ok(()) => {
                    tracing::info!(key, owner, "acquired lock");
                    is_held = true;
                    if let Some(ready) = ready.take() {
                        // The receiver may be dropped; ignore the error.
                        let _ = ready.send(());
                    }
                }
                Err(failure) if is_held => {
                    tracing::error!(key, owner, uuid = failure.uuid, error = %failure.cause, "lost lock");
                    is_held = false;
                    on_loss(failure)?;
                }
                // The first failure is logged above.
                Err(_) if is_first => {}
                Err(Failure { cause: Error::LockCollision, .. }) => {}
                Err(Failure { uuid, cause }) => {
                    tracing::warn!(key, owner, uuid, error = %cause, "failed to acquire lock");
                }
            }
            is_first = false;
            tokio::select! {
                () = sleep(self.retry_interval) => {}
                () = signal.cancelled() => return Ok(()),
            }
            attempt = self.lock(Some(self.retry_interval)).await;
        }
    }

    /// Makes one attempt. An attempt with a deadline waits for an unreachable server until the deadline.
    async fn lock(&self, deadline: Option<Duration>) -> Result<(), Failure> {
        let uuid = new_uuid();
        let once = || self.locket.lock_as(&uuid, self.resource.clone(), self.ttl_in_seconds);
        let locked = match deadline {
            None => once().await,
            Some(deadline) => {
                let when_ready = async {
                    loop {
                        match once().await {
                            Err(Error::Status(status)) if is_unserved(&status) => {
                                sleep(CONNECT_PAUSE).await;
                            }
                            answer => return answer,
                        }
                    }
                };
                let too_late = |_| Err(Status::deadline_exceeded("the deadline passed").into());
                timeout(deadline, when_ready).await.unwrap_or_else(too_late)
            }
        };
        locked.map_err(|cause| Failure { uuid, cause })
    }

    async fn release(&self) {
        let Resource { key, owner, .. } = &self.resource;
        match timeout(self.retry_interval, self.locket.release(self.resource.clone())).await {
            Ok(Ok(())) => tracing::info!(key, owner, "released lock"),
            Ok(Err(error)) => tracing::warn!(key, owner, %error, "failed to release lock"),
            Err(_) => tracing::warn!(key, owner, "failed to release lock: the server did not respond"),
        }
    }
}

/// Returns whether the server cannot have served the call: there was no connection for it, the connection ended before the call was
/// sent, or the server refused the stream. Other libraries of gRPC make such a call again by themselves.
fn is_unserved(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        let is_unsent = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
        let is_refused = error.downcast_ref::<h2::Error>().is_some_and(|error| {
            let reason = error.reason();
            error.is_remote() && error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)
                // The GOAWAY of a server that stops names the last stream that it serves, and this one came later.
                || error.is_remote() && error.is_go_away() && reason == Some(h2::Reason::NO_ERROR)
        });
        if error.is::<ConnectError>() || is_unsent || is_refused {
            return true;
        }
        source = error.source();
    }
    false
}

/// Defines the settings of both runners.
macro_rules! settings {
    ($runner:ty) => {
        impl $runner {
            /// Sets the value that is stored with the key and replaced by every renewal.
            pub fn value(mut self, value: impl Into<String>) -> Self {
                self.0.resource.value = value.into();
                self
            }

            /// Sets the time to live without a renewal, in whole seconds, at least one.
            pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
                self.0.ttl_in_seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
                self
            }

            /// Sets the pause between an attempt and the next one. It is also the deadline of every attempt except the first.
            pub fn retry_interval(mut self, interval: std::time::Duration) -> Self {
                self.0.retry_interval = interval;
                self
            }
        }
    };
}
pub(super) use settings;
