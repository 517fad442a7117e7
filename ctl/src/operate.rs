//! `force-release` and `freeze`: what an operator does.

use waymaker_client::Result;

use crate::arguments::{Connection, ForceReleaseArguments, FreezeArguments};
use crate::{connect, print, text};

pub(crate) async fn force_release(connection: &Connection, arguments: &ForceReleaseArguments) -> Result<()> {
    let client = connect(connection).await?;
    let operator = client.operator(arguments.kind.into());
    let released = operator.force_release(arguments.id, &arguments.reason).await?;
    let key = text::key(arguments.kind, &released.key);
    let owner = match released.owner.as_slice() {
        b"" => "someone who gave no name".into(),
        owner => text::printable(owner),
    };
    let what = if released.was_waiting { "no longer waited for" } else { "taken from" };
    let by = if released.was_waiting { format!("{what} by {owner}") } else { format!("{what} {owner}") };
    print(&format!("{key}: {by}, fence {}\n", released.fence));
    client.close().await
}

pub(crate) async fn freeze(connection: &Connection, arguments: &FreezeArguments) -> Result<()> {
    let client = connect(connection).await?;
    let operator = client.operator(arguments.kind.into());
    let prefix = text::bytes(&arguments.prefix);
    let outcome = if arguments.thaw { operator.thaw(prefix).await? } else { operator.freeze(prefix).await? };
    let state = match (arguments.thaw, outcome.changed) {
        (false, true) => "frozen",
        (false, false) => "was frozen already",
        (true, true) => "thawed",
        (true, false) => "was not frozen",
    };
    let prefix = if prefix.is_empty() { "everything".into() } else { text::printable(prefix) };
    print(&format!("{prefix}: {state}, {} frozen in all\n", outcome.frozen_count));
    client.close().await
}
