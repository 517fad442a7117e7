//! Running a command while something is held: `lock`, `semaphore` and `elect`.
//!
//! ```text
//!  lock -- renews --> server          (1) the watchdog starts, leads a new process group
//!   |  \                              (2) the command starts in that group
//!   |   `-- deadline --> watchdog     (3) signals to `lock` are passed on to the group
//!   |                       |         (4) the lock is lost, or its deadline comes near: TERM, then KILL to the group
//!   `-- signals --> command-'         (5) the command ends: the watchdog is dismissed, the lock released
//!                 (one group)
//! ```

mod group;
mod job;
mod schedule;
mod signals;
mod terminal;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use waymaker_client::{BootClock, Client, Clock, Error, Lock, LossReason};

use crate::arguments::{Connection, GuardedArguments};
use crate::exit::Exit;
use crate::output::report;
use crate::problem::Problem;
use crate::reach::{connect_within, no_answer};
use crate::{complain, complain_about, complain_of, note, text};
pub(crate) use group::{Ended, Group, GroupEvent, StartError};
pub(crate) use job::{Job, NoTerminal};
use schedule::Schedule;
pub(crate) use signals::Signals;

/// After so long a wait, people wonder what is being waited for.
const EXPLAIN_AFTER: Duration = Duration::from_secs(1);
/// How long the server may take to say that a wait is over.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How long to wait for the server's goodbye.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// After so long a server that is not available is asked again, where there is no limit to that.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a command runs under.
pub(crate) trait Guarded {
    /// What it is called.
    fn name(&self) -> &[u8];

    /// How the command runs under it.
    fn arguments(&self) -> &GuardedArguments;

    /// How long to wait for it; `None` without a limit.
    fn wait(&self) -> Option<Duration>;

    /// Asks for it.
    async fn acquire(&self, client: &Client) -> waymaker_client::Result<Lock>;

    /// The owner of one who has it; empty if that one gave no name, or nobody has it.
    async fn holder(&self, client: &Client) -> waymaker_client::Result<Vec<u8>>;
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

/// Runs the command until it ends by itself: anew whenever what it runs under was lost and is held again.
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

/// What it takes to run commands: a server, and an ear for signals.
pub(crate) struct Run {
    pub(crate) client: Client,
    pub(crate) signals: Signals,
}

impl Run {
    /// Connects to the server. `wait` is how long the caller is going to wait after that.
    pub(crate) async fn begin(connection: &Connection, wait: Option<Duration>) -> Result<Self, Exit> {
        // From here on they are kept, so that none is lost between two steps.
        let mut signals = Signals::new()
            .map_err(|error| complain(&format!("cannot receive signals: {error}"), Exit::Internal))?;
        let client = tokio::select! {
            client = connect_within(connection, connection.connect_timeout_before(wait)) => client.map_err(|error| complain_of(&error))?,
            exit = signals.end() => return Err(exit),
        };
        Ok(Self { client, signals })
    }

    /// Waits for what is to be held, and runs the command under it. Fails where that could not be had.
    async fn once(
        &mut self,
        connection: &Connection,
        guarded: &impl Guarded,
    ) -> waymaker_client::Result<Exit> {
        let lock = tokio::select! {
            lock = acquire_in_time(&self.client, connection, guarded) => lock?,
            exit = self.signals.end() => return Ok(exit),
        };
        if lock.is_clamped() {
            let key = text::printable(lock.key());
            let lease = lock.lease_ms().map(|ms| Duration::from_millis(ms.into()));
            let lease = text::pause(lease.unwrap_or_default());
            note(&format!(
                "{key}: the server grants a lease of {lease}, which is shorter than --lease asks for"
            ));
        }
        Ok(match hold(lock, guarded.arguments(), &mut self.signals).await {
            (exit, Some(lock)) => release(lock, exit).await,
            (exit, None) => exit,
        })
    }

    /// Gives back a grant that crosses with a signal. A server out of reach is no reason to stay.
    pub(crate) async fn end(self) {
        let _ = tokio::time::timeout(FAREWELL_MAX, self.client.close()).await;
    }
}

/// The owner of one who holds the key; empty if that one gave no name, or nobody does.
pub(crate) async fn holder_of_key(client: &Client, key: &[u8]) -> waymaker_client::Result<Vec<u8>> {
    let status = client.inspect(key).await?;
    Ok(status.holders.into_iter().next().map(|holder| holder.owner).unwrap_or_default())
}

/// Acquires it, or fails when the wait is over, even if the server never answers.
async fn acquire_in_time(
    client: &Client,
    connection: &Connection,
    guarded: &impl Guarded,
) -> waymaker_client::Result<Lock> {
    let acquire = acquire(client, guarded);
    let Some(wait) = guarded.wait() else { return acquire.await };
    let limit = wait.saturating_add(ANSWER_MAX);
    tokio::time::timeout(limit, acquire).await.unwrap_or_else(|_| Err(no_answer(connection, limit)))
}

async fn acquire(client: &Client, guarded: &impl Guarded) -> waymaker_client::Result<Lock> {
    let explanation = async {
        if std::io::stderr().is_terminal() {
            tokio::time::sleep(EXPLAIN_AFTER).await;
            explain(client, guarded).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        lock = guarded.acquire(client) => lock,
        never = explanation => never,
    }
}

/// Tells a person at the terminal what is being waited for.
async fn explain(client: &Client, guarded: &impl Guarded) {
    if let Ok(holder) = guarded.holder(client).await {
        let holder = if holder.is_empty() { "somebody".into() } else { text::printable(&holder) };
        note(&format!("waiting for {}, held by {holder}", text::printable(guarded.name())));
    }
}

/// Runs the command to its end. Hands the lock back unless it is lost.
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
        // Ended and lost at the same time: what counts is whether the lock was good to the end.
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

/// What the command finds in its environment.
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

/// Says what happens to a job that stops now. Its lock is not renewed until it goes on.
fn stop_warning(lock: &Lock) -> String {
    let left = text::time(Some(lock.remaining()));
    format!(
        "{}: stopped; unless it is continued within {left}, the command is killed",
        text::printable(lock.key())
    )
}

/// Says why a command was stopped that wanted the terminal.
pub(crate) fn no_terminal(command: &[OsString]) -> String {
    let program = text::printable(text::bytes(&command[0]));
    format!("{program}: stopped, because it needs the terminal and its job cannot get into the foreground")
}

/// Until when the group may run should nothing be heard from here again.
fn tell_watchdog(group: &mut Group, lock: &Lock) {
    group.set_deadline(BootClock.now().after(lock.remaining()));
}

/// TERM, and KILL when the grace is over or the command has ended: what it started may still be there.
async fn stop(group: &mut Group, grace: Duration) {
    if !grace.is_zero() && !group.has_ended() {
        group.signal(Signal::SIGTERM);
        // Stopped processes take no TERM.
        group.signal(Signal::SIGCONT);
        let ended = async { while !matches!(group.next_event().await, GroupEvent::Ended(_)) {} };
        // Either way the next step is the same.
        let _ = tokio::time::timeout(grace, ended).await;
    }
    group.kill().await;
}

/// Releases the lock of a command that has ended with `exit`.
async fn release(lock: Lock, exit: Exit) -> Exit {
    match lock.release().await {
        Ok(()) => exit,
        Err(error @ Error::Lost(_)) => complain(&format!("{error}, just as the command ended"), Exit::Lost),
        Err(error) => {
            // The command ran under the lock to its end; its result stands.
            let problem = Problem::from(&error).about(b"not released, so it stays to the end of its lease");
            report(&problem, exit)
        }
    }
}
