//! `pools`: pools of permits.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{Client, PermitStatus, PoolStatus, PoolSummary, Result, Semaphore};

use crate::connection::{Connection, connect, request_about};
use crate::exit::{self, Exit, Use};
use crate::output::{complain_of, show};
use crate::{text, values};

pub(crate) const HELP: &str = "\
`waymaker-ctl semaphore` creates a pool when it takes the first permit, and the
server removes that pool when the last permit is returned. A pool that
`pools resize` has set stays until `pools remove`.

Examples:
  waymaker-ctl pools list --prefix eu/
  waymaker-ctl pools inspect eu/converters
  waymaker-ctl pools resize eu/converters 5
  waymaker-ctl pools remove eu/converters";

const LIST_HELP: &str = "\
The list contains pools in use and pools that `pools resize` has set (column
SET). ORDER is the order in which waiters are served.

Examples:
  waymaker-ctl pools list
  waymaker-ctl pools list --prefix eu/";

const INSPECT_HELP: &str = "\
At most 64 holders and 64 waiters are listed. The counts are exact.

Example:
  waymaker-ctl pools inspect converters";

const RESIZE_HELP: &str = "\
Holders keep their permits. If more permits are held than the new capacity, the
pool grants none until enough are returned. Waiters for more permits than the
new capacity are refused. The pool stays until `pools remove`.

Examples:
  waymaker-ctl pools resize converters 5
  waymaker-ctl pools resize converters 5 --reason 'a new machine'";

const REMOVE_HELP: &str = "\
A pool that has holders or waiters is not removed: the exit code is 120.

Example:
  waymaker-ctl pools remove converters";

