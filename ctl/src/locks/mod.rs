//! `locks`: commands about the locks of the namespace.

pub(crate) mod acquire;
pub(crate) mod extend;
pub(crate) mod force_release;
pub(crate) mod inspect;
pub(crate) mod list;
mod members;
pub(crate) mod release;
pub(crate) mod verify;
pub(crate) mod waiting;
pub(crate) mod watch;

use clap::Subcommand;
use waymaker_client::{Error, ErrorCode, LockId};

use crate::connection::Connection;
use crate::exit::{self, Exit, Use};
use crate::kind::{self, Kind};
use crate::output::{complain_of, report};
use crate::problem::Problem;
use crate::text;

pub(crate) const HELP: &str = "\
Examples:
  List all locks, and the locks below a prefix:
      waymaker-ctl locks list
      waymaker-ctl locks list --prefix deploy/
  List all claims that wait:
      waymaker-ctl locks list --waiting
  Show who holds a key and who waits for it:
      waymaker-ctl locks inspect backup
  Hold a lock over several steps of a script:
      id=$(waymaker-ctl locks acquire deploy/eu --wait 10m --release-after 30m)
      ./deploy.sh
      waymaker-ctl locks release deploy/eu \"$id\"
";

#[derive(Debug, Subcommand)]
pub(crate) enum LocksCommand {
    /// List the locks of the namespace, or the claims that wait, ordered by kind, then by key and id
    #[command(after_help = exit::after(&format!("{}\n\n{}", kind::HELP, list::HELP), &[Use::Request]))]
    List(list::ListArguments),
    /// Show who holds a key and who waits for it
    #[command(after_help = exit::after(inspect::HELP, &[Use::Request]))]
    Inspect(inspect::InspectArguments),
    /// Acquire a lock that does not belong to a process, and print its id
    #[command(after_help = exit::after(acquire::HELP, &[Use::Acquire]))]
    Acquire(acquire::AcquireArguments),
    /// Move the end of the lease of a lock
    #[command(after_help = exit::after(extend::HELP, &[Use::Request]))]
    Extend(extend::ExtendArguments),
    /// Release a lock, or cancel a wait, by its id
    #[command(after_help = exit::after(release::HELP, &[Use::Request]))]
    Release(release::ReleaseArguments),
    /// Release a lock as an operator, and tell its holder the reason
    #[command(after_help = exit::after(&format!("{}\n\n{}", force_release::HELP, kind::HELP), &[Use::Request]))]
    ForceRelease(force_release::ForceReleaseArguments),
    /// Print the state of a key now and after each change
    #[command(after_help = exit::after(watch::HELP, &[Use::Watch, Use::Request]))]
    Watch(watch::WatchArguments),
    /// Check whether a fence is still the newest of its key
    #[command(after_help = exit::after(verify::HELP, &[Use::Verify]))]
    Verify(verify::VerifyArguments),
}

pub(crate) async fn run(connection: &Connection, command: &LocksCommand) -> Exit {
    let result = match command {
        LocksCommand::Acquire(arguments) => return acquire::run(connection, arguments).await,
        LocksCommand::Verify(arguments) => verify::run(connection, arguments).await,
        LocksCommand::List(arguments) => list::run(connection, arguments).await,
        LocksCommand::Inspect(arguments) => inspect::run(connection, arguments).await,
        LocksCommand::Extend(arguments) => extend::run(connection, arguments).await,
        LocksCommand::Release(arguments) => release::run(connection, arguments).await,
        LocksCommand::ForceRelease(arguments) => force_release::run(connection, arguments).await,
        LocksCommand::Watch(arguments) => watch::run(connection, arguments).await,
    };
    result.unwrap_or_else(|error| complain_of(&error))
}

/// Reports that no claim of the key has this id. Returns the exit.
fn report_unknown(id: LockId, key: &[u8]) -> Exit {
    report_not_found(format!(
        "no lock and no wait of {} has the id {id}; the lock may have expired. {LIST_HINT}",
        text::printable(key)
    ))
}

/// Reports that no claim of the kind has this id. Returns the exit.
fn report_unknown_kind(id: LockId, kind: Kind) -> Exit {
    let others: Vec<_> = Kind::ALL.into_iter().filter(|other| *other != kind).map(Kind::name).collect();
    let (last, first) = others.split_last().expect("there are other kinds");
    report_not_found(format!(
        "no lock and no wait of the kind {} has the id {id}; the lock may have expired; \
         a lock of another kind needs --kind {} or {last}. {LIST_HINT}",
        kind.name(),
        first.join(", ")
    ))
}

const LIST_HINT: &str = "`waymaker-ctl locks list` shows the ids of all locks";

fn report_not_found(message: String) -> Exit {
    report(&Problem::new(ErrorCode::NotFound.name(), message), Exit::Refused)
}

/// Whether the server knows no claim of the id in the request.
fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Refused { code: ErrorCode::NotFound, .. })
}
