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

/// Requests that a connection has begun. All of them share the turns of their connection, so a client gains no time by
/// more requests.
#[derive(Clone, Default)]
pub(super) struct Streams(Rc<Shared>);

#[derive(Default)]
struct Shared {
    /// Requests that have not run yet, in order of arrival.
    begun: RefCell<VecDeque<Request>>,
    running: RefCell<FuturesUnordered<Request>>,
    /// Incremented with each poll of a request.
    poll_count: Rc<Cell<u64>>,
    turns: Cell<StreamTurns>,
    library: Library,
}

/// Waker of the HTTP/2 library, the same for all its polls. Requests wake the connection's task too. A separate waker
/// shows whether the library itself has work; a needless poll would check all its streams.
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
    /// Creates the state of a library that has not run yet.
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
    /// Runs the requests and the library that reads and writes for them, as [`StreamTurns`] decides. Ends when the
    /// library ends.
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
            // Each request checks the time before it runs.
            if Local::with(|local| local.front_turn.borrow().was_spent()) {
                if self.has_begun() {
                    serve_later();
                }
                if Local::with(|local| local.front_turn.borrow().serves_later()) {
                    return RunResult::Part;
                }
            }
            // The set pauses after many polls; a changed count shows that there may be more to run.
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
        // Clear the flag before the poll, so that a wake during the poll counts for the next one.
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

