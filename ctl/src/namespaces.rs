//! `namespaces` and `namespace remove`: the namespaces of the server.

use serde_json::{Map, Value};
use waymaker_client::{NamespaceStatus, Result};

use crate::arguments::{Connection, RemoveNamespaceArguments};
use crate::{connect, show, text};

pub(crate) async fn run(connection: &Connection) -> Result<()> {
    let client = connect(connection).await?;
    let mut namespaces = client.namespaces().await?;
    namespaces.sort_by(|left, right| left.name.cmp(&right.name));
    show(|| table(&namespaces), || text::lines(namespaces.iter().map(object)));
    client.close().await
}

pub(crate) async fn remove(connection: &Connection, arguments: &RemoveNamespaceArguments) -> Result<()> {
    let client = connect(connection).await?;
    let name = text::bytes(&arguments.name);
    client.remove_namespace(name).await?;
    let removed = || {
        let mut object = Map::new();
        text::insert_bytes(&mut object, "namespace", name);
        text::lines([Value::from(object)])
    };
    show(|| format!("{}: removed\n", text::printable(name)), removed);
    client.close().await
}

fn table(namespaces: &[NamespaceStatus]) -> String {
    let title = ["NAMESPACE", "KIND", "HELD", "WAITING", "TIMEOUTS", "EXPIRED", "REVOKED"];
    let rows = namespaces.iter().map(|namespace| {
        let NamespaceStatus { name, kind, held, waiting, timeouts, expired, revoked } = namespace;
        [
            text::printable(name),
            kind.name().to_owned(),
            held.to_string(),
            waiting.to_string(),
            timeouts.to_string(),
            expired.to_string(),
            revoked.to_string(),
        ]
    });
    text::table(title, rows)
}

fn object(namespace: &NamespaceStatus) -> Value {
    let mut object = Map::new();
    text::insert_bytes(&mut object, "namespace", &namespace.name);
    object.insert("kind".to_owned(), namespace.kind.name().into());
    object.insert("held".to_owned(), namespace.held.into());
    object.insert("waiting".to_owned(), namespace.waiting.into());
    object.insert("timeouts".to_owned(), namespace.timeouts.into());
    object.insert("expired".to_owned(), namespace.expired.into());
    object.insert("revoked".to_owned(), namespace.revoked.into());
    object.into()
}
