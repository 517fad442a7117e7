//! State of a worker's thread for tests. The tasks of the worker do not run, so each test does their work itself.

use super::front_turn::in_turns;
use super::{AcceptorHandles, ConnectionHandler, Intake, Local, WorkerHandle, WorkerHandles};
use crate::clock::{BootClock, Clock};
use crate::worker::Worker;
use crate::worker::test_node::test_node;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use tokio::sync::{Notify, mpsc};
use waymaker_protocol::limits::ANY_WORKER;
use waymaker_protocol::{Hello, KeepAlive, Request, VERSION};

/// Creates the thread state of the only worker of a node. No task of the worker runs.
pub(super) fn test_local() -> Rc<Local> {
    test_local_of(1)
}

/// Creates the thread state of the first worker of a node with `worker_count` workers. No task of the worker runs.
pub(super) fn test_local_of(worker_count: usize) -> Rc<Local> {
    let now = BootClock.moment();
    let node = test_node(worker_count, now.now);
    let (intakes, mut receivers): (Vec<_>, Vec<_>) =
        (0..worker_count).map(|_| mpsc::unbounded_channel()).unzip();
    let handle = |intake| WorkerHandle { intake, mail: Notify::new(), connection_count: AtomicUsize::new(0) };
    let handles: WorkerHandles = intakes.into_iter().map(handle).collect();
    let acceptors: AcceptorHandles = [].into();
    let worker = Worker::new(Arc::clone(&node), 0, now);
    Rc::new(Local::new(node, worker, 0, handles, acceptors, receivers.swap_remove(0)))
}

/// Handler of a driver without front ends.
pub(super) struct NoFronts;

impl ConnectionHandler for NoFronts {
    fn enter(self: &Arc<Self>) {}

    async fn serve(self: Arc<Self>, _: Rc<Local>, intake: Intake) {
        panic!("a connection of the port {:?}", intake.port);
    }
}

/// Waker that counts its wakes.
#[derive(Debug, Default)]
pub(crate) struct Wakes(AtomicU32);

impl Wakes {
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Creates a worker that counts two connections but has none, and makes it the worker of this thread.
pub(crate) fn enter_crowded() -> Rc<Local> {
    let local = test_local();
    Local::enter(&local);
    local.handles[0].connection_count.store(2, Ordering::Relaxed);
    local
}

/// Lets the first connection in `Local::late` (the queue of connections whose turn was too short) continue. The runtime
/// does so after it has run other tasks.
pub(crate) fn continue_one(local: &Local) {
    let (mut run, mut context) = (pin!(local.late.run(|| false)), Context::from_waker(Waker::noop()));
    // The first poll of `run` finds a connection in the queue and yields. The second poll takes the connection from the
    // queue and wakes it.
    for _ in 0..2 {
        assert!(run.as_mut().poll(&mut context).is_pending());
    }
}

/// Polls a front-end connection `count` times. If the connection ends its turn before it has read and served
/// everything, it waits in `Local::late` for its next turn. So after each poll, polls the task that lets such
/// connections continue.
pub(crate) fn give_turns<T>(connection: impl Future<Output = T>, count: u32) {
    let local = test_local();
    Local::enter(&local);
    let (mut connection, mut others) = (pin!(in_turns(connection)), pin!(local.late.run(|| false)));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..count {
        assert!(connection.as_mut().poll(&mut context).is_pending());
        assert!(others.as_mut().poll(&mut context).is_pending());
    }
}

/// Runs a test in a runtime like that of a worker's thread.
pub(crate) fn in_runtime<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_io().enable_time();
    runtime.build_local(tokio::runtime::LocalOptions::default()).expect("a runtime").block_on(test)
}

/// Returns the bytes of a HELLO and of `count` cheap requests.
pub(super) fn hello_and_keep_alives(count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (version_min, version_max, worker, namespace) = (VERSION, VERSION, ANY_WORKER, b"default");
    let hello = Hello { version_min, version_max, worker, namespace, ..Hello::default() };
    Request::Hello(hello).encode(1, &mut bytes);
    for number in 0..count {
        Request::KeepAlive(KeepAlive).encode(2 + number as u32, &mut bytes);
    }
    bytes
}
