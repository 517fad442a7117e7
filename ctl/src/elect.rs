//! `elect`: runs a command on one of several machines, and on another machine if that one fails.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use waymaker_client::{Client, Lock, Result};

use crate::connection::Connection;
use crate::exit::Exit;
use crate::guarded::{self, Guarded, GuardedArguments, Holders, Wanted, holders_of_key};
use crate::output::note;
use crate::{text, values};

pub(crate) const HELP: &str = "\
One candidate leads and the others stand by; notes on stderr report changes.
CMD runs while this candidate leads, with the rules and the environment of
`lock`. If the leadership is lost, CMD is stopped in time and this candidate
stands by again. An unavailable server is tried again without a limit. When CMD
ends by itself, waymaker-ctl ends too and another candidate leads at once; start
waymaker-ctl again to stand by again.

Examples:
  Run this on each of several machines:
      waymaker-ctl elect scheduler -- ./scheduler.sh
  Let another candidate lead at most ten seconds after a machine fails:
      waymaker-ctl elect scheduler --lease 10s -- ./scheduler.sh
  Let the fences continue after a crash of the server:
      waymaker-ctl elect scheduler --scope local -- ./scheduler.sh
  Show who leads and who stands by:
      waymaker-ctl locks inspect scheduler
";

#[derive(Debug, Args)]
pub(crate) struct ElectArguments {
    /// Name of the election, a key
    #[arg(value_parser = values::key())]
    name: OsString,
    #[command(flatten)]
    guarded: GuardedArguments,
}

pub(crate) async fn run(connection: &Connection, arguments: &ElectArguments) -> Exit {
    guarded::run_until_ended(connection, arguments).await
}

impl Wanted for ElectArguments {
    const HELD_BY: &'static str = "led by";

    fn name(&self) -> &[u8] {
        text::bytes(&self.name)
    }

    fn wait(&self) -> Option<Duration> {
        None
    }

    async fn acquire(&self, client: &Client) -> Result<Lock> {
        note(&format!("{}: standing by", text::printable(self.name())));
        let lock = self.guarded.apply(client.write(self.name())).await?;
        note(&format!("{}: leading, fence {}", text::printable(self.name()), lock.fence()));
        Ok(lock)
    }

    async fn holders(&self, client: &Client) -> Result<Holders> {
        holders_of_key(client, self.name(), false).await
    }
}

impl Guarded for ElectArguments {
    fn arguments(&self) -> &GuardedArguments {
        &self.guarded
    }
}
