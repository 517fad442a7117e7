//! Queue of the connections that gave way: their turn ended before they had read and served everything. A task wakes
//! them one after the other for their next turns.

use crate::edge::late::LateQueue;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use tokio::sync::Notify;
use tokio::task::yield_now;

/// Tasks of the connections whose turn ended before they had read and served everything, in the order of their next
/// turns.
#[derive(Debug, Default)]
pub(crate) struct Late {
    queue: RefCell<LateQueue<(Waker, Rc<Cell<bool>>)>>,
    any: Notify,
}

/// Whether a connection waits in the queue of [`Late`], because its turn ended before it had read and served
/// everything. A queued connection does nothing until its next turn, even if its task is woken.
#[derive(Debug, Default)]
pub(crate) struct Queued(Rc<Cell<bool>>);

impl Queued {
    #[inline]
    pub(crate) fn is_queued(&self) -> bool {
        self.0.get()
    }
}

impl Late {
    /// Queues a connection whose turn ended before it had read and served everything. Its task is woken when its next
    /// turn comes.
    pub(crate) fn give_way(&self, queued: &Queued, context: &Context<'_>) {
        queued.0.set(true);
        self.queue.borrow_mut().give_way((context.waker().clone(), Rc::clone(&queued.0)));
        self.any.notify_one();
    }

    /// Returns whether no connection waits for its turn.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Lets one queued connection continue in each round, which is one poll of every ready task of the runtime. Lets
    /// none continue while `has_work` returns true: leases are due, or the worker has other deferred work. Never
    /// returns.
    pub(super) async fn run(&self, has_work: impl Fn() -> bool) {
        loop {
            self.any.notified().await;
            while !self.is_empty() {
                // The yield lets the runtime first poll the sockets and timers of other tasks.
                yield_now().await;
                let next = self.queue.borrow_mut().continue_one(has_work());
                if let Some((waker, is_queued)) = next {
                    is_queued.set(false);
                    waker.wake();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Poll, Wake};

    /// Task of a connection that records whether it was woken.
    #[derive(Default)]
    struct Task(AtomicBool);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Connection that gave way.
    struct Waiting {
        task: Arc<Task>,
        queued: Queued,
    }

    impl Waiting {
        fn new(late: &Late) -> Self {
            let (task, queued) = (Arc::<Task>::default(), Queued::default());
            let waker = Waker::from(Arc::clone(&task));
            late.give_way(&queued, &Context::from_waker(&waker));
            Self { task, queued }
        }

        /// Returns whether the connection may continue and was woken.
        fn continues(&self) -> bool {
            let is_woken = self.task.0.load(Ordering::Relaxed);
            assert_eq!(
                is_woken,
                !self.queued.is_queued(),
                "its task runs when its turn comes, and not before"
            );
            is_woken
        }
    }

    /// Polls [`Late::run`] once, as the runtime does in each round of its tasks.
    fn run_once(run: std::pin::Pin<&mut impl Future<Output = ()>>) {
        assert_eq!(run.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
    }

    #[test]
    fn yielded_connections_continue_one_per_round_in_order() {
        let late = Late::default();
        let mut run = pin!(late.run(|| false));
        let waiting: Vec<_> = (0..3).map(|_| Waiting::new(&late)).collect();
        for continuing_count in 0..=waiting.len() {
            run_once(run.as_mut());
            let continuing: Vec<_> = waiting.iter().map(Waiting::continues).collect();
            let expected: Vec<_> = (0..waiting.len()).map(|index| index < continuing_count).collect();
            assert_eq!(continuing, expected);
        }
        let later = Waiting::new(&late);
        run_once(run.as_mut());
        assert!(!later.continues(), "others run before it");
        run_once(run.as_mut());
        assert!(later.continues());
    }

    #[test]
    fn no_connection_continues_while_leases_are_due() {
        let late = Late::default();
        let are_leases_due = Cell::new(true);
        let mut run = pin!(late.run(|| are_leases_due.get()));
        let waiting = [Waiting::new(&late), Waiting::new(&late)];
        for _ in 0..10 {
            run_once(run.as_mut());
            assert!(!waiting.iter().any(Waiting::continues));
        }
        are_leases_due.set(false);
        run_once(run.as_mut());
        assert!(waiting[0].continues());
        // The first connection has continued. Make leases due again, as if it had acquired leases that end at once. The
        // second connection must then keep waiting.
        are_leases_due.set(true);
        for _ in 0..10 {
            run_once(run.as_mut());
            assert!(!waiting[1].continues());
        }
    }
}
