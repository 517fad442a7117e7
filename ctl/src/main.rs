//! waymaker-ctl: locks from the shell.
//!
//! `lock`, `semaphore` and `elect` run a command while something is held; how is in `guarded/`, and `guarded/group.rs`
//! explains how the command is kept from outliving what it runs under. `presence` keeps an entry of the registry.
//! `log/` reads a data directory without any server. The other subcommands ask one question each. `reach` finds the
//! server, `output` prints, and `problem` describes failures.

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
mod problem;
mod reach;
mod release;
mod semaphore;
mod status;
mod text;
mod throttle;
mod verify;
mod watch;
mod watchdog;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command, LocksCommand, NamespaceCommand};
use exit::Exit;
use output::{Format, complain, complain_about, complain_of, note, print, show};
use reach::connect;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return output::finish(refuse(&error)).into(),
    };
    output::choose(arguments.output.format());
    output::finish(run(arguments)).into()
}

/// Prints the help, the version (clap reports both as errors), or the error in the command line.
fn refuse(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        output::note_written(error.print());
        return Exit::Success;
    }
    if asks_for_json(std::env::args_os().skip(1)) {
        output::choose(Format::Json);
        let text = error.render().to_string();
        let (problem, _usage) = text.split_once("\n\n").unwrap_or((&text, ""));
        let words: Vec<_> = problem.trim_start_matches("error: ").split_whitespace().collect();
        return complain(&words.join(" "), Exit::Usage);
    }
    // A stderr that is gone takes no report of that.
    let _ = error.print();
    Exit::Usage
}

/// Whether this command line, which makes no sense as a whole, asks for JSON.
fn asks_for_json(words: impl Iterator<Item = OsString>) -> bool {
    let words: Vec<_> = words.take_while(|word| word != "--").collect();
    let is_format = |pair: &[OsString]| pair[0] == "--output" && pair[1] == "json";
    words.iter().any(|word| word == "--json" || word == "--output=json") || words.windows(2).any(is_format)
}

fn run(arguments: Arguments) -> Exit {
    match &arguments.command {
        Command::Watchdog => return watchdog::run(),
        Command::Log { command } => return log::run(command),
        Command::Completions(arguments) => return completions::run(arguments),
        _ => {}
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("no event loop: {error}"), Exit::Internal),
    };
    let exit = runtime.block_on(serve(arguments));
    // A host name that is still being looked up must not keep this process.
    runtime.shutdown_background();
    exit
}

async fn serve(arguments: Arguments) -> Exit {
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
