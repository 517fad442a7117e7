//! Asking for a lock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::claim::{Claim, FenceScope, Lease, Wait, lease_milliseconds, milliseconds};
use crate::client::Shared;
use crate::error::{Error, Result};
use crate::job::{AcquireJob, Command, Job};
use crate::lock::Lock;
use crate::loss::{LossCallback, LossReason};

/// A lock to be asked for. Await it to get a [`Lock`]:
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(client: waymaker_client::Client) -> waymaker_client::Result<()> {
/// let lock = client.write("orders/17").wait(Duration::from_secs(2)).lease(Duration::from_secs(10)).await?;
/// println!("fence {}", lock.fence());
/// lock.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Without settings it waits until granted, for a lease of the server's choice (30 s), renewed while the guard lives.
///
/// # Errors
///
/// [`Error::Busy`] if a try met somebody, [`Error::Timeout`] if the wait ended first, both naming who is in front;
/// [`Error::Refused`] for other refusals; [`Error::Disconnected`] if the connection was lost for too long;
/// [`Error::Lost`] if the lease is shorter than a round trip; [`Error::Closed`].
#[must_use = "nothing is asked for until it is awaited"]
pub struct AcquireBuilder {
    shared: Arc<Shared>,
    claim: Claim,
    /// `None` waits without limit.
    wait: Option<Duration>,
    renew: bool,
    on_loss: Option<LossCallback>,
    /// The first setting that makes no sense, told when it is awaited.
    problem: Option<Error>,
}

impl AcquireBuilder {
    pub(crate) fn new(shared: Arc<Shared>, key: &[u8], read: bool) -> Self {
        let claim = Claim::new(key, read);
        Self { shared, claim, wait: None, renew: true, on_loss: None, problem: None }
    }

    /// Waits no longer than this. Without it, without limit. Zero is the same as [`AcquireBuilder::try_`].
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Does not wait: granted at once, or [`Error::Busy`].
    pub fn try_(self) -> Self {
        self.wait(Duration::ZERO)
    }

    /// The length of the lease, 10 ms to 24 h. What is longer is cut and [`Lock::is_clamped`] says so.
    pub fn lease(mut self, lease: Duration) -> Self {
        match lease_milliseconds(lease) {
            Ok(ms) => self.claim.lease = Lease::Own { ms },
            Err(error) => self.problem = self.problem.or(Some(error)),
        }
        self
    }

    /// Hangs the lock on the session's lease instead of one of its own: one message keeps alive any number of locks,
    /// and they end together.
    pub fn session_lease(mut self) -> Self {
        self.claim.lease = Lease::Session;
        self
    }

    /// Larger is served earlier. 0 is the same as none.
    pub fn priority(mut self, priority: u32) -> Self {
        self.claim.priority = Some(priority);
        self
    }

    /// How durable the fence must be.
    pub fn scope(mut self, scope: FenceScope) -> Self {
        self.claim.scope = Some(scope);
        self
    }

    /// Names this logical acquire, 1 to 256 bytes: if it is asked for again, from whichever connection, while its
    /// claim lives, that claim is the answer and no second one comes to be.
    pub fn request_id(mut self, request_id: impl AsRef<[u8]>) -> Self {
        self.claim.request_id = Some(request_id.as_ref().into());
        self
    }

    /// Whom others see, instead of the client's owner; at most 256 bytes.
    pub fn owner(mut self, owner: impl AsRef<[u8]>) -> Self {
        self.claim.owner = Some(owner.as_ref().into());
        self
    }

    /// Shown to whoever lists the lock, at most 4096 bytes.
    pub fn metadata(mut self, metadata: impl AsRef<[u8]>) -> Self {
        self.claim.metadata = Some(metadata.as_ref().into());
        self
    }

    /// Ends the hold so long after the connection was lost, if that is before the end of its lease.
    ///
    /// The server may see the loss before the client does, so the local deadline also lies no further than this behind
    /// the last sign of life from the server. Below one second that cannot be kept up: such a lock may be somebody
    /// else's before this client knows, and only its fence tells.
    pub fn release_after(mut self, delay: Duration) -> Self {
        self.claim.release_after_ms = Some(milliseconds(delay));
        self
    }

    /// Whether the lease is renewed while the guard lives. True if not set. A lock on the session's lease is renewed
    /// with the session.
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// Called once if the lock is lost, from the task that owns the connection: it must neither block nor panic.
    pub fn on_loss(mut self, callback: impl FnOnce(LossReason) + Send + 'static) -> Self {
        self.on_loss = Some(Box::new(callback));
        self
    }
}

impl IntoFuture for AcquireBuilder {
    type Output = Result<Lock>;
    type IntoFuture = AcquireFuture;

    fn into_future(self) -> AcquireFuture {
        AcquireFuture { shared: Arc::clone(&self.shared), state: State::New(Some(Box::new(self))) }
    }
}

/// A lock that is being asked for.
///
/// Dropping it before it is ready takes the request back, whatever the runtime does: the server is told to cancel, and
/// if the grant is on its way already, it is released on arrival.
#[must_use = "futures do nothing unless awaited"]
pub struct AcquireFuture {
    shared: Arc<Shared>,
    state: State,
}

enum State {
    New(Option<Box<AcquireBuilder>>),
    Sent { token: u64, answer: oneshot::Receiver<Result<Lock>> },
    Done,
}

impl Future for AcquireFuture {
    type Output = Result<Lock>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Lock>> {
        if let State::New(builder) = &mut self.state {
            let builder = builder.take().expect("a future that returned its error is done");
            match send(*builder) {
                Ok(sent) => self.state = sent,
                Err(error) => {
                    self.state = State::Done;
                    return Poll::Ready(Err(error));
                }
            }
        }
        let State::Sent { answer, .. } = &mut self.state else {
            panic!("polled after it was ready");
        };
        let result = std::task::ready!(Pin::new(answer).poll(context));
        self.state = State::Done;
        Poll::Ready(result.unwrap_or(Err(Error::Closed)))
    }
}

fn send(builder: AcquireBuilder) -> Result<State> {
    let AcquireBuilder { shared, claim, wait, renew, on_loss, problem } = builder;
    problem.map_or(Ok(()), Err)?;
    claim.check()?;
    let wait = match wait {
        None => Wait::Forever,
        Some(Duration::ZERO) => Wait::Try,
        Some(wait) => Wait::Until(shared.clock.now().after(wait)),
    };
    let token = shared.next_token();
    let (reply, answer) = oneshot::channel();
    let job = AcquireJob { token, claim, wait, renew, on_loss, reply: Some(reply) };
    shared.submit(Job::Acquire(job))?;
    Ok(State::Sent { token, answer })
}

impl Drop for AcquireFuture {
    fn drop(&mut self) {
        if let State::Sent { token, answer } = &mut self.state {
            // A grant that arrived and was not looked at is dropped with the receiver, and releases itself.
            answer.close();
            // Without the connection task there is nothing to take back.
            let _ = self.shared.command(Command::Abandon { token: *token });
        }
    }
}

impl fmt::Debug for AcquireBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AcquireBuilder")
            .field("claim", &self.claim)
            .field("wait", &self.wait)
            .field("renew", &self.renew)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AcquireFuture {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AcquireFuture").finish_non_exhaustive()
    }
}
