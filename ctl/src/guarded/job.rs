//! Job control. The shell stops and continues its job and moves it to the foreground. The command is not part of that job.
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
//! The job stops when its command stops, and continues the command when it is continued. A command that SIGSTOP has stopped stays stopped,
//! and its lock is renewed.

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp};

use super::group::Group;
use super::signals::Signals;
use super::terminal::Terminal;

/// The job of this process and the group of its command.
pub(crate) struct Job {
    terminal: Terminal,
    command: Pid,
    /// Whether this process gave the foreground to the command.
    is_lent: bool,
    /// A stop signal that was passed on, before the stop of the command was reported.
    passed_stop: Option<Signal>,
}

/// The command uses the terminal, and no shell can move its job to the foreground.
#[derive(Debug)]
pub(crate) struct NoTerminal;

impl Job {
    /// Prepares job control for a command that is about to start. The command gets the foreground at once if no other process of the job
    /// uses the terminal: some programs print less if they start in the background. Otherwise it gets the foreground when it uses the
    /// terminal.
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
                // A stopped process does not handle other signals.
                group.signal(Signal::SIGCONT);
            }
        }
    }

    /// Handles a stop of the command: gives it the foreground if it uses the terminal. Otherwise stops this job too and returns when both
    /// are continued. Calls `before_stop` before the job stops.
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
            // The signal is passed on next and continues the command. This process could not pass it on while it is stopped.
            return Ok(());
        }
        if !group.is_stopped() {
            // A signal was passed on after this stop, and has continued or ended the command. If this process stopped now, it might stay
            // stopped.
            return Ok(());
        }
        let passed_stop = self.passed_stop.take();
        if wants_terminal && (self.has_lent() || self.lend()) {
            group.signal(Signal::SIGCONT);
            if let Some(stop) = passed_stop {
                // The command was stopped already when the signal came, so CONT has discarded the signal.
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
        // An interactive shell that is killed under a lock leaves one of its jobs in the foreground. If the foreground group still lives,
        // it belongs to the shell that started this process and has stopped it meanwhile.
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
