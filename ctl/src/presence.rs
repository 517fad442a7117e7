//! `presence`: entries that say that something is there, kept while it is.

use std::time::Duration;

use waymaker_client::{Error, ErrorCode, Registration, Result};

use crate::arguments::{
    Connection, EntriesArguments, PresenceCommand, PresenceGetArguments, PresenceListArguments,
    PresenceSetArguments,
};
use crate::exit::Exit;
use crate::guarded::{Group, GroupEvent, Job, NoTerminal, Run, Signals, StartError, no_terminal};
use crate::{complain, complain_about, complain_of, connect, entries, note, show, text};

/// How often in a lease an entry is kept.
const BEATS_PER_LEASE: u32 = 3;

pub(crate) async fn run(connection: &Connection, command: &PresenceCommand) -> Exit {
    let result = match command {
        PresenceCommand::Set(arguments) => return set(connection, arguments).await,
        PresenceCommand::List(arguments) => list(connection, arguments).await.map(|()| Exit::Success),
        PresenceCommand::Get(arguments) => get(connection, arguments).await,
    };
    result.unwrap_or_else(|error| complain_of(&error))
}

async fn list(connection: &Connection, arguments: &PresenceListArguments) -> Result<()> {
    let arguments = EntriesArguments { type_name: Some(arguments.type_name.clone()), lazy: false };
    entries::run(connection, &arguments).await
}

async fn get(connection: &Connection, arguments: &PresenceGetArguments) -> Result<Exit> {
    let client = connect(connection).await?;
    let name = text::bytes(&arguments.name);
    let entry = client.registry().look_up(name).await?;
    client.close().await?;
    let Some(entry) = entry else {
        return Ok(complain(&format!("{}: not there", text::printable(name)), Exit::Absent));
    };
    show(|| entries::table(std::slice::from_ref(&entry)), || text::lines([entries::object(&entry)]));
    Ok(Exit::Success)
}

async fn set(connection: &Connection, arguments: &PresenceSetArguments) -> Exit {
    let mut run = match Run::begin(connection, None).await {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let name = text::bytes(&arguments.name);
    let entry = run.client.registry().entry(name);
    let entry = entry.value(text::bytes(&arguments.value)).type_name(text::bytes(&arguments.type_name));
    let interrupted = tokio::select! {
        registered = entry.register(arguments.ttl) => match registered {
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
            never = keep(&entry, name, arguments.ttl) => match never {},
        },
    };
    take_out(&entry, name).await;
    run.end().await;
    exit
}

/// Keeps the entry, without end: also where it was gone in the meantime. Says so when that begins to fail.
async fn keep(entry: &Registration, name: &[u8], ttl: Duration) -> std::convert::Infallible {
    let mut is_kept = true;
    loop {
        tokio::time::sleep(ttl / BEATS_PER_LEASE).await;
        let kept = entry.register(ttl).await;
        if let Err(error) = &kept
            && is_kept
        {
            note(&format!("{}: cannot be kept, trying again: {error}", text::printable(name)));
        }
        is_kept = kept.is_ok();
    }
}

/// Runs the command to its end, or waits to be interrupted where there is none.
async fn stay(arguments: &PresenceSetArguments, signals: &mut Signals) -> Exit {
    if arguments.command.is_empty() {
        // To be interrupted is how it ends.
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

/// Says what happens to a job that stops now.
fn stop_warning(arguments: &PresenceSetArguments) -> String {
    let name = text::printable(text::bytes(&arguments.name));
    let ttl = text::time(Some(arguments.ttl));
    format!("{name}: stopped; unless it is continued within {ttl}, its entry ends")
}

/// Takes the entry out, if it is still there and ours.
async fn take_out(entry: &Registration, name: &[u8]) {
    match entry.unregister().await {
        Ok(_) | Err(Error::NotOwner(_) | Error::Refused { code: ErrorCode::NotFound, .. }) => {}
        Err(error) => {
            note(&format!(
                "{}: not taken out, so it stays to the end of its ttl: {error}",
                text::printable(name)
            ));
        }
    }
}
