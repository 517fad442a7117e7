//! The signals of this process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::unistd::getpgrp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::exit::Exit;
use crate::system::{JOB, JobSignals, ignored_signals};

/// Signals that end a wait, and that are passed on to a command.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// Receives signals, in order and without losing any.
///
/// Signals of job control are blocked instead of handled. A blocked SIGTSTP still stops this process when [`Self::stop_job`] unblocks it.
/// With SIGTTOU blocked, this process can write to the terminal and give the foreground to another group while it is in the background.
pub(crate) struct Signals {
    ending: mpsc::UnboundedReceiver<Signal>,
    /// Whether `ending` contains a signal, or will soon.
    has_ending: Arc<AtomicBool>,
    job: JobSignals,
}

impl Signals {
    /// Must be called before the process has other threads, since threads inherit the blocked signals.
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, ending) = mpsc::unbounded_channel();
        let has_ending = Arc::new(AtomicBool::new(false));
        let ignored = Ignored::read();
        for number in ENDING.into_iter().filter(|number| !ignored.contains(*number)) {
            signal_hook::flag::register(number as i32, Arc::clone(&has_ending))?;
            let mut stream = signal(SignalKind::from_raw(number as i32))?;
            let sender = sender.clone();
            tokio::spawn(
                async move { while stream.recv().await.is_some() && sender.send(number).is_ok() {} },
            );
        }
        job_set().thread_block()?;
        Ok(Self { ending, has_ending, job: JobSignals::new()? })
    }

    /// Returns the next signal. The future may be dropped at any time.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(signal) = self.ending.recv() => {
                self.has_ending.store(false, Ordering::Relaxed);
                signal
            }
            signal = self.job.next() => signal,
        }
    }

    /// Waits for a signal that ends this process while no command runs. Signals of job control stop and continue the process as usual.
    pub(crate) async fn end(&mut self) -> Exit {
        loop {
            match self.next().await {
                Signal::SIGCONT => {}
                signal if JOB.contains(&signal) => {
                    if self.has_ending() {
                        continue;
                    }
                    let _ = raise(signal);
                    self.let_through(signal);
                }
                signal => return Exit::Signal(signal as u8),
            }
        }
    }

    /// Returns whether an ending signal has arrived that [`Self::next`] has not returned yet.
    pub(crate) fn has_ending(&self) -> bool {
        self.has_ending.load(Ordering::Relaxed)
    }

    /// Stops all processes of this job, as its terminal does. Returns `true` when the job is continued. Returns `false` at once if no shell
    /// controls the job, since the kernel does not stop an orphaned process group.
    pub(crate) fn stop_job(&self, signal: Signal) -> bool {
        // An earlier SIGCONT would be taken for the end of this stop.
        self.job.discard();
        let _ = killpg(getpgrp(), signal);
        self.let_through(signal);
        self.job.is_continued()
    }

    /// Delivers this signal, with its default action, if it is pending.
    fn let_through(&self, signal: Signal) {
        let set = SigSet::from(signal);
        let _ = set.thread_unblock();
        let _ = set.thread_block();
    }
}

/// Runs `spawn` so that a process started by it blocks no signal of job control.
pub(crate) fn unblocked<T>(spawn: impl FnOnce() -> T) -> T {
    let set = job_set();
    let _ = set.thread_unblock();
    let spawned = spawn();
    let _ = set.thread_block();
    spawned
}

fn job_set() -> SigSet {
    SigSet::from_iter(JOB.iter().copied())
}

/// Signals that were ignored when this process started, such as under `nohup` and shells without job control. The command must ignore them
/// too, and a handler in this process would prevent that.
struct Ignored(u64);

impl Ignored {
    fn read() -> Self {
        Self(ignored_signals())
    }

    fn contains(&self, signal: Signal) -> bool {
        self.0 >> (signal as u32 - 1) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bit_is_signal_one() {
        let ignored = Ignored(0b101);
        assert!(ignored.contains(Signal::SIGHUP) && ignored.contains(Signal::SIGQUIT));
        assert!(!ignored.contains(Signal::SIGINT));
    }
}
