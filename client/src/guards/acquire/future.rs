//! The future of an acquire: it sends the request, waits for the holds and makes guards of them.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::field::{Empty, display};
use tracing::{Span, debug_span};
use waymaker_protocol::Readable;

use super::AcquireBuilder;
use crate::clock::BootTime;
use crate::error::{Error, Result};
use crate::guards::guard::Guard;
use crate::guards::lock::Lock;
use crate::handle::{Command, Handle};
use crate::hold::Hold;
use crate::one_or_more::OneOrMore;
use crate::request::claim::Wait;
use crate::request::job::{AcquireJob, Job};
use crate::request::queue_place::QueuePlace;
use crate::request::reply::Reply;

impl<G: Guard> IntoFuture for AcquireBuilder<G> {
    type Output = Result<G>;
    type IntoFuture = AcquireFuture<G>;

    fn into_future(self) -> AcquireFuture<G> {
        AcquireFuture { state: State::New(Box::new(self)) }
    }
}

/// Future of an acquire, from an [`AcquireBuilder`]. It sends the acquire when it is first polled.
///
/// # Cancel safety
///
/// Dropping the future before it is ready withdraws the request; this works on any thread, with or without a runtime.
/// The client cancels the request on the server. If the grant is already on its way, the client releases it on arrival.
///
/// # Panics
///
/// Panics if it is polled again after it was ready.
#[must_use = "futures do nothing unless awaited"]
pub struct AcquireFuture<G = Lock> {
    state: State<G>,
}

enum State<G> {
    New(Box<AcquireBuilder<G>>),
    Sent(Sent),
    Done,
}

struct Sent {
    /// Span from the request to the response.
    span: Span,
    handle: Arc<Handle>,
    token: u64,
    answer: oneshot::Receiver<Result<OneOrMore<Arc<Hold>>>>,
}

impl<G: Guard> Future for AcquireFuture<G> {
    type Output = Result<G>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<G>> {
        let mut sent = match std::mem::replace(&mut self.state, State::Done) {
            State::New(builder) => match builder.send(None) {
                Ok(sent) => sent,
                Err(error) => return Poll::Ready(Err(error)),
            },
            State::Sent(sent) => sent,
            State::Done => panic!("polled after completion"),
        };
        match Pin::new(&mut sent.answer).poll(context) {
            Poll::Pending => {
                self.state = State::Sent(sent);
                Poll::Pending
            }
            Poll::Ready(result) => Poll::Ready(sent.finished(result.unwrap_or(Err(Error::Closed)))),
        }
    }
}

impl<G> AcquireBuilder<G> {
    /// Sends the request. Returns its future, and a receiver that gets the queue position if the request has to wait.
    pub(crate) fn send_for_place(self) -> Result<(AcquireFuture<G>, oneshot::Receiver<QueuePlace>)> {
        let (on_queued, place) = oneshot::channel();
        Ok((AcquireFuture { state: State::Sent(self.send(Some(on_queued))?) }, place))
    }

    /// Sends the request. `on_queued` receives the queue position if the request has to wait.
    fn send(self, on_queued: Option<oneshot::Sender<QueuePlace>>) -> Result<Sent> {
        let Self { handle, claim, wait, renew, on_loss, problem, .. } = self;
        problem.map_or(Ok(()), Err)?;
        claim.check()?;
        let handle = handle?;
        let wait = match wait {
            None => Wait::Forever,
            Some(Duration::ZERO) => Wait::Try,
            Some(wait) => Wait::Until(handle.clock.now().after(wait)),
        };
        let key = claim.hold_key().0;
        let span = debug_span!("acquire", key = %Readable(&key), ?wait, fence = Empty, error = Empty);
        let token = handle.next_token();
        let (reply, answer) = Reply::channel();
        let timer = BootTime::NEVER;
        let late_grant_count = 0;
        let job =
            AcquireJob { token, claim, wait, timer, renew, late_grant_count, on_loss, on_queued, reply };
        handle.submit(Job::Acquire(Box::new(job)))?;
        Ok(Sent { span, handle, token, answer })
    }
}

impl Sent {
    /// Converts the response to the guard of the granted holds, or to the error, and records the fence or the error in
    /// the span.
    fn finished<G: Guard>(self, result: Result<OneOrMore<Arc<Hold>>>) -> Result<G> {
        let Self { span: acquiring, handle, .. } = self;
        match result {
            Ok(holds) => {
                let lock = |hold: Arc<Hold>, handle| {
                    acquiring.record("fence", hold.fence);
                    let span = debug_span!("hold", key = %Readable(&hold.key), fence = hold.fence);
                    Lock::new(hold, handle, span)
                };
                let locks = match holds {
                    OneOrMore::One(hold) => OneOrMore::One(lock(hold, handle)),
                    OneOrMore::More(holds) => {
                        let lock = |hold| lock(hold, Arc::clone(&handle));
                        OneOrMore::More(holds.into_iter().map(lock).collect())
                    }
                };
                Ok(G::from_locks(locks))
            }
            Err(error) => {
                acquiring.record("error", display(&error));
                Err(error)
            }
        }
    }
}

impl<G> Drop for AcquireFuture<G> {
    fn drop(&mut self) {
        if let State::Sent(Sent { handle, token, answer, .. }) = &mut self.state {
            answer.close();
            // Without the connection task there is no request to withdraw.
            let _ = handle.command(Command::Abandon { token: *token });
            // If the grant has arrived but was not read, make guards of its holds: dropping them releases the holds.
            if let Ok(Ok(holds)) = answer.try_recv() {
                for hold in holds.iter() {
                    drop(Lock::new(Arc::clone(hold), Arc::clone(handle), Span::none()));
                }
            }
        }
    }
}

impl<G> fmt::Debug for AcquireFuture<G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AcquireFuture").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    use crate::clock::BootClock;
    use crate::hold::{GuardId, LeaseMs, SharedInstant};
    use crate::loss::Loss;
    use crate::request::claim::Wanted;
    use waymaker_protocol::LockId;

    fn hold(number: u64) -> Arc<Hold> {
        Arc::new(Hold {
            key: b"k".as_slice().into(),
            guard: GuardId { hold: LockId { place: number, secret: 0 }, number },
            fence: 1,
            shared: false,
            clamped: false,
            lease_ms: LeaseMs::new(1_000),
            bound: SharedInstant::new(BootTime::NEVER),
            session: None,
            tie: None,
            loss: Loss::default(),
        })
    }

    #[test]
    fn a_dropped_future_releases_a_grant_that_arrived_unread() {
        for count in [1, 2] {
            let (handle, mut commands) = Handle::new(BootClock::shared());
            let wanted = Wanted::Key { key: b"k".as_slice().into(), shared: false };
            let mut future = AcquireBuilder::<Lock>::new(Ok(handle), wanted).into_future();
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut future).poll(&mut context).is_pending());
            let Ok(Command::Submit(Job::Acquire(job))) = commands.try_recv() else { panic!("no acquire") };
            let holds = match count {
                1 => OneOrMore::One(hold(1)),
                _ => OneOrMore::More((1..=count).map(hold).collect()),
            };
            assert!(job.reply.deliver(holds).is_none(), "the caller still waits");
            drop(future);
            assert!(matches!(commands.try_recv(), Ok(Command::Abandon { .. })));
            for number in 1..=count {
                let Ok(Command::Release { hold, .. }) = commands.try_recv() else { panic!("no release") };
                assert_eq!(hold.guard.number, number);
            }
            assert!(commands.try_recv().is_err());
        }
    }
}
