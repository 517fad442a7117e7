//! Keeper thread: runs errands (slow work on the files of the log) beside the log thread, one after the other.

use super::Storage;
use super::errand::Errand;
use super::port::{LogOrder, LogPort};
use crossbeam_channel::{Sender, unbounded};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Handle with which the log thread controls the keeper thread.
#[derive(Debug)]
pub(super) struct KeeperThread {
    errands: Sender<Errand>,
    thread: JoinHandle<()>,
}

impl KeeperThread {
    /// Starts the keeper thread. It sends the reports of its errands to the log thread through `port`.
    pub(super) fn start<W: Send + 'static>(
        storage: Arc<dyn Storage>,
        segment_len: u64,
        port: LogPort<W>,
    ) -> io::Result<Self> {
        let (errands, receiver) = unbounded::<Errand>();
        let thread = std::thread::Builder::new().name("log-keeper".to_owned());
        let thread = thread.spawn(move || {
            for errand in receiver {
                if let Some(report) = errand.run(&*storage, segment_len) {
                    port.tell(LogOrder::Report(report));
                }
            }
        })?;
        Ok(Self { errands, thread })
    }

    pub(super) fn send(&self, errand: Errand) {
        // The send cannot fail: the thread ends only after `stop`, which consumes this handle.
        let _ = self.errands.send(errand);
    }

    /// Waits until all errands are done, and ends the thread.
    pub(super) fn stop(self) {
        drop(self.errands);
        // The result is ignored: the server aborts on a panic, so the thread has not panicked.
        let _ = self.thread.join();
    }
}
