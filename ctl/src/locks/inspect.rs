//! `locks inspect`: the holders and waiters of one key or path.

use std::ffi::OsString;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{Holder, KeyStatus, Result, Waiter};

use crate::connection::{Connection, connect};
use crate::exit::Exit;
use crate::output::show;
use crate::{text, values};

pub(crate) const HELP: &str = "\
At most 64 holders and 64 waiters are listed, the waiters in the order in which
they are served. The counts are exact.

Examples:
  waymaker-ctl locks inspect backup
  waymaker-ctl locks inspect --tree shop/orders
  waymaker-ctl locks inspect backup --json | jq -r '.holders[0].id'";

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// Key, or path with --tree
    #[arg(value_parser = values::prefix())]
    key: OsString,
    /// Treat KEY as a path, written with slashes; also list holders and waiters of paths above and below it
    #[arg(long)]
    tree: bool,
}

/// The state of a key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Key")]
pub(crate) struct KeyObject {
    /// Key, or path with slashes.
    key: String,
    /// Hexadecimal digits of the key. Present only if the key is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Newest fence of the key.
    fence: u64,
    /// Number of holders.
    holder_count: u32,
    /// Number of waiters.
    waiter_count: u32,
    /// The first holders, at most 64.
    holders: Vec<HolderObject>,
    /// The first waiters, at most 64, in the order in which they are served.
    waiters: Vec<WaiterObject>,
}

/// A holder of a key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Holder")]
struct HolderObject {
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
    /// Owner; empty if the client has no name.
    owner: String,
    /// Hexadecimal digits of the owner. Present only if the owner is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_hex: Option<String>,
}

/// A waiter for a key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Waiter")]
struct WaiterObject {
    /// Id of the claim, 32 hexadecimal digits.
    id: String,
    /// Mode: read or write.
    mode: &'static str,
    /// Order of arrival. Among waiters of equal priority, the smaller ticket is served first.
    ticket: u64,
    /// Length of the wait so far, in milliseconds.
    age_ms: u64,
    /// Time until the wait ends, in milliseconds; null without a limit.
    remaining_ms: Option<u64>,
    /// Priority of the claim.
    priority: u32,
    /// Owner; empty if the client has no name.
    owner: String,
    /// Hexadecimal digits of the owner. Present only if the owner is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_hex: Option<String>,
}

impl InspectArguments {
    /// Returns what is wrong with the arguments. An empty path is the whole tree; an empty key is a mistake.
    pub(crate) fn problem(&self) -> Option<String> {
        let is_wrong = self.key.is_empty() && !self.tree;
        is_wrong.then(|| format!("invalid value '' for '<KEY>': {}", values::EMPTY))
    }
}

pub(crate) async fn run(connection: &Connection, arguments: &InspectArguments) -> Result<Exit> {
    let client = connect(connection).await?;
    let key = text::bytes(&arguments.key);
    let status = match arguments.tree {
        true => client.tree().inspect(text::segments(key)).await?,
        false => client.inspect(key).await?,
    };
    show(|| page(key, &status), [object(key, &status)]);
    client.close().await?;
    Ok(Exit::Success)
}

fn page(key: &[u8], status: &KeyStatus) -> String {
    let state = match (status.holder_count, status.holders.first()) {
        (0, _) => "free".to_owned(),
        (count, Some(Holder { shared: true, .. })) => format!("held by {count} for reading"),
        _ => "held".to_owned(),
    };
    let key = text::printable(key);
    let mut page = format!("{key}: {state}, {} waiting, fence {}\n", status.waiter_count, status.fence);
    page.push_str(&holders(status));
    page.push_str(&waiters(status));
    page
}

fn holders(status: &KeyStatus) -> String {
    let title = ["MODE", "OWNER", "FENCE", "HELD", "LEFT", "ID"];
    let rows = status.holders.iter().map(|holder| {
        [
            text::mode(holder.shared).to_owned(),
            text::printable(&holder.owner),
            holder.fence.to_string(),
            text::time(Some(holder.held)),
            text::left(holder.remaining),
            holder.id.to_string(),
        ]
    });
    text::first_of(status.holder_count, title, rows)
}

fn waiters(status: &KeyStatus) -> String {
    let title = ["MODE", "OWNER", "PRIORITY", "WAITING", "LEFT", "ID"];
    let rows = status.waiters.iter().map(|waiter| {
        [
            text::mode(waiter.shared).to_owned(),
            text::printable(&waiter.owner),
            waiter.priority.to_string(),
            text::time(Some(waiter.age)),
            text::time(waiter.remaining),
            waiter.id.to_string(),
        ]
    });
    text::first_of(status.waiter_count, title, rows)
}

fn object(key: &[u8], status: &KeyStatus) -> KeyObject {
    let (key, key_hex) = text::json(key);
    KeyObject {
        key,
        key_hex,
        fence: status.fence,
        holder_count: status.holder_count,
        waiter_count: status.waiter_count,
        holders: status.holders.iter().map(holder_object).collect(),
        waiters: status.waiters.iter().map(waiter_object).collect(),
    }
}

fn holder_object(holder: &Holder) -> HolderObject {
    let (owner, owner_hex) = text::json(&holder.owner);
    HolderObject {
        id: holder.id.to_string(),
        mode: text::mode(holder.shared),
        fence: holder.fence,
        held_ms: text::milliseconds(holder.held),
        remaining_ms: holder.remaining.map(text::milliseconds),
        owner,
        owner_hex,
    }
}

fn waiter_object(waiter: &Waiter) -> WaiterObject {
    let (owner, owner_hex) = text::json(&waiter.owner);
    WaiterObject {
        id: waiter.id.to_string(),
        mode: text::mode(waiter.shared),
        ticket: waiter.ticket,
        age_ms: text::milliseconds(waiter.age),
        remaining_ms: waiter.remaining.map(text::milliseconds),
        priority: waiter.priority,
        owner,
        owner_hex,
    }
}
