//! What the tasks of one worker's thread share.

use super::late::Late;
use super::{AcceptorHandles, Intake, Socket, WorkerHandles};
use crate::clock::{BootClock, Clock, Moment};
use crate::edge::connection::{Moved, Write, flush};
use crate::edge::front_turn::{FrontTurn, Others};
use crate::edge::inlet::{Begun, InletState};
use crate::edge::read_barrier::ReadBarrier;
use crate::front::FrontConfig;
use crate::limits::{EVENTS_PER_POLL, READ_LEN_MAX};
use crate::node::Node;
use crate::worker::{Client, ConnectionKey, Worker};
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use tokio::sync::{Notify, mpsc, watch};
use waymaker_engine::Time;
use waymaker_protocol::Hello;

thread_local! {
    static LOCAL: OnceCell<Rc<Local>> = const { OnceCell::new() };
}

/// The worker and what its tasks tell each other. Everything here belongs to one thread, and no borrow crosses an await.
pub(crate) struct Local {
    pub(crate) node: Arc<Node>,
    pub(super) worker: RefCell<Worker>,
    pub(super) index: u16,
    pub(super) handles: WorkerHandles,
    acceptors: AcceptorHandles,
    /// Connections that were handed to this worker.
    pub(super) intake: RefCell<mpsc::UnboundedReceiver<Intake>>,
    clock: BootClock,
    /// Whose output the flusher takes, by slot of their lane.
    connections: RefCell<Vec<Option<Registered>>>,
    /// Requests are written here on their way from an inlet to the worker.
    frame: RefCell<Vec<u8>>,
    /// What front ends are told.
    pub(crate) fronts: Arc<FrontConfig>,
    /// Connections of front ends, which have no lane until they ask something.
    front_count: Cell<usize>,
    /// The server asked every connection to end.
    finishing: watch::Sender<bool>,
    /// The task that writes, and whether it has been woken.
    flusher: RefCell<Option<Waker>>,
    flush_is_due: Cell<bool>,
    /// All connections read into this; a connection copies out the bytes that it keeps.
    pub(crate) scratch: RefCell<Box<[u8]>>,
    /// Connections that gave way before they had read everything.
    barrier: RefCell<ReadBarrier>,
    pub(crate) late: Late,
    /// The turn of the connection of a front end that runs.
    pub(crate) front_turn: RefCell<FrontTurn>,
    /// Wakes the sweeper, which sleeps until `sweeper_sleeps_until`.
    pub(super) sweeper: Notify,
    pub(super) sweeper_sleeps_until: Cell<Time>,
    /// Rises with each read; the spinner looks at it.
    pub(super) activity: Cell<u64>,
    pub(super) spinner: Notify,
    pub(super) spinner_sleeps: Cell<bool>,
    /// Wakes whoever waits for the last connection to end.
    pub(super) connection_ended: Notify,
}

impl std::fmt::Debug for Local {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Local").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Local {
    /// Counts a request or connection that a front end rejects because of a limit. Some tests do so outside the thread of a worker, where
    /// nothing is counted.
    pub(crate) fn note_rejected(limit: &'static str) {
        LOCAL.with(|own| {
            if let Some(local) = own.get() {
                local.node.metrics.workers[usize::from(local.index)].note_rejected(limit);
            }
        });
    }

    pub(super) fn new(
        node: Arc<Node>,
        worker: Worker,
        index: u16,
        handles: WorkerHandles,
        acceptors: AcceptorHandles,
        intake: mpsc::UnboundedReceiver<Intake>,
        fronts: Arc<FrontConfig>,
    ) -> Self {
        Self {
            node,
            worker: RefCell::new(worker),
            index,
            handles,
            acceptors,
            intake: RefCell::new(intake),
            clock: BootClock,
            connections: RefCell::default(),
            frame: RefCell::default(),
            fronts,
            front_count: Cell::new(0),
            finishing: watch::Sender::new(false),
            flusher: RefCell::default(),
            flush_is_due: Cell::new(false),
            scratch: RefCell::new(vec![0; READ_LEN_MAX].into()),
            barrier: RefCell::new(ReadBarrier::new(EVENTS_PER_POLL)),
            late: Late::default(),
            front_turn: RefCell::default(),
            sweeper: Notify::new(),
            sweeper_sleeps_until: Cell::new(Time::ZERO),
            activity: Cell::new(0),
            spinner: Notify::new(),
            spinner_sleeps: Cell::new(false),
            connection_ended: Notify::new(),
        }
    }

