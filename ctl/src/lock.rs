//! `lock`: runs a command while a lock is held.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use waymaker_client::{Client, Lock, Result};

use crate::connection::Connection;
use crate::exit::Exit;
use crate::guarded::{self, Guarded, GuardedArguments, Holders, WaitArguments, Wanted, holders_of_key};
use crate::{text, values};

pub(crate) const HELP: &str = "\
The lease is renewed while CMD runs. The lock is released when CMD has ended.
CMD finds these variables in its environment:
  WAYMAKER_KEY       the key
  WAYMAKER_LOCK_ID   the id of the lock, for `waymaker-ctl locks release`
  WAYMAKER_FENCE     the fence, a number that rises with each grant of the key;
                     send it with every write, and let the target reject a
                     fence below the largest one it has seen
  WAYMAKER_LEASE_MS  the length of the lease in milliseconds

If the lock cannot be renewed in time, CMD and all processes that it started get
SIGTERM, and SIGKILL after --grace, before another client can hold the lock. If
the lock is released by its id, they get the same signals, but another client
may hold the lock before they end. If the lease has expired, or if waymaker-ctl
dies, they get SIGKILL at once. A process that CMD started and that left the
process group (a daemon, a job of an interactive shell) is not killed, and
processes that CMD leaves behind when it ends are not protected.

SIGTERM, SIGINT, SIGHUP and SIGQUIT are passed on to CMD, which is continued if
it is stopped. CMD gets the terminal if it reads or changes it, also if stdin is
a pipe. Ctrl-Z stops CMD and waymaker-ctl. The lock is not renewed until they
are continued with `fg` or `bg`; CMD is killed before the lease expires.

Examples:
  Wait without a limit:
      waymaker-ctl lock deploy/eu -- ./deploy.sh eu
  Wait five seconds, then give up with exit code 120:
      waymaker-ctl lock deploy/eu --wait 5s -- ./deploy.sh eu
  Share the lock with other readers while no writer holds it:
      waymaker-ctl lock report --read -- ./print-report.sh
  Let a failed machine block the others for at most ten seconds:
      waymaker-ctl lock leader --lease 10s -- ./serve.sh
  Keep the lock and its fence if the server or its machine crashes:
      waymaker-ctl lock feed --scope local -- ./feed.sh
  Let a database reject a writer that is too late:
      waymaker-ctl lock feed -- \\
          sh -c 'psql -v fence=$WAYMAKER_FENCE -f update.sql'
";

#[derive(Debug, Args)]
pub(crate) struct LockArguments {
    /// Key to lock
    #[arg(value_parser = values::key())]
    key: OsString,
    /// Share the lock with other readers
    #[arg(long, help_heading = "Lock")]
    read: bool,
    /// Priority in the queue: a waiter with a larger number is served earlier [default: 0]
    #[arg(long, value_name = "NUMBER", value_parser = values::priority, help_heading = "Lock")]
    priority: Option<u32>,
    #[command(flatten)]
    wait: WaitArguments,
    #[command(flatten)]
    guarded: GuardedArguments,
}

pub(crate) async fn run(connection: &Connection, arguments: &LockArguments) -> Exit {
    guarded::run(connection, arguments).await
}

impl Wanted for LockArguments {
    fn name(&self) -> &[u8] {
        text::bytes(&self.key)
    }

    fn wait(&self) -> Option<Duration> {
        self.wait.wait
    }

    async fn acquire(&self, client: &Client) -> Result<Lock> {
        let mut acquire = if self.read { client.read(self.name()) } else { client.write(self.name()) };
        if let Some(priority) = self.priority {
            acquire = acquire.priority(priority);
        }
        self.guarded.apply(self.wait.apply(acquire)).await
    }

    async fn holders(&self, client: &Client) -> Result<Holders> {
        holders_of_key(client, self.name(), self.read).await
    }
}

impl Guarded for LockArguments {
    fn arguments(&self) -> &GuardedArguments {
        &self.guarded
    }
}
