//! `entries`: what is registered.

use serde_json::{Map, Value};
use waymaker_client::{RegistryEntry, Result};

use crate::arguments::{Connection, EntriesArguments};
use crate::{connect, show, text};

pub(crate) async fn run(connection: &Connection, arguments: &EntriesArguments) -> Result<()> {
    let client = connect(connection).await?;
    let registry = if arguments.lazy { client.lazy() } else { client.registry() };
    let mut entries = match &arguments.type_name {
        Some(type_name) => registry.list_type(text::bytes(type_name)).await?,
        None => registry.list().await?,
    };
    entries.sort_by(|left, right| left.key.cmp(&right.key));
    show(|| table(&entries), || text::lines(entries.iter().map(object)));
    client.close().await
}

pub(crate) fn table(entries: &[RegistryEntry]) -> String {
    let title = ["KEY", "TYPE", "OWNER", "FENCE", "AGE", "LEFT", "VALUE"];
    let rows = entries.iter().map(|entry| {
        [
            text::printable(&entry.key),
            text::printable(&entry.type_name),
            text::printable(&entry.owner),
            entry.fence.to_string(),
            text::time(Some(entry.age)),
            entry.overdue.map_or_else(
                || text::time(entry.remaining),
                |overdue| format!("over for {}", text::time(Some(overdue))),
            ),
            text::printable(&entry.value),
        ]
    });
    text::table(title, rows)
}

pub(crate) fn object(entry: &RegistryEntry) -> Value {
    let mut object = Map::new();
    text::insert_bytes(&mut object, "key", &entry.key);
    object.insert("id".to_owned(), entry.id.to_string().into());
    object.insert("fence".to_owned(), entry.fence.into());
    object.insert("age_ms".to_owned(), text::milliseconds(Some(entry.age)));
    object.insert("remaining_ms".to_owned(), text::milliseconds(entry.remaining));
    object.insert("overdue_ms".to_owned(), text::milliseconds(entry.overdue));
    text::insert_bytes(&mut object, "owner", &entry.owner);
    text::insert_bytes(&mut object, "type", &entry.type_name);
    text::insert_bytes(&mut object, "value", &entry.value);
    object.into()
}
