//! What the tasks of one worker's thread share.

use super::WorkerHandles;
use crate::clock::{BootClock, Clock};
use crate::limits::{READ_LEN_MAX, READS_PER_SWEEP};
use crate::worker::{ConnectionKey, Worker};
use std::cell::{Cell, RefCell};
use std::task::Waker;
use tokio::sync::Notify;
use waymaker_engine::Time;

/// The worker and what its tasks tell each other. Everything here belongs to one thread, and no borrow crosses an await.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) worker: RefCell<Worker>,
    pub(super) index: u16,
    pub(super) handles: WorkerHandles,
    clock: BootClock,
    /// The tasks of connections, by slot of their lane.
    wakers: RefCell<Vec<Option<(ConnectionKey, Waker)>>>,
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
    pub(super) fn new(worker: Worker, index: u16, handles: WorkerHandles) -> Self {
        Self {
            worker: RefCell::new(worker),
            index,
            handles,
            clock: BootClock,
            wakers: RefCell::default(),
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

    /// Does what the worker wants after it was fed: takes its mail, wakes connections, workers and the sweeper. `me` is
    /// the connection that sees to its own output.
    #[inline]
    pub(super) fn follow_up(&self, worker: &mut Worker, me: Option<ConnectionKey>) {
        worker.handle_mail(worker.now());
        while let Some(key) = worker.poll_dirty() {
            if Some(key) != me {
                self.wake_connection(key);
            }
        }
        while let Some(other) = worker.poll_wake() {
            self.handles[usize::from(other)].mail.notify_one();
        }
        if worker.wants_drain() || worker.next_deadline() < self.sweeper_sleeps_until.get() {
            self.sweeper_sleeps_until.set(Time::ZERO);
            self.sweeper.notify_one();
        }
    }

    /// Names the task of a connection.
    pub(super) fn register(&self, key: ConnectionKey, waker: &Waker) {
        let mut wakers = self.wakers.borrow_mut();
        let slot = key.slot as usize;
        if wakers.len() <= slot {
            wakers.resize_with(slot + 1, || None);
        }
        if let Some((old, old_waker)) = wakers[slot].replace((key, waker.clone()))
            && old != key
        {
            // Its lane went to this connection: it should find out.
            old_waker.wake();
        }
    }

    pub(super) fn unregister(&self, key: ConnectionKey) {
        if let Some(registered) = self.wakers.borrow_mut().get_mut(key.slot as usize)
            && registered.as_ref().is_some_and(|(other, _)| *other == key)
        {
            *registered = None;
        }
    }

    fn wake_connection(&self, key: ConnectionKey) {
        if let Some(Some((other, waker))) = self.wakers.borrow().get(key.slot as usize)
            && *other == key
        {
            waker.wake_by_ref();
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

/// A connection that may have left something unread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind {
    /// The sweep in which it last was known to have caught up.
    since: u64,
    /// Reads since then, each of which filled the whole buffer.
    reads: u32,
}