    /// Makes it the one of this thread.
    pub(super) fn enter(local: &Rc<Self>) {
        LOCAL.with(|own| own.set(Rc::clone(local)).expect("a thread runs one worker"));
    }

    /// The one of this thread. Front ends keep nothing of it between two polls, so what they are made of may be `Send`, as
    /// the libraries around them want it.
    #[inline]
    pub(crate) fn with<T>(act: impl FnOnce(&Self) -> T) -> T {
        LOCAL.with(|own| act(own.get().expect("front ends run on the threads of workers")))
    }

    #[inline]
    pub(crate) fn now(&self) -> Moment {
        self.clock.moment()
    }

    /// When the worker was last told the time: right after a question, when that was asked.
    pub(crate) fn worker_now(&self) -> Time {
        self.worker.borrow().moment().now
    }

    /// How many connections there are, those included that have not asked anything yet.
    pub(super) fn connection_count(&self) -> usize {
        self.worker.borrow().connection_count() + self.front_count.get()
    }

    /// Connections beside the one that runs. Those on their way to the worker count.
    pub(crate) fn others(&self) -> Others {
        let connection_count = self.handles[usize::from(self.index)].connection_count.load(Ordering::Relaxed);
        Others { are_there: connection_count > 1, have_given_way: !self.late.is_empty() }
    }

