//! Handles by which front ends get the answers and events of their requests.

use super::{InletState, Reply, SentRequest};
use crate::clock::Moment;
use crate::worker::Worker;
use std::task::{Context, Poll};

/// A request that may still get answers or events. A front end that stops listening must call [`Listener::leave`].
/// Otherwise the inlet keeps the request, and its claim keeps waiting.
#[derive(Debug)]
pub struct Listener {
    /// Number of the request; `None` if the lane was closed, if the only answer was returned, or after
    /// [`Listener::leave`].
    number: Option<u32>,
    /// Key that a CANCEL of the request must name if the listener leaves. `None` if the request must not be cancelled.
    /// Also `None` once the listener has read the answer to a request with events ([`InletState::begin_followed`]).
    /// Empty if the worker had answered before this value was created: then no CANCEL is sent and the key is not
    /// copied. The value is still `Some`, because the inlet must release the holds that an unread answer grants.
    cancel_key: Option<Box<[u8]>>,
}

impl Listener {
    /// Listens to a request that was sent; `sent` is `None` if the lane is closed. For `cancel_key` see
    /// [`InletState::leave`].
    pub fn new(sent: Option<SentRequest>, cancel_key: Option<&[u8]>) -> Self {
        // The worker has usually answered already. No CANCEL needs the key in this case, so do not copy it.
        let is_answered = sent.is_none_or(|sent| sent.is_answered);
        let cancel_key = cancel_key.map(|key| if is_answered { Box::default() } else { key.into() });
        Self { number: sent.map(|sent| sent.number), cancel_key }
    }

    /// Returns the answer to a request with one answer. `None` means that the lane has ended, or that the answer was
    /// returned before.
    pub fn poll_answer(&mut self, inlet: &mut InletState, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        let Some(number) = self.number else { return Poll::Ready(None) };
        let polled = inlet.poll_answer(number, context);
        if polled.is_ready() {
            self.number = None;
        }
        polled
    }

    /// Returns the next reply to a request that is followed: its answer, and events before and after it. `None` means
    /// that the lane has ended or that the listener has left.
    pub fn poll_reply(&mut self, inlet: &mut InletState, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        let Some(number) = self.number else { return Poll::Ready(None) };
        let polled = inlet.poll_reply(number, context);
        if let Poll::Ready(Some(reply)) = &polled
            && reply.is_answer()
        {
            self.cancel_key = None;
        }
        polled
    }

    /// Stops listening.
    pub fn leave(&mut self, inlet: &mut InletState, worker: &mut Worker, now: Moment) {
        if let Some(number) = self.number.take() {
            inlet.leave(worker, number, self.cancel_key.as_deref(), now);
        }
    }

    /// Whether more replies may come.
    pub fn is_listening(&self) -> bool {
        self.number.is_some()
    }
}
