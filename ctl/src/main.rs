//! waymaker-ctl: locks from the shell.
//!
//! `lock` and `semaphore` run a command while something is held; how is in `guarded/`, and `guarded/group.rs` explains how
//! the command is kept from outliving what it runs under. `log/` reads a data directory without any server. The
//! other subcommands ask one question each.

mod arguments;
mod entries;
mod exit;
mod guarded;
mod list;
mod lock;
mod log;
mod namespaces;
mod operate;
mod pool;
mod release;
mod semaphore;
mod status;
mod text;
mod throttle;
mod verify;
mod watch;
mod watchdog;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use waymaker_client::{Client, Error};

use arguments::{Arguments, Command, Connection, LocksCommand};
use exit::Exit;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are errors too, of a kind that belongs on stdout.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Success };
            // Nobody is left to tell if the terminal is gone.
            let _ = error.print();
            return exit.into();
        }
    };
    if let Command::Watchdog = arguments.command {
        return watchdog::run().into();
    }
    if let Command::Log { command } = &arguments.command {
        return log::run(command).into();
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("no event loop: {error}"), Exit::Internal).into(),
    };
    runtime.block_on(run(arguments)).into()
}

async fn run(arguments: Arguments) -> Exit {
    let Arguments { connection, command } = arguments;
    let result = match command {
        Command::Lock(arguments) => return lock::run(&connection, &arguments).await,
        Command::Semaphore(arguments) => return semaphore::run(&connection, &arguments).await,
        Command::Throttle(arguments) => return throttle::run(&connection, &arguments).await,
        Command::Locks { command: LocksCommand::List(arguments) } => list::run(&connection, &arguments).await,
        Command::Status(arguments) => status::run(&connection, &arguments).await,
        Command::Verify(arguments) => return verify::run(&connection, &arguments).await,
        Command::Entries(arguments) => entries::run(&connection, &arguments).await,
        Command::SetCapacity(arguments) => pool::set_capacity(&connection, &arguments).await,
        Command::Release(arguments) => release::run(&connection, &arguments).await,
        Command::Watch(arguments) => watch::run(&connection, &arguments).await,
        Command::ForceRelease(arguments) => operate::force_release(&connection, &arguments).await,
        Command::Freeze(arguments) => operate::freeze(&connection, &arguments).await,
        Command::Namespaces(arguments) => namespaces::run(&connection, &arguments).await,
        Command::Log { .. } | Command::Watchdog => unreachable!("they were served without a runtime"),
    };
    match result {
        Ok(()) => Exit::Success,
        Err(error) => complain_of(&error),
    }
}

async fn connect(connection: &Connection) -> waymaker_client::Result<Client> {
    Client::builder()
        .namespace(&connection.namespace)
        .owner(connection.owner.clone().unwrap_or_else(text::default_owner))
        .connect_timeout(connection.connect_timeout)
        .tls(connection.tls())
        .connect(&connection.server)
        .await
}

fn complain_of(error: &Error) -> Exit {
    complain(&error.to_string(), Exit::from(error))
}

/// Writes to stdout. A reader that has seen enough, such as `head`, is no failure.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Says on stderr who speaks and what is wrong.
fn complain(text: &str, exit: Exit) -> Exit {
    eprintln!("waymaker-ctl: {text}");
    exit
}