    /// The barrier that says when leases may end.
    #[inline]
    pub(crate) fn barrier(&self) -> RefMut<'_, ReadBarrier> {
        self.barrier.borrow_mut()
    }

    /// A connection of a front end begins; it is over with [`Local::note_front_ended`].
    pub(crate) fn note_front(&self) {
        self.front_count.set(self.front_count.get() + 1);
    }

    pub(crate) fn note_front_ended(&self) {
        self.front_count.set(self.front_count.get() - 1);
        self.note_ended();
    }

    /// A socket that was handed to this worker is closed.
    pub(super) fn note_ended(&self) {
        self.handles[usize::from(self.index)].connection_count.fetch_sub(1, Ordering::Relaxed);
        self.connection_ended.notify_one();
    }

    /// Tells front ends to end their connections.
    pub(super) fn finish(&self) {
        self.finishing.send_replace(true);
    }

    /// Says when connections of front ends are to end.
    pub(crate) fn finishing(&self) -> watch::Receiver<bool> {
        self.finishing.subscribe()
    }

    /// Something was read.
    #[inline]
    pub(crate) fn note_activity(&self) {
        self.activity.set(self.activity.get() + 1);
        if self.spinner_sleeps.get() {
            self.spinner_sleeps.set(false);
            self.spinner.notify_one();
        }
    }

    /// Does what the worker wants after it was fed: takes its mail, wakes the flusher, other workers and the sweeper.
    #[inline]
    pub(super) fn follow_up(&self, worker: &mut Worker) {
        worker.handle_mail(worker.moment());
        if worker.has_dirty()
            && !self.flush_is_due.replace(true)
            && let Some(flusher) = &*self.flusher.borrow()
        {
            flusher.wake_by_ref();
        }
        while let Some(event) = worker.poll_audit() {
            self.node.audit.record(&event);
        }
        while let Some(span) = worker.poll_span() {
            self.node.traces.export(span);
        }
        while let Some(other) = worker.poll_wake() {
            self.handles[usize::from(other)].mail.notify_one();
        }
        if worker.poll_accept().is_some() {
            self.acceptors.iter().for_each(|acceptor| acceptor.ask(self.index));
        }
        if worker.wants_drain() || worker.next_deadline() < self.sweeper_sleeps_until.get() {
            self.sweeper_sleeps_until.set(Time::ZERO);
            self.sweeper.notify_one();
        }
    }

    /// Writes what connections have to say. Woken by the first of them, it runs after every other connection that was
    /// ready then: so answers leave close together, and a client with many connections is woken once for all of them
    /// instead of once for each. The wake-up of a sleeping client costs the sender more than the answer does.
    pub(super) fn poll_flush(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.flusher.borrow().is_none() {
            *self.flusher.borrow_mut() = Some(context.waker().clone());
        }
        self.flush_is_due.set(false);
        let mut worker = self.worker.borrow_mut();
        let mut connections = self.connections.borrow_mut();
        let mut is_fed = false;
        while let Some(key) = worker.poll_dirty() {
            match connections.get_mut(key.slot as usize) {
                Some(Some(Registered::Connection(registered))) if registered.key == key => {
                    registered.flush(&mut worker);
                }
                Some(Some(Registered::Inlet(inlet))) if inlet.key() == key => {
                    inlet.take_output(&mut worker);
                    is_fed = true;
                }
                _ => {}
            }
        }
        if is_fed {
            // An inlet releases holds whose callers have left. That may reach other workers, and takes mail out of the mailbox.
            self.follow_up(&mut worker);
        }
        Poll::Pending
    }

    /// Opens a lane that no socket belongs to. `Err`: what the worker said to the HELLO.
    pub(super) fn open_inlet(&self, hello: &Hello<'_>, client: Client) -> Result<ConnectionKey, Vec<u8>> {
        let mut worker = self.worker.borrow_mut();
        let opened = InletState::open(&mut worker, hello, client, self.now());
        match opened {
            Ok((inlet, _)) => {
                let key = inlet.key();
                self.put(key.slot, Registered::Inlet(Box::new(inlet)));
                Ok(key)
            }
            Err(answer) => {
                self.follow_up(&mut worker);
                Err(answer)
            }
        }
    }

    /// Ends a lane that no socket belongs to, as if its connection were lost.
    pub(super) fn close_inlet(&self, key: ConnectionKey) {
        if self.with_inlet(key, |_, _| ()).is_none() {
            return;
        }
        // Dropped when nothing is borrowed any more: whoever it would have woken may be dropped with it.
        let _closed = self.connections.borrow_mut()[key.slot as usize].take();
        let mut worker = self.worker.borrow_mut();
        worker.handle_lost(key, self.now());
        self.follow_up(&mut worker);
        self.connection_ended.notify_one();
    }

    /// Sends the frame that is written, and takes what the worker has to say. `None` where the lane is closed.
    pub(super) fn ask(
        &self,
        key: ConnectionKey,
        begin: impl FnOnce(&mut InletState) -> u32,
        encode: impl FnOnce(u32, &mut Vec<u8>),
    ) -> Option<Begun> {
        let begun = self.with_inlet(key, |inlet, worker| {
            if inlet.is_closed() {
                return None;
            }
            let number = begin(inlet);
            let mut frame = self.frame.borrow_mut();
            frame.clear();
            encode(number, &mut frame);
            Some(inlet.send(worker, number, &frame, self.now()))
        })??;
        self.follow_up_alone();
        Some(begun)
    }

    /// A connection that moves has ended on its way: no sweep waits for it.
    pub(super) fn settle(&self, moved: &Moved) {
        let mut worker = self.worker.borrow_mut();
        worker.handle_settled(moved.ticket);
        self.follow_up(&mut worker);
    }

    /// Takes the mail that came after the worker had finished.
    pub(super) fn take_last_mail(&self) {
        let mut worker = self.worker.borrow_mut();
        while worker.handle_mail(self.now()) {}
    }

    /// [`Local::follow_up`] for whoever has not borrowed the worker.
    pub(super) fn follow_up_alone(&self) {
        self.follow_up(&mut self.worker.borrow_mut());
    }

    /// An inlet and the worker, if it is not closed.
    pub(super) fn with_inlet<T>(
        &self,
        key: ConnectionKey,
        act: impl FnOnce(&mut InletState, &mut Worker) -> T,
    ) -> Option<T> {
        match self.connections.borrow_mut().get_mut(key.slot as usize) {
            Some(Some(Registered::Inlet(inlet))) if inlet.key() == key => {
                Some(act(inlet, &mut self.worker.borrow_mut()))
            }
            _ => None,
        }
    }

    /// Registers who takes the output of the lane in this slot. A connection that lost the lane is woken, so that it finds out.
    fn put(&self, slot: u32, registered: Registered) {
        let mut connections = self.connections.borrow_mut();
        let slot = slot as usize;
        if connections.len() <= slot {
            connections.resize_with(slot + 1, || None);
        }
        if let Some(Registered::Connection(old)) = connections[slot].replace(registered) {
            old.waker.wake();
        }
    }

    /// Lets the flusher write to a connection and wake its task.
    pub(super) fn register(&self, key: ConnectionKey, socket: &Rc<RefCell<Socket>>, waker: &Waker) {
        let registered = Connection { key, socket: Rc::clone(socket), waker: waker.clone() };
        self.put(key.slot, Registered::Connection(registered));
    }

    pub(super) fn unregister(&self, key: ConnectionKey) {
        if let Some(registered) = self.connections.borrow_mut().get_mut(key.slot as usize)
            && matches!(registered, Some(Registered::Connection(connection)) if connection.key == key)
        {
            *registered = None;
        }
    }
}

