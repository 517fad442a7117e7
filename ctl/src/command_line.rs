//! The command line: global options and all commands. The arguments and the help of a command are beside its code.

use clap::{Parser, Subcommand};

use crate::backup::{BackupArguments, RestoreArguments};
use crate::completions::CompletionsArguments;
use crate::connection::Connection;
use crate::elect::ElectArguments;
use crate::exit::{self, Use};
use crate::lock::LockArguments;
use crate::locks::LocksCommand;
use crate::log::LogCommand;
use crate::namespaces::NamespacesCommand;
use crate::output::OutputArguments;
use crate::pools::PoolsCommand;
use crate::prefixes::PrefixesCommand;
use crate::presence::PresenceCommand;
use crate::registry::RegistryCommand;
use crate::schema::SchemaArguments;
use crate::semaphore::SemaphoreArguments;
use crate::server::ServerCommand;
use crate::throttle::ThrottleArguments;
use crate::tls::TlsCommand;
use crate::tokens::TokensCommand;
use crate::{
    backup, completions, elect, lock, locks, log, namespaces, pools, prefixes, presence, registry, schema,
    semaphore, server, throttle, tls, tokens,
};

const HELP: &str = "\
Examples:
  Run a backup, but never two at the same time:
      waymaker-ctl lock backup -- ./backup.sh
  Skip this run if another one is still running:
      waymaker-ctl lock nightly --wait 0s -- ./nightly.sh
  Run at most three conversions at once, on all machines together:
      waymaker-ctl semaphore converters --capacity 3 -- ./convert.sh
  Send at most a hundred mails a second:
      waymaker-ctl throttle mail --rate 100/s --wait 1m -- ./send.sh
  Run a program on one of several machines, and on another if that one fails:
      waymaker-ctl elect scheduler -- ./scheduler.sh
  Announce the address of a worker while it runs:
      waymaker-ctl presence set worker/7 --value 10.0.0.7:80 -- ./worker.sh
  Hold a lock over several steps of a script:
      id=$(waymaker-ctl locks acquire deploy/eu --wait 10m --release-after 30m)
      ./deploy.sh
      waymaker-ctl locks release deploy/eu \"$id\"
  List all locks; show who holds one key and who waits for it:
      waymaker-ctl locks list
      waymaker-ctl locks inspect backup
  Check that the lock was not granted again since:
      waymaker-ctl locks verify feed \"$WAYMAKER_FENCE\"
  Stop new grants below eu/, and resume them:
      waymaker-ctl prefixes freeze eu/
      waymaker-ctl prefixes thaw eu/
  Check a data directory:
      waymaker-ctl log verify /var/lib/waymaker/data
  Back up a data directory, also of a running server:
      waymaker-ctl backup /backup/waymaker --data-dir /var/lib/waymaker/data
  Make certificates for a server and a client:
      waymaker-ctl tls init certificates --server-name locks.example --client alice
  Make a token for a client:
      waymaker-ctl tokens create billing --file tokens.toml > billing.token

With --json all output is JSON. `waymaker-ctl completions --help` explains how a
shell completes commands. `waymaker-server` starts the server.";

/// Use locks of a Waymaker server from the shell
#[derive(Debug, Parser)]
#[command(
    name = "waymaker-ctl",
    version,
    after_help = format!("{HELP}\n\n{}\n\n{}", exit::whole_help(), exit::ERRORS_HELP),
    subcommand_required = true
)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    #[command(after_help = exit::after(lock::HELP, &[Use::Guarded]))]
    Lock(LockArguments),
    /// Run a command on one of several machines, and on another if that one fails
    #[command(after_help = exit::after(elect::HELP, &[Use::Elect]))]
    Elect(ElectArguments),
    /// Run a command while holding permits of a pool
    #[command(after_help = exit::after(semaphore::HELP, &[Use::Guarded]))]
    Semaphore(SemaphoreArguments),
    /// Run a command if a bucket has enough tokens
    #[command(after_help = exit::after(throttle::HELP, &[Use::Throttle]))]
    Throttle(ThrottleArguments),
    /// List, inspect, acquire and release locks
    #[command(after_help = exit::after(locks::HELP, &[Use::Acquire, Use::Verify, Use::Request]))]
    Locks {
        #[command(subcommand)]
        command: LocksCommand,
    },
    /// List, inspect, resize and remove pools of permits
    #[command(after_help = exit::after(pools::HELP, &[Use::Remove, Use::Request]))]
    Pools {
        #[command(subcommand)]
        command: PoolsCommand,
    },
    /// Stop and resume new grants of keys with a prefix
    #[command(after_help = exit::after(prefixes::HELP, &[Use::Request]))]
    Prefixes {
        #[command(subcommand)]
        command: PrefixesCommand,
    },
    /// List, look up and set registrations
    #[command(after_help = exit::after(registry::HELP, &[Use::Acquire, Use::Get, Use::Request]))]
    Registry {
        #[command(subcommand)]
        command: RegistryCommand,
    },
    /// Announce that something is available, and list what is available
    #[command(after_help = exit::after(presence::HELP, &[Use::Presence, Use::Get, Use::Request]))]
    Presence {
        #[command(subcommand)]
        command: PresenceCommand,
    },
    /// List and remove namespaces
    #[command(after_help = exit::after(namespaces::HELP, &[Use::Request]))]
    Namespaces {
        #[command(subcommand)]
        command: NamespacesCommand,
    },
    /// Show the state of the server
    #[command(after_help = exit::after(server::HELP, &[Use::Status, Use::Request]))]
    Server {
        #[command(subcommand)]
        command: ServerCommand,
    },
    /// Inspect or check a data directory without a server
    #[command(after_help = exit::after(log::HELP, &[Use::Directory]))]
    Log {
        #[command(subcommand)]
        command: LogCommand,
    },
    /// Back up the log of a server that may be running, or check a backup
    #[command(after_help = exit::after(backup::HELP, &[Use::Backup]))]
    Backup(BackupArguments),
    /// Make a data directory of a backup
    #[command(after_help = exit::after(backup::RESTORE_HELP, &[Use::Backup]))]
    Restore(RestoreArguments),
    /// Make and revoke certificates of a small CA
    #[command(after_help = exit::after(tls::HELP, &[Use::Local]))]
    Tls {
        #[command(subcommand)]
        command: TlsCommand,
    },
    /// Make, list and revoke the tokens of clients without a server
    #[command(after_help = exit::after(tokens::HELP, &[Use::Revoke, Use::Local]))]
    Tokens {
        #[command(subcommand)]
        command: TokensCommand,
    },
    /// Print a completion script for a shell
    #[command(after_help = exit::after(completions::HELP, &[Use::Local]))]
    Completions(CompletionsArguments),
    /// Print the JSON Schema of the output of a command
    #[command(after_help = exit::after(schema::HELP, &[Use::Local]))]
    Schema(SchemaArguments),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_lock_without_dashes_before_its_command_is_rejected() {
        for words in [&["waymaker-ctl", "lock", "k"][..], &["waymaker-ctl", "lock", "k", "ls"]] {
            assert!(CommandLine::try_parse_from(words).is_err());
        }
    }
}
