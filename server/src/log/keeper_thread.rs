//! The thread beside the log: it makes room ahead of it, and folds what lies behind it into snapshots.

use super::keeper::{self, CompactError, Space};
use super::port::{LogOrder, LogPort};
use super::{CompactionPlan, Dead, Storage};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use waymaker_engine::log::Image;

/// How often it looks whether a full disk has room again.
const LOOK: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Debug)]
enum Errand {
    /// Make the next segments.
    Prepare,
    /// Fold old segments into a snapshot.
    Compact(CompactionPlan),
    /// Remove what nothing needs any more.
    Remove(Dead),
    Stop,
}

/// What the log thread is told.
#[derive(Debug)]
pub enum Report {
    /// Whether there is room ahead.
    Space(Space),
    /// The snapshot of this plan is durable, or why there is none.
    Compacted(CompactionPlan, Result<(), CompactError>),
    /// The disk failed.
    Failed(io::Error),
}

/// The thread, as the log thread sees it.
#[derive(Debug)]
pub(super) struct Keeper {
    errands: Sender<Errand>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Starts it. What it has to say comes through `port`.
    pub(super) fn start(storage: Arc<dyn Storage>, segment_len: u64, port: LogPort) -> io::Result<Self> {
        let (errands, receiver) = unbounded();
        let thread = std::thread::Builder::new().name("log-keeper".to_owned());
        let thread = thread.spawn(move || run(&*storage, segment_len, &receiver, &port))?;
        let keeper = Self { errands, thread };
        keeper.prepare();
        Ok(keeper)
    }

    pub(super) fn prepare(&self) {
        self.send(Errand::Prepare);
    }

    pub(super) fn compact(&self, plan: CompactionPlan) {
        self.send(Errand::Compact(plan));
    }

    pub(super) fn remove(&self, dead: Dead) {
        self.send(Errand::Remove(dead));
    }

    /// Waits until it has done what it was asked.
    pub(super) fn stop(self) {
        self.send(Errand::Stop);
        // If it panicked the process is gone already.
        let _ = self.thread.join();
    }

    fn send(&self, errand: Errand) {
        // It ends only when it is told to.
        let _ = self.errands.send(errand);
    }
}

fn run(storage: &dyn Storage, segment_len: u64, errands: &Receiver<Errand>, port: &LogPort) {
    let mut space = Space::Ample;
    loop {
        let errand = match space {
            Space::Ample => errands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Space::Low => errands.recv_timeout(LOOK),
        };
        let report = match errand {
            Ok(Errand::Prepare) | Err(RecvTimeoutError::Timeout) => {
                match keeper::prepare(storage, segment_len) {
                    Ok(now) => {
                        space = now;
                        Report::Space(now)
                    }
                    Err(error) => Report::Failed(error),
                }
            }
            Ok(Errand::Compact(plan)) => Report::Compacted(plan, keeper::compact::<Image>(storage, &plan)),
            Ok(Errand::Remove(dead)) => match keeper::remove(storage, &dead) {
                Ok(()) => continue,
                Err(error) => Report::Failed(error),
            },
            Ok(Errand::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        };
        port.tell(LogOrder::Report(report));
    }
}
