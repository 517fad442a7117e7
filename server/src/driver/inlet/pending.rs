//! Pending requests, as their callers hold them.

use super::{ClosedLane, Local, Reply};
use crate::edge::inlet::{InletState, Listener};
use crate::mail::ConnectionKey;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Request for which the worker may still produce replies. Dropping it tells the inlet that no caller awaits them.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) key: ConnectionKey,
    pub(super) listener: Listener,
}

impl Pending {
    /// Polls the listener of the request.
    fn poll(
        &mut self,
        poll: impl FnOnce(&mut Listener, &mut InletState) -> Poll<Option<Reply>>,
    ) -> Poll<Result<Reply, ClosedLane>> {
        let Self { key, listener } = self;
        let polled = Local::with(|local| local.with_inlet(*key, |inlet, _| poll(listener, inlet)));
        polled.unwrap_or(Poll::Ready(None)).map(|reply| reply.ok_or_else(|| self.closed()))
    }

    /// Returns the reason why the lane is closed.
    #[cold]
    fn closed(&self) -> ClosedLane {
        let denial = Local::with(|local| local.with_inlet(self.key, |inlet, _| inlet.denial().cloned()));
        ClosedLane { denial: denial.flatten() }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.listener.is_listening() {
            return;
        }
        let Self { key, listener } = self;
        Local::with(|local| {
            let left = local.with_inlet(*key, |inlet, worker| listener.leave(inlet, worker, local.now()));
            if left.is_some() {
                local.follow_up_alone();
            }
        });
    }
}

/// Future of a single response. If the response has already arrived, the first poll returns it.
#[derive(Debug)]
pub(crate) struct ReplyFuture(pub(super) Pending);

impl Future for ReplyFuture {
    type Output = Result<Reply, ClosedLane>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self(pending) = self.get_mut();
        pending.poll(|listener, inlet| listener.poll_answer(inlet, context))
    }
}

/// Stream of all replies to one acquire or watch.
#[derive(Debug)]
pub(crate) struct ReplyStream(pub(super) Pending);

impl ReplyStream {
    /// Polls for the next reply: the response, or an event before or after it.
    pub(crate) fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<Reply, ClosedLane>> {
        self.0.poll(|listener, inlet| listener.poll_reply(inlet, context))
    }
}
