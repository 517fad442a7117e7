//! An inlet (a lane without a socket) that has a worker of its own, for benchmarks.

use crate::edge::inlet::{InletState, Reply, greet};
use crate::worker::{Client, Worker};
use std::hint::black_box;
use std::task::{Context, Poll, Waker};
use waymaker_engine::Time;
use waymaker_protocol::limits::ANY_WORKER;
use waymaker_protocol::{
    Acquire, AcquireTerms, Granted, Hello, LockId, Release, Response, SessionRequest, VERSION, next_frame,
};

/// Inlet whose requests follow the path of a front end's requests: they are encoded, served by the worker, and answered
/// with a `Reply`.
///
/// It is public only for `waymaker-bench`, and hidden from the documentation. It replaces `Local`, which holds the
/// worker of a thread: `Local` reads the clock of the machine, so instruction counts would differ between runs. The
/// benchmark therefore omits the thread-local borrows of `Local`, its clock reads, and the `ReplyFuture` that polls
/// through it.
#[derive(Debug)]
pub struct BenchInlet {
    worker: Worker,
    inlet: InletState,
    frame: Vec<u8>,
}

impl BenchInlet {
    /// Opens an inlet in a flat namespace.
    ///
    /// # Panics
    /// Panics if the worker refuses the inlet.
    pub fn open(mut worker: Worker, now: Time) -> Self {
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            session: SessionRequest::None,
            worker: ANY_WORKER,
            namespace: b"default",
            owner: b"bench",
            ..Hello::default()
        };
        let (key, answer) = greet(&mut worker, &hello, Client::default(), now.into());
        let welcome = next_frame(&answer, usize::MAX).ok().flatten().map(Response::decode);
        assert!(
            matches!(welcome, Some(Ok(Response::Welcome(_)))),
            "the worker refuses the inlet: {welcome:?}"
        );
        Self { worker, inlet: InletState::new(key), frame: Vec::new() }
    }

    /// Tries to acquire a key exclusively. Returns `None` if the request is refused.
    ///
    /// # Panics
    /// Panics if the worker closed the lane.
    pub fn acquire(&mut self, key: &[u8], lease_ms: u32, now: Time) -> Option<Granted> {
        let acquire = Acquire {
            key,
            terms: AcquireTerms { lease_ms, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        match self.ask(|number, out| acquire.encode(number, out), now).response() {
            Response::Granted(granted) => Some(granted),
            _ => None,
        }
    }

    /// Releases a hold. Returns whether the server released it.
    ///
    /// # Panics
    /// Panics if the worker closed the lane.
    pub fn release(&mut self, id: LockId, now: Time) -> bool {
        let reply = self.ask(|number, out| Release { id, key: None, own: false }.encode(number, out), now);
        matches!(reply.response(), Response::Released(_))
    }

    /// Performs the work of `Local::ask`, of `Local::follow_up` without the export of spans, and of the single poll of
    /// a `ReplyFuture` whose response is already there.
    fn ask(&mut self, encode: impl FnOnce(u32, &mut Vec<u8>), now: Time) -> Reply {
        let Self { worker, inlet, frame } = self;
        let number = inlet.begin_asked();
        frame.clear();
        encode(number, frame);
        black_box(inlet.send(worker, number, frame, now.into()));
        worker.handle_mail(worker.moment());
        black_box(worker.has_dirty());
        // Pass only `is_some()` to `black_box`. Passing the audit event itself would copy a large value, which the
        // server does not do.
        black_box(worker.poll_audit().is_some());
        black_box(worker.poll_wake());
        black_box(worker.poll_accept());
        black_box(worker.wants_drain());
        black_box(worker.next_deadline());
        match inlet.poll_answer(number, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(reply)) => reply,
            other => panic!("a try and a release are answered at once, and the lane is open: {other:?}"),
        }
    }
}
