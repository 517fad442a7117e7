//! Whose keyboard it is.

use std::io::{IsTerminal, stdin};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal, handed to the command's group for as long as this lives.
///
/// The command has a process group of its own, and only the terminal's foreground group may read from it and gets its
/// Ctrl-C. Where there is no terminal, or somebody else is in its foreground, nothing is done.
pub(crate) struct Terminal {
    handed: bool,
}

impl Terminal {
    pub(crate) fn hand_to(group: Pid) -> Self {
        let ours =
            stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == getpgrp());
        Self { handed: ours && tcsetpgrp(stdin(), group).is_ok() }
    }

    pub(crate) fn is_handed(&self) -> bool {
        self.handed
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.handed {
            // Taking it back from the background would stop this process otherwise.
            let mut mask = SigSet::empty();
            mask.add(Signal::SIGTTOU);
            let blocked = mask.thread_block();
            // The terminal may be gone by now, and then there is nothing to take back.
            let _ = tcsetpgrp(stdin(), getpgrp());
            if blocked.is_ok() {
                let _ = mask.thread_unblock();
            }
        }
    }
}
