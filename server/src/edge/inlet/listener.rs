//! Requests that were made, as a front end keeps them.

use super::{Begun, InletState, Reply};
use crate::clock::Moment;
use crate::worker::Worker;
use std::task::{Context, Poll};

/// A request that may still be spoken of. A front end that does not listen any more must say so with [`Listener::leave`].
#[derive(Debug)]
pub struct Listener {
    /// `None` if the lane is closed, or if everything was said.
    number: Option<u32>,
    /// Key that a CANCEL of the request names, if the request is to be undone once nobody listens. Empty if it is too late to cancel.
    cancel_key: Option<Box<[u8]>>,
}

impl Listener {
    /// Listens to a request; `None` if the lane is closed. With a key it is undone once nobody listens.
    pub fn new(begun: Option<Begun>, cancel_key: Option<&[u8]>) -> Self {
        // Mostly it is answered already.
        let is_answered = begun.is_none_or(|begun| begun.is_answered);
        let cancel_key = cancel_key.map(|key| if is_answered { Box::default() } else { key.into() });
        Self { number: begun.map(|begun| begun.number), cancel_key }
    }

    /// Returns the answer to a request with one answer. `None` is the end of the lane.
    pub fn poll_answer(&mut self, inlet: &mut InletState, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        let Some(number) = self.number else { return Poll::Ready(None) };
        let polled = inlet.poll_answer(number, context);
        if polled.is_ready() {
            self.number = None;
        }
        polled
    }

    /// Returns the next that was said about a request that is followed: its answer, and before and after it events. `None` is the end of
    /// the lane.
    pub fn poll_told(&mut self, inlet: &mut InletState, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        let Some(number) = self.number else { return Poll::Ready(None) };
        let polled = inlet.poll_told(number, context);
        if let Poll::Ready(Some(reply)) = &polled
            && reply.is_answer()
        {
            self.cancel_key = None;
        }
        polled
    }

    /// Nobody listens any more.
    pub fn leave(&mut self, inlet: &mut InletState, worker: &mut Worker, now: Moment) {
        if let Some(number) = self.number.take() {
            inlet.leave(worker, number, self.cancel_key.as_deref(), now);
        }
    }

    /// Whether something may still be said.
    pub fn is_listening(&self) -> bool {
        self.number.is_some()
    }
}
