//! `lock`: a command under a lock.

use std::time::Duration;

use waymaker_client::{Client, Lock, Result};

use crate::arguments::{Connection, GuardedArguments, LockArguments};
use crate::exit::Exit;
use crate::guarded::{self, Guarded};
use crate::text;

pub(crate) async fn run(connection: &Connection, arguments: &LockArguments) -> Exit {
    guarded::run(connection, arguments).await
}

impl Guarded for LockArguments {
    fn name(&self) -> &[u8] {
        text::bytes(&self.key)
    }

    fn arguments(&self) -> &GuardedArguments {
        &self.guarded
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

    async fn holder(&self, client: &Client) -> Result<Vec<u8>> {
        guarded::holder_of_key(client, self.name()).await
    }
}
