//! Signals that end a command before it has finished.
//!
//! The command removes its unfinished files, so it looks for a signal between two pieces of its work.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::Signal;

use super::problem::BackupError;

/// The signals that came.
#[derive(Debug, Default)]
pub(super) struct Interrupt(Vec<(Signal, Arc<AtomicBool>)>);

impl Interrupt {
    /// Catches the signals that ask a process to end. A write beyond a limit on the length of files fails then, instead of ending the
    /// process by SIGXFSZ.
    pub(super) fn catch() -> io::Result<Self> {
        let catch = |signal: Signal| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal as i32, Arc::clone(&flag))?;
            Ok((signal, flag))
        };
        catch(Signal::SIGXFSZ)?;
        let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
        Ok(Self(signals.into_iter().map(catch).collect::<io::Result<_>>()?))
    }

    /// Fails if a signal came.
    pub(super) fn check(&self) -> Result<(), BackupError> {
        match self.0.iter().find(|(_, flag)| flag.load(Ordering::Relaxed)) {
            Some((signal, _)) => Err(BackupError::Interrupted(*signal)),
            None => Ok(()),
        }
    }
}
