//! `presence`: registrations that are kept while a command runs.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Subcommand};
use waymaker_client::{Error, ErrorCode, Registration};

use crate::connection::Connection;
use crate::exit::{self, Exit, Use};
use crate::guarded::{Group, GroupEvent, Job, NoTerminal, Run, Signals, StartError, no_terminal};
use crate::output::{complain, complain_about, complain_of, note};
use crate::{registry, text, values};

pub(crate) const HELP: &str = "\
A presence is a registration that tells others that something is available, and
where. `presence set` renews it while CMD runs and removes it when CMD has ended.
If this machine fails, the presence ends when --ttl has passed. Another owner
cannot take the same name meanwhile. CMD is stopped if waymaker-ctl dies. CMD is
not stopped if the presence cannot be renewed; a note on stderr reports that.

Examples:
  Announce the address of a worker while it runs:
      waymaker-ctl presence set worker/7 --value 10.0.0.7:80 -- ./worker.sh
  Announce a device until interrupted:
      waymaker-ctl presence set printer --value 10.0.0.9 --type device
  List all presences, and look up one address:
      waymaker-ctl presence list
      waymaker-ctl presence get worker/7 --json | jq -r .value
  List the registrations of all types:
      waymaker-ctl registry list
";

const LIST_HELP: &str = "\
Example:
  waymaker-ctl presence list";

const GET_HELP: &str = "\
The exit code is 118 if there is no such presence.

Example:
  waymaker-ctl presence get worker/7 --json | jq -r .value";

#[derive(Debug, Subcommand)]
pub(crate) enum PresenceCommand {
    /// Keep a registration while a command runs, or until interrupted
    #[command(after_help = exit::after(HELP, &[Use::Presence]))]
    Set(SetArguments),
    /// List all presences, ordered by name
    #[command(after_help = exit::after(LIST_HELP, &[Use::Request]))]
    List(ListArguments),
    /// Show one presence
    #[command(after_help = exit::after(GET_HELP, &[Use::Get]))]
    Get(GetArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// Name of the presence, the key of its registration
    #[arg(value_parser = values::key())]
    name: OsString,
    /// Value, such as an address; at most 4,096 bytes [default: empty]
    #[arg(long, default_value = "", value_name = "TEXT", hide_default_value = true)]
    value: OsString,
    /// Type of the registration
    #[arg(long = "type", default_value = "presence", value_name = "TYPE")]
    type_name: OsString,
    /// Time until the presence ends if this machine fails; at most 24h
    #[arg(long, default_value = "15s", value_parser = values::lease, value_name = "TIME")]
    ttl: Duration,
    /// Command to run, with its arguments [default: none; wait until interrupted]
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// List the registrations of this type
    #[arg(long = "type", default_value = "presence", value_name = "TYPE")]
    type_name: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// Name of the presence
    #[arg(value_parser = values::key())]
    name: OsString,
}

/// Number of renewals per lease.
const BEATS_PER_LEASE: u32 = 3;

pub(crate) async fn run(connection: &Connection, command: &PresenceCommand) -> Exit {
    let result = match command {
        PresenceCommand::Set(arguments) => return set(connection, arguments).await,
        PresenceCommand::List(arguments) => {
            let type_name = Some(arguments.type_name.clone());
            registry::list(connection, &registry::ListArguments { type_name, lazy: false }).await
        }
        PresenceCommand::Get(arguments) => {
            let key = arguments.name.clone();
            registry::get(connection, &registry::GetArguments { key, lazy: false }).await
        }
    };
    result.unwrap_or_else(|error| complain_of(&error))
}

async fn set(connection: &Connection, arguments: &SetArguments) -> Exit {
    let mut run = match Run::begin(connection, None).await {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let name = text::bytes(&arguments.name);
    let registration = run.client.registry().registration(name);
    let registration =
        registration.value(text::bytes(&arguments.value)).type_name(text::bytes(&arguments.type_name));
    let interrupted = tokio::select! {
        registered = registration.register(arguments.ttl) => match registered {
            Ok(_) => None,
            Err(error) => {
                run.end().await;
                return complain_about(name, &error);
            }
        },
        exit = run.signals.end() => Some(exit),
    };
    let exit = match interrupted {
        Some(exit) => exit,
        None => tokio::select! {
            exit = stay(arguments, &mut run.signals) => exit,
            never = renew(&registration, name, arguments.ttl) => match never {},
        },
    };
    remove(&registration, name).await;
    run.end().await;
    exit
}

/// Renews the registration without end, and registers it again if it has expired. Prints a note when renewals begin to fail.
async fn renew(registration: &Registration, name: &[u8], ttl: Duration) -> std::convert::Infallible {
    let mut is_renewed = true;
    loop {
        tokio::time::sleep(ttl / BEATS_PER_LEASE).await;
        let renewed = registration.register(ttl).await;
        if let Err(error) = &renewed
            && is_renewed
        {
            note(&format!("{}: cannot be renewed, trying again: {error}", text::printable(name)));
        }
        is_renewed = renewed.is_ok();
    }
}

/// Runs the command to its end. Waits for an interrupt if there is no command.
async fn stay(arguments: &SetArguments, signals: &mut Signals) -> Exit {
    if arguments.command.is_empty() {
        // An interrupt is the normal end.
        signals.end().await;
        return Exit::Success;
    }
    let mut group = match Group::start(signals).await {
        Ok(group) => group,
        Err(exit) => return exit,
    };
    let mut job = Job::new(&group);
    let ended = match group.run(&arguments.command, []) {
        Ok(()) => loop {
            tokio::select! {
                event = group.next_event() => match event {
                    GroupEvent::Ended(ended) => break ended.exit(),
                    GroupEvent::Stopped(signal) => {
                        let warn = || note(&stop_warning(arguments));
                        if let Err(NoTerminal) = job.command_stopped(signal, &group, signals, warn) {
                            group.kill().await;
                            drop(job);
                            return complain(&no_terminal(&arguments.command), Exit::Internal);
                        }
                    }
                },
                signal = signals.next() => job.receive(signal, &group),
            }
        },
        Err(StartError { program, source, exit }) => complain(&format!("{program}: {source}"), exit),
    };
    drop(job);
    group.dismiss();
    ended
}

/// Returns the note before this job stops.
fn stop_warning(arguments: &SetArguments) -> String {
    let name = text::printable(text::bytes(&arguments.name));
    let ttl = text::time(Some(arguments.ttl));
    format!("{name}: stopped; unless it is continued within {ttl}, its registration ends")
}

/// Removes the registration if it still exists and belongs to this owner.
async fn remove(registration: &Registration, name: &[u8]) {
    match registration.unregister().await {
        Ok(_) | Err(Error::NotOwner(_) | Error::Refused { code: ErrorCode::NotFound, .. }) => {}
        Err(error) => {
            note(&format!(
                "{}: not removed, so it stays until --ttl has passed: {error}",
                text::printable(name)
            ));
        }
    }
}
