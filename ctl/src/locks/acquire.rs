//! `locks acquire`: a lock that does not belong to a process.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{Client, Lock, Result};

use crate::connection::Connection;
use crate::exit::Exit;
use crate::guarded::{Holders, Run, Scope, ScopeArguments, WaitArguments, Wanted, holders_of_key};
use crate::output::{complain_about, note_shorter_lease, show};
use crate::{text, traceparent, values};

pub(crate) const HELP: &str = "\
The lock stays held until `waymaker-ctl locks release`, or until --release-after
has passed since the grant or since the last `waymaker-ctl locks extend`.
waymaker-ctl does not renew it. Its owner is USER@HOST unless --owner is given.
If waymaker-ctl is interrupted while it waits, the wait is cancelled. If a write
of the id to stdout fails, the lock is released again. A closed stdout (`>&-`)
counts as /dev/null: the lock stays held, and `locks list` shows its id.

Examples:
  Hold a lock over several steps of a script:
      id=$(waymaker-ctl locks acquire deploy/eu --wait 10m --release-after 30m)
      ./deploy.sh
      waymaker-ctl locks release deploy/eu \"$id\"
  Keep the id and the fence:
      waymaker-ctl locks acquire feed --scope local --json > lock.json
";

#[derive(Debug, Args)]
pub(crate) struct AcquireArguments {
    /// Key to lock
    #[arg(value_parser = values::key())]
    key: OsString,
    /// Share the lock with other readers
    #[arg(long, help_heading = "Lock")]
    read: bool,
    #[command(flatten)]
    wait: WaitArguments,
    /// Time until the server frees the lock, counted from the grant; at most 24h
    #[arg(
        long,
        default_value = super::extend::RELEASE_AFTER_DEFAULT,
        value_parser = values::lease,
        value_name = "TIME",
        help_heading = "Lock"
    )]
    release_after: Duration,
    #[command(flatten)]
    scope: ScopeArguments,
}

/// An acquired lock.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Acquired lock")]
pub(crate) struct AcquiredObject {
    /// Key.
    key: String,
    /// Hexadecimal digits of the key. Present only if the key is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Id of the lock, 32 hexadecimal digits, for `locks extend` and `locks release`.
    id: String,
    /// Fence of the grant.
    fence: u64,
    /// Length of the lease in milliseconds, as the server granted it.
    lease_ms: u64,
    /// Scope of the fence. Present only if --scope was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
}

/// An acquire with its owner.
struct Acquire<'a> {
    arguments: &'a AcquireArguments,
    owner: String,
}

pub(crate) async fn run(connection: &Connection, arguments: &AcquireArguments) -> Exit {
    let acquire = Acquire { arguments, owner: connection.lasting_owner() };
    let mut run = match Run::begin(connection, acquire.wait()).await {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    let exit = match run.acquire(connection, &acquire).await {
        Ok(Ok(lock)) => hand_over(lock, arguments).await,
        Ok(Err(exit)) => exit,
        Err(error) => complain_about(acquire.name(), &error),
    };
    run.end().await;
    exit
}

/// Prints the id and gives up the guard. Releases the lock if the id cannot be printed.
async fn hand_over(lock: Lock, arguments: &AcquireArguments) -> Exit {
    let lease_ms = lock.lease_ms().map_or_else(|| text::milliseconds(arguments.release_after), u64::from);
    if lock.is_clamped() {
        note_shorter_lease(lock.key(), Duration::from_millis(lease_ms), "--release-after");
    }
    let (key, key_hex) = text::json(lock.key());
    let id = lock.id().to_string();
    let object = AcquiredObject {
        key,
        key_hex,
        id: id.clone(),
        fence: lock.fence(),
        lease_ms,
        scope: arguments.scope.scope.map(Scope::name),
    };
    if show(|| format!("{id}\n"), [object]) {
        lock.forget();
        return Exit::Success;
    }
    match lock.release().await {
        Ok(()) => Exit::Internal,
        Err(error) => complain_about(text::bytes(&arguments.key), &error),
    }
}

impl Wanted for Acquire<'_> {
    fn name(&self) -> &[u8] {
        text::bytes(&self.arguments.key)
    }

    fn wait(&self) -> Option<Duration> {
        self.arguments.wait.wait
    }

    async fn acquire(&self, client: &Client) -> Result<Lock> {
        let AcquireArguments { read, wait, release_after, scope, .. } = self.arguments;
        let acquire = if *read { client.read(self.name()) } else { client.write(self.name()) };
        let acquire = acquire.lease(*release_after).renew(false).owner(&self.owner);
        scope.apply(wait.apply(traceparent::apply(acquire))).await
    }

    async fn holders(&self, client: &Client) -> Result<Holders> {
        holders_of_key(client, self.name(), self.arguments.read).await
    }
}
