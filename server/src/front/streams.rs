//! The requests of one gRPC connection, as part of the task of their connection.

use crate::driver::Local;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The requests that a connection has begun. All of them together share the turns of their connection, so a client gains nothing by
/// many requests.
#[derive(Clone, Default)]
pub(super) struct Streams(Rc<Shared>);

#[derive(Default)]
struct Shared {
    /// Requests that never ran, in the order in which they came.
    begun: RefCell<VecDeque<Request>>,
    running: RefCell<FuturesUnordered<Request>>,
    /// Rises with each poll of a request.
    poll_count: Rc<Cell<u64>>,
}

/// What ran of the requests of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// No request was begun or woken.
    Nothing,
    /// All requests that were begun or woken.
    All,
    /// Some of them: the turn is over.
    Part,
}

/// One request.
struct Request {
    future: Pin<Box<dyn Future<Output = ()>>>,
    poll_count: Rc<Cell<u64>>,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        let future = Box::pin(async move { drop(future.await) });
        let poll_count = Rc::clone(&self.0.poll_count);
        self.0.begun.borrow_mut().push_back(Request { future, poll_count });
    }
}

impl Streams {
    /// Runs the requests that were begun or woken, until none is left or the turn of the connection is over.
    pub(super) fn run(&self, context: &mut Context<'_>) -> Ran {
        let before = self.0.poll_count.get();
        let mut running = self.0.running.borrow_mut();
        loop {
            let polled = self.0.poll_count.get();
            let has_ended = matches!(running.poll_next_unpin(context), Poll::Ready(Some(())));
            if is_spent() {
                if !self.0.begun.borrow().is_empty() {
                    serve_later();
                }
                if Local::with(|local| local.front_turn.borrow().serves_later()) {
                    return Ran::Part;
                }
            }
            // The set also stops for a while after many polls.
            if has_ended || self.0.poll_count.get() != polled {
                continue;
            }
            match self.0.begun.borrow_mut().pop_front() {
                Some(request) => running.push(request),
                None => break,
            }
        }
        if self.0.poll_count.get() == before { Ran::Nothing } else { Ran::All }
    }

    /// Drops the requests that are left once the connection has ended, in turns. Each may have received much.
    pub(super) fn poll_drop(&self) -> Poll<()> {
        let mut begun = std::mem::take(&mut *self.0.begun.borrow_mut());
        begun.extend(self.0.running.take());
        while !begun.is_empty() {
            if is_spent() {
                serve_later();
                *self.0.begun.borrow_mut() = begun;
                return Poll::Pending;
            }
            begun.pop_front();
        }
        Poll::Ready(())
    }
}

fn is_spent() -> bool {
    Local::with(|local| local.front_turn.borrow().is_spent())
}

fn serve_later() {
    Local::with(|local| local.front_turn.borrow_mut().serve_later());
}

/// Whether a request may run on in this turn. If not, its task is woken in the next one.
pub(super) fn may_run(context: &Context<'_>) -> bool {
    if is_spent() {
        serve_later();
        context.waker().wake_by_ref();
        return false;
    }
    true
}

impl Future for Request {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let own = self.get_mut();
        if !may_run(context) {
            return Poll::Pending;
        }
        own.poll_count.set(own.poll_count.get() + 1);
        own.future.as_mut().poll(context)
    }
}
