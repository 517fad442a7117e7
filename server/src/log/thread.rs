//! The thread that makes the records of workers durable.

use super::committer::{Committer, CommitterConfig, DiskStep, Step};
use super::keeper_thread::KeeperThread;
use super::port::{LogOrder, LogPort};
use super::writer::LogWriter;
use super::{AppendError, Storage};
use crate::node::Node;
use crate::waiting::{mails, post};
use crossbeam_channel::Receiver;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// Configuration of the log thread.
#[derive(Debug)]
pub struct LogThreadConfig {
    /// Writer that appends to the log.
    pub writer: LogWriter,
    /// Receiver of the orders to the node's port.
    pub orders: Receiver<LogOrder>,
    /// Directory of the log, for the thread that makes room.
    pub storage: Arc<dyn Storage>,
    /// Length of a new segment in bytes.
    pub segment_len: u64,
    /// Time until all holds that may have been lost have expired, in milliseconds; `None` if none were lost.
    pub losses_ms: Option<u64>,
}

/// The running log thread. Only this thread writes to the log, so workers never access the disk.
#[derive(Debug)]
pub struct LogThread {
    thread: JoinHandle<Result<(), AppendError>>,
    port: LogPort,
}

impl LogThread {
    /// Starts the thread. `wake` wakes a worker that was asleep when mail was left for it. `fail` is called once if
    /// the disk failed, after all waiting work has received its result.
    ///
    /// # Errors
    /// If a thread cannot be created.
    pub fn start(
        config: LogThreadConfig,
        node: Arc<Node>,
        port: LogPort,
        wake: impl Fn(u16) + Send + 'static,
        fail: impl FnOnce(&AppendError) + Send + 'static,
    ) -> io::Result<Self> {
        let LogThreadConfig { writer, orders, storage, segment_len, losses_ms } = config;
        let keeper = KeeperThread::start(storage, segment_len, port.clone())?;
        let config = CommitterConfig::new(&writer, Arc::clone(port.status()), losses_ms);
        let committer = Committer::new(config, node.clock.now());
        let run = Run { committer, writer, orders, node, keeper, wake };
        let thread = std::thread::Builder::new().name("log".to_owned());
        let thread = thread.spawn(move || run.run().inspect_err(fail))?;
        Ok(Self { thread, port })
    }

    /// Ends the log in order, once all posted batches are durable. No batch may be posted after this call.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn stop(self) -> Result<(), AppendError> {
        self.port.tell(LogOrder::Stop);
        let panicked = || Err(io::Error::other("the log thread panicked").into());
        self.thread.join().unwrap_or_else(|_| panicked())
    }
}

/// The log thread, which carries out the steps of the committer.
struct Run<W> {
    committer: Committer,
    writer: LogWriter,
    orders: Receiver<LogOrder>,
    node: Arc<Node>,
    keeper: KeeperThread,
    wake: W,
}

impl<W: Fn(u16)> Run<W> {
    /// Runs until the server stops or the disk fails.
    fn run(mut self) -> Result<(), AppendError> {
        loop {
            while let Ok(order) = self.orders.try_recv() {
                self.committer.obey(order, &*self.node.clock);
            }
            let now = self.node.clock.now();
            match self.committer.next(now) {
                Step::Wait(until) => {
                    let wait = Duration::from_millis(until.ms_since(now));
                    if let Ok(order) = self.orders.recv_timeout(wait) {
                        self.committer.obey(order, &*self.node.clock);
                    }
                }
                Step::Disk(step) => {
                    let (clock, metrics) = (&*self.node.clock, &self.node.metrics);
                    let began = matches!(step, DiskStep::Sync).then(|| clock.nanos());
                    self.committer.run(step, &mut self.writer, clock);
                    if let Some(began) = began {
                        metrics.log_syncs.note_nanos(clock.nanos().saturating_sub(began));
                    }
                    metrics.log_segment_count.store(self.writer.segment_count(), Ordering::Relaxed);
                }
                Step::Deliver(batches, end) => {
                    let waiting = batches.into_iter().flat_map(|batch| batch.waiting);
                    post(&self.node, mails(waiting, end), &self.wake);
                }
                Step::Send(errand) => self.keeper.send(errand),
                Step::Close => return self.close(),
                Step::Fail(error) => return Err(error),
            }
        }
    }

    fn close(self) -> Result<(), AppendError> {
        self.keeper.stop();
        let node = &self.node;
        self.writer.close(&*node.clock, |put| node.write_contents(put))
    }
}
