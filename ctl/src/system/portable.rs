//! Systems without signalfd, pidfd, timerfd and procfs.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use waymaker_client::{BootClock, BootTime, Clock};

/// The one signal of job control that this process blocks. With it blocked, the process can write to the terminal and give the
/// foreground to another group while it is in the background.
pub(crate) const JOB: &[Signal] = &[Signal::SIGTTOU];

/// A process that a shell stops and continues stands still at least this long.
const STOP_MIN: Duration = Duration::from_millis(20);

/// No signals of job control: they have their default actions.
pub(crate) struct JobSignals {
    /// Time at which the job was about to stop.
    stopped: Mutex<Instant>,
}

impl JobSignals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { stopped: Mutex::new(Instant::now()) })
    }

    pub(crate) async fn next(&self) -> Signal {
        std::future::pending().await
    }

    /// Notes that the job is about to stop.
    pub(crate) fn discard(&self) {
        *self.stopped.lock().expect("no holder of this mutex panics") = Instant::now();
    }

    /// Returns whether the job was stopped and continued since [`Self::discard`]. The kernel does not stop an orphaned job.
    pub(crate) fn is_continued(&self) -> bool {
        self.stopped.lock().expect("no holder of this mutex panics").elapsed() >= STOP_MIN
    }
}

/// Returns 0: the ignored signals are unknown, so a handler may replace the effect of `nohup`.
pub(crate) fn ignored_signals() -> u64 {
    0
}

/// Returns the path of the program file.
pub(crate) fn program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// References to processes do not exist here.
pub(crate) struct ProcessHandle(Infallible);

impl ProcessHandle {
    pub(crate) fn open(_: Pid) -> Option<Self> {
        None
    }

    pub(crate) fn signal(&self, _: Signal) {
        match self.0 {}
    }
}

/// Returns `true`: a stop was reported, and whether it still lasts is unknown.
pub(crate) fn is_stopped(_: Pid) -> bool {
    true
}

/// What [`Deadline::wait`] found.
pub(crate) struct Ready {
    pub(crate) input: bool,
    pub(crate) deadline: bool,
}

/// The longest single wait. The time of a suspension may not count, so the clock is read again this often.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A deadline on the clock of leases, without one at first.
pub(crate) struct Deadline(BootTime);

impl Deadline {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(BootTime::NEVER))
    }

    /// Replaces the deadline.
    pub(crate) fn set(&mut self, deadline: BootTime) -> io::Result<()> {
        self.0 = deadline;
        Ok(())
    }

    /// Blocks until the input can be read or the deadline has passed.
    pub(crate) fn wait(&self, input: &File) -> io::Result<Ready> {
        loop {
            let pause = self.0.since(BootClock.now()).min(WAIT_MAX);
            let pause = Timespec { tv_sec: 0, tv_nsec: pause.as_nanos() as _ };
            let mut descriptors = [PollFd::new(input, PollFlags::IN)];
            poll(&mut descriptors, Some(&pause))?;
            let input = !descriptors[0].revents().is_empty();
            let deadline = BootClock.now() >= self.0;
            if input || deadline {
                return Ok(Ready { input, deadline });
            }
        }
    }
}
