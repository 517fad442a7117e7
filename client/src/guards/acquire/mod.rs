//! The builder of an acquire, with its settings.

mod future;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;
use waymaker_protocol::TraceParent;

use super::guard::Guard;
use super::lock::Lock;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::loss::{LossCallback, LossReason};
use crate::request::check::{lease_milliseconds, milliseconds};
use crate::request::claim::{Claim, FenceScope, Lease, Wanted};
pub use future::AcquireFuture;

/// A request to acquire. Await it to get a guard, by default a [`Lock`]:
///
/// ```
/// # use std::time::Duration;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
/// let lock = client.write("orders/17").wait(Duration::from_secs(2)).lease(Duration::from_secs(10)).await?;
/// println!("fence {}", lock.fence());
/// lock.release().await?;
/// # Ok(())
/// # });
/// ```
///
/// Without settings, it waits until it is granted. The lease has the default length of the namespace, 30 s unless the
/// server is configured otherwise, and is renewed while the guard lives.
///
/// # Errors
///
/// - [`Error::Busy`] if a try is not granted at once, and [`Error::Timeout`] if the wait ends first. Both describe the
///   claim in front.
/// - [`Error::Frozen`] if an operator froze the key.
/// - [`Error::CapacityMismatch`] if the pool has another capacity.
/// - [`Error::Refused`] for invalid settings and for other refusals.
/// - [`Error::Unavailable`] if the server is unreachable or cannot grant the request now.
/// - [`Error::Uncertain`] if the request was sent and got no response in time, or if the server failed.
/// - [`Error::Cancelled`] if the claim ended while it waited, for example by an operator.
/// - [`Error::Lost`] if the lease is shorter than a round trip, or if a newer acquire with the same request id took
///   over the hold before the guard was made.
/// - [`Error::Closed`] if the client is closed.
#[must_use = "the request is sent only when it is awaited"]
pub struct AcquireBuilder<G = Lock> {
    /// Connection for the request, or the error of opening it.
    handle: Result<Arc<Handle>>,
    pub(crate) claim: Claim,
    /// `None` waits without limit.
    wait: Option<Duration>,
    renew: bool,
    on_loss: Option<LossCallback>,
    /// First invalid setting; returned when the builder is awaited.
    problem: Option<Error>,
    guard: PhantomData<fn() -> G>,
}

impl<G> AcquireBuilder<G> {
    pub(crate) fn new(handle: Result<Arc<Handle>>, wanted: Wanted) -> Self {
        let claim = Claim::new(wanted);
        Self { handle, claim, wait: None, renew: true, on_loss: None, problem: None, guard: PhantomData }
    }

    /// Stores the error of an invalid setting, unless an earlier setting was invalid.
    pub(crate) fn check(&mut self, result: Result<()>) {
        if let (None, Err(error)) = (&self.problem, result) {
            self.problem = Some(error);
        }
    }

    /// Limits the wait to this length. By default, the wait is unlimited. Zero is the same as
    /// [`AcquireBuilder::try_`].
    ///
    /// The server ends the wait. If its response does not arrive within another half second, for example because the
    /// network fell silent, the client gives up with [`Error::Uncertain`] and withdraws the request. Without a
    /// connection, it gives up at the end of the wait, or earlier after
    /// [`ClientBuilder::connect_timeout`](crate::ClientBuilder::connect_timeout). It then returns
    /// [`Error::Unavailable`] if the request was never sent.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Does not wait: the request is granted at once or fails with [`Error::Busy`]. If no response arrives within
    /// [`ClientBuilder::request_timeout`](crate::ClientBuilder::request_timeout), the client gives up with
    /// [`Error::Uncertain`], or with [`Error::Unavailable`] if the request was never sent.
    pub fn try_(self) -> Self {
        self.wait(Duration::ZERO)
    }

    /// Sets the length of the lease. The server refuses a lease below 10 ms. It shortens a lease above its maximum, 24
    /// h unless configured otherwise, and [`Lock::is_clamped`] then returns true.
    pub fn lease(mut self, lease: Duration) -> Self {
        let checked = lease_milliseconds(lease).map(|ms| self.claim.lease = Lease::Own { ms });
        self.check(checked);
        self
    }

    /// Puts the lock on the session's lease, instead of on a lease of its own. One message then renews all such locks
    /// of the session, and those that are still held end with the session.
    pub fn session_lease(mut self) -> Self {
        self.claim.lease = Lease::Session;
        self
    }

    /// Sets the required durability of the fence and of the hold. Default: [`FenceScope::Ephemeral`], unless the server
    /// requires more for the namespace.
    pub fn scope(mut self, scope: FenceScope) -> Self {
        self.claim.scope = Some(scope);
        self
    }

