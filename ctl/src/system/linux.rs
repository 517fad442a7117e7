//! Linux: signalfd, pidfd, timerfd and procfs.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use waymaker_client::BootTime;

/// Signals of job control that this process blocks and receives as [`JobSignals`].
pub(crate) const JOB: &[Signal] = &[Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU, Signal::SIGCONT];

/// Receives the blocked signals of job control.
pub(crate) struct JobSignals(AsyncFd<SignalFd>);

impl JobSignals {
    pub(crate) fn new() -> io::Result<Self> {
        let set = SigSet::from_iter(JOB.iter().copied());
        let descriptor = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        #[expect(deprecated, reason = "a SignalFd owns its descriptor, and the successor is unsafe")]
        let descriptor = AsyncFd::new(descriptor)?;
        Ok(Self(descriptor))
    }

    /// Returns the next signal. The future may be dropped at any time.
    pub(crate) async fn next(&self) -> Signal {
        loop {
            let Ok(mut ready) = self.0.readable().await else { return std::future::pending().await };
            let read = ready
                .try_io(|fd| fd.get_ref().read_signal()?.ok_or_else(|| io::ErrorKind::WouldBlock.into()));
            if let Ok(Ok(info)) = read
                && let Ok(signal) = Signal::try_from(info.ssi_signo as i32)
            {
                return signal;
            }
        }
    }

    /// Discards the pending signals.
    pub(crate) fn discard(&self) {
        while let Ok(Some(_)) = self.0.get_ref().read_signal() {}
    }

    /// Returns whether the next pending signal continues this job.
    pub(crate) fn is_continued(&self) -> bool {
        matches!(self.0.get_ref().read_signal(), Ok(Some(info)) if info.ssi_signo == Signal::SIGCONT as u32)
    }
}

/// Returns the signals that this process ignored when it started, as bits: signal 1 is the lowest.
pub(crate) fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let digits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

/// Returns the path of the running program. It stays valid if the file is replaced.
pub(crate) fn program() -> io::Result<PathBuf> {
    Ok(PathBuf::from("/proc/self/exe"))
}

/// Reference to a child process that cannot reach another process with the same id later.
pub(crate) struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// Returns `None` on old kernels, which have no such references.
    pub(crate) fn open(pid: Pid) -> Option<Self> {
        let pid = rustix::process::Pid::from_raw(pid.as_raw())?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    /// Sends a signal. Does nothing if the process has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32) {
            let _ = pidfd_send_signal(&self.0, signal);
        }
    }
}

/// Returns whether this process is stopped by a signal.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program stands before the state, in parentheses, and may contain any byte.
    let name_end = stat.iter().rposition(|byte| *byte == b')');
    name_end.is_some_and(|end| stat[end..].starts_with(b") T"))
}

/// What [`Deadline::wait`] found.
pub(crate) struct Ready {
    pub(crate) input: bool,
    pub(crate) deadline: bool,
}

/// A deadline on the clock of leases, without one at first.
pub(crate) struct Deadline(OwnedFd);

impl Deadline {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?))
    }

    /// Replaces the deadline.
    pub(crate) fn set(&mut self, deadline: BootTime) -> io::Result<()> {
        const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let nanos = deadline.as_nanos();
        let it_value =
            Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: NONE, it_value })?;
        Ok(())
    }

    /// Blocks until the input can be read or the deadline has passed.
    pub(crate) fn wait(&self, input: &File) -> io::Result<Ready> {
        let mut descriptors = [PollFd::new(input, PollFlags::IN), PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut descriptors, None)?;
        let [input, deadline] = descriptors.map(|descriptor| !descriptor.revents().is_empty());
        Ok(Ready { input, deadline })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sys::signal::kill;
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

    use super::*;

    #[test]
    fn a_command_that_was_reported_as_stopped_and_continued_is_not_stopped() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("a program");
        let pid = Pid::from_raw(child.id() as i32);
        assert!(!is_stopped(pid));
        kill(pid, Signal::SIGSTOP).expect("it runs");
        let reported = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("a child");
        assert_eq!(reported, WaitStatus::Stopped(pid, Signal::SIGSTOP));
        assert!(is_stopped(pid));
        kill(pid, Signal::SIGTERM).expect("it is there");
        kill(pid, Signal::SIGCONT).expect("it is there");
        assert!(!is_stopped(pid), "it ends");
        child.wait().expect("a child");
        assert!(!is_stopped(pid));
    }
}
