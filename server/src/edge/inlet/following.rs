//! What was said about a request that is followed, until it is heard.

use super::{OPCODE_OFFSET, Reply};
use crate::limits::FRONT_WATCH_BACKLOG_MAX;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use waymaker_protocol::frame::HEADER_LEN;
use waymaker_protocol::id::ID_LEN;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{Event, Frame, LockId};

/// What more memory was taken for is not kept for another request.
const SPARE_LEN_MAX: usize = 8;

/// A request that is followed.
#[derive(Debug, Default)]
pub(super) struct Following {
    told: VecDeque<Box<[u8]>>,
    pub(super) waker: Option<Waker>,
    /// The holds that the request was granted and that are not over.
    pub(super) ids: Vec<LockId>,
    pub(super) is_answered: bool,
    /// Whether the request is a watch that was begun.
    pub(super) is_watch: bool,
}

impl Following {
    /// One for the next request, where this is over.
    pub(super) fn into_spare(self: Box<Self>) -> Option<Box<Self>> {
        let mut spare = self;
        if spare.told.capacity().max(spare.ids.capacity()) > SPARE_LEN_MAX {
            return None;
        }
        spare.told.clear();
        spare.ids.clear();
        (spare.waker, spare.is_answered, spare.is_watch) = (None, false, false);
        Some(spare)
    }

    /// The next that was said.
    pub(super) fn poll_told(&mut self, context: &mut Context<'_>) -> Poll<Reply> {
        if let Some(bytes) = self.told.pop_front() {
            return Poll::Ready(Reply(bytes));
        }
        match &mut self.waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => self.waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    pub(super) fn tell(&mut self, frame: Frame<'_>) {
        if !self.replaces(frame) && !self.overruns(frame) {
            self.told.push_back(frame.bytes().into());
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Of what was not heard yet about a lease only the last counts.
    fn replaces(&mut self, frame: Frame<'_>) -> bool {
        if frame.opcode() != opcode::LEASE_MOVED {
            return false;
        }
        let id = |bytes: &[u8]| bytes.get(HEADER_LEN..HEADER_LEN + ID_LEN).map(<[u8]>::to_vec);
        let own = id(frame.bytes());
        let older =
            self.told.iter_mut().find(|told| told[OPCODE_OFFSET] == opcode::LEASE_MOVED && id(told) == own);
        older.map(|older| *older = frame.bytes().into()).is_some()
    }

    /// Of a watch that is not read, no more is kept than that there was more.
    fn overruns(&mut self, frame: Frame<'_>) -> bool {
        let of_watch = matches!(frame.opcode(), opcode::KEY_HELD | opcode::KEY_FREED | opcode::OVERRUN);
        if !of_watch || self.told.len() < FRONT_WATCH_BACKLOG_MAX {
            return false;
        }
        if self.told.back().is_none_or(|last| last[OPCODE_OFFSET] != opcode::OVERRUN) {
            let mut overrun = Vec::new();
            Event::Overrun.encode(frame.number(), &mut overrun);
            self.told.push_back(overrun.into());
        }
        true
    }
}
