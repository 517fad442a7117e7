//! State that the tasks of one worker's thread share.

use super::late::Late;
use super::{AcceptorHandles, Intake, Socket, WorkerHandles};
use crate::clock::{BootClock, Clock, Moment};
use crate::edge::connection::{Write, flush};
use crate::edge::front_turn::{FrontTurn, Others};
use crate::edge::inlet::{InletState, SentRequest};
use crate::edge::read_barrier::ReadBarrier;
use crate::limits::{EVENTS_PER_POLL, READ_LEN_MAX};
use crate::mail::ConnectionKey;
use crate::node::Node;
use crate::worker::{Client, MovedConnection, Worker};
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use tokio::sync::{Notify, mpsc, watch};
use waymaker_engine::{LaneSlot, Time};
use waymaker_protocol::Hello;

thread_local! {
    static LOCAL: OnceCell<Rc<Local>> = const { OnceCell::new() };
}

/// A worker, and the state through which the tasks of its thread communicate. Only this thread uses it, and no task
/// keeps a borrow across an await.
pub(crate) struct Local {
    pub(crate) node: Arc<Node>,
    pub(super) worker: RefCell<Worker>,
    pub(super) index: u16,
    pub(super) handles: WorkerHandles,
    acceptors: AcceptorHandles,
    /// New and moved connections that were handed to this worker and that no task serves yet.
    pub(super) intake: RefCell<mpsc::UnboundedReceiver<Intake>>,
    clock: BootClock,
    /// Connections and inlets that get the worker's output from the flusher, by the slot of their lane.
    connections: RefCell<Vec<Option<Registered>>>,
    /// Buffer for encoding requests on their way from an inlet to the worker.
    frame: RefCell<Vec<u8>>,
    /// Number of front-end connections. They are counted here because they may have no lane, at least until their first
    /// worker request.
    front_count: Cell<usize>,
    /// Whether front ends must end their connections, because the server stops.
    finishing: watch::Sender<bool>,
    /// Waker of the flusher, the task that writes the output of all connections. `flush_is_due` is set just before a
    /// call of this waker, and cleared when the flusher runs.
    flusher: RefCell<Option<Waker>>,
    flush_is_due: Cell<bool>,
    /// Read buffer that all connections of the thread share. A connection copies out the bytes that it keeps after its
    /// read.
    pub(crate) scratch: RefCell<Box<[u8]>>,
    /// Read barrier. It has an entry for each connection that ended its turn before it had read and served everything,
    /// or that came from another worker. Before leases expire, the sweeper (the task that reads all sockets) waits
    /// until these connections have served the bytes that had arrived. This wait has a time limit for each connection.
    barrier: RefCell<ReadBarrier>,
    pub(crate) late: Late,
    /// Turn of the front-end connection that currently runs.
    pub(crate) front_turn: RefCell<FrontTurn>,
    /// Wakes the sweeper, the task that expires leases.
    pub(super) sweeper: Notify,
    pub(super) sweeper_sleeps_until: Cell<Time>,
    /// Number of reads so far. The spinner (the task of `--busy-poll`) lets the thread sleep once this number has
    /// stayed the same for the time in that option.
    pub(super) activity: Cell<u64>,
    pub(super) spinner: Notify,
    pub(super) spinner_sleeps: Cell<bool>,
    /// Whether the worker has sent mail to itself: long work that it continues after connections had their turns.
    pub(super) has_own_mail: Cell<bool>,
    /// Notified when a connection ends or moves to another worker, or an inlet is closed. A stopping worker waits for
    /// the end of its last connection, but only for a limited time.
    pub(super) connection_ended: Notify,
}

