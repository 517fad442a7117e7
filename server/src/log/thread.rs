//! The thread that makes durable what workers leave.

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
    /// Time until all holds that may have been lost have expired, in milliseconds; `None` if none were lost.
    pub losses_ms: Option<u64>,
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
        let LogThreadConfig { writer, orders, storage, segment_len, losses_ms } = config;
        let keeper = KeeperThread::start(storage, segment_len, port.clone())?;
        let config = CommitterConfig::new(&writer, Arc::clone(port.status()), losses_ms);
        let committer = Committer::new(config, node.clock.now());
        let run = Run { committer, writer, orders, node, keeper, wake };
        let thread = std::thread::Builder::new().name("log".to_owned());
        let thread = thread.spawn(move || run.run().inspect_err(fail))?;
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
