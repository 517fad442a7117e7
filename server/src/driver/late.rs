//! Lets others run before a connection with much to do continues.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Waker};
use tokio::sync::Notify;
use tokio::task::yield_now;

/// Connections that gave way. In each round of tasks one of them continues, so however many there are, they delay others by no more
/// than one turn.
#[derive(Debug, Default)]
pub(crate) struct Late {
    queue: RefCell<VecDeque<(Waker, Rc<Cell<bool>>)>>,
    any: Notify,
}

/// Whether a connection is in the queue of those that gave way. Until its turn comes it does nothing, whatever else wakes it.
#[derive(Debug, Default)]
pub(crate) struct Queued(Rc<Cell<bool>>);

impl Queued {
    #[inline]
    pub(crate) fn is_queued(&self) -> bool {
        self.0.get()
    }
}

impl Late {
    /// Puts a connection in the queue. Its task is woken when its turn comes.
    pub(crate) fn give_way(&self, queued: &Queued, context: &Context<'_>) {
        queued.0.set(true);
        self.queue.borrow_mut().push_back((context.waker().clone(), Rc::clone(&queued.0)));
        self.any.notify_one();
    }

    /// Lets one connection continue in each round, for ever. While `has_work` says that leases are due, none continues: a client may not
    /// begin leases faster than they end.
    pub(super) async fn run(&self, has_work: impl Fn() -> bool) {
        loop {
            self.any.notified().await;
            while let Some((waker, is_queued)) = self.next() {
                // The runtime looks at the sockets and timers of others first.
                yield_now().await;
                while has_work() {
                    yield_now().await;
                }
                is_queued.set(false);
                waker.wake();
            }
        }
    }

    fn next(&self) -> Option<(Waker, Rc<Cell<bool>>)> {
        self.queue.borrow_mut().pop_front()
    }
}
