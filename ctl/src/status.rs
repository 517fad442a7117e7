//! `status`: one key, path or pool.

use serde_json::{Map, Value};
use waymaker_client::{Holder, KeyStatus, Result, Waiter};

use crate::arguments::{Connection, StatusArguments};
use crate::{connect, pool, show, text};

pub(crate) async fn run(connection: &Connection, arguments: &StatusArguments) -> Result<()> {
    let client = connect(connection).await?;
    let key = text::bytes(&arguments.key);
    if arguments.pool {
        pool::describe(&client, key).await?;
    } else {
        let status = match arguments.tree {
            true => client.tree().inspect(text::segments(key)).await?,
            false => client.inspect(key).await?,
        };
        show(|| page(key, &status), || text::lines([object(key, &status)]));
    }
    client.close().await
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
            text::time(holder.remaining),
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

fn object(key: &[u8], status: &KeyStatus) -> Value {
    let mut object = Map::new();
    text::insert_bytes(&mut object, "key", key);
    object.insert("fence".to_owned(), status.fence.into());
    object.insert("holder_count".to_owned(), status.holder_count.into());
    object.insert("waiter_count".to_owned(), status.waiter_count.into());
    object.insert("holders".to_owned(), status.holders.iter().map(holder_object).collect());
    object.insert("waiters".to_owned(), status.waiters.iter().map(waiter_object).collect());
    object.into()
}

fn holder_object(holder: &Holder) -> Value {
    let mut object = Map::new();
    object.insert("id".to_owned(), holder.id.to_string().into());
    object.insert("mode".to_owned(), text::mode(holder.shared).into());
    object.insert("fence".to_owned(), holder.fence.into());
    object.insert("held_ms".to_owned(), text::milliseconds(Some(holder.held)));
    object.insert("remaining_ms".to_owned(), text::milliseconds(holder.remaining));
    text::insert_bytes(&mut object, "owner", &holder.owner);
    object.into()
}

fn waiter_object(waiter: &Waiter) -> Value {
    let mut object = Map::new();
    object.insert("id".to_owned(), waiter.id.to_string().into());
    object.insert("mode".to_owned(), text::mode(waiter.shared).into());
    object.insert("ticket".to_owned(), waiter.ticket.into());
    object.insert("age_ms".to_owned(), text::milliseconds(Some(waiter.age)));
    object.insert("remaining_ms".to_owned(), text::milliseconds(waiter.remaining));
    object.insert("priority".to_owned(), waiter.priority.into());
    text::insert_bytes(&mut object, "owner", &waiter.owner);
    object.into()
}
