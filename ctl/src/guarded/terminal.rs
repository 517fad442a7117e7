//! The controlling terminal and its foreground process group.
//!
//! A terminal has one foreground process group, which alone may read from it and gets its Ctrl-C and Ctrl-Z. The shell
//! puts its job there: this program, and what shares a pipeline or a script with it. The command has a process group of
//! its own. So it can use the terminal only if this program passes the foreground on, and gives it back in time.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, stdin, stdout};

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this session, independent of stdin. Without one every operation fails.
#[derive(Debug)]
pub(crate) struct Terminal {
    device: Option<File>,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        // Fails if there is no controlling terminal: under cron, systemd and setsid.
        Self { device: OpenOptions::new().read(true).write(true).open("/dev/tty").ok() }
    }

    /// Whether this process reads the terminal and writes to it, so nothing else of its job is likely to do so.
    pub(crate) fn is_for_us_alone(&self) -> bool {
        self.device.is_some() && stdin().is_terminal() && stdout().is_terminal()
    }

    /// Returns the group in the foreground.
    pub(crate) fn front(&self) -> Option<Pid> {
        self.device.as_ref().and_then(|device| tcgetpgrp(device).ok())
    }

    /// Whether the job of this process is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_of(getpgrp())
    }

    /// Whether this group is in the foreground.
    pub(crate) fn is_of(&self, group: Pid) -> bool {
        self.front() == Some(group)
    }

    /// Puts this group into the foreground. The caller blocks SIGTTOU, which would stop it in the background otherwise.
    pub(crate) fn give_to(&self, group: Pid) -> bool {
        self.device.as_ref().is_some_and(|device| tcsetpgrp(device, group).is_ok())
    }
}
