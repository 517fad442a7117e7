//! `namespaces`: the namespaces of the server.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{NamespaceStatus, Result};

use crate::connection::{Connection, connect};
use crate::exit::{self, Exit, Use};
use crate::output::{complain_of, show};
use crate::text;

pub(crate) const HELP: &str = "\
Examples:
  waymaker-ctl namespaces list
  waymaker-ctl namespaces remove sem/jobs";

const LIST_HELP: &str = "\
HELD and WAITING are the current numbers of holds and waiters. TIMEOUTS, EXPIRED
and REVOKED count events since the server started: waits that ended without a
grant, holds whose lease expired, and holds that were taken away.

Example:
  waymaker-ctl namespaces list";

const REMOVE_HELP: &str = "\
NAME is a name that `namespaces list` shows, such as sem/jobs. The server refuses
to remove a namespace that belongs to a front end, that a connection uses, or
that contains a claim, a registration, a frozen prefix, a pool with a set
capacity, or a bucket that is not full. Idle keys do not count: their fences
continue if the namespace is created again. The server itself removes idle
namespaces after a minute.

Example:
  waymaker-ctl namespaces remove sem/jobs";

#[derive(Debug, Subcommand)]
pub(crate) enum NamespacesCommand {
    /// List the namespaces of the server with counts, ordered by name
    #[command(after_help = exit::after(LIST_HELP, &[Use::Request]))]
    List,
    /// Remove an empty namespace
    #[command(after_help = exit::after(REMOVE_HELP, &[Use::Request]))]
    Remove(RemoveArguments),
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// Name of the namespace, as `namespaces list` shows it
    name: OsString,
}

/// A namespace.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Namespace")]
pub(crate) struct NamespaceObject {
    /// Name of the namespace.
    namespace: String,
    /// Hexadecimal digits of the name. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_hex: Option<String>,
    /// Kind of the namespace: flat, tree, pool, registry, lazy, or limit for buckets.
    kind: &'static str,
    /// Number of holds.
    held: u64,
    /// Number of waiters.
    waiting: u64,
    /// Number of waits that ended without a grant.
    timeouts: u64,
    /// Number of holds whose lease expired.
    expired: u64,
    /// Number of holds that were taken away.
    revoked: u64,
}

/// A namespace that was removed.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Removed namespace")]
pub(crate) struct RemovedObject {
    /// Name of the namespace.
    namespace: String,
    /// Hexadecimal digits of the name. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_hex: Option<String>,
}

pub(crate) async fn run(connection: &Connection, command: &NamespacesCommand) -> Exit {
    let result = match command {
        NamespacesCommand::List => list(connection).await,
        NamespacesCommand::Remove(arguments) => remove(connection, arguments).await,
    };
    result.map_or_else(|error| complain_of(&error), |()| Exit::Success)
}

async fn list(connection: &Connection) -> Result<()> {
    let client = connect(connection).await?;
    let mut namespaces = client.namespaces().await?;
    namespaces.sort_by(|left, right| left.name.cmp(&right.name));
    show(|| table(&namespaces), namespaces.iter().map(object));
    client.close().await
}

async fn remove(connection: &Connection, arguments: &RemoveArguments) -> Result<()> {
    let client = connect(connection).await?;
    let name = text::bytes(&arguments.name);
    client.remove_namespace(name).await?;
    let (namespace, namespace_hex) = text::json(name);
    let object = RemovedObject { namespace, namespace_hex };
    show(|| format!("{}: removed\n", text::printable(name)), [object]);
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

fn object(status: &NamespaceStatus) -> NamespaceObject {
    let (namespace, namespace_hex) = text::json(&status.name);
    NamespaceObject {
        namespace,
        namespace_hex,
        kind: status.kind.name(),
        held: status.held,
        waiting: status.waiting,
        timeouts: status.timeouts,
        expired: status.expired,
        revoked: status.revoked,
    }
}
