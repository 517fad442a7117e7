//! `elect`: a command that runs on one of many machines, and on another when that one fails.

use std::time::Duration;

use waymaker_client::{Client, Lock, Result};

use crate::arguments::{Connection, ElectArguments, GuardedArguments};
use crate::exit::Exit;
use crate::guarded::{self, Guarded};
use crate::{note, text};

pub(crate) async fn run(connection: &Connection, arguments: &ElectArguments) -> Exit {
    guarded::run_until_ended(connection, arguments).await
}

impl Guarded for ElectArguments {
    fn name(&self) -> &[u8] {
        text::bytes(&self.name)
    }

    fn arguments(&self) -> &GuardedArguments {
        &self.guarded
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

    async fn holder(&self, client: &Client) -> Result<Vec<u8>> {
        guarded::holder_of_key(client, self.name()).await
    }
}
