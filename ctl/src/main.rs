//! waymaker-ctl: locks from the shell.
//!
//! `lock`, `semaphore` and `elect` run a command while something is held; how is in `guarded/`, and `guarded/group.rs`
//! explains how the command is kept from outliving what it runs under. `presence` keeps an entry of the registry.
//! `log/` reads a data directory without any server. The other subcommands ask one question each; `output` is how all of
//! them speak.

mod arguments;
mod completions;
mod elect;
mod entries;
mod exit;
mod guarded;
mod list;
mod lock;
mod log;
mod namespaces;
mod operate;
mod output;
mod pool;
mod presence;
mod release;
mod semaphore;
mod status;
mod text;
mod throttle;
mod verify;
mod watch;
mod watchdog;

use std::process::ExitCode;

use clap::Parser;
use waymaker_client::Client;

use arguments::{Arguments, Command, Connection, LocksCommand, NamespaceCommand};
use exit::Exit;
use output::{complain, complain_of, note, print, show};

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
    output::choose(arguments.output.format());
    match &arguments.command {
        Command::Watchdog => return watchdog::run().into(),
        Command::Log { command } => return log::run(command).into(),
        Command::Completions(arguments) => return completions::run(arguments).into(),
        _ => {}
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("no event loop: {error}"), Exit::Internal).into(),
    };
    runtime.block_on(run(arguments)).into()
}

async fn run(arguments: Arguments) -> Exit {
    let Arguments { connection, command, .. } = arguments;
    let result = match command {
        Command::Lock(arguments) => return lock::run(&connection, &arguments).await,
        Command::Semaphore(arguments) => return semaphore::run(&connection, &arguments).await,
        Command::Elect(arguments) => return elect::run(&connection, &arguments).await,
        Command::Presence { command } => return presence::run(&connection, &command).await,
        Command::Throttle(arguments) => return throttle::run(&connection, &arguments).await,
        Command::Locks { command: LocksCommand::List(arguments) } => list::run(&connection, &arguments).await,
        Command::Status(arguments) => status::run(&connection, &arguments).await,
        Command::Verify(arguments) => return verify::run(&connection, &arguments).await,
        Command::Entries(arguments) => entries::run(&connection, &arguments).await,
        Command::Pools(arguments) => pool::list(&connection, &arguments).await,
        Command::SetCapacity(arguments) => pool::set_capacity(&connection, &arguments).await,
        Command::Release(arguments) => release::run(&connection, &arguments).await,
        Command::Watch(arguments) => watch::run(&connection, &arguments).await,
        Command::ForceRelease(arguments) => operate::force_release(&connection, &arguments).await,
        Command::Freeze(arguments) => operate::freeze(&connection, &arguments).await,
        Command::Namespaces => namespaces::run(&connection).await,
        Command::Namespace { command: NamespaceCommand::Remove(arguments) } => {
            namespaces::remove(&connection, &arguments).await
        }
        Command::Log { .. } | Command::Completions(_) | Command::Watchdog => {
            unreachable!("they were served without a runtime")
        }
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