/// Who takes the output of a lane.
#[derive(Debug)]
enum Registered {
    Connection(Connection),
    Inlet(Box<InletState>),
}

/// A connection as the flusher sees it.
#[derive(Debug)]
struct Connection {
    key: ConnectionKey,
    socket: Rc<RefCell<Socket>>,
    /// Wakes the task that reads.
    waker: Waker,
}

impl Connection {
    /// Writes as much as the socket takes.
    fn flush(&self, worker: &mut Worker) {
        let mut socket = self.socket.borrow_mut();
        let needs_turn = flush(worker, self.key, |output| match socket.try_write(output) {
            Ok(len) if len > 0 => Write::Written(len),
            _ => Write::Full,
        });
        if needs_turn {
            self.waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::inlet::Inlet;
    use crate::driver::test_local::{hello_and_keep_alives, test_local_of};
    use crate::front::FrontCaller;
    use crate::mail::Mail;
    use std::pin::pin;
    use waymaker_protocol::limits::WAIT_FOREVER_MS;
    use waymaker_protocol::{Acquire, NamespaceKind, Request};

    fn acquire(wait_ms: u32) -> Request<'static> {
        Request::Acquire(Acquire { key: b"key", wait_ms, lease_ms: 1_000, ..Acquire::default() })
    }

    #[test]
    fn a_release_by_the_flusher_wakes_the_worker_of_the_waiter() {
        let local = test_local_of(2);
        Local::enter(&local);
        let shard = local.node.shard_of_key(b"key");
        let turn = local.node.shards[usize::from(shard)].enter().expect("the turn is free");
        let inlet =
            Inlet::open(NamespaceKind::Flat, b"default", b"leaver", &FrontCaller::default()).expect("a lane");
        drop(inlet.ask_for_holds(b"key", |number, frame| acquire(0).encode(number, frame)));
        local.node.mailboxes[0].post(Mail::Turn { shard, pass: turn.pass_on() });
        local.follow_up_alone();

        let mut other = Worker::new(Arc::clone(&local.node), 1, local.now());
        let waiter = other.handle_open(b"waiter", local.now());
        let mut bytes = hello_and_keep_alives(0);
        acquire(WAIT_FOREVER_MS).encode(2, &mut bytes);
        other.handle_bytes(waiter, &bytes, local.now());
        assert!(local.node.mailboxes[1].sleep(), "the waiter is not granted yet");

        let mut context = Context::from_waker(Waker::noop());
        assert!(local.poll_flush(&mut context).is_pending());
        assert!(other.handle_mail(local.now()), "the waiter is granted");
        let woken = pin!(local.handles[1].mail.notified());
        assert!(woken.poll(&mut context).is_ready(), "the worker of the waiter sleeps");
    }
}
