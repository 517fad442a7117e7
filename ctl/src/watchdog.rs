//! The watchdog: a process that kills the command's process group if waymaker-ctl cannot.
//!
//! `lock` starts the watchdog before the command and makes it the leader of the group that the command joins. The watchdog waits for one
//! of two events:
//!
//! - Its stdin ends. `lock` has the only writing end, so `lock` has died, perhaps by SIGKILL.
//! - Its last deadline passes. `lock` is stopped, or it gets no CPU time.
//!
//! In both cases the watchdog kills the group and itself. The id of a group stays reserved while its leader lives, so the kill cannot reach
//! other processes. The watchdog runs before the command starts, so the command never runs unwatched. When the command has ended,
//! `lock` kills the watchdog.
//!
//! On stdin the watchdog reads records of eight bytes, little endian: a deadline in nanoseconds of `CLOCK_BOOTTIME`. On stdout it writes
//! one byte when it is ready. From then on it blocks all signals except SIGKILL: signals for the group are meant for the command.

use std::convert::Infallible;
use std::io::{Read, Write};

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::exit::Exit;

/// Length of a record.
const RECORD_LEN: usize = 8;

/// Runs the watchdog. It ends when it is killed or kills its group.
pub(crate) fn run() -> Exit {
    let Err(_) = watch();
    kill_group();
    Exit::Internal
}

fn watch() -> std::io::Result<Infallible> {
    SigSet::all().thread_block()?;
    let mut stdout = std::io::stdout();
    stdout.write_all(b"\n")?;
    stdout.flush()?;
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    // Unlocked and unbuffered, so that poll reports all bytes that are not read.
    let mut stdin = std::fs::File::from(rustix::io::dup(std::io::stdin())?);
    let mut record = [0; RECORD_LEN];
    let mut filled = 0;
    loop {
        let mut descriptors = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&timer, PollFlags::IN)];
        poll(&mut descriptors, None)?;
        let [input, deadline] = descriptors.map(|descriptor| !descriptor.revents().is_empty());
        // The input is handled first: it may contain a later deadline.
        if input {
            match stdin.read(&mut record[filled..])? {
                0 => kill_group(),
                count => filled += count,
            }
            if filled == RECORD_LEN {
                filled = 0;
                set(&timer, u64::from_le_bytes(record))?;
            }
        } else if deadline {
            kill_group();
        }
    }
}

fn set(timer: &impl std::os::fd::AsFd, nanos: u64) -> std::io::Result<()> {
    const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let it_value =
        Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: NONE, it_value })?;
    Ok(())
}

/// Kills the group of this process and ends the process.
fn kill_group() {
    // If a user starts the watchdog from a shell, its group has other processes, which must not be killed.
    if getpgrp() == Pid::this() {
        let _ = killpg(getpgrp(), Signal::SIGKILL);
    }
    std::process::exit(i32::from(Exit::Internal.code()));
}
