//! Replaces itself with another program that is pinned to a core, ends when its parent ends, and may run as
//! another user.
//!
//! These are all process settings that survive `exec`, so no code has to run between `fork` and `exec`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{User, setgid, setgroups, setuid};

use crate::options::PinnedOptions;

/// Returns only if it fails.
pub fn run(options: &PinnedOptions) -> Result<()> {
    if let Some(name) = &options.user {
        let user = User::from_name(name)?.with_context(|| format!("user {name} does not exist"))?;
        setgroups(&[user.gid])
            .and_then(|()| setgid(user.gid))
            .and_then(|()| setuid(user.uid))
            .with_context(|| format!("cannot switch to the user {name}"))?;
    }
    // Must come after setuid, because a change of user clears the signal.
    let signal = if options.quit { Signal::SIGQUIT } else { Signal::SIGKILL };
    prctl::set_pdeathsig(signal).context("cannot set the signal for the end of the parent")?;
    if nix::unistd::getppid().as_raw() == 1 {
        bail!("the parent process has already ended");
    }
    if let Some(core) = options.core {
        crate::pin::pin_current_thread(core)?;
    }
    let Some((program, arguments)) = options.command.split_first() else { bail!("no program given") };
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.to_string_lossy()))
}
