//! The process that ends the command's process group when nobody else can.
//!
//! `lock` starts it before the command and makes it the leader of the group that the command joins. Then it does
//! nothing but wait for one of two things:
//!
//! - its stdin ends: `lock`, which alone has the other end, has died, even by SIGKILL;
//! - its last deadline passes: `lock` is stopped, or starved.
//!
//! In both cases it kills the group and itself. It leads the group, so no other group can have the same number, and the kill cannot
//! hit strangers. It is there before the command, so the command never runs unwatched. When the command has ended,
//! `lock` kills the watchdog.
//!
//! On stdin it gets records of eight bytes, little endian: a deadline in nanoseconds of `CLOCK_BOOTTIME`. On stdout it
//! writes one byte once it is ready, which is when no signal but SIGKILL ends it any more: signals for the group are
//! meant for the command.

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

/// Watches until it is killed, or kills its group.
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
    // Unlocked and unbuffered, so that poll sees what is there.
    let mut stdin = std::fs::File::from(rustix::io::dup(std::io::stdin())?);
    let mut record = [0; RECORD_LEN];
    let mut filled = 0;
    loop {
        let mut descriptors = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&timer, PollFlags::IN)];
        poll(&mut descriptors, None)?;
        let [input, deadline] = descriptors.map(|descriptor| !descriptor.revents().is_empty());
        // The input first: it may hold a later deadline.
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

/// Does not return if this process leads its group, as it should: it is hit too.
fn kill_group() {
    // By hand from a shell it is in the group of others, who are none of its business.
    if getpgrp() == Pid::this() {
        let _ = killpg(getpgrp(), Signal::SIGKILL);
    }
    std::process::exit(i32::from(Exit::Internal.code()));
}
