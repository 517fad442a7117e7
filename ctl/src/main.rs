//! waymaker-ctl: locks of a Waymaker server from the shell.
//!
//! `command_line` lists the commands; `parse` parses them and explains mistakes. The arguments, the help and the code of a command are in
//! one module, named after the command. `guarded` runs a command while something is held; `guarded/group.rs` explains how the command is
//! stopped in time. `log` reads a data directory without a server, `backup` copies and restores one, and `tls` makes certificates. `files` replaces files. `connection`
//! connects, `output` prints, `problem` describes failures and `exit` lists the exit codes.

mod backup;
mod command_line;
mod completions;
mod connection;
#[cfg(test)]
mod document;
mod elect;
mod exit;
mod files;
mod former;
mod guarded;
mod kind;
mod lock;
mod locks;
mod log;
mod missing_dashes;
mod namespaces;
mod output;
mod parse;
mod pools;
mod prefixes;
mod presence;
mod problem;
mod registry;
mod schema;
mod semaphore;
mod server;
mod system;
mod text;
mod throttle;
mod tls;
mod tokens;
mod traceparent;
mod values;
mod watchdog;

use std::process::ExitCode;

use clap::CommandFactory;
use command_line::{Command, CommandLine};
use exit::Exit;
use output::complain;

fn main() -> ExitCode {
    // The watchdog is not a command: clap would name it in errors and suggestions.
    if std::env::args_os().skip(1).eq([watchdog::ARGUMENT]) {
        return watchdog::run().into();
    }
    let line = match parse::parse() {
        Ok(line) => line,
        Err(error) => return output::finish(parse::refuse(error)).into(),
    };
    output::choose(line.output.format());
    output::finish(run(line)).into()
}

fn run(line: CommandLine) -> Exit {
    match &line.command {
        Command::Log { command } => return log::run(command),
        Command::Backup(arguments) => return backup::run(arguments),
        Command::Restore(arguments) => return backup::run_restore(arguments),
        Command::Tls { command } => return tls::run(command),
        Command::Tokens { command } => return tokens::run(command),
        Command::Completions(arguments) => return completions::run(arguments, &CommandLine::command()),
        Command::Schema(arguments) => return schema::run(arguments),
        _ => {}
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("cannot start the event loop: {error}"), Exit::Internal),
    };
    let exit = runtime.block_on(serve(line));
    // A lookup of a host name may still run; it must not keep this process.
    runtime.shutdown_background();
    exit
}

async fn serve(line: CommandLine) -> Exit {
    let CommandLine { mut connection, command, .. } = line;
    if let Err(problem) = connection.read_token() {
        return complain(&problem, Exit::Usage);
    }
    match command {
        Command::Lock(arguments) => lock::run(&connection, &arguments).await,
        Command::Elect(arguments) => elect::run(&connection, &arguments).await,
        Command::Semaphore(arguments) => semaphore::run(&connection, &arguments).await,
        Command::Throttle(arguments) => throttle::run(&connection, &arguments).await,
        Command::Locks { command } => locks::run(&connection, &command).await,
        Command::Pools { command } => pools::run(&connection, &command).await,
        Command::Prefixes { command } => prefixes::run(&connection, &command).await,
        Command::Registry { command } => registry::run(&connection, &command).await,
        Command::Presence { command } => presence::run(&connection, &command).await,
        Command::Namespaces { command } => namespaces::run(&connection, &command).await,
        Command::Server { command } => server::run(&connection, &command).await,
        Command::Log { .. }
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Tls { .. }
        | Command::Tokens { .. }
        | Command::Completions(_)
        | Command::Schema(_) => {
            unreachable!("these commands run without an event loop")
        }
    }
}