    /// Names this logical acquire, 1 to 256 bytes. While its claim lives, any later acquire with the same name and
    /// owner for the same keys finds that claim, from any connection. The newest guard owns the hold; older guards are
    /// lost with [`LossReason::Superseded`].
    ///
    /// A guard of this client is superseded before the newer guard exists. A guard of another client is superseded when
    /// that client receives the server's event about the takeover. Until then it counts as held, even if the newer
    /// owner has released the lock. So a caller that moves from one client to another must first await the responses to
    /// its acquires, and then ignore its older guards:
    ///
    /// 1. Before the second client acquires, the last acquire of the first client must have got its response. An
    ///    abandoned acquire may still be on its way, and would take the hold from the second client.
    /// 2. After the second client acquires, the caller ignores all guards of the first client.
    ///
    /// A caller that moves between clients may be unable to await all responses of the first client or to ignore its
    /// guards. Such a caller must not rely on any guard. The protected resource must compare
    /// [`Lock::fence`](crate::Lock::fence) instead, and reject a fence below the largest that it has seen.
    pub fn request_id(mut self, request_id: impl AsRef<[u8]>) -> Self {
        self.claim.request_id = Some(request_id.as_ref().into());
        self
    }

    /// Sets the owner that other clients see, instead of the client's owner; at most 256 bytes.
    pub fn owner(mut self, owner: impl AsRef<[u8]>) -> Self {
        self.claim.owner = Some(owner.as_ref().into());
        self
    }

    /// Sets the metadata that lists of locks and of waiting claims show, at most 4096 bytes. Default: empty.
    pub fn metadata(mut self, metadata: impl AsRef<[u8]>) -> Self {
        self.claim.metadata = Some(metadata.as_ref().into());
        self
    }

    /// Names the span of the caller. A server that exports traces then records the acquire as a part of the caller's
    /// trace. The client sends no trace context to a server that does not support it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
    /// use waymaker_client::TraceParent;
    ///
    /// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let mut acquire = client.write("orders/17");
    /// if let Ok(traceparent) = header.parse::<TraceParent>() {
    ///     acquire = acquire.traceparent(traceparent);
    /// }
    /// # acquire.await?.release().await
    /// # });
    /// ```
    pub fn traceparent(mut self, traceparent: TraceParent) -> Self {
        self.claim.traceparent = Some(traceparent);
        self
    }

    /// Lets the server end the hold `delay` after the loss of the connection, if that is before the end of its lease.
    /// Resuming the connection in time keeps the hold.
    ///
    /// The server may notice the loss before the client does. So the local deadline is never more than `delay` after
    /// the client sent the newest request that the server has answered. The client ignores a `delay` below one second
    /// in the local deadline, because it does not send requests often enough. Another client may then get the lock
    /// before this client notices the loss, and only the fence protects.
    pub fn release_after(mut self, delay: Duration) -> Self {
        self.claim.release_after_ms = Some(milliseconds(delay));
        self
    }

    /// Sets whether the client renews the lease while the guard lives. Default: `true`. A lock on the session's lease
    /// is always renewed, with the session.
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// Sets a callback that runs once if the lock is lost, or the first of the locks of a multi-key claim. It runs in
    /// the task that owns the connection, so it must not block. If it panics, the client logs the panic and continues.
    pub fn on_loss(mut self, callback: impl FnOnce(LossReason) + Send + 'static) -> Self {
        self.on_loss = Some(LossCallback::new(callback));
        self
    }
}

impl<G: Guard> AcquireBuilder<G> {
    /// Acquires, runs `work` while the claim is held, and releases.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doctest.rs"))(async |client: waymaker_client::Client, _: &str| {
    /// let rows = client
    ///     .write("reports/daily")
    ///     .wait(Duration::from_secs(5))
    ///     .run(async |lock| {
    ///         // The lease is renewed until this ends. If the lock is lost, this is dropped where it awaits.
    ///         write_report(lock.fence()).await
    ///     })
    ///     .await?;
    /// # let _: u32 = rows;
    /// # Ok(())
    /// # });
    /// # async fn write_report(fence: u64) -> u32 { 0 }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of awaiting the builder. Also [`Error::Lost`] if the server reported the loss of the lock, or its
    /// local deadline passed, before the work ended. `run` then drops the work at its current await; if the work has
    /// already ended, its last steps may be unprotected.
    ///
    /// A release that fails because the server is unreachable or does not respond is not an error: the work was done
    /// under the lock, and the lock ends with its lease at the latest.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before the grant withdraws the request. Dropping it later drops the work at its current
    /// await and releases the lock.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&G) -> T) -> Result<T> {
        let guard = self.await?;
        let loss = guard.loss();
        let value = tokio::select! {
            biased;
            reason = loss => return Err(Error::Lost(reason)),
            value = work(&guard).instrument(guard.span()) => value,
        };
        // The task that reports losses may not have run since the local deadline passed. The release reads the clock
        // itself, and returns `Lost` in that case.
        match guard.give_back().await {
            Ok(()) | Err(Error::Unavailable(_) | Error::Uncertain(_) | Error::Closed) => Ok(value),
            Err(error) => Err(error),
        }
    }
}

impl AcquireBuilder<Lock> {
    /// Sets the priority. Default: 0. The claim is served as if it had arrived 10 s earlier for each unit of the
    /// priority, at most 60 s.
    pub fn priority(mut self, priority: u32) -> Self {
        self.claim.priority = Some(priority);
        self
    }
}

impl<G> fmt::Debug for AcquireBuilder<G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AcquireBuilder")
            .field("claim", &self.claim)
            .field("wait", &self.wait)
            .field("renew", &self.renew)
            .finish_non_exhaustive()
    }
}
