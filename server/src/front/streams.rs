//! Requests of one gRPC connection, run within the task of the connection.

use crate::driver::Local;
use crate::edge::streams::{FrontWork, RunResult, StreamTurns};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use futures_util::task::AtomicWaker;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Requests that a connection has begun. All of them share the turns of the connection, so more simultaneous requests
/// give a connection no more time of the worker.
#[derive(Clone, Default)]
pub(super) struct Streams(Rc<Shared>);

#[derive(Default)]
struct Shared {
    /// Requests that have not run yet, in order of arrival. While `poll_drop` drops the remaining requests, it keeps
    /// all of them here.
    begun: RefCell<VecDeque<Request>>,
    running: RefCell<FuturesUnordered<Request>>,
    /// Incremented each time that a request runs. A poll after the end of the turn does not run the request.
    poll_count: Rc<Cell<u64>>,
    turns: Cell<StreamTurns>,
    library: Library,
}

/// Waker of the HTTP/2 library, the same for all its polls. Not only the library but also requests wake the task of the
/// connection. This separate waker shows whether the library itself was woken. Without that, each wake would poll the
/// library, which then checks all its streams.
struct Library {
    woken: Arc<LibraryWoken>,
    waker: Waker,
}

#[derive(Debug)]
struct LibraryWoken {
    is_woken: AtomicBool,
    task: AtomicWaker,
}

impl Default for Library {
    /// Creates the state of an HTTP/2 library that was not polled yet. The library counts as woken, so that it is
    /// polled in the first turn.
    fn default() -> Self {
        let woken = Arc::new(LibraryWoken { is_woken: AtomicBool::new(true), task: AtomicWaker::new() });
        Self { waker: Waker::from(Arc::clone(&woken)), woken }
    }
}

impl Wake for LibraryWoken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake();
    }
}

/// One request of the connection.
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
    /// Runs the requests of the connection and the HTTP/2 library that reads and writes for them. [`StreamTurns`]
    /// decides which of them runs next. Ready when the library has ended.
    pub(super) fn poll_beside<T>(
        &self,
        context: &mut Context<'_>,
        library: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.0.library.woken.task.register(context.waker());
        let mut turns = self.0.turns.take();
        let polled = turns.poll(&mut Work { streams: self, context, library });
        self.0.turns.set(turns);
        polled
    }

    /// Returns whether there are requests that have not run yet.
    fn has_begun(&self) -> bool {
        !self.0.begun.borrow().is_empty()
    }

    /// Runs new and woken requests until none is left or the turn of the connection is over.
    fn run(&self, context: &mut Context<'_>) -> RunResult {
        let before = self.0.poll_count.get();
        let mut running = self.0.running.borrow_mut();
        loop {
            let polled = self.0.poll_count.get();
            let has_ended = matches!(running.poll_next_unpin(context), Poll::Ready(Some(())));
            // Each request measures the time of the turn before it runs. So the last measurement, `was_spent`, is
            // recent enough to decide whether the turn is over.
            if Local::with(|local| local.front_turn.borrow().was_spent()) {
                if self.has_begun() {
                    serve_later();
                }
                if Local::with(|local| local.front_turn.borrow().serves_later()) {
                    return RunResult::Part;
                }
            }
            // `FuturesUnordered` returns `Pending` after many polls although more requests may be woken. If this call
            // has polled any request, poll again.
            if has_ended || self.0.poll_count.get() != polled {
                continue;
            }
            match self.0.begun.borrow_mut().pop_front() {
                Some(request) => running.push(request),
                None => break,
            }
        }
        if self.0.poll_count.get() == before { RunResult::Nothing } else { RunResult::All }
    }

    /// Drops the remaining requests after the end of the connection, in turns, because each may hold much data.
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

/// One poll of a connection.
struct Work<'a, 'b, L> {
    streams: &'a Streams,
    context: &'a mut Context<'b>,
    library: L,
}

impl<T, L: FnMut(&mut Context<'_>) -> Poll<T>> FrontWork for Work<'_, '_, L> {
    type End = T;

    fn run(&mut self) -> RunResult {
        self.streams.run(self.context)
    }

    fn is_library_woken(&self) -> bool {
        self.streams.0.library.woken.is_woken.load(Ordering::Acquire)
    }

    fn poll_library(&mut self) -> Poll<T> {
        let Library { woken, waker } = &self.streams.0.library;
        // Clear the flag before the poll, so that a wake during the poll causes another poll.
        woken.is_woken.store(false, Ordering::Release);
        (self.library)(&mut Context::from_waker(waker))
    }

    fn has_begun(&self) -> bool {
        self.streams.has_begun()
    }

    fn let_others_read(&mut self) -> bool {
        Local::with(|local| local.front_turn.borrow_mut().let_others_read(local.others()))
    }
}

fn is_spent() -> bool {
    Local::with(|local| local.front_turn.borrow_mut().is_spent())
}

fn serve_later() {
    Local::with(|local| local.front_turn.borrow_mut().serve_later());
}

/// Returns whether a request may continue in this turn. If not, wakes the request, so that it continues in a later
/// turn.
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
mod tests;