impl std::fmt::Debug for Local {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Local").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Local {
    /// Counts a request or connection that a front end rejects because of a limit. Outside of a worker's thread, as in
    /// some tests, it counts nothing.
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
            has_own_mail: Cell::new(false),
            connection_ended: Notify::new(),
        }
    }

    /// Makes this state the state of the current thread.
    pub(super) fn enter(local: &Rc<Self>) {
        LOCAL.with(|own| own.set(Rc::clone(local)).expect("a thread runs one worker"));
    }

    /// Runs a function with the state of the current thread. The requests of front ends get the state here instead of
    /// keeping a reference to it, so their types can be `Send`, as the libraries around them require.
    #[inline]
    pub(crate) fn with<T>(act: impl FnOnce(&Self) -> T) -> T {
        LOCAL.with(|own| act(own.get().expect("front ends run on the threads of workers")))
    }

    #[inline]
    pub(crate) fn now(&self) -> Moment {
        self.clock.moment()
    }

    /// Returns the time of the last input that the worker got, such as bytes or a tick of its timer. Directly after a
    /// request, this is the time at which the request was served.
    pub(crate) fn worker_now(&self) -> Time {
        self.worker.borrow().moment().now
    }

    /// Returns the number of lanes plus the number of front-end connections. Several inlets of one front-end connection
    /// count as well.
    pub(super) fn connection_count(&self) -> usize {
        self.worker.borrow().connection_count() + self.front_count.get()
    }

    /// Returns whether this worker has connections other than the running one, including those on their way to it, and
    /// whether any of them waits for its next turn.
    pub(crate) fn others(&self) -> Others {
        let connection_count = self.handles[usize::from(self.index)].connection_count.load(Ordering::Relaxed);
        Others { are_there: connection_count > 1, have_given_way: !self.late.is_empty() }
    }

    /// Returns the barrier that decides when this worker has read its sockets. Leases expire only after that.
    #[inline]
    pub(crate) fn barrier(&self) -> RefMut<'_, ReadBarrier> {
        self.barrier.borrow_mut()
    }

    /// Counts the start of a front-end connection. Its end must be counted with [`Local::note_front_ended`].
    pub(crate) fn note_front(&self) {
        self.front_count.set(self.front_count.get() + 1);
    }

    pub(crate) fn note_front_ended(&self) {
        self.front_count.set(self.front_count.get() - 1);
        self.note_ended();
    }

    /// Records that a connection of this worker has ended or has moved to another worker.
    pub(super) fn note_ended(&self) {
        self.handles[usize::from(self.index)].connection_count.fetch_sub(1, Ordering::Relaxed);
        self.connection_ended.notify_one();
    }

    /// Asks front ends to end their connections.
    pub(super) fn finish(&self) {
        self.finishing.send_replace(true);
    }

    /// Returns a receiver of the request to end front-end connections.
    pub(crate) fn finishing(&self) -> watch::Receiver<bool> {
        self.finishing.subscribe()
    }

    /// Records that bytes were read, and wakes the spinner.
    #[inline]
    pub(crate) fn note_activity(&self) {
        self.activity.set(self.activity.get() + 1);
        if self.spinner_sleeps.get() {
            self.spinner_sleeps.set(false);
            self.spinner.notify_one();
        }
    }

    /// Does the work that follows each input of the worker. Handles its mail and passes on audit events and spans. If
    /// necessary, asks the acceptors to accept, and wakes the flusher, other workers and the sweeper.
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
            if other == self.index {
                self.has_own_mail.set(true);
            }
        }
        if worker.poll_accept().is_some() {
            self.acceptors.iter().for_each(|acceptor| acceptor.ask(self.index));
        }
        if worker.wants_drain() || worker.next_deadline() < self.sweeper_sleeps_until.get() {
            self.sweeper_sleeps_until.set(Time::ZERO);
            self.sweeper.notify_one();
        }
    }

    /// Writes the output of all connections. The task called the flusher polls this function. The first connection with
    /// output wakes the flusher, which then runs after every other connection that was ready at that time. Responses
    /// therefore leave close together, and a client with many connections is woken once for all of them instead of once
    /// for each. Waking a sleeping client costs the sender more than the response itself.
    pub(super) fn poll_flush(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.flusher.borrow().is_none() {
            *self.flusher.borrow_mut() = Some(context.waker().clone());
        }
        // Clear `flush_is_due`, which `follow_up` set when it woke the flusher, before the loop below. Output that the
        // worker produces from now on must wake the flusher again.
        self.flush_is_due.set(false);
        let mut worker = self.worker.borrow_mut();
        let mut connections = self.connections.borrow_mut();
        let mut is_fed = false;
        while let Some(key) = worker.poll_dirty() {
            match connections.get_mut(key.slot.index()) {
                // The slot may belong to a newer lane, so compare the whole connection key.
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
            // While an inlet (the lane of a front end) takes its output, it releases holds whose callers no longer wait
            // for them. Such a release may leave mail for other workers, which `follow_up` wakes, or for this worker.
            self.follow_up(&mut worker);
        }
        Poll::Pending
    }

    /// Opens a lane without a socket. If the worker refuses the lane, the error is its response to the `HELLO`.
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

    /// Closes a lane without a socket, as if its connection were lost.
    pub(super) fn close_inlet(&self, key: ConnectionKey) {
        if self.with_inlet(key, |_, _| ()).is_none() {
            return;
        }
        // Keep the inlet until the end of this function, when no `RefCell` of this `Local` is borrowed. Dropping the
        // inlet drops its wakers, and these may drop tasks that borrow `connections` or `worker` again.
        let _closed = self.connections.borrow_mut()[key.slot.index()].take();
        let mut worker = self.worker.borrow_mut();
        worker.handle_lost(key, self.now());
        self.follow_up(&mut worker);
        self.connection_ended.notify_one();
    }

    /// Sends the request that `encode` writes, and hands the worker's output for the lane to the listeners of its
    /// requests. `begin` chooses the number of the request. Returns `None` if the lane is closed.
    pub(super) fn ask(
        &self,
        key: ConnectionKey,
        begin: impl FnOnce(&mut InletState) -> u32,
        encode: impl FnOnce(u32, &mut Vec<u8>),
    ) -> Option<SentRequest> {
        let sent = self.with_inlet(key, |inlet, worker| {
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
        Some(sent)
    }

    /// Reports that a connection ended on its way between workers. The worker that sent it, maybe this one, then no
    /// longer waits for its bytes before it expires leases.
    pub(super) fn settle(&self, moved: &MovedConnection) {
        let mut worker = self.worker.borrow_mut();
        worker.handle_settled(moved.ticket);
        self.follow_up(&mut worker);
    }

    /// Handles mail that arrived after the tasks of the worker had ended.
    pub(super) fn take_last_mail(&self) {
        let mut worker = self.worker.borrow_mut();
        while worker.handle_mail(self.now()) {}
    }

    /// Borrows the worker and calls [`Local::follow_up`].
    pub(super) fn follow_up_alone(&self) {
        self.follow_up(&mut self.worker.borrow_mut());
    }

    /// Runs a function with the inlet of this key and the worker. Returns `None` if the inlet was closed with
    /// [`Local::close_inlet`].
    pub(super) fn with_inlet<T>(
        &self,
        key: ConnectionKey,
        act: impl FnOnce(&mut InletState, &mut Worker) -> T,
    ) -> Option<T> {
        match self.connections.borrow_mut().get_mut(key.slot.index()) {
            Some(Some(Registered::Inlet(inlet))) if inlet.key() == key => {
                Some(act(inlet, &mut self.worker.borrow_mut()))
            }
            _ => None,
        }
    }

    /// Registers the receiver of output for the lane in this slot. If another connection had the slot, wakes its task,
    /// which then notices that its lane is gone.
    fn put(&self, slot: LaneSlot, registered: Registered) {
        let mut connections = self.connections.borrow_mut();
        let slot = slot.index();
        if connections.len() <= slot {
            connections.resize_with(slot + 1, || None);
        }
        if let Some(Registered::Connection(old)) = connections[slot].replace(registered) {
            old.waker.wake();
        }
    }

    /// Registers a connection, so that the flusher can write to it and wake its task.
    pub(super) fn register(&self, key: ConnectionKey, socket: &Rc<RefCell<Socket>>, waker: &Waker) {
        let registered = Connection { key, socket: Rc::clone(socket), waker: waker.clone() };
        self.put(key.slot, Registered::Connection(registered));
    }

    pub(super) fn unregister(&self, key: ConnectionKey) {
        if let Some(registered) = self.connections.borrow_mut().get_mut(key.slot.index())
            && matches!(registered, Some(Registered::Connection(connection)) if connection.key == key)
        {
            *registered = None;
        }
    }
}

/// Receiver of the output of a lane.
#[derive(Debug)]
enum Registered {
    Connection(Connection),
    Inlet(Box<InletState>),
}

/// Connection as the flusher sees it.
#[derive(Debug)]
struct Connection {
    key: ConnectionKey,
    socket: Rc<RefCell<Socket>>,
    /// Wakes the task that reads.
    waker: Waker,
}

impl Connection {
    /// Writes as much output as the socket accepts. Wakes the task of the connection if the connection must wait for
    /// the socket, end, or read again after a pause.
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
    use crate::mail::Mail;
    use std::pin::pin;
    use waymaker_protocol::limits::WAIT_FOREVER_MS;
    use waymaker_protocol::{Acquire, AcquireTerms, NamespaceKind, Request};

    fn acquire(wait_ms: u32) -> Request<'static> {
        Request::Acquire(Acquire {
            key: b"key",
            terms: AcquireTerms { wait_ms, lease_ms: 1_000, ..AcquireTerms::default() },
            ..Acquire::default()
        })
    }

    #[test]
    fn a_release_by_the_flusher_wakes_the_worker_of_the_waiter() {
        let local = test_local_of(2);
        Local::enter(&local);
        let shard = local.node.shard_of_key(b"key");
        let turn = local.node.shards[usize::from(shard)].enter().expect("the turn is free");
        let inlet =
            Inlet::open(NamespaceKind::Flat, b"default", b"leaver", Client::default()).expect("a lane");
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
