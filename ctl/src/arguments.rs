//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use waymaker_client::LockId;

use crate::exit;

const EXAMPLES: &str = "\
Examples:
  Run a backup, but never two at once:
      waymaker-ctl lock backup -- ./backup.sh
  Skip this run if another one is going on:
      waymaker-ctl lock nightly --wait 0s -- ./nightly.sh
  See who holds what:
      waymaker-ctl locks list
  See who holds one key and how many wait for it:
      waymaker-ctl status backup
  Take a lock away from whoever holds it:
      waymaker-ctl release backup 00000000000000010123456789abcdef

The server is started with `waymaker-server`.";

const LOCK_EXAMPLES: &str = "\
While CMD runs, the lease is renewed. CMD finds in its environment:
  WAYMAKER_KEY      the key
  WAYMAKER_LOCK_ID  the id of the lock, as `release` takes it
  WAYMAKER_FENCE    a number that rises with each grant of the key: pass it
                    to whatever CMD writes to, and let that refuse smaller
                    numbers than the largest it has seen

If the lock is lost, or cannot be renewed in time, CMD and all processes it
started get SIGTERM, and SIGKILL a grace later, early enough that nobody else
can have the lock yet. If it is known to have ended, they get SIGKILL at once,
and also if waymaker-ctl itself dies. A process that leaves its process group
(a daemon, `setsid`) escapes, and what CMD leaves running when it ends is not
protected. SIGTERM, SIGINT, SIGHUP and SIGQUIT are passed on to CMD; the lock
is released when CMD has ended.

Examples:
  Wait as long as it takes:
      waymaker-ctl lock deploy/eu -- ./deploy.sh eu
  Wait five seconds, then give up with exit code 120:
      waymaker-ctl lock deploy/eu --wait 5s -- ./deploy.sh eu
  Many may read while nobody writes:
      waymaker-ctl lock report --read -- ./print-report.sh
  Let a crashed machine block the others for ten seconds at most:
      waymaker-ctl lock leader --lease 10s -- ./serve.sh
  Let a database refuse a writer that is too late:
      waymaker-ctl lock feed -- \\
          sh -c 'psql -v fence=$WAYMAKER_FENCE -f update.sql'
";

/// Locks from the shell: run a command under a lock, see who holds what, release what is stuck.
#[derive(Debug, Parser)]
#[command(name = "waymaker-ctl", version, after_help = EXAMPLES, subcommand_required = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// The server: waymaker://HOST:PORT or waymaker+unix:///PATH
    #[arg(
        long,
        global = true,
        env = "WAYMAKER_SERVER",
        default_value = "waymaker://127.0.0.1:7420",
        value_name = "URL"
    )]
    pub(crate) server: String,
    /// The namespace of all keys
    #[arg(long, global = true, env = "WAYMAKER_NAMESPACE", default_value = "default", value_name = "NAME")]
    pub(crate) namespace: String,
    /// Whom others see when they meet a lock of this run; by default USER@HOST and the process
    #[arg(long, global = true, env = "WAYMAKER_OWNER", value_name = "TEXT")]
    pub(crate) owner: Option<String>,
    /// How long to try to reach the server, at the start and whenever the connection is lost
    #[arg(long, global = true, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) connect_timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    #[command(after_help = format!("{LOCK_EXAMPLES}\n{}", exit::HELP))]
    Lock(LockArguments),
    /// All locks of the namespace
    Locks {
        #[command(subcommand)]
        command: LocksCommand,
    },
    /// Who holds a key and how many wait for it
    Status(StatusArguments),
    /// Take a lock away from whoever holds it, by its id
    #[command(after_help = "The holder is told at once. The ids stand in `locks list` and `status`.")]
    Release(ReleaseArguments),
    /// Kills its own process group when its stdin ends
    #[command(hide = true)]
    Watchdog,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LocksCommand {
    /// List the locks that are held, ordered by key and id
    List(ListArguments),
}

#[derive(Debug, Args)]
pub(crate) struct LockArguments {
    /// What to lock
    pub(crate) key: OsString,
    /// Share the lock with other readers
    #[arg(long)]
    pub(crate) read: bool,
    /// How long to wait for the lock; 0s does not wait [default: without limit]
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) wait: Option<Duration>,
    /// How long the lock stays should this machine vanish [default: the server's, 30s]
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) lease: Option<Duration>,
    /// How long CMD may take to end after SIGTERM if the lock is lost; at most a third of the lease
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) grace: Duration,
    /// Larger is served earlier
    #[arg(long, value_name = "NUMBER")]
    pub(crate) priority: Option<u32>,
    /// The command to run and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Only keys that begin with this
    #[arg(long, default_value = "", value_name = "PREFIX", hide_default_value = true)]
    pub(crate) prefix: OsString,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// Which key
    pub(crate) key: OsString,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArguments {
    /// The key of the lock
    pub(crate) key: OsString,
    /// The id of the lock: 32 hexadecimal digits
    pub(crate) id: LockId,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn everything_behind_the_dashes_belongs_to_the_command() {
        let words = ["waymaker-ctl", "lock", "k", "--wait", "0s", "--", "ls", "--wait", "-l"];
        let Command::Lock(lock) = Arguments::try_parse_from(words).unwrap().command else { panic!() };
        assert_eq!(lock.wait, Some(Duration::ZERO));
        assert_eq!(lock.command, ["ls", "--wait", "-l"]);
    }

    #[test]
    fn a_lock_without_a_command_is_refused() {
        for words in [&["waymaker-ctl", "lock", "k"][..], &["waymaker-ctl", "lock", "k", "ls"]] {
            assert!(Arguments::try_parse_from(words).is_err());
        }
    }
}
