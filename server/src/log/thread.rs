//! The thread that makes durable what workers leave.

use super::agenda::{Agenda, Next};
use super::keeper::Space;
use super::keeper_thread::{Keeper, Report};
use super::port::{LogBatch, LogOrder, LogPort};
use super::writer::{Flushed, LogWriter};
use super::{AppendError, Storage};
use crate::clock::Clock;
use crate::limits::{LOG_COMPACT_SEGMENT_COUNT, LOG_GROUP_LEN_MAX, LOG_SLOW_MS};
use crate::node::Node;
use crate::waiting::{mails, post};
use crossbeam_channel::Receiver;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use waymaker_engine::{ReservedEnd, Time};

/// What the log thread is made from.
#[derive(Debug)]
pub struct LogThreadConfig {
    /// Where it appends.
    pub writer: LogWriter,
    /// The other end of the node's port.
    pub orders: Receiver<LogOrder>,
    /// The directory, for the thread that makes room.
    pub storage: Arc<dyn Storage>,
    /// Bytes of a new segment.
    pub segment_len: u64,
}

/// The running log thread. It alone writes to the log, so workers never touch the disk.
#[derive(Debug)]
pub struct LogThread {
    thread: JoinHandle<Result<(), AppendError>>,
    port: LogPort,
}

impl LogThread {
    /// Starts it. `wake` wakes a worker that slept when something was left for it. `fail` is called once, when the disk
    /// failed and everybody who waited was told.
    ///
    /// # Errors
    /// If a thread cannot be made.
    pub fn start(
        config: LogThreadConfig,
        node: Arc<Node>,
        port: LogPort,
        wake: impl Fn(u16) + Send + 'static,
        fail: impl FnOnce(&AppendError) + Send + 'static,
    ) -> io::Result<Self> {
        let LogThreadConfig { writer, orders, storage, segment_len } = config;
        let keeper = Keeper::start(storage, segment_len, port.clone())?;
        let now = node.clock.now();
        let mut agenda = Agenda::new(now);
        if writer.waits_for_room() {
            agenda.note_no_room(now);
            tracing::error!("the disk of the log is full: no new durable grants until there is room");
        }
        let mut run = Run {
            writer,
            orders,
            node,
            port: port.clone(),
            keeper,
            wake,
            agenda,
            inbox: VecDeque::new(),
            taken: Vec::new(),
            is_compacting: false,
        };
        let thread = std::thread::Builder::new().name("log".to_owned());
        let thread = thread.spawn(move || {
            let ended = run.run();
            let result = if ended.is_ok() {
                run.end()
            } else {
                run.abandon();
                ended
            };
            result.inspect_err(fail)
        })?;
        Ok(Self { thread, port })
    }

    /// Ends the log in order, once everything that was left is durable. Nobody may leave anything any more.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn stop(self) -> Result<(), AppendError> {
        self.port.tell(LogOrder::Stop);
        let panicked = || Err(io::Error::other("the log thread panicked").into());
        self.thread.join().unwrap_or_else(|_| panicked())
    }
}

/// The log thread, which carries out the decisions of the agenda.
struct Run<W> {
    writer: LogWriter,
    orders: Receiver<LogOrder>,
    node: Arc<Node>,
    port: LogPort,
    keeper: Keeper,
    wake: W,
    agenda: Agenda,
    /// Batches that were left and not taken yet.
    inbox: VecDeque<LogBatch>,
    /// Batches that were taken and are not durable yet.
    taken: Vec<LogBatch>,
    is_compacting: bool,
}

impl<W: Fn(u16)> Run<W> {
    /// Runs until the server stops.
    fn run(&mut self) -> Result<(), AppendError> {
        self.compact();
        loop {
            self.receive(Duration::ZERO)?;
            let now = self.node.clock.now();
            match self.agenda.next(now) {
                Next::Wait(until) => self.receive(Duration::from_millis(until.ms_since(now)))?,
                Next::Commit => {
                    self.take()?;
                    self.write(LogWriter::flush, false)?;
                }
                Next::Retry => self.write(LogWriter::flush, false)?,
                Next::Confirm => self.write(LogWriter::confirm, true)?,
                Next::Compact => self.compact(),
                Next::Close => return Ok(()),
                Next::GiveUp => return Err(AppendError::NoSpace),
            }
        }
    }

    /// Takes all orders there are, waiting this long for the first.
    fn receive(&mut self, wait: Duration) -> Result<(), AppendError> {
        if let Ok(first) = self.orders.recv_timeout(wait) {
            self.obey(first)?;
        }
        while let Ok(order) = self.orders.try_recv() {
            self.obey(order)?;
        }
        Ok(())
    }

