//! The controlling terminal and its foreground process group.
//!
//! A terminal has one foreground process group. Only that group may read from the terminal, and only it gets the signals of Ctrl-C and
//! Ctrl-Z. The shell puts its job there: waymaker-ctl and the other processes of its pipeline or script. The command has its own process
//! group. It can use the terminal only if waymaker-ctl gives it the foreground; waymaker-ctl takes the foreground back in time.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, stdin, stdout};

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this session, independent of stdin. Without a terminal, every operation fails.
#[derive(Debug)]
pub(crate) struct Terminal {
    device: Option<File>,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        // Fails if there is no controlling terminal: under cron, systemd and setsid.
        Self { device: OpenOptions::new().read(true).write(true).open("/dev/tty").ok() }
    }

    /// Returns whether stdin and stdout of this process are the terminal. Other processes of its job are then unlikely to use it.
    pub(crate) fn is_for_us_alone(&self) -> bool {
        self.device.is_some() && stdin().is_terminal() && stdout().is_terminal()
    }

    /// Returns the foreground process group.
    pub(crate) fn front(&self) -> Option<Pid> {
        self.device.as_ref().and_then(|device| tcgetpgrp(device).ok())
    }

    /// Returns whether the job of this process is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_of(getpgrp())
    }

    /// Returns whether this group is in the foreground.
    pub(crate) fn is_of(&self, group: Pid) -> bool {
        self.front() == Some(group)
    }

    /// Puts this group into the foreground. The caller blocks SIGTTOU, which would stop it in the background otherwise.
    pub(crate) fn give_to(&self, group: Pid) -> bool {
        self.device.as_ref().is_some_and(|device| tcsetpgrp(device, group).is_ok())
    }
}