#[derive(Debug, Subcommand)]
pub(crate) enum PoolsCommand {
    /// List the pools of the namespace with capacity and permits in use, ordered by name
    #[command(after_help = exit::after(LIST_HELP, &[Use::Request]))]
    List(ListArguments),
    /// Show who holds permits of a pool and who waits for permits
    #[command(after_help = exit::after(INSPECT_HELP, &[Use::Request]))]
    Inspect(PoolArguments),
    /// Set the capacity of a pool
    #[command(after_help = exit::after(RESIZE_HELP, &[Use::Request]))]
    Resize(ResizeArguments),
    /// Remove a pool that is not in use
    #[command(after_help = exit::after(REMOVE_HELP, &[Use::Remove, Use::Request]))]
    Remove(RemoveArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// List only pools whose names begin with PREFIX [default: all]
    #[arg(long, default_value = "", value_parser = values::prefix(), value_name = "PREFIX", hide_default_value = true)]
    prefix: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct PoolArguments {
    /// Name of the pool
    #[arg(value_parser = values::key())]
    pool: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct ResizeArguments {
    /// Name of the pool
    #[arg(value_parser = values::key())]
    pool: OsString,
    /// Number of permits from now on
    #[arg(value_parser = values::capacity, allow_negative_numbers = true)]
    capacity: u64,
    #[command(flatten)]
    reason: ReasonArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// Name of the pool
    #[arg(value_parser = values::key())]
    pool: OsString,
    #[command(flatten)]
    reason: ReasonArguments,
}

#[derive(Debug, Args)]
struct ReasonArguments {
    /// Reason, for the server's audit log [default: none]
    #[arg(long, value_parser = values::reason, value_name = "TEXT")]
    reason: Option<String>,
}

/// A pool.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Pool")]
pub(crate) struct PoolObject {
    /// Name of the pool.
    pool: String,
    /// Hexadecimal digits of the name. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool_hex: Option<String>,
    /// Number of permits; 0 if there is no such pool.
    capacity: u64,
    /// Number of permits that are held. Larger than the capacity if the capacity was lowered.
    held: u64,
    /// Newest fence of the pool.
    fence: u64,
    /// Whether waiters are served by their timestamps instead of in order of arrival.
    by_timestamp: bool,
    /// Whether an operator set the capacity. The pool then stays if it is not in use.
    capacity_is_set: bool,
    /// Number of holders.
    holder_count: u32,
    /// Number of waiters.
    waiter_count: u32,
}

/// A pool with its holders and waiters.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Pool with holders and waiters")]
pub(crate) struct PoolDetailsObject {
    #[serde(flatten)]
    pool: PoolObject,
    /// The first holders, at most 64.
    holders: Vec<PermitObject>,
    /// The first waiters, at most 64, in the order in which they are served.
    waiters: Vec<PermitObject>,
}

/// Permits that one claim holds or waits for.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Permits")]
struct PermitObject {
    /// Id of the claim, 32 hexadecimal digits.
    id: String,
    /// Number of permits.
    permits: u64,
    /// Fence of the grant; 0 while waiting.
    fence: u64,
    /// Order of arrival of a waiter; null for a holder.
    ticket: Option<u64>,
    /// Age of the hold or of the wait, in milliseconds.
    age_ms: u64,
    /// Remaining lease of a hold, or time until a wait ends, in milliseconds; null without an end.
    remaining_ms: Option<u64>,
    /// Owner; empty if the client has no name.
    owner: String,
    /// Hexadecimal digits of the owner. Present only if the owner is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_hex: Option<String>,
}

/// The capacity of a pool before and after a change.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Capacity")]
pub(crate) struct CapacityObject {
    /// Name of the pool.
    pool: String,
    /// Hexadecimal digits of the name. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool_hex: Option<String>,
    /// New number of permits; 0 if the pool was removed.
    capacity: u64,
    /// Previous number of permits; null if there was no such pool.
    previous_capacity: Option<u64>,
}

pub(crate) async fn run(connection: &Connection, command: &PoolsCommand) -> Exit {
    let result = match command {
        PoolsCommand::List(arguments) => list(connection, arguments).await,
        PoolsCommand::Inspect(arguments) => inspect(connection, arguments).await,
        PoolsCommand::Resize(arguments) => resize(connection, arguments).await,
        PoolsCommand::Remove(arguments) => {
            let name = text::bytes(&arguments.pool);
            let reason = &arguments.reason;
            return request_about(connection, name, async |client| remove(client, name, reason).await).await;
        }
    };
    result.map_or_else(|error| complain_of(&error), |()| Exit::Success)
}

async fn list(connection: &Connection, arguments: &ListArguments) -> Result<()> {
    let client = connect(connection).await?;
    let mut pools = client.pools(text::bytes(&arguments.prefix)).await?;
    pools.sort_by(|left, right| left.name.cmp(&right.name));
    show(|| table(&pools), pools.iter().map(summary_object));
    client.close().await
}

fn table(pools: &[PoolSummary]) -> String {
    let title = ["POOL", "CAPACITY", "HELD", "WAITING", "SET", "ORDER", "FENCE"];
    let rows = pools.iter().map(|pool| {
        [
            text::printable(&pool.name),
            pool.capacity.to_string(),
            pool.held.to_string(),
            pool.waiter_count.to_string(),
            if pool.is_set { "yes" } else { "no" }.to_owned(),
            if pool.by_timestamp { "timestamp" } else { "arrival" }.to_owned(),
            pool.fence.to_string(),
        ]
    });
    text::table(title, rows)
}

fn summary_object(summary: &PoolSummary) -> PoolObject {
    let (pool, pool_hex) = text::json(&summary.name);
    PoolObject {
        pool,
        pool_hex,
        capacity: summary.capacity,
        held: summary.held,
        fence: summary.fence,
        by_timestamp: summary.by_timestamp,
        capacity_is_set: summary.is_set,
        holder_count: summary.holder_count,
        waiter_count: summary.waiter_count,
    }
}

async fn inspect(connection: &Connection, arguments: &PoolArguments) -> Result<()> {
    let client = connect(connection).await?;
    let name = text::bytes(&arguments.pool);
    // The request to describe a pool has no capacity.
    let status = client.semaphore(name, 0).describe().await?;
    show(|| page(name, &status), [details_object(name, &status)]);
    client.close().await
}

fn page(name: &[u8], status: &PoolStatus) -> String {
    let PoolStatus { capacity, held, fence, waiter_count, .. } = status;
    let name = text::printable(name);
    let mut page = match capacity {
        0 => format!("{name}: no such pool, fence {fence}\n"),
        _ => format!("{name}: {held} of {capacity} held, {waiter_count} waiting, fence {fence}\n"),
    };
    page.push_str(&permits("HELD", &status.holders, status.holder_count));
    page.push_str(&permits("WAITING", &status.waiters, status.waiter_count));
    page
}

fn permits(title: &str, permits: &[PermitStatus], count: u32) -> String {
    let title = ["PERMITS", "OWNER", "FENCE", title, "LEFT", "ID"];
    let rows = permits.iter().map(|permit| {
        [
            permit.permits.to_string(),
            text::printable(&permit.owner),
            if permit.fence == 0 { "-".to_owned() } else { permit.fence.to_string() },
            text::time(Some(permit.age)),
            text::time(permit.remaining),
            permit.id.to_string(),
        ]
    });
    text::first_of(count, title, rows)
}

fn details_object(name: &[u8], status: &PoolStatus) -> PoolDetailsObject {
    let (pool, pool_hex) = text::json(name);
    let pool = PoolObject {
        pool,
        pool_hex,
        capacity: status.capacity,
        held: status.held,
        fence: status.fence,
        by_timestamp: status.by_timestamp,
        capacity_is_set: status.is_set,
        holder_count: status.holder_count,
        waiter_count: status.waiter_count,
    };
    PoolDetailsObject {
        pool,
        holders: status.holders.iter().map(permit_object).collect(),
        waiters: status.waiters.iter().map(permit_object).collect(),
    }
}

fn permit_object(permit: &PermitStatus) -> PermitObject {
    let (owner, owner_hex) = text::json(&permit.owner);
    PermitObject {
        id: permit.id.to_string(),
        permits: permit.permits,
        fence: permit.fence,
        ticket: permit.ticket,
        age_ms: text::milliseconds(permit.age),
        remaining_ms: permit.remaining.map(text::milliseconds),
        owner,
        owner_hex,
    }
}

async fn resize(connection: &Connection, arguments: &ResizeArguments) -> Result<()> {
    let client = connect(connection).await?;
    let (name, capacity) = (text::bytes(&arguments.pool), arguments.capacity);
    let previous = pool(&client, name, capacity, &arguments.reason).await?.set_capacity(capacity).await?;
    show(
        || format!("{}: {}, {}\n", text::printable(name), permits_of(capacity), before(previous)),
        [capacity_object(name, capacity, previous)],
    );
    client.close().await
}

async fn remove(client: &Client, name: &[u8], reason: &ReasonArguments) -> Result<Exit> {
    let previous = pool(client, name, 0, reason).await?.remove_pool().await?;
    let sentence = || {
        let name = text::printable(name);
        match previous {
            None => format!("{name}: there is no such pool\n"),
            Some(previous) => format!("{name}: removed, it had {previous}\n"),
        }
    };
    show(sentence, [capacity_object(name, 0, previous)]);
    Ok(Exit::Success)
}

/// Returns the pool for a change of its capacity. The request must name the order of the pool, which stays as it is.
async fn pool(client: &Client, name: &[u8], capacity: u64, reason: &ReasonArguments) -> Result<Semaphore> {
    let reason = reason.reason.as_deref().unwrap_or_default();
    let pool = client.semaphore(name, capacity).reason(reason);
    Ok(if pool.describe().await?.by_timestamp { pool.by_timestamp() } else { pool })
}

/// Returns a number of permits as text.
fn permits_of(count: u64) -> String {
    format!("{count} permit{}", if count == 1 { "" } else { "s" })
}

fn before(previous: Option<u64>) -> String {
    previous.map_or_else(|| "there was no such pool".to_owned(), |previous| format!("it had {previous}"))
}

fn capacity_object(name: &[u8], capacity: u64, previous_capacity: Option<u64>) -> CapacityObject {
    let (pool, pool_hex) = text::json(name);
    CapacityObject { pool, pool_hex, capacity, previous_capacity }
}
