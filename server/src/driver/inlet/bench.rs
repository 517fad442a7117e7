//! An inlet with a worker of its own, for the benches.

use crate::edge::inlet::{InletState, Reply, greet};
use crate::worker::{Client, Worker};
use std::hint::black_box;
use std::task::{Context, Poll, Waker};
use waymaker_engine::Time;
use waymaker_protocol::limits::ANY_WORKER;
use waymaker_protocol::{
    Acquire, Granted, Hello, LockId, Release, Response, SessionRequest, VERSION, next_frame,
};

/// An inlet whose requests take the way of a front end's: encoded, served by the worker, and answered into a `Reply`.
///
/// Public for `waymaker-bench` alone, and hidden from the documentation. It stands in for `Local`, which keeps the worker of
/// a thread: `Local` reads the clock of the machine, and then instruction counts would differ from run to run. The
/// thread-local borrows of `Local`, its clock reading and the `Asked` that polls through it are therefore left out.
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
    /// If the worker refuses it.
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

    /// Tries to acquire a key exclusively. `None` if the request is refused.
    ///
    /// # Panics
    /// If the worker ended the lane.
    pub fn acquire(&mut self, key: &[u8], lease_ms: u32, now: Time) -> Option<Granted> {
        let acquire = Acquire { lease_ms, key, ..Acquire::default() };
        match self.ask(|number, out| acquire.encode(number, out), now).response() {
            Response::Granted(granted) => Some(granted),
            _ => None,
        }
    }

    /// Releases a hold. Returns whether there was one.
    ///
    /// # Panics
    /// If the worker ended the lane.
    pub fn release(&mut self, id: LockId, now: Time) -> bool {
        let reply = self.ask(|number, out| Release { id, key: None, own: false }.encode(number, out), now);
        matches!(reply.response(), Response::Released(_))
    }

    /// `Local::ask`, `Local::follow_up`, and the one poll of an `Asked` that is answered before the call returns.
    fn ask(&mut self, encode: impl FnOnce(u32, &mut Vec<u8>), now: Time) -> Reply {
        let Self { worker, inlet, frame } = self;
        let number = inlet.begin_asked();
        frame.clear();
        encode(number, frame);
        black_box(inlet.send(worker, number, frame, now.into()));
        worker.handle_mail(worker.moment());
        black_box(worker.has_dirty());
        // The event itself is large, and copied only by this function.
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
