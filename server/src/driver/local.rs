//! What the tasks of one worker's thread share.

use super::{AcceptorHandles, Intake, Socket, WorkerHandles};
use crate::clock::{BootClock, Clock};
use crate::limits::{READ_LEN_MAX, READS_PER_SWEEP};
use crate::worker::{ConnectionKey, Worker};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::sync::{Notify, mpsc};
use waymaker_engine::Time;

/// The worker and what its tasks tell each other. Everything here belongs to one thread, and no borrow crosses an await.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) worker: RefCell<Worker>,
    pub(super) index: u16,
    pub(super) handles: WorkerHandles,
    acceptors: AcceptorHandles,
    /// Connections that were handed to this worker.
    pub(super) intake: RefCell<mpsc::UnboundedReceiver<Intake>>,
    clock: BootClock,
    /// The connections, by slot of their lane.
    connections: RefCell<Vec<Option<Registered>>>,
    /// The task that writes, and whether it has been woken.
    flusher: RefCell<Option<Waker>>,
    flush_is_due: Cell<bool>,
    /// All connections read into this; what is not a whole frame is copied out.
    pub(super) scratch: RefCell<Box<[u8]>>,
    /// Connections that may have left something unread.
    behind_count: Cell<u32>,
    /// Those of them that were behind already when the present sweep began.
    stale_count: Cell<u32>,
    /// Rises with each sweep.
    sweep: Cell<u64>,
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

impl Local {
    pub(super) fn new(
        worker: Worker,
        index: u16,
        handles: WorkerHandles,
        acceptors: AcceptorHandles,
        intake: mpsc::UnboundedReceiver<Intake>,
    ) -> Self {
        Self {
            worker: RefCell::new(worker),
            index,
            handles,
            acceptors,
            intake: RefCell::new(intake),
            clock: BootClock,
            connections: RefCell::default(),
            flusher: RefCell::default(),
            flush_is_due: Cell::new(false),
            scratch: RefCell::new(vec![0; READ_LEN_MAX].into()),
            behind_count: Cell::new(0),
            stale_count: Cell::new(0),
            sweep: Cell::new(0),
            sweeper: Notify::new(),
            sweeper_sleeps_until: Cell::new(Time::ZERO),
            activity: Cell::new(0),
            spinner: Notify::new(),
            spinner_sleeps: Cell::new(false),
            connection_ended: Notify::new(),
        }
    }

    #[inline]
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Something was read.
    #[inline]
    pub(super) fn note_activity(&self) {
        self.activity.set(self.activity.get() + 1);
        if self.spinner_sleeps.get() {
            self.spinner_sleeps.set(false);
            self.spinner.notify_one();
        }
    }

    /// Does what the worker wants after it was fed: takes its mail, wakes the flusher, other workers and the sweeper.
    #[inline]
    pub(super) fn follow_up(&self, worker: &mut Worker) {
        worker.handle_mail(worker.now());
        if worker.has_dirty()
            && !self.flush_is_due.replace(true)
            && let Some(flusher) = &*self.flusher.borrow()
        {
            flusher.wake_by_ref();
        }
        while let Some(line) = worker.poll_audit() {
            tracing::warn!(target: "audit", "{line}");
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
        let connections = self.connections.borrow();
        while let Some(key) = worker.poll_dirty() {
            if let Some(Some(registered)) = connections.get(key.slot as usize)
                && registered.key == key
            {
                registered.flush(&mut worker);
            }
        }
        Poll::Pending
    }

    /// Lets the flusher write to a connection and wake its task.
    pub(super) fn register(&self, key: ConnectionKey, socket: &Rc<RefCell<Socket>>, waker: &Waker) {
        let mut connections = self.connections.borrow_mut();
        let slot = key.slot as usize;
        if connections.len() <= slot {
            connections.resize_with(slot + 1, || None);
        }
        let registered = Registered { key, socket: Rc::clone(socket), waker: waker.clone() };
        if let Some(old) = connections[slot].replace(registered) {
            // Its lane went to this connection: it should find out.
            old.waker.wake();
        }
    }

    pub(super) fn unregister(&self, key: ConnectionKey) {
        if let Some(registered) = self.connections.borrow_mut().get_mut(key.slot as usize)
            && registered.as_ref().is_some_and(|registered| registered.key == key)
        {
            *registered = None;
        }
    }

    /// A connection read something and may have left more.
    #[inline]
    pub(super) fn note_behind(&self, behind: &mut Option<Behind>) {
        match behind {
            None => {
                *behind = Some(Behind { since: self.sweep.get(), reads: 0 });
                self.behind_count.set(self.behind_count.get() + 1);
            }
            Some(Behind { since, reads }) => {
                *reads += 1;
                if *reads >= READS_PER_SWEEP {
                    // One that is never empty has still read by now what was there when the sweep began.
                    if *since < self.sweep.get() {
                        self.stale_count.set(self.stale_count.get() - 1);
                    }
                    (*since, *reads) = (self.sweep.get(), 0);
                }
            }
        }
    }

    /// A connection has read its socket empty, or reads no more.
    #[inline]
    pub(super) fn note_empty(&self, behind: &mut Option<Behind>) {
        if let Some(Behind { since, .. }) = behind.take() {
            self.behind_count.set(self.behind_count.get() - 1);
            if since < self.sweep.get() {
                self.stale_count.set(self.stale_count.get() - 1);
            }
        }
    }

    /// Begins a sweep: from here on [`Local::is_sweeping`] until every connection that is behind now has caught up.
    pub(super) fn begin_sweep(&self) {
        self.sweep.set(self.sweep.get() + 1);
        self.stale_count.set(self.behind_count.get());
    }

    pub(super) fn is_sweeping(&self) -> bool {
        self.stale_count.get() > 0
    }
}

/// A connection as the flusher sees it.
#[derive(Debug)]
struct Registered {
    key: ConnectionKey,
    socket: Rc<RefCell<Socket>>,
    /// Wakes the task that reads.
    waker: Waker,
}

impl Registered {
    /// Writes as much as the socket takes. What only the connection's own task can do is left to it: to wait until the
    /// socket takes more, to read on after a pause, to end.
    fn flush(&self, worker: &mut Worker) {
        let paused = !worker.wants_read(self.key);
        loop {
            let Some(output) = worker.output(self.key) else { return self.waker.wake_by_ref() };
            if output.is_empty() {
                break;
            }
            match self.socket.borrow_mut().try_write(output) {
                Ok(len) if len > 0 => worker.wrote(self.key, len),
                _ => return self.waker.wake_by_ref(),
            }
        }
        if paused || worker.output(self.key).is_none() {
            self.waker.wake_by_ref();
        }
    }
}

/// A connection that may have left something unread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    /// The sweep in which it last was known to have caught up.
    since: u64,
    /// Reads since then, each of which filled the whole buffer.
    reads: u32,
}
