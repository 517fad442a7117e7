//! The requests of one gRPC connection, as part of the task of their connection.

use crate::driver::Local;
use crate::limits::GRPC_TURNS_UNREAD_MAX;
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
    /// Turns in a row that were over before all requests had run.
    part_count: Cell<u32>,
}

/// What ran of the requests of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ran {
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
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, future: F) {
        let poll_count = Rc::clone(&self.0.poll_count);
        self.0.begun.borrow_mut().push_back(Request { future: Box::pin(future), poll_count });
    }
}

impl Streams {
    /// Runs the requests and the library that reads and writes for them, until both rest or the turn of the connection is over. Ends when
    /// the library ends.
    ///
    /// The library neither reads nor writes before all requests ran. So a client cannot begin more than it lets finish, and hears of all
    /// that happened at once in the order in which it happened. Requests that the library has begun may have to wait until other connections
    /// have read. Only after [`GRPC_TURNS_UNREAD_MAX`] turns that were too short for all
    /// requests, the library goes first.
    pub(super) fn poll_beside<T>(
        &self,
        context: &mut Context<'_>,
        mut library: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let part_count = &self.0.part_count;
        if part_count.get() == GRPC_TURNS_UNREAD_MAX {
            part_count.set(0);
            if let Poll::Ready(ended) = library(context) {
                return Poll::Ready(ended);
            }
        }
        loop {
            if self.run(context) == Ran::Part {
                part_count.set(part_count.get() + 1);
                return Poll::Pending;
            }
            part_count.set(0);
            if let Poll::Ready(ended) = library(context) {
                return Poll::Ready(ended);
            }
            if self.has_begun() && let_others_read() {
                return Poll::Pending;
            }
            if self.run(context) == Ran::Nothing {
                return Poll::Pending;
            }
        }
    }

    /// Whether there are requests that never ran.
    fn has_begun(&self) -> bool {
        !self.0.begun.borrow().is_empty()
    }

    /// Runs the requests that were begun or woken, until none is left or the turn of the connection is over.
    fn run(&self, context: &mut Context<'_>) -> Ran {
        let before = self.0.poll_count.get();
        let mut running = self.0.running.borrow_mut();
        loop {
            let polled = self.0.poll_count.get();
            let has_ended = matches!(running.poll_next_unpin(context), Poll::Ready(Some(())));
            // Each request measures the time before it runs.
            if Local::with(|local| local.front_turn.borrow().was_spent()) {
                if self.has_begun() {
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
    Local::with(|local| local.front_turn.borrow_mut().is_spent())
}

fn let_others_read() -> bool {
    Local::with(|local| local.front_turn.borrow_mut().let_others_read(local))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::test_local::give_turns;
    use hyper::rt::Executor as _;
    use std::future::poll_fn;

    /// Requests that never rest, each of which takes more than a turn.
    fn busy_streams() -> Streams {
        let streams = Streams::default();
        for _ in 0..3 {
            streams.execute(poll_fn(|context| {
                while !is_spent() {}
                context.waker().wake_by_ref();
                Poll::Pending
            }));
        }
        streams
    }

    #[test]
    fn a_connection_reads_and_writes_now_and_then_although_its_requests_never_rest() {
        let streams = busy_streams();
        let library_count = Cell::new(0);
        let library = |_: &mut Context<'_>| {
            library_count.set(library_count.get() + 1);
            Poll::<()>::Pending
        };
        let connection = poll_fn(|context| streams.poll_beside(context, library));
        give_turns(connection, 10 * GRPC_TURNS_UNREAD_MAX);
        assert!(library_count.get() >= 2, "{} times", library_count.get());
    }
}
