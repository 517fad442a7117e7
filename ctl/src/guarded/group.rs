//! The process group of the command, and the watchdog that leads it.
//!
//! A command can be more than one process: a shell starts others, and these would go on without the lock if only the shell were
//! killed. So all of them share a process group, and signals go to the group. `watchdog.rs` describes what happens to the group if
//! this process dies.

use std::ffi::OsString;
use std::io::{PipeWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use waymaker_client::BootTime;

use super::signals::{self, Signals};
use crate::exit::Exit;
use crate::output::complain;
use crate::system::{self, ProcessHandle};
use crate::{text, watchdog};

/// An event of the command itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupEvent {
    Ended(Ended),
    /// The command was stopped by this signal.
    Stopped(Signal),
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Killed(Signal),
    /// Another part of the process waited for it, so its exit status is unknown.
    Unknown,
}

impl Ended {
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Exited(code) => Exit::Command(code as u8),
            Self::Killed(signal) => Exit::Signal(signal as u8),
            Self::Unknown => Exit::Internal,
        }
    }
}

/// The command could not be started.
#[derive(Debug)]
pub(crate) struct StartError {
    pub(crate) program: String,
    pub(crate) source: std::io::Error,
    pub(crate) exit: Exit,
}

/// A process group with its watchdog.
pub(crate) struct Group {
    watchdog: Child,
    /// The only writing end of the pipe. The kernel closes it when this process ends, however it ends.
    leash: PipeWriter,
    /// Process id and handle of the command. The command may have left the group, as an interactive shell does. After the command has
    /// ended, its id may belong to another process; its handle cannot.
    command: Option<(Pid, ProcessHandle)>,
    events: mpsc::UnboundedReceiver<GroupEvent>,
    events_sender: mpsc::UnboundedSender<GroupEvent>,
    ended: bool,
}

impl Group {
    /// Starts the watchdog in a new process group. A signal that comes before the watchdog is ready ends both.
    pub(crate) async fn start(signals: &mut Signals) -> Result<Self, Exit> {
        let failed = |error| complain(&format!("cannot start the watchdog: {error}"), Exit::Internal);
        let (mut group, mut ready) = Self::spawn().map_err(failed)?;
        let exit = tokio::select! {
            is_ready = ready.read_u8() => match is_ready {
                Ok(_) => return Ok(group),
                Err(error) => failed(error),
            },
            exit = signals.end() => exit,
        };
        group.kill().await;
        Err(exit)
    }

    /// Starts the watchdog. It writes one byte when it is ready.
    fn spawn() -> std::io::Result<(Self, pipe::Receiver)> {
        let (reader, leash) = std::io::pipe()?;
        // The program that runs now, even if its file was replaced since.
        let mut watchdog = Command::new(system::program()?)
            .arg(watchdog::ARGUMENT)
            .current_dir("/")
            .process_group(0)
            .stdin(reader)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = watchdog.stdout.take().expect("stdout is piped");
        let ready = pipe::Receiver::from_owned_fd(stdout.into())?;
        let (events_sender, events) = mpsc::unbounded_channel();
        Ok((Self { watchdog, leash, command: None, events, events_sender, ended: true }, ready))
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_raw(self.watchdog.id() as i32)
    }

    /// Starts the command in the group, with these variables in its environment.
    pub(crate) fn run(
        &mut self,
        words: &[OsString],
        environment: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> Result<(), StartError> {
        let (program, arguments) = words.split_first().expect("the command line requires a command");
        let mut command = Command::new(program);
        command.args(arguments).envs(environment).process_group(self.id().as_raw());
        let child = signals::unblocked(|| command.spawn());
        let failed = |source: std::io::Error, exit| StartError {
            program: text::printable(program.as_bytes()),
            source,
            exit,
        };
        let mut child = child.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => failed(error, Exit::NotFound),
            _ => failed(error, Exit::NotExecutable),
        })?;
        self.ended = false;
        let events = self.events_sender.clone();
        let pid = Pid::from_raw(child.id() as i32);
        // Without a handle, signals reach the group only.
        self.command = ProcessHandle::open(pid).map(|process| (pid, process));
        // Only a blocking call reports stops as well as the end, so it needs a thread.
        let waiting = std::thread::Builder::new().name("wait".to_owned()).spawn(move || wait(pid, &events));
        waiting.map(|_| ()).map_err(|error| {
            // Without the thread nothing would notice the end of the command, and the lock is released next.
            let _ = killpg(self.id(), Signal::SIGKILL);
            let _ = child.wait();
            failed(error, Exit::Internal)
        })
    }

    /// Returns the next event of the command. The future may be dropped at any time.
    pub(crate) async fn next_event(&mut self) -> GroupEvent {
        let event = self.events.recv().await.expect("a sender is kept here");
        self.ended |= matches!(event, GroupEvent::Ended(_));
        event
    }

    /// Whether the command is not running: it has ended, or it was never started.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether the command is stopped now. A signal may have continued it since its stop was reported.
    pub(crate) fn is_stopped(&self) -> bool {
        self.command.as_ref().is_none_or(|(pid, _)| system::is_stopped(*pid))
    }

    /// Sends a signal to all processes of the group, and to the command if it has left the group. The watchdog blocks all signals except
    /// KILL.
    pub(crate) fn signal(&self, signal: Signal) {
        // The group exists as long as the watchdog.
        let _ = killpg(self.id(), signal);
        let Some((id, process)) = &self.command else { return };
        // In the group it has received the signal already.
        let has_left = getpgid(Some(*id)).is_ok_and(|group| group != self.id());
        if has_left {
            process.signal(signal);
        }
    }

    /// Sets the time at which the watchdog kills the group. A later call replaces it.
    pub(crate) fn set_deadline(&mut self, deadline: BootTime) {
        // A pipe takes eight bytes at once or not at all. The write fails only if the watchdog has ended, which needs no deadline then.
        let _ = self.leash.write_all(&deadline.as_nanos().to_le_bytes());
    }

    /// Kills all processes of the group and waits for the end of the command.
    pub(crate) async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        while !self.ended {
            self.next_event().await;
        }
        let _ = self.watchdog.wait();
    }

    /// Ends the watchdog only. KILL ends it even if it is stopped.
    pub(crate) fn dismiss(mut self) {
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
    }
}

/// Reports the events of the command until it has ended.
fn wait(pid: Pid, events: &mpsc::UnboundedSender<GroupEvent>) {
    loop {
        let event = match waitpid(pid, Some(WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Exited(_, code)) => GroupEvent::Ended(Ended::Exited(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => GroupEvent::Ended(Ended::Killed(signal)),
            Ok(WaitStatus::Stopped(_, signal)) => GroupEvent::Stopped(signal),
            Ok(_) | Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => GroupEvent::Ended(Ended::Unknown),
        };
        if events.send(event).is_err() || matches!(event, GroupEvent::Ended(_)) {
            return;
        }
    }
}
