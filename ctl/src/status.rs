//! `status`: one key, path or pool.

use std::io::Write;

use serde_json::{Map, Value};
use waymaker_client::{Holder, KeyStatus, Result};

use crate::arguments::{Connection, StatusArguments};
use crate::{connect, pool, text};

pub(crate) async fn run(connection: &Connection, arguments: &StatusArguments) -> Result<()> {
    let client = connect(connection).await?;
    let key = text::bytes(&arguments.key);
    let output = if arguments.pool {
        pool::describe(&client, key, arguments.json).await?
    } else {
        let status = match arguments.tree {
            true => client.tree().inspect(text::segments(key)).await?,
            false => client.inspect(key).await?,
        };
        if arguments.json { format!("{}\n", object(key, &status)) } else { page(key, &status) }
    };
    // A reader that has seen enough is no failure.
    let _ = std::io::stdout().write_all(output.as_bytes());
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
    if !status.holders.is_empty() {
        let title = ["MODE", "OWNER", "FENCE", "HELD", "LEFT", "ID"].map(str::to_owned).to_vec();
        let rows = status.holders.iter().map(|holder| {
            vec![
                text::mode(holder.shared).to_owned(),
                text::printable(&holder.owner).into_owned(),
                holder.fence.to_string(),
                text::time(Some(holder.held)),
                text::time(holder.remaining),
                holder.id.to_string(),
            ]
        });
        page.push_str(&text::table(&std::iter::once(title).chain(rows).collect::<Vec<_>>()));
    }
    let unnamed = (status.holder_count as usize).saturating_sub(status.holders.len());
    if unnamed > 0 {
        page.push_str(&format!("and {unnamed} more\n"));
    }
    page
}

fn object(key: &[u8], status: &KeyStatus) -> Value {
    let mut object = Map::new();
    text::insert_bytes(&mut object, "key", key);
    object.insert("fence".to_owned(), status.fence.into());
    object.insert("holder_count".to_owned(), status.holder_count.into());
    object.insert("waiter_count".to_owned(), status.waiter_count.into());
    object.insert("holders".to_owned(), status.holders.iter().map(holder_object).collect());
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
