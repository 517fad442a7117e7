//! Job control: the shell stops, continues and foregrounds a job, which the command is no part of.
//!
//! ```text
//!  shell's job: waymaker-ctl | less         command's group: watchdog, ssh
//!    Ctrl-Z, the job has the foreground  ->   TSTP is passed on
//!    TTIN: `less` reads the terminal     ->   the foreground is taken back
//!    CONT: `fg` and `bg`                 ->   CONT, and the foreground if it was lent
//!    it gets the foreground, or stops    <-   stopped by TTIN or TTOU: it wants the terminal
//!    it stops                            <-   stopped by TSTP: Ctrl-Z, and the command has the foreground
//! ```
//!
//! So the job stops whenever its command does, and continues the command whenever it is continued. A command that
//! SIGSTOP has stopped stays stopped, and its lock is renewed.

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp};

use super::group::Group;
use super::signals::Signals;
use super::terminal::Terminal;

/// The job of this process, beside the group of its command.
pub(crate) struct Job {
    terminal: Terminal,
    command: Pid,
    /// Whether this process gave the foreground to the command.
    is_lent: bool,
    /// A stop that was passed on and that the command has not followed yet.
    passed_stop: Option<Signal>,
}

/// The command wants the terminal, and no shell can bring its job into the foreground.
#[derive(Debug)]
pub(crate) struct NoTerminal;

impl Job {
    /// Prepares job control for a command that is about to start. It has the foreground at once if nothing else of the job uses the
    /// terminal: some programs say less if they begin in the background. Otherwise it has to ask for it.
    pub(crate) fn new(group: &Group) -> Self {
        let mut job =
            Self { terminal: Terminal::open(), command: group.id(), is_lent: false, passed_stop: None };
        if job.terminal.is_for_us_alone() {
            job.lend();
        }
        job
    }

    /// Handles a signal that this process received.
    pub(crate) fn receive(&mut self, signal: Signal, group: &Group) {
        match signal {
            Signal::SIGTTIN | Signal::SIGTTOU if self.has_lent() => {
                self.take_back();
                let _ = killpg(getpgrp(), Signal::SIGCONT);
            }
            Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => {
                self.passed_stop = Some(signal);
                group.signal(signal);
            }
            Signal::SIGCONT => {
                self.passed_stop = None;
                if self.is_lent && !self.has_lent() {
                    self.is_lent = false;
                    self.lend();
                }
                group.signal(Signal::SIGCONT);
            }
            _ => {
                group.signal(signal);
                // Stopped processes take no other signal.
                group.signal(Signal::SIGCONT);
            }
        }
    }

    /// Handles a stop of the command: gives it the foreground if it wants that, or else stops this job too and returns
    /// when both are continued. Calls `before_stop` before the job stops.
    pub(crate) fn command_stopped(
        &mut self,
        signal: Signal,
        group: &Group,
        signals: &Signals,
        before_stop: impl FnOnce(),
    ) -> Result<(), NoTerminal> {
        let wants_terminal = match signal {
            Signal::SIGTTIN | Signal::SIGTTOU => true,
            Signal::SIGTSTP => false,
            _ => return Ok(()),
        };
        if signals.has_ending() {
            // It is passed on next, and continues the command. This process could not do that once it is stopped.
            return Ok(());
        }
        if !group.is_stopped() {
            // A signal was passed on after this stop, and has continued or ended the command. If this process stopped now, nothing might continue it.
            return Ok(());
        }
        let passed_stop = self.passed_stop.take();
        if wants_terminal && (self.has_lent() || self.lend()) {
            group.signal(Signal::SIGCONT);
            if let Some(stop) = passed_stop {
                // It came while the command was stopped already, so CONT has revoked it.
                group.signal(stop);
                self.passed_stop = passed_stop;
            }
        } else {
            let was_lent = self.has_lent();
            self.take_back();
            before_stop();
            let was_stopped = signals.stop_job(signal);
            if was_lent || wants_terminal {
                self.lend();
            }
            if wants_terminal && !was_stopped {
                return Err(NoTerminal);
            }
            group.signal(Signal::SIGCONT);
        }
        Ok(())
    }

    /// Gives the command the foreground if this job has it.
    fn lend(&mut self) -> bool {
        self.is_lent = self.terminal.is_ours() && self.terminal.give_to(self.command);
        self.is_lent
    }

    fn has_lent(&self) -> bool {
        self.is_lent && self.terminal.is_of(self.command)
    }

    fn take_back(&mut self) {
        // An interactive shell that is killed under a lock leaves one of its jobs in the foreground. A living group there
        // belongs to the shell that this process was started from, which has stopped it meanwhile.
        let is_left = |front| front == self.command || killpg(front, None) == Err(Errno::ESRCH);
        if self.is_lent && self.terminal.front().is_some_and(is_left) {
            self.terminal.give_to(getpgrp());
        }
        self.is_lent = false;
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.take_back();
    }
}
