//! Runs a command while something is held: `lock`, `semaphore` and `elect`.
//!
//! ```text
//!  lock -- renews --> server          (1) the watchdog starts and leads a new process group
//!   |  \                              (2) the command starts in that group
//!   |   `-- deadline --> watchdog     (3) `lock` passes signals on to the group
//!   |                       |         (4) the lock is lost, or its deadline is near: TERM, then KILL to the group
//!   `-- signals --> command-'         (5) the command ends: the watchdog is dismissed, the lock released
//!                 (one group)
//! ```

mod arguments;
mod group;
mod job;
mod schedule;
mod signals;
mod terminal;
mod waiting;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use waymaker_client::{BootClock, Client, Clock, Error, Lock, LossReason};

use crate::connection::{Connection, connect_within};
use crate::exit::Exit;
use crate::output::{complain, complain_about, complain_of, note, note_shorter_lease, report};
use crate::problem::Problem;
use crate::text;
pub(crate) use arguments::{GuardedArguments, Scope, ScopeArguments, WaitArguments};
pub(crate) use group::{Ended, Group, GroupEvent, StartError};
pub(crate) use job::{Job, NoTerminal};
use schedule::Schedule;
pub(crate) use signals::Signals;
use waiting::acquire_in_time;
pub(crate) use waiting::{FirstHolder, Holders, Wanted, holders_of_key};

/// Time limit for the end of the session when waymaker-ctl ends.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Pause before another request to a server that is unavailable, for a wait without a limit.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Something that a command runs under.
pub(crate) trait Guarded: Wanted {
    /// Options of the run.
    fn arguments(&self) -> &GuardedArguments;
}

