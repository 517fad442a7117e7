//! `locks list`: what is held.

use serde_json::{Map, Value};
use waymaker_client::{Client, HeldLock, NamespaceKind, Result};

use crate::arguments::{Connection, Kind, ListArguments};
use crate::{connect, show, text};

pub(crate) async fn run(connection: &Connection, arguments: &ListArguments) -> Result<()> {
    let client = connect(connection).await?;
    let kinds = match arguments.kind {
        Some(kind) => vec![kind],
        None => kinds(&client).await?,
    };
    let prefix = text::bytes(&arguments.prefix);
    let mut locks = Vec::new();
    for kind in &kinds {
        let mut of_kind = match kind {
            Kind::Tree => client.tree().list(text::segments(prefix)).await?,
            kind => client.operator((*kind).into()).list(prefix).await?,
        };
        // The server's order is its own; people look things up, and scripts compare.
        of_kind.sort_by(|left, right| left.key.cmp(&right.key).then(left.id.cmp(&right.id)));
        locks.extend(of_kind.into_iter().map(|lock| (*kind, lock)));
    }
    show(|| table(&locks), || text::lines(locks.iter().map(|(kind, lock)| object(lock, *kind))));
    client.close().await
}

/// The kinds under which something may be held.
async fn kinds(client: &Client) -> Result<Vec<Kind>> {
    let known = client.kinds().await?;
    Ok(Kind::ALL.into_iter().filter(|kind| known.contains(&(*kind).into())).collect())
}

fn table(locks: &[(Kind, HeldLock)]) -> String {
    let title = ["KEY", "KIND", "MODE", "OWNER", "FENCE", "HELD", "LEFT", "ID"];
    let rows = locks.iter().map(|(kind, lock)| {
        [
            text::key(*kind, &lock.key),
            NamespaceKind::from(*kind).name().to_owned(),
            text::mode(lock.shared).to_owned(),
            text::printable(&lock.owner),
            lock.fence.to_string(),
            text::time(Some(lock.held)),
            text::time(lock.remaining),
            lock.id.to_string(),
        ]
    });
    text::table(title, rows)
}

fn object(lock: &HeldLock, kind: Kind) -> Value {
    let mut object = Map::new();
    text::insert_key(&mut object, kind, &lock.key);
    object.insert("kind".to_owned(), NamespaceKind::from(kind).name().into());
    object.insert("id".to_owned(), lock.id.to_string().into());
    object.insert("mode".to_owned(), text::mode(lock.shared).into());
    object.insert("fence".to_owned(), lock.fence.into());
    object.insert("held_ms".to_owned(), text::milliseconds(Some(lock.held)));
    object.insert("remaining_ms".to_owned(), text::milliseconds(lock.remaining));
    object.insert("priority".to_owned(), lock.priority.into());
    text::insert_bytes(&mut object, "owner", &lock.owner);
    text::insert_bytes(&mut object, "request_id", &lock.request_id);
    text::insert_bytes(&mut object, "metadata", &lock.metadata);
    object.into()
}
