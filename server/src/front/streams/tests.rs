//! Tests of the requests of a connection.

use super::*;
use crate::driver::front_turn::in_turns;
use crate::driver::test_local::{Wakes, continue_one, enter_crowded, give_turns};
use crate::limits::{FRONT_BATCH_LEN, GRPC_TURNS_UNREAD_MAX};
use hyper::rt::Executor as _;
use std::future::poll_fn;
use std::pin::pin;

/// Creates three requests that never finish. Each poll of such a request uses up the rest of the connection's turn, and
/// the request wakes itself again.
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

/// Number of requests that `requests` creates.
const COUNT: usize = 8;

/// Observations of a test: the numbers of the served requests in order, and how often the connection polled its
/// simulated HTTP/2 library.
#[derive(Default)]
struct Happened {
    served: RefCell<Vec<usize>>,
    library_count: Cell<usize>,
    /// Waker of the simulated HTTP/2 library. A request wakes the library through it when the request has a response to
    /// send.
    library: RefCell<Option<Waker>>,
}

impl Happened {
    fn wake_library(&self) {
        self.library.borrow().as_ref().expect("the library ran before").wake_by_ref();
    }
}

/// Creates a connection with a simulated HTTP/2 library. The library begins the passed requests when it is polled for
/// the first time.
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

/// The set of the connection's requests ends its poll early after a request has woken itself several times. The library
/// must still wait for that request.
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
            // If an assertion of the test fails, this value is dropped outside of any turn of a connection. So there is
            // no turn to use up.
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