/// Runs the command once.
pub(crate) async fn run(connection: &Connection, guarded: &impl Guarded) -> Exit {
    let mut run = match Run::begin(connection, guarded.wait()).await {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let exit =
        run.once(connection, guarded).await.unwrap_or_else(|error| complain_about(guarded.name(), &error));
    run.end().await;
    exit
}

/// Runs the command until it ends by itself. If the lock is lost, waits for it and starts the command again.
pub(crate) async fn run_until_ended(connection: &Connection, guarded: &impl Guarded) -> Exit {
    let mut run = match Run::begin(connection, guarded.wait()).await {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let exit = loop {
        match run.once(connection, guarded).await {
            Ok(Exit::Lost) => {}
            Ok(exit) => break exit,
            Err(error) => {
                let exit = complain_about(guarded.name(), &error);
                if !matches!(error, Error::Unavailable(_) | Error::Uncertain(_)) {
                    break exit;
                }
                tokio::select! {
                    exit = run.signals.end() => break exit,
                    () = tokio::time::sleep(TRY_AGAIN_AFTER) => {}
                }
            }
        }
    };
    run.end().await;
    exit
}

/// A connection to the server and the signals of this process.
pub(crate) struct Run {
    pub(crate) client: Client,
    pub(crate) signals: Signals,
}

impl Run {
    /// Connects to the server. `wait` is the time that the caller is going to wait after that.
    pub(crate) async fn begin(connection: &Connection, wait: Option<Duration>) -> Result<Self, Exit> {
        // Signals are queued from here on, so that none is lost between two steps.
        let mut signals = Signals::new()
            .map_err(|error| complain(&format!("cannot receive signals: {error}"), Exit::Internal))?;
        let client = tokio::select! {
            client = connect_within(connection, connection.connect_timeout_before(wait)) => client.map_err(|error| complain_of(&error))?,
            exit = signals.end() => return Err(exit),
        };
        Ok(Self { client, signals })
    }

    /// Acquires the lock, unless a signal ends the wait. The wait is then cancelled.
    pub(crate) async fn acquire(
        &mut self,
        connection: &Connection,
        wanted: &impl Wanted,
    ) -> waymaker_client::Result<Result<Lock, Exit>> {
        tokio::select! {
            lock = acquire_in_time(&self.client, connection, wanted) => lock.map(Ok),
            exit = self.signals.end() => Ok(Err(exit)),
        }
    }

    /// Acquires the lock and runs the command under it. Fails if the lock cannot be acquired.
    async fn once(
        &mut self,
        connection: &Connection,
        guarded: &impl Guarded,
    ) -> waymaker_client::Result<Exit> {
        let lock = match self.acquire(connection, guarded).await? {
            Ok(lock) => lock,
            Err(exit) => return Ok(exit),
        };
        if lock.is_clamped() {
            let lease = lock.lease_ms().map(|ms| Duration::from_millis(ms.into()));
            note_shorter_lease(lock.key(), lease.unwrap_or_default(), "--lease");
        }
        Ok(match hold(lock, guarded.arguments(), &mut self.signals).await {
            (exit, Some(lock)) => release(lock, exit).await,
            (exit, None) => exit,
        })
    }

    /// Ends the session. A grant that arrives at the same time is released. Does not wait for a server that is out of reach.
    pub(crate) async fn end(self) {
        let _ = tokio::time::timeout(FAREWELL_MAX, self.client.close()).await;
    }
}

/// Runs the command to its end. Returns the lock unless it is lost.
async fn hold(lock: Lock, arguments: &GuardedArguments, signals: &mut Signals) -> (Exit, Option<Lock>) {
    let schedule = Schedule::new(lock.remaining(), arguments.grace);
    let mut group = match Group::start(signals).await {
        Ok(group) => group,
        Err(exit) => return (exit, Some(lock)),
    };
    tell_watchdog(&mut group, &lock);
    let mut job = Job::new(&group);
    match group.run(&arguments.command, environment(&lock)) {
        Ok(()) => {}
        Err(StartError { program, source, exit }) => {
            drop(job);
            group.dismiss();
            return (complain(&format!("{program}: {source}"), exit), Some(lock));
        }
    }
    let mut lost = std::pin::pin!(lock.lost());
    let verdict = loop {
        tokio::select! {
            biased;
            event = group.next_event() => match event {
                GroupEvent::Ended(ended) => break Verdict::Ended(ended),
                GroupEvent::Stopped(signal) => {
                    let warn = || note(&stop_warning(&lock));
                    if let Err(NoTerminal) = job.command_stopped(signal, &group, signals, warn) {
                        break Verdict::NoTerminal;
                    }
                }
            },
            reason = &mut lost => break Verdict::Lost(reason),
            signal = signals.next() => job.receive(signal, &group),
            () = tokio::time::sleep(schedule.look_again_in(lock.remaining())) => {
                if schedule.must_stop(lock.remaining()) {
                    break Verdict::Lost(LossReason::LocalDeadline);
                }
                tell_watchdog(&mut group, &lock);
            }
        }
    };
    let verdict = match verdict {
        // The command ended and the lock is lost: it is not known whether the lock was held until the end.
        Verdict::Ended(_) if !lock.is_held() => {
            Verdict::Lost(lock.loss_reason().unwrap_or(LossReason::Expired))
        }
        verdict => verdict,
    };
    match verdict {
        Verdict::Ended(ended) => {
            drop(job);
            group.dismiss();
            (ended.exit(), Some(lock))
        }
        Verdict::NoTerminal => {
            stop(&mut group, arguments.grace).await;
            drop(job);
            (complain(&no_terminal(&arguments.command), Exit::Internal), Some(lock))
        }
        Verdict::Lost(reason) => {
            let grace = schedule.grace_after(reason, lock.remaining());
            stop(&mut group, grace).await;
            drop(job);
            let key = text::printable(lock.key());
            let message = match lock.loss_message() {
                "" => String::new(),
                message => format!(" (\"{}\")", text::printable(message.as_bytes())),
            };
            let told = format!("{key}: the lock was lost: {reason}{message}; the command was stopped");
            (complain(&told, Exit::Lost), None)
        }
    }
}

/// Returns the variables for the environment of the command.
fn environment(lock: &Lock) -> impl IntoIterator<Item = (&'static str, OsString)> {
    let lease_ms = lock.lease_ms().map(|ms| ("WAYMAKER_LEASE_MS", ms.to_string().into()));
    [
        ("WAYMAKER_KEY", OsStr::from_bytes(lock.key()).to_owned()),
        ("WAYMAKER_LOCK_ID", lock.id().to_string().into()),
        ("WAYMAKER_FENCE", lock.fence().to_string().into()),
    ]
    .into_iter()
    .chain(lease_ms)
}

enum Verdict {
    Ended(Ended),
    Lost(LossReason),
    NoTerminal,
}

/// Returns the note before this job stops. Its lock is not renewed until the job is continued.
fn stop_warning(lock: &Lock) -> String {
    let left = text::time(Some(lock.remaining()));
    format!(
        "{}: stopped; unless it is continued within {left}, the command is killed",
        text::printable(lock.key())
    )
}

/// Returns the error for a command that was stopped because it used the terminal.
pub(crate) fn no_terminal(command: &[OsString]) -> String {
    let program = text::printable(text::bytes(&command[0]));
    format!("{program}: stopped, because it needs the terminal and its job cannot get into the foreground")
}

/// Tells the watchdog the time at which it must kill the group.
fn tell_watchdog(group: &mut Group, lock: &Lock) {
    group.set_deadline(BootClock.now().after(lock.remaining()));
}

/// Sends TERM to the group, and KILL after the grace or when the command has ended, since its children may still run.
async fn stop(group: &mut Group, grace: Duration) {
    if !grace.is_zero() && !group.has_ended() {
        group.signal(Signal::SIGTERM);
        // A stopped process does not handle TERM.
        group.signal(Signal::SIGCONT);
        let ended = async { while !matches!(group.next_event().await, GroupEvent::Ended(_)) {} };
        // The next step is the same after a timeout.
        let _ = tokio::time::timeout(grace, ended).await;
    }
    group.kill().await;
}

/// Releases the lock of a command that has ended with `exit`.
async fn release(lock: Lock, exit: Exit) -> Exit {
    match lock.release().await {
        Ok(()) => exit,
        Err(error @ Error::Lost(_)) => {
            complain(&format!("{error}, at the moment the command ended"), Exit::Lost)
        }
        Err(error) => {
            // The command held the lock to its end, so its exit code is passed on.
            let problem =
                Problem::from(&error).about(b"not released, so the lock stays held until its lease expires");
            report(&problem, exit)
        }
    }
}
