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
//! On stdin the watchdog reads records of eight bytes, little endian: a deadline in nanoseconds of `BootClock`. On stdout it writes
//! one byte when it is ready. From then on it blocks all signals except SIGKILL: signals for the group are meant for the command.

use std::convert::Infallible;
use std::io::{Read, Write};

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getpgrp};
use waymaker_client::BootTime;

use crate::exit::Exit;
use crate::system::Deadline;

/// The only argument of a watchdog.
pub(crate) const ARGUMENT: &str = "watchdog";

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
    let mut deadline = Deadline::new()?;
    // Unlocked and unbuffered, so that poll reports all bytes that are not read.
    let mut stdin = std::fs::File::from(rustix::io::dup(std::io::stdin())?);
    let mut record = [0; RECORD_LEN];
    let mut filled = 0;
    loop {
        let ready = deadline.wait(&stdin)?;
        // The input is handled first: it may contain a later deadline.
        if ready.input {
            match stdin.read(&mut record[filled..])? {
                0 => kill_group(),
                count => filled += count,
            }
            if filled == RECORD_LEN {
                filled = 0;
                deadline.set(BootTime::from_nanos(u64::from_le_bytes(record)))?;
            }
        } else if ready.deadline {
            kill_group();
        }
    }
}

/// Kills the group of this process and ends the process.
fn kill_group() {
    // If a user starts the watchdog from a shell, its group has other processes, which must not be killed.
    if getpgrp() == Pid::this() {
        let _ = killpg(getpgrp(), Signal::SIGKILL);
    }
    std::process::exit(i32::from(Exit::Internal.code()));
}
