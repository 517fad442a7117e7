//! The thread that makes durable what workers leave.

use super::keeper::Space;
use super::keeper_thread::{Keeper, Report};
use super::port::{LogBatch, LogOrder, LogPort};
use super::writer::{Flushed, LogWriter};
use super::{AppendError, Storage};
use crate::limits::{
    LOG_COMPACT_SEGMENT_COUNT, LOG_GROUP_LEN_MAX, LOG_IDLE_MS, LOG_NO_SPACE_PACE_MS, LOG_SLOW_MS,
};
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
        let mut run = Run {
            writer,
            orders,
            node,
            port: port.clone(),
            keeper,
            wake,
            inbox: VecDeque::new(),
            is_stopping: false,
            is_compacting: false,
        };
        let thread = std::thread::Builder::new().name("log".to_owned());
        let thread = thread.spawn(move || {
            let ended = run.run();
            let result = if ended.is_ok() { run.end() } else { ended };
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

/// What the log thread has in hand.
struct Run<W> {
    writer: LogWriter,
    orders: Receiver<LogOrder>,
    node: Arc<Node>,
    port: LogPort,
    keeper: Keeper,
    wake: W,
    /// What was left and not seen to yet.
    inbox: VecDeque<LogBatch>,
    is_stopping: bool,
    is_compacting: bool,
}

impl<W: Fn(u16)> Run<W> {
    fn run(&mut self) -> Result<(), AppendError> {
        self.compact();
        loop {
            let is_idle = self.inbox.is_empty() && !self.receive(Duration::from_millis(LOG_IDLE_MS))?;
            self.receive(Duration::ZERO)?;
            if !self.inbox.is_empty() {
                self.commit()?;
            } else if self.is_stopping {
                return Ok(());
            } else if is_idle {
                let flushed = self.persist(LogWriter::confirm)?;
                self.look_after(flushed);
            }
        }
    }

    /// Takes all orders there are, waiting so long for the first. False if there were none.
    fn receive(&mut self, wait: Duration) -> Result<bool, AppendError> {
        let Ok(first) = self.orders.recv_timeout(wait) else { return Ok(false) };
        self.obey(first)?;
        while let Ok(order) = self.orders.try_recv() {
            self.obey(order)?;
        }
        Ok(true)
    }

    fn obey(&mut self, order: LogOrder) -> Result<(), AppendError> {
        match order {
            LogOrder::Batch(batch) => self.inbox.push_back(batch),
            LogOrder::Stop => self.is_stopping = true,
            LogOrder::Report(Report::Failed(error)) => return Err(error.into()),
            LogOrder::Report(Report::Space(space)) => self.note_space(space),
            LogOrder::Report(Report::Compacted(plan, Ok(()))) => {
                let dead = self.writer.compacted(&plan)?;
                self.keeper.remove(dead);
                self.is_compacting = false;
                self.compact();
                if self.port.status().has_no_space() {
                    self.keeper.prepare();
                }
            }
            LogOrder::Report(Report::Compacted(_, Err(error))) => {
                tracing::error!(%error, "old segments of the log stay as they are");
                self.is_compacting = false;
            }
        }
        Ok(())
    }

    /// Makes durable what has come in, as much as makes one group.
    fn commit(&mut self) -> Result<(), AppendError> {
        let mut len = 0;
        let mut batches = Vec::with_capacity(self.inbox.len());
        while len < LOG_GROUP_LEN_MAX
            && let Some(batch) = self.inbox.pop_front()
        {
            len += batch.records.len();
            batches.push(batch);
        }
        let taken = self.writer.take(&batches).map_err(AppendError::from);
        let flushed = taken.and_then(|()| self.persist(LogWriter::flush));
        self.deliver(batches, flushed.as_ref().ok().map(|flushed| flushed.at));
        self.look_after(flushed?);
        Ok(())
    }

    /// Does something that writes. Where the disk is full it is tried again until there is room: whatever needs no room is
    /// served meanwhile, and nothing is lost.
    fn persist(
        &mut self,
        write: impl Fn(&mut LogWriter, &dyn crate::clock::Clock) -> Result<Flushed, AppendError>,
    ) -> Result<Flushed, AppendError> {
        let begin = self.node.clock.now();
        self.port.status().set_busy_since(begin);
        loop {
            match write(&mut self.writer, &*self.node.clock) {
                Err(AppendError::NoSpace) => {
                    self.note_space(Space::Low);
                    self.keeper.prepare();
                    self.receive(Duration::from_millis(LOG_NO_SPACE_PACE_MS))?;
                }
                Err(error) => return Err(error),
                Ok(flushed) => {
                    self.note_duration(begin);
                    return Ok(flushed);
                }
            }
        }
    }

    fn deliver(&self, batches: Vec<LogBatch>, at: Option<Time>) {
        let end = at.map_or(ReservedEnd::Unknown, ReservedEnd::Begins);
        let waiting = batches.into_iter().flat_map(|batch| batch.waiting);
        post(&self.node, mails(waiting, end), &self.wake);
    }

    fn look_after(&mut self, flushed: Flushed) {
        if flushed.is_new_segment {
            self.keeper.prepare();
            self.compact();
        }
        if self.port.status().has_no_space() {
            // What is left of the reserve has to last: larger groups, and fewer of them.
            std::thread::sleep(Duration::from_millis(LOG_NO_SPACE_PACE_MS));
        }
    }

    fn compact(&mut self) {
        if let Some((sealed_count, plan)) = self.writer.compaction_plan()
            && !self.is_compacting
            && (sealed_count >= LOG_COMPACT_SEGMENT_COUNT || self.port.status().has_no_space())
        {
            self.is_compacting = true;
            self.keeper.compact(plan);
        }
    }

    fn note_space(&mut self, space: Space) {
        let has_no_space = space == Space::Low;
        if self.port.status().set_no_space(has_no_space) == has_no_space {
            return;
        }
        if has_no_space {
            tracing::error!("the disk of the log is full: no new durable grants until there is room");
            self.compact();
        } else {
            tracing::info!("the disk of the log has room again");
        }
    }

    fn note_duration(&self, begin: Time) {
        let took_ms = self.node.clock.now().ms_since(begin);
        if took_ms >= LOG_SLOW_MS {
            tracing::warn!(took_ms, "the disk of the log is slow");
        }
        self.port.status().set_busy_since(Time::NEVER);
    }

    fn end(self) -> Result<(), AppendError> {
        self.keeper.stop();
        self.writer.close(&*self.node.clock)
    }
}
