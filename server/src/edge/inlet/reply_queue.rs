//! Queue of the answer and the events of one request, until the front end's listener takes them. Only a followed
//! request, such as an acquire whose hold a stream reports, has such a queue. All other requests get one answer and no
//! events.

use super::reply::{OPCODE_OFFSET, Reply};
use crate::limits::FRONT_WATCH_BACKLOG_MAX;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use waymaker_protocol::frame::HEADER_LEN;
use waymaker_protocol::id::ID_LEN;
use waymaker_protocol::message::opcode;
use waymaker_protocol::{Event, Frame, LockId};

/// Maximum capacity of the buffers of an ended request that are kept for the next request, in elements.
const SPARE_LEN_MAX: usize = 8;

/// Replies to a followed request that its listener has not taken.
#[derive(Debug, Default)]
pub(super) struct ReplyQueue {
    replies: VecDeque<Box<[u8]>>,
    pub(super) waker: Option<Waker>,
    /// Holds that the request was granted, except those whose end was reported in this queue. If a newer request took a
    /// hold over, that counts as its end.
    pub(super) ids: Vec<LockId>,
    pub(super) is_answered: bool,
    /// Whether the request is a watch that has begun.
    pub(super) is_watch: bool,
}

impl ReplyQueue {
    /// Resets an ended request for reuse. Returns `None` if its buffers are too large to keep.
    pub(super) fn into_spare(self: Box<Self>) -> Option<Box<Self>> {
        let mut spare = self;
        if spare.replies.capacity().max(spare.ids.capacity()) > SPARE_LEN_MAX {
            return None;
        }
        spare.replies.clear();
        spare.ids.clear();
        (spare.waker, spare.is_answered, spare.is_watch) = (None, false, false);
        Some(spare)
    }

    /// Returns the next answer or event.
    pub(super) fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Reply> {
        if let Some(bytes) = self.replies.pop_front() {
            return Poll::Ready(Reply(bytes));
        }
        match &mut self.waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => self.waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    pub(super) fn push(&mut self, frame: Frame<'_>) {
        if !self.replaces(frame) && !self.overruns(frame) {
            self.replies.push_back(frame.bytes().into());
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// If the frame is a LEASE_MOVED event, replaces an earlier LEASE_MOVED of the same hold that the listener has not
    /// taken. Only the newest lease counts. Returns whether it replaced an event.
    fn replaces(&mut self, frame: Frame<'_>) -> bool {
        if frame.opcode() != opcode::LEASE_MOVED {
            return false;
        }
        let id = |bytes: &[u8]| bytes.get(HEADER_LEN..HEADER_LEN + ID_LEN).map(<[u8]>::to_vec);
        let own = id(frame.bytes());
        let older = self
            .replies
            .iter_mut()
            .find(|reply| reply[OPCODE_OFFSET] == opcode::LEASE_MOVED && id(reply) == own);
        older.map(|older| *older = frame.bytes().into()).is_some()
    }

    /// Drops an event of a watch if the maximum number of replies already waits for the listener. For events that are
    /// dropped in a row, adds one OVERRUN event, which tells the listener that events are missing. Returns whether it
    /// dropped the event.
    fn overruns(&mut self, frame: Frame<'_>) -> bool {
        let of_watch = matches!(frame.opcode(), opcode::KEY_HELD | opcode::KEY_FREED | opcode::OVERRUN);
        if !of_watch || self.replies.len() < FRONT_WATCH_BACKLOG_MAX {
            return false;
        }
        if self.replies.back().is_none_or(|last| last[OPCODE_OFFSET] != opcode::OVERRUN) {
            let mut overrun = Vec::new();
            Event::Overrun.encode(frame.number(), &mut overrun);
            self.replies.push_back(overrun.into());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::inlet::InletState;
    use crate::mail::ConnectionKey;
    use crate::worker::Worker;
    use crate::worker::test_node::test_node;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;
    use waymaker_engine::{LaneSlot, Time};
    use waymaker_protocol::{Granted, Response, next_frame};

    fn push(queue: &mut ReplyQueue, event: &Event<'_>) {
        let mut bytes = Vec::new();
        event.encode(1, &mut bytes);
        queue.push(next_frame(&bytes, usize::MAX).unwrap().unwrap());
    }

    #[test]
    fn a_listener_gets_only_the_newest_lease_of_each_hold() {
        let mut queue = ReplyQueue::default();
        let holds = [LockId { place: 1, secret: 1 }, LockId { place: 2, secret: 2 }];
        for remaining_ms in [100, 200] {
            for id in holds {
                push(&mut queue, &Event::LeaseMoved { id, remaining_ms, stamp_ms: 1 });
            }
        }
        let context = &mut Context::from_waker(Waker::noop());
        for hold in holds {
            let Poll::Ready(reply) = queue.poll_reply(context) else { panic!("nothing is told of {hold:?}") };
            let Response::Event(Event::LeaseMoved { id, remaining_ms, .. }) = reply.response() else {
                panic!("{reply:?}")
            };
            assert_eq!((id, remaining_ms), (hold, 200));
        }
        assert!(queue.poll_reply(context).is_pending());
    }

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_waiting_listener_is_notified_of_the_end_of_its_lane() {
        let mut inlet = InletState::new(ConnectionKey { slot: LaneSlot(0), epoch: 1 });
        let number = inlet.begin_followed();
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let context = &mut Context::from_waker(&waker);
        assert!(inlet.poll_reply(number, context).is_pending());
        inlet.close();
        assert!(woken.0.load(Ordering::Relaxed));
        assert!(matches!(inlet.poll_reply(number, context), Poll::Ready(None)));
    }

    #[test]
    fn a_repeated_request_is_notified_of_the_end_of_its_hold() {
        let now = Time::from_millis(1_000);
        let mut worker = Worker::new(test_node(1, now), 0, now);
        let mut inlet = InletState::new(ConnectionKey { slot: LaneSlot(0), epoch: 1 });
        let (older, newer) = (inlet.begin_followed(), inlet.begin_followed());
        let id = LockId { place: 1, secret: 1 };
        let mut said = Vec::new();
        for (number, repeated) in [(older, false), (newer, true)] {
            Response::Granted(Granted { id, repeated, ..Granted::default() }).encode(number, &mut said);
        }
        Event::TakenUp { id }.encode(older, &mut said);
        Event::Expired { id }.encode(0, &mut said);
        inlet.hear_all(&mut worker, &said);
        let context = &mut Context::from_waker(Waker::noop());
        let last = std::iter::from_fn(|| match inlet.poll_reply(newer, context) {
            Poll::Ready(reply) => reply,
            Poll::Pending => None,
        })
        .last();
        let is_end = |reply: Reply| matches!(reply.response(), Response::Event(Event::Expired { .. }));
        assert!(last.is_some_and(is_end));
    }
}
