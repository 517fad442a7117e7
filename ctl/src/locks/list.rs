//! `locks list`: the locks of the namespace.

use std::ffi::OsString;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{Client, HeldLock, LockId, Result};

use super::members::{ClientMembers, KeyMembers};
use super::waiting;
use crate::connection::{Connection, connect};
use crate::exit::Exit;
use crate::kind::Kind;
use crate::output::show;
use crate::text;

pub(crate) const HELP: &str = "\
With --waiting, WAITING is the age of the wait and LEFT the rest of it. A wait
for several keys has a line for each of them.

Examples:
  waymaker-ctl locks list
  waymaker-ctl locks list --waiting
  waymaker-ctl locks list --prefix deploy/ --kind flat
  waymaker-ctl locks list --json | jq -r .owner";

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// List only keys that begin with PREFIX, or paths at or below it, written with slashes [default: all]
    #[arg(long, default_value = "", value_name = "PREFIX", hide_default_value = true)]
    prefix: OsString,
    /// List only one kind [default: all kinds]
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<Kind>,
    /// List claims that wait instead of locks that are held
    #[arg(long)]
    waiting: bool,
}

/// A hold.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Held lock")]
pub(crate) struct HeldObject {
    #[serde(flatten)]
    key: KeyMembers,
    /// Kind of the namespace: flat, tree, pool, registry or lazy.
    kind: &'static str,
    /// Id of the hold, 32 hexadecimal digits.
    id: String,
    /// Mode: read or write.
    mode: &'static str,
    /// Fence of the grant.
    fence: u64,
    /// Age of the hold in milliseconds.
    held_ms: u64,
    /// Remaining lease in milliseconds; null without a lease.
    remaining_ms: Option<u64>,
    /// Priority of the claim.
    priority: u32,
    #[serde(flatten)]
    client: ClientMembers,
}

pub(crate) async fn run(connection: &Connection, arguments: &ListArguments) -> Result<Exit> {
    let client = connect(connection).await?;
    let kinds = match arguments.kind {
        Some(kind) => vec![kind],
        None => kinds(&client).await?,
    };
    let prefix = text::bytes(&arguments.prefix);
    if arguments.waiting {
        waiting::list(&client, &kinds, prefix).await?;
    } else {
        list(&client, &kinds, prefix).await?;
    }
    client.close().await?;
    Ok(Exit::Success)
}

/// Shows the holds of these kinds whose keys begin with this prefix.
async fn list(client: &Client, kinds: &[Kind], prefix: &[u8]) -> Result<()> {
    let ask = async |kind| match kind {
        Kind::Tree => client.tree().list(text::segments(prefix)).await,
        kind => client.operator(kind.into()).list(prefix).await,
    };
    let locks = ordered(kinds, ask, |lock| (&lock.key, lock.id)).await?;
    show(|| table(&locks), locks.iter().map(|(kind, lock)| object(lock, *kind)));
    Ok(())
}

/// Asks about each kind. Orders the rows of each kind by key and id, because the server lists in no particular order.
pub(super) async fn ordered<T>(
    kinds: &[Kind],
    ask: impl AsyncFn(Kind) -> Result<Vec<T>>,
    place: impl Fn(&T) -> (&[u8], LockId),
) -> Result<Vec<(Kind, T)>> {
    let mut rows = Vec::new();
    for &kind in kinds {
        let mut of_kind = ask(kind).await?;
        of_kind.sort_by(|left, right| place(left).cmp(&place(right)));
        rows.extend(of_kind.into_iter().map(|row| (kind, row)));
    }
    Ok(rows)
}

/// Returns the kinds that exist under the name of the namespace.
async fn kinds(client: &Client) -> Result<Vec<Kind>> {
    let known = client.kinds().await?;
    Ok(Kind::ALL.into_iter().filter(|kind| known.contains(&(*kind).into())).collect())
}

fn table(locks: &[(Kind, HeldLock)]) -> String {
    let title = ["KEY", "KIND", "MODE", "OWNER", "FENCE", "HELD", "LEFT", "ID"];
    let rows = locks.iter().map(|(kind, lock)| {
        [
            text::key(*kind, &lock.key),
            kind.name().to_owned(),
            text::mode(lock.shared).to_owned(),
            text::printable(&lock.owner),
            lock.fence.to_string(),
            text::time(Some(lock.held)),
            text::left(lock.remaining),
            lock.id.to_string(),
        ]
    });
    text::table(title, rows)
}

fn object(lock: &HeldLock, kind: Kind) -> HeldObject {
    HeldObject {
        key: KeyMembers::new(kind, &lock.key),
        kind: kind.name(),
        id: lock.id.to_string(),
        mode: text::mode(lock.shared),
        fence: lock.fence,
        held_ms: text::milliseconds(lock.held),
        remaining_ms: lock.remaining.map(text::milliseconds),
        priority: lock.priority,
        client: ClientMembers::new(&lock.owner, &lock.request_id, &lock.metadata),
    }
}