/// Returns whether a request may continue in this turn. If not, its task is woken in the next turn.
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
    use crate::driver::front_turn::in_turns;
    use crate::driver::test_local::{Wakes, continue_one, enter_crowded, give_turns};
    use crate::limits::FRONT_BATCH_LEN;
    use crate::limits::GRPC_TURNS_UNREAD_MAX;
    use hyper::rt::Executor as _;
    use std::future::poll_fn;
    use std::pin::pin;

    /// Creates requests that never finish and that use more than a turn in each poll.
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
    fn a_connection_still_reads_and_writes_while_its_requests_never_rest() {
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

    type Boxed = Pin<Box<dyn Future<Output = ()>>>;

    fn use_up_turn() {
        Local::with(|local| local.front_turn.borrow_mut().use_up());
    }

    /// Number of requests of one connection.
    const COUNT: usize = 8;

    /// Numbers of the served requests in order, and the number of polls of the library.
    #[derive(Default)]
    struct Happened {
        served: RefCell<Vec<usize>>,
        library_count: Cell<usize>,
        /// Waker of the library, for a request that has something to send.
        library: RefCell<Option<Waker>>,
    }

    impl Happened {
        fn wake_library(&self) {
            self.library.borrow().as_ref().expect("the library ran before").wake_by_ref();
        }
    }

    /// Creates a connection whose library begins these requests at its first poll.
    fn connection(
        streams: &Streams,
        happened: &Rc<Happened>,
        requests: Vec<Boxed>,
        read_len: usize,
    ) -> impl Future<Output = ()> {
        let (streams, happened, mut requests) = (streams.clone(), Rc::clone(happened), requests);
        poll_fn(move |context| {
            Local::with(|local| local.front_turn.borrow_mut().stop_clock());
            streams.poll_beside(context, |context| {
                happened.library_count.set(happened.library_count.get() + 1);
                *happened.library.borrow_mut() = Some(context.waker().clone());
                if !requests.is_empty() {
                    Local::with(|local| local.front_turn.borrow_mut().note_read(read_len));
                }
                requests.drain(..).for_each(|request| streams.execute(request));
                Poll::Pending
            })
        })
    }

    fn requests(happened: &Rc<Happened>) -> Vec<Boxed> {
        let request = |number| {
            let happened = Rc::clone(happened);
            async move {
                happened.served.borrow_mut().push(number);
                happened.wake_library();
            }
        };
        (0..COUNT).map(|number| Box::pin(request(number)) as Boxed).collect()
    }

    #[test]
    fn a_few_requests_wait_until_others_have_read_then_run_in_order() {
        let _local = enter_crowded();
        let happened = Rc::<Happened>::default();
        let streams = Streams::default();
        let mut connection =
            pin!(in_turns(connection(&streams, &happened, requests(&happened), FRONT_BATCH_LEN - 1)));
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        assert!(connection.as_mut().poll(&mut context).is_pending());
        assert!(happened.served.borrow().is_empty(), "others read before");
        assert!(connection.as_mut().poll(&mut context).is_pending());
        assert_eq!(*happened.served.borrow(), Vec::from_iter(0..COUNT));
        assert_eq!(happened.library_count.get(), 2, "the library writes once the requests are served");
        let wake_count = wakes.count();
        assert!(connection.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakes.count(), wake_count, "an idle connection rests");
    }

    #[test]
    fn the_library_rests_while_requests_have_nothing_to_send() {
        let _local = enter_crowded();
        let happened = Rc::<Happened>::default();
        let streams = Streams::default();
        let (answer, waits) = tokio::sync::oneshot::channel();
        let own = Rc::clone(&happened);
        let request = async move {
            waits.await.expect("an answer");
            own.wake_library();
        };
        let all: Vec<Boxed> = vec![Box::pin(request)];
        let mut connection = pin!(in_turns(connection(&streams, &happened, all, FRONT_BATCH_LEN)));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(connection.as_mut().poll(&mut context).is_pending());
            assert_eq!(happened.library_count.get(), 1);
        }
        answer.send(()).expect("the request waits");
        assert!(connection.as_mut().poll(&mut context).is_pending());
        assert_eq!(happened.library_count.get(), 2, "the answer");
    }

    #[test]
    fn a_wake_of_the_library_wakes_its_connection() {
        let _local = enter_crowded();
        let happened = Rc::<Happened>::default();
        let streams = Streams::default();
        let mut connection = pin!(in_turns(connection(&streams, &happened, Vec::new(), 0)));
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        for count in 1..3 {
            assert!(connection.as_mut().poll(&mut context).is_pending());
            assert_eq!(happened.library_count.get(), count);
            assert_eq!(wakes.count() + 1, count as u32);
            happened.wake_library();
        }
    }

    #[test]
    fn many_requests_are_served_at_once_and_the_library_writes_their_answers() {
        let _local = enter_crowded();
        let happened = Rc::<Happened>::default();
        let streams = Streams::default();
        let mut connection =
            pin!(in_turns(connection(&streams, &happened, requests(&happened), FRONT_BATCH_LEN)));
        assert!(connection.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(*happened.served.borrow(), Vec::from_iter(0..COUNT));
        assert_eq!(happened.library_count.get(), 2);
    }

    #[test]
    fn requests_behind_a_slow_request_run_before_the_library_next_turn() {
        let local = enter_crowded();
        let happened = Rc::<Happened>::default();
        let streams = Streams::default();
        let mut all = requests(&happened);
        all.insert(0, Box::pin(async { use_up_turn() }));
        let own = Rc::clone(&happened);
        all.push(Box::pin(async move { assert_eq!(own.library_count.get(), 1, "all requests run before") }));
        let mut connection = pin!(in_turns(connection(&streams, &happened, all, FRONT_BATCH_LEN)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(connection.as_mut().poll(&mut context).is_pending());
        assert!(happened.served.borrow().is_empty(), "the turn is over");
        assert_eq!(happened.library_count.get(), 1);
        assert!(connection.as_mut().poll(&mut context).is_pending());
        assert!(happened.served.borrow().is_empty(), "it gave way");
        while happened.served.borrow().len() < COUNT {
            assert_eq!(happened.library_count.get(), 1, "all requests run before");
            continue_one(&local);
            assert!(connection.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(*happened.served.borrow(), Vec::from_iter(0..COUNT));
    }

    #[test]
    fn the_library_writes_the_answer_of_a_request_that_took_the_whole_turn() {
        let _local = enter_crowded();
        let happened = Rc::<Happened>::default();
        let streams = Streams::default();
        let own = Rc::clone(&happened);
        let request = async move {
            use_up_turn();
            own.wake_library();
        };
        let all: Vec<Boxed> = vec![Box::pin(request)];
        let mut connection = pin!(in_turns(connection(&streams, &happened, all, FRONT_BATCH_LEN)));
        assert!(connection.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(happened.library_count.get(), 2);
    }

    /// The request set pauses after a request has woken itself several times.
    #[test]
    fn the_library_waits_for_a_request_that_wakes_itself_repeatedly() {
        let _local = enter_crowded();
        let happened = Rc::<Happened>::default();
        let streams = Streams::default();
        let mut all = requests(&happened);
        let (mut rest, own) = (10, Rc::clone(&happened));
        all.push(Box::pin(poll_fn(move |context| {
            if rest == 0 {
                assert_eq!(own.library_count.get(), 1);
                own.served.borrow_mut().push(usize::MAX);
                return Poll::Ready(());
            }
            rest -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })));
        let mut connection = pin!(in_turns(connection(&streams, &happened, all, FRONT_BATCH_LEN)));
        assert!(connection.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(happened.served.borrow().last(), Some(&usize::MAX));
    }

    #[test]
    fn leftover_requests_are_dropped_over_several_turns() {
        /// Value whose drop takes a whole turn.
        struct Large(Rc<Cell<usize>>);
        impl Drop for Large {
            fn drop(&mut self) {
                // After a failed assertion it is dropped outside of a worker.
                if !std::thread::panicking() {
                    use_up_turn();
                }
                self.0.set(self.0.get() + 1);
            }
        }
        let local = enter_crowded();
        let (streams, dropped) = (Streams::default(), Rc::<Cell<usize>>::default());
        let count = 4;
        for number in 0..count {
            let large = Large(Rc::clone(&dropped));
            streams.execute(async move {
                let _large = large;
                std::future::pending::<()>().await;
            });
            if number == 1 {
                // The first two requests have run.
                let run = poll_fn(|context| Poll::Ready(streams.run(context)));
                assert!(pin!(in_turns(run)).poll(&mut Context::from_waker(Waker::noop())).is_ready());
            }
        }
        let mut dropping = pin!(in_turns(poll_fn(|_| streams.poll_drop())));
        let mut context = Context::from_waker(Waker::noop());
        for turn in 1..count {
            assert!(dropping.as_mut().poll(&mut context).is_pending());
            assert_eq!(dropped.get(), turn);
            assert!(dropping.as_mut().poll(&mut context).is_pending());
            assert_eq!(dropped.get(), turn, "it gave way");
            continue_one(&local);
        }
        assert!(dropping.as_mut().poll(&mut context).is_ready());
        assert_eq!(dropped.get(), count);
    }

    #[test]
    fn a_request_out_of_turn_time_is_woken_in_the_next_turn() {
        let local = enter_crowded();
        let streams = Streams::default();
        let happened = Rc::<Happened>::default();
        let mut is_begun = false;
        let mut all = requests(&happened);
        all.push(Box::pin(poll_fn(move |context| {
            if !std::mem::replace(&mut is_begun, true) {
                use_up_turn();
            }
            if may_run(context) { Poll::Ready(()) } else { Poll::Pending }
        })));
        let mut connection = pin!(in_turns(connection(&streams, &happened, all, FRONT_BATCH_LEN)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(connection.as_mut().poll(&mut context).is_pending());
        assert_eq!(happened.library_count.get(), 1, "a request is left");
        while !streams.0.running.borrow().is_empty() {
            assert_eq!(happened.library_count.get(), 1, "all requests run before");
            continue_one(&local);
            assert!(connection.as_mut().poll(&mut context).is_pending());
        }
    }
}
