//! Becomes another program that is pinned to a core and dies with the one who started it.
//!
//! Both are settings of a process that survive `exec`, so this needs no code between `fork` and `exec`.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use crate::options::PinnedOptions;

/// Does not return, unless it fails.
pub fn run(options: &PinnedOptions) -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot ask to die with the parent")?;
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
