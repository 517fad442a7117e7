//! `pools`, `status --pool` and `set-capacity`: pools of permits.

use serde_json::{Map, Value};
use waymaker_client::{Client, PermitStatus, PoolStatus, PoolSummary, Result};

use crate::arguments::{Connection, PoolsArguments, SetCapacityArguments};
use crate::{connect, show, text};

pub(crate) async fn list(connection: &Connection, arguments: &PoolsArguments) -> Result<()> {
    let client = connect(connection).await?;
    let mut pools = client.pools(text::bytes(&arguments.prefix)).await?;
    pools.sort_by(|left, right| left.name.cmp(&right.name));
    show(|| table(&pools), || text::lines(pools.iter().map(|pool| summary_object(pool).into())));
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

fn summary_object(pool: &PoolSummary) -> Map<String, Value> {
    let mut object = Map::new();
    text::insert_bytes(&mut object, "pool", &pool.name);
    object.insert("capacity".to_owned(), pool.capacity.into());
    object.insert("held".to_owned(), pool.held.into());
    object.insert("fence".to_owned(), pool.fence.into());
    object.insert("by_timestamp".to_owned(), pool.by_timestamp.into());
    object.insert("capacity_is_set".to_owned(), pool.is_set.into());
    object.insert("holder_count".to_owned(), pool.holder_count.into());
    object.insert("waiter_count".to_owned(), pool.waiter_count.into());
    object
}

pub(crate) async fn set_capacity(connection: &Connection, arguments: &SetCapacityArguments) -> Result<()> {
    let client = connect(connection).await?;
    let (name, capacity) = (text::bytes(&arguments.name), arguments.capacity);
    let mut pool = client.semaphore(name, capacity);
    // A pool keeps the order that it has; the request names it, so that nobody takes it for another one.
    if pool.describe().await?.by_timestamp {
        pool = pool.by_timestamp();
    }
    let previous = match capacity {
        0 => pool.remove_pool().await?,
        _ => pool.set_capacity(capacity).await?,
    };
    show(
        || capacity_sentence(name, capacity, previous),
        || text::lines([capacity_object(name, capacity, previous)]),
    );
    client.close().await
}

fn capacity_sentence(name: &[u8], capacity: u64, previous: Option<u64>) -> String {
    let before = match previous {
        Some(previous) => format!("it had {previous}"),
        None => "there was none".to_owned(),
    };
    if capacity == 0 {
        return format!("{}: removed, {before}\n", text::printable(name));
    }
    format!("{}: {capacity} permits, {before}\n", text::printable(name))
}

fn capacity_object(name: &[u8], capacity: u64, previous: Option<u64>) -> Value {
    let mut object = Map::new();
    text::insert_bytes(&mut object, "pool", name);
    object.insert("capacity".to_owned(), capacity.into());
    object.insert("previous_capacity".to_owned(), previous.into());
    object.into()
}

/// Prints what there is to know about the pool.
pub(crate) async fn describe(client: &Client, name: &[u8]) -> Result<()> {
    // A capacity is only of use for asking for permits.
    let status = client.semaphore(name, 0).describe().await?;
    show(|| page(name, &status), || text::lines([object(name, &status)]));
    Ok(())
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

fn object(name: &[u8], status: &PoolStatus) -> Value {
    let mut object = Map::new();
    text::insert_bytes(&mut object, "pool", name);
    object.insert("capacity".to_owned(), status.capacity.into());
    object.insert("held".to_owned(), status.held.into());
    object.insert("fence".to_owned(), status.fence.into());
    object.insert("by_timestamp".to_owned(), status.by_timestamp.into());
    object.insert("capacity_is_set".to_owned(), status.is_set.into());
    object.insert("holder_count".to_owned(), status.holder_count.into());
    object.insert("waiter_count".to_owned(), status.waiter_count.into());
    object.insert("holders".to_owned(), status.holders.iter().map(permit_object).collect());
    object.insert("waiters".to_owned(), status.waiters.iter().map(permit_object).collect());
    object.into()
}

fn permit_object(permit: &PermitStatus) -> Value {
    let mut object = Map::new();
    object.insert("id".to_owned(), permit.id.to_string().into());
    object.insert("permits".to_owned(), permit.permits.into());
    object.insert("fence".to_owned(), permit.fence.into());
    object.insert("ticket".to_owned(), permit.ticket.into());
    object.insert("age_ms".to_owned(), text::milliseconds(Some(permit.age)));
    object.insert("remaining_ms".to_owned(), text::milliseconds(permit.remaining));
    text::insert_bytes(&mut object, "owner", &permit.owner);
    object.into()
}
