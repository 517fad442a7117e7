//! Requests that were made, as whoever made them holds them.

use super::state::{Begun, InletState};
use super::{Closed, Local, OPCODE_OFFSET, Reply, is_answer};
use crate::worker::ConnectionKey;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A request that may still be spoken of. Dropping it tells the inlet that nobody listens.
#[derive(Debug)]
pub(super) struct Pending {
    key: ConnectionKey,
    /// Nothing where the lane is closed, or all is said.
    number: Option<u32>,
    /// What a CANCEL of it has to name, where it is to be undone once nobody listens. Empty when it is too late to cancel it.
    cancel_key: Option<Box<[u8]>>,
}

impl Pending {
    pub(super) fn new(key: ConnectionKey, begun: Option<Begun>, cancel_key: Option<&[u8]>) -> Self {
        // Mostly it is answered already.
        let is_answered = begun.is_none_or(|begun| begun.is_answered);
        let cancel_key = cancel_key.map(|key| if is_answered { Box::default() } else { key.into() });
        Self { key, number: begun.map(|begun| begun.number), cancel_key }
    }

    /// The next that was said, as `poll` takes it from the inlet. `None` is the end of the lane.
    fn poll(&self, poll: impl FnOnce(&mut InletState, u32) -> Poll<Option<Reply>>) -> Poll<Option<Reply>> {
        let Some(number) = self.number else { return Poll::Ready(None) };
        Local::with(|local| local.with_inlet(self.key, |inlet, _| poll(inlet, number)))
            .unwrap_or(Poll::Ready(None))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        Local::with(|local| {
            let left = local.with_inlet(self.key, |inlet, worker| {
                inlet.leave(worker, number, self.cancel_key.as_deref(), local.now());
            });
            if left.is_some() {
                local.follow_up_alone();
            }
        });
    }
}

/// The answer to come, as a future. One whose answer is there already is ready when it is first polled.
#[derive(Debug)]
pub(crate) struct Asked(pub(super) Pending);

impl Future for Asked {
    type Output = Result<Reply, Closed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self(pending) = self.get_mut();
        let polled = pending.poll(|inlet, number| inlet.poll_answer(number, context));
        polled.map(|answer| {
            pending.number = None;
            answer.ok_or(Closed)
        })
    }
}

/// Everything the worker says about one acquire or watch, as it comes.
#[derive(Debug)]
pub(crate) struct Followed(pub(super) Pending);

impl Followed {
    /// The next that was said: its answer, and before and after it events. `None` is the end of the lane.
    pub(crate) fn poll_told(&mut self, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        let Self(pending) = self;
        let polled = pending.poll(|inlet, number| inlet.poll_told(number, context));
        if let Poll::Ready(Some(reply)) = &polled
            && is_answer(reply.0[OPCODE_OFFSET])
        {
            pending.cancel_key = None;
        }
        polled
    }
}
