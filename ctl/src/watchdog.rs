//! The process that ends the command's process group when nobody else can.
//!
//! `lock` starts it before the command and makes it the leader of the group that the command joins. Then it does
//! nothing but wait for one of three things:
//!
//! - its stdin ends: whoever held the other end, which is `lock` alone, has died, be it by SIGKILL;
//! - the deadline it was last told passes: `lock` is stopped, or starved;
//! - it is dismissed: the command has ended.
//!
//! In the first two cases it kills the group, itself included. Being its leader it keeps the group's number from being
//! given to anybody else, so the kill cannot hit strangers; and since it is there before the command, there is no
//! moment in which the command runs unwatched.
//!
//! On stdin it gets records of eight bytes, little endian: a deadline in nanoseconds of `CLOCK_BOOTTIME`, or 0 to
//! dismiss it. On stdout it writes one byte once it is ready, which is when no signal but SIGKILL ends it any more:
//! signals for the group are meant for the command.

use std::io::{Read, Write};

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::exit::Exit;

/// What dismisses a watchdog.
pub(crate) const DISMISSAL: u64 = 0;
/// Length of a record.
pub(crate) const RECORD_LEN: usize = 8;

/// Watches until dismissed.
pub(crate) fn run() -> Exit {
    match watch() {
        Ok(()) => Exit::Success,
        Err(_) => {
            kill_group();
            Exit::Internal
        }
    }
}

fn watch() -> std::io::Result<()> {
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
                match u64::from_le_bytes(record) {
                    DISMISSAL => return Ok(()),
                    nanos => set(&timer, nanos)?,
                }
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
