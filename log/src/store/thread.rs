//! Log thread: makes the records of workers durable, and delivers the effects that wait for them.

use super::committer::{Committer, CommitterConfig, DiskStep, Outcome, Step};
use super::keeper_thread::KeeperThread;
use super::port::{LogOrder, LogPort};
use super::writer::LogWriter;
use super::{AppendError, Storage};
use crate::{Record, Time};
use crossbeam_channel::Receiver;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Interface of the log thread to the server that it belongs to.
pub trait LogHost: Send + 'static {
    /// Effect, such as a response, that waits until records are durable.
    type Effect: Send + 'static;

    /// Reads the clock of the server.
    fn now(&self) -> Time;

    /// Returns the time of the server's clock in nanoseconds, to measure durations.
    fn nanos(&self) -> u64;

    /// Notes the duration of a sync of the log, in nanoseconds, for the metrics of the server.
    fn note_sync(&self, nanos: u64);

    /// Tells the server the number of segments that are in no snapshot, including the current one.
    fn set_segment_count(&self, count: u64);

    /// Delivers effects whose records have this outcome.
    fn deliver(&self, effects: impl Iterator<Item = Self::Effect>, outcome: Outcome);

    /// Passes records to `put` that, applied after a `Started` record, give the same state as the log. No worker may
    /// run during the call.
    fn write_contents(&self, put: &mut dyn FnMut(&Record<'_>));
}

/// Configuration of the log thread.
#[derive(Debug)]
pub struct LogThreadConfig<W> {
    /// Writer that appends to the log.
    pub writer: LogWriter,
    /// Receiver of the orders that are sent to the port.
    pub orders: Receiver<LogOrder<W>>,
    /// Directory of the log. The keeper thread creates, compacts and removes files in it.
    pub storage: Arc<dyn Storage>,
    /// Length of a new segment in bytes.
    pub segment_len: u64,
    /// Time until all holds that may have been lost have expired, in milliseconds; `None` if none were lost.
    pub losses_ms: Option<u64>,
}

/// Handle of the running log thread. Only the log thread appends records, so workers never wait for the disk.
#[derive(Debug)]
pub struct LogThread<W> {
    thread: JoinHandle<Result<(), AppendError>>,
    port: LogPort<W>,
}

impl<W: Send + 'static> LogThread<W> {
    /// Starts the log thread and its keeper thread. If the log fails, `fail` is called once, after all waiting effects
    /// were delivered.
    ///
    /// # Errors
    /// If a thread cannot be created.
    pub fn start(
        config: LogThreadConfig<W>,
        host: impl LogHost<Effect = W>,
        port: LogPort<W>,
        fail: impl FnOnce(&AppendError) + Send + 'static,
    ) -> io::Result<Self> {
        let LogThreadConfig { writer, orders, storage, segment_len, losses_ms } = config;
        let keeper = KeeperThread::start(storage, segment_len, port.clone())?;
        let config = CommitterConfig::new(&writer, Arc::clone(port.status()), losses_ms);
        let committer = Committer::new(config, host.now());
        let run = Run { committer, writer, orders, host, keeper };
        let thread = std::thread::Builder::new().name("log".to_owned());
        let thread = thread.spawn(move || run.run().inspect_err(fail))?;
        Ok(Self { thread, port })
    }

    /// Makes all posted batches durable, and ends the log with a clean stop. No batch may be posted after this call.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn stop(self) -> Result<(), AppendError> {
        self.port.tell(LogOrder::Stop);
        let panicked = || Err(io::Error::other("the log thread panicked").into());
        self.thread.join().unwrap_or_else(|_| panicked())
    }
}

/// State of the log thread. It carries out the steps that the committer decides.
struct Run<H: LogHost> {
    committer: Committer<H::Effect>,
    writer: LogWriter,
    orders: Receiver<LogOrder<H::Effect>>,
    host: H,
    keeper: KeeperThread,
}

impl<H: LogHost> Run<H> {
    /// Runs until the server stops or the log fails.
    fn run(mut self) -> Result<(), AppendError> {
        loop {
            while let Ok(order) = self.orders.try_recv() {
                self.committer.obey(order, || self.host.now());
            }
            let now = self.host.now();
            match self.committer.next(now) {
                Step::Wait(until) => {
                    let wait = Duration::from_millis(until.ms_since(now));
                    if let Ok(order) = self.orders.recv_timeout(wait) {
                        self.committer.obey(order, || self.host.now());
                    }
                }
                Step::Disk(step) => {
                    let host = &self.host;
                    let began = matches!(step, DiskStep::Sync).then(|| host.nanos());
                    self.committer.run(step, &mut self.writer, || host.now());
                    if let Some(began) = began {
                        host.note_sync(host.nanos().saturating_sub(began));
                    }
                    host.set_segment_count(self.writer.segment_count());
                }
                Step::Deliver(batches, outcome) => {
                    self.host.deliver(batches.into_iter().flat_map(|batch| batch.waiting), outcome);
                }
                Step::Send(errand) => self.keeper.send(errand),
                Step::Close => return self.close(),
                Step::Fail(error) => return Err(error),
            }
        }
    }

    fn close(self) -> Result<(), AppendError> {
        self.keeper.stop();
        let host = &self.host;
        self.writer.close(|| host.now(), |put| host.write_contents(put))
    }
}
