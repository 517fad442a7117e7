//! `semaphore`: runs a command while permits of a pool are held.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use waymaker_client::{Client, Lock, Permit, Result, Semaphore};

use crate::connection::Connection;
use crate::exit::Exit;
use crate::guarded::{self, FirstHolder, Guarded, GuardedArguments, Holders, WaitArguments, Wanted};
use crate::{text, values};

pub(crate) const HELP: &str = "\
A pool has a fixed number of permits, its capacity. CMD runs while its permits
are held, with the rules and the environment of `lock`; WAYMAKER_KEY is the name
of the pool. WAYMAKER_LOCK_ID is an id for
`waymaker-ctl locks force-release ID --reason TEXT --kind pool`.
All users of a pool must give the same --capacity.

Examples:
  Run at most three conversions at once, on all machines together:
      waymaker-ctl semaphore converters --capacity 3 -- ./convert.sh
  Take two permits for a large file; give up if the wait takes over a minute:
      waymaker-ctl semaphore converters --capacity 3 --permits 2 --wait 1m -- ./convert.sh large
  Show who holds permits and who waits:
      waymaker-ctl pools inspect converters
";

#[derive(Debug, Args)]
pub(crate) struct SemaphoreArguments {
    /// Name of the pool
    #[arg(value_name = "POOL", value_parser = values::key())]
    name: OsString,
    /// Number of permits of the pool
    #[arg(long, value_name = "NUMBER", value_parser = values::count, help_heading = "Permits")]
    capacity: u64,
    /// Number of permits to take
    #[arg(
        long,
        default_value = "1",
        value_name = "NUMBER",
        value_parser = values::count,
        help_heading = "Permits"
    )]
    permits: u64,
    #[command(flatten)]
    wait: WaitArguments,
    #[command(flatten)]
    guarded: GuardedArguments,
}

pub(crate) async fn run(connection: &Connection, arguments: &SemaphoreArguments) -> Exit {
    guarded::run(connection, arguments).await
}

impl SemaphoreArguments {
    /// Returns what is wrong with the arguments together.
    pub(crate) fn problem(&self) -> Option<String> {
        let Self { capacity, permits, .. } = self;
        (permits > capacity).then(|| format!("--permits {permits} is more than --capacity {capacity}"))
    }

    fn pool(&self, client: &Client) -> Semaphore {
        client.semaphore(self.name(), self.capacity)
    }
}

impl Wanted for SemaphoreArguments {
    fn name(&self) -> &[u8] {
        text::bytes(&self.name)
    }

    fn wait(&self) -> Option<Duration> {
        self.wait.wait
    }

    async fn acquire(&self, client: &Client) -> Result<Lock> {
        let acquire = self.wait.apply(self.pool(client).permits(self.permits));
        self.guarded.apply(acquire).await.map(Permit::into_lock)
    }

    async fn holders(&self, client: &Client) -> Result<Holders> {
        let status = self.pool(client).describe().await?;
        let first = status.holders.into_iter().next();
        let first = first.map(|holder| FirstHolder { id: holder.id, owner: holder.owner, held: holder.age });
        Ok(Holders { count: status.holder_count, first, writer_in_front: false })
    }
}

impl Guarded for SemaphoreArguments {
    fn arguments(&self) -> &GuardedArguments {
        &self.guarded
    }
}
