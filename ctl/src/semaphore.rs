//! `semaphore`: a command under permits of a pool.

use std::time::Duration;

use waymaker_client::{Client, Lock, Permit, Result, Semaphore};

use crate::arguments::{Connection, GuardedArguments, SemaphoreArguments};
use crate::exit::Exit;
use crate::guarded::{self, Guarded};
use crate::text;

pub(crate) async fn run(connection: &Connection, arguments: &SemaphoreArguments) -> Exit {
    guarded::run(connection, arguments).await
}

impl SemaphoreArguments {
    fn pool(&self, client: &Client) -> Semaphore {
        client.semaphore(self.name(), self.capacity)
    }
}

impl Guarded for SemaphoreArguments {
    fn name(&self) -> &[u8] {
        text::bytes(&self.name)
    }

    fn arguments(&self) -> &GuardedArguments {
        &self.guarded
    }

    fn wait(&self) -> Option<Duration> {
        self.wait.wait
    }

    async fn acquire(&self, client: &Client) -> Result<Lock> {
        let acquire = self.wait.apply(self.pool(client).permits(self.permits));
        self.guarded.apply(acquire).await.map(Permit::into_lock)
    }

    async fn holder(&self, client: &Client) -> Result<Vec<u8>> {
        let status = self.pool(client).describe().await?;
        Ok(status.holders.into_iter().next().map(|holder| holder.owner).unwrap_or_default())
    }
}
