//! Becomes another program that is pinned to a core, dies with the one who started it, and may run as somebody else.
//!
//! All are settings of a process that survive `exec`, so this needs no code between `fork` and `exec`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{User, setgid, setgroups, setuid};

use crate::options::PinnedOptions;

/// Does not return, unless it fails.
pub fn run(options: &PinnedOptions) -> Result<()> {
    if let Some(name) = &options.user {
        let user = User::from_name(name)?.with_context(|| format!("there is no user {name}"))?;
        setgroups(&[user.gid])
            .and_then(|()| setgid(user.gid))
            .and_then(|()| setuid(user.uid))
            .with_context(|| format!("cannot become the user {name}"))?;
    }
    // Only now: whoever becomes somebody else is no longer told.
    let signal = if options.quit { Signal::SIGQUIT } else { Signal::SIGKILL };
    prctl::set_pdeathsig(signal).context("cannot ask to die with the parent")?;
    if nix::unistd::getppid().as_raw() == 1 {
        bail!("the one who started this is gone already");
    }
    if let Some(core) = options.core {
        crate::pin::pin_current_thread(core)?;
    }
    let Some((program, arguments)) = options.command.split_first() else { bail!("no program is named") };
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.to_string_lossy()))
}