    fn obey(&mut self, order: LogOrder) -> Result<(), AppendError> {
        match order {
            LogOrder::Batch(batch) => {
                self.inbox.push_back(batch);
                self.agenda.note_batch();
            }
            LogOrder::EndLosses => self.writer.end_losses()?,
            LogOrder::Stop => self.agenda.note_stop(self.node.clock.now()),
            LogOrder::Report(Report::Failed(error)) => return Err(error.into()),
            LogOrder::Report(Report::Space(space)) => self.note_space(space),
            LogOrder::Report(Report::Compacted(plan, result)) => {
                self.port.status().note_compaction(&result);
                self.is_compacting = false;
                if let Err(error) = result {
                    tracing::error!(%error, "old segments of the log stay as they are");
                    self.agenda.note_compaction_failed(self.node.clock.now());
                    return Ok(());
                }
                let dead = self.writer.compacted(&plan)?;
                self.keeper.remove(dead);
                self.compact();
                if self.agenda.space() == Space::Low {
                    // Behind the removal, so that this says whether it made enough room.
                    self.keeper.prepare();
                }
            }
        }
        Ok(())
    }

    /// Takes batches for one flush.
    fn take(&mut self) -> Result<(), AppendError> {
        let mut len = 0;
        while len < LOG_GROUP_LEN_MAX
            && let Some(batch) = self.inbox.pop_front()
        {
            len += batch.records.len();
            self.taken.push(batch);
        }
        self.agenda.note_taken(!self.inbox.is_empty());
        Ok(self.writer.take(&self.taken)?)
    }

    /// Writes and syncs. If the disk is full the frames stay in the writer, and nothing is lost.
    fn write(
        &mut self,
        write: impl Fn(&mut LogWriter, &dyn Clock) -> Result<Flushed, AppendError>,
        is_confirmed: bool,
    ) -> Result<(), AppendError> {
        let begin = self.node.clock.now();
        self.port.status().set_busy_since(begin);
        match write(&mut self.writer, &*self.node.clock) {
            Ok(flushed) => {
                let now = self.note_duration(begin);
                self.agenda.note_flushed(now, is_confirmed);
                let taken = std::mem::take(&mut self.taken);
                self.deliver(taken, ReservedEnd::Begins(flushed.at));
                if flushed.is_new_segment {
                    self.keeper.prepare();
                    self.compact();
                }
                Ok(())
            }
            Err(AppendError::NoSpace) => {
                let now = self.note_duration(begin);
                let was_low = self.agenda.space() == Space::Low;
                if self.agenda.note_no_room(now) {
                    self.keeper.prepare();
                }
                if !was_low {
                    self.announce_space();
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn deliver(&self, batches: impl IntoIterator<Item = LogBatch>, end: ReservedEnd) {
        let waiting = batches.into_iter().flat_map(|batch| batch.waiting);
        post(&self.node, mails(waiting, end), &self.wake);
    }

    /// Answers all that waits for the log with `unknown`.
    fn abandon(&mut self) {
        let batches: Vec<_> = self.taken.drain(..).chain(self.inbox.drain(..)).collect();
        self.deliver(batches, ReservedEnd::Unknown);
    }

    fn compact(&mut self) {
        self.agenda.note_compaction_tried();
        if let Some((sealed_count, plan)) = self.writer.compaction_plan()
            && !self.is_compacting
            && (sealed_count >= LOG_COMPACT_SEGMENT_COUNT || self.agenda.space() == Space::Low)
        {
            self.is_compacting = true;
            self.keeper.compact(plan);
        }
    }

    fn note_space(&mut self, space: Space) {
        if self.agenda.note_space(self.node.clock.now(), space) {
            self.announce_space();
        }
    }

    fn announce_space(&mut self) {
        let has_no_space = self.agenda.space() == Space::Low;
        self.port.status().set_no_space(has_no_space);
        if has_no_space {
            tracing::error!("the disk of the log is full: no new durable grants until there is room");
            self.compact();
        } else {
            tracing::info!("the disk of the log has room again");
        }
    }

    fn note_duration(&self, begin: Time) -> Time {
        let now = self.node.clock.now();
        let took_ms = now.ms_since(begin);
        if took_ms >= LOG_SLOW_MS {
            tracing::warn!(took_ms, "the disk of the log is slow");
        }
        self.port.status().set_busy_since(Time::NEVER);
        now
    }

    fn end(self) -> Result<(), AppendError> {
        self.keeper.stop();
        let node = &self.node;
        self.writer.close(&*node.clock, |put| node.write_contents(put))
    }
}
