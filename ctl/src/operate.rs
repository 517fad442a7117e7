//! `force-release` and `freeze`: what an operator does.

use serde_json::{Map, Value};
use waymaker_client::{FreezeOutcome, ReleasedClaim, Result};

use crate::arguments::{Connection, ForceReleaseArguments, FreezeArguments, Kind};
use crate::{connect, show, text};

pub(crate) async fn force_release(connection: &Connection, arguments: &ForceReleaseArguments) -> Result<()> {
    let client = connect(connection).await?;
    let operator = client.operator(arguments.kind.into());
    let released = operator.force_release(arguments.id, &arguments.reason).await?;
    show(
        || released_sentence(&released, arguments.kind),
        || text::lines([released_object(&released, arguments.kind)]),
    );
    client.close().await
}

fn released_sentence(released: &ReleasedClaim, kind: Kind) -> String {
    let key = text::key(kind, &released.key);
    let owner = match released.owner.as_slice() {
        b"" => "someone who gave no name".into(),
        owner => text::printable(owner),
    };
    let what = if released.was_waiting { "no longer waited for" } else { "taken from" };
    let by = if released.was_waiting { format!("{what} by {owner}") } else { format!("{what} {owner}") };
    format!("{key}: {by}, fence {}\n", released.fence)
}

fn released_object(released: &ReleasedClaim, kind: Kind) -> Value {
    let mut object = Map::new();
    text::insert_key(&mut object, kind, &released.key);
    text::insert_bytes(&mut object, "owner", &released.owner);
    object.insert("was_waiting".to_owned(), released.was_waiting.into());
    object.insert("fence".to_owned(), released.fence.into());
    object.into()
}

pub(crate) async fn freeze(connection: &Connection, arguments: &FreezeArguments) -> Result<()> {
    let client = connect(connection).await?;
    let operator = client.operator(arguments.kind.into());
    let prefix = text::bytes(&arguments.prefix);
    let outcome = if arguments.thaw { operator.thaw(prefix).await? } else { operator.freeze(prefix).await? };
    let thaw = arguments.thaw;
    show(|| frozen_sentence(prefix, thaw, outcome), || text::lines([frozen_object(prefix, thaw, outcome)]));
    client.close().await
}

fn frozen_sentence(prefix: &[u8], thaw: bool, outcome: FreezeOutcome) -> String {
    let state = match (thaw, outcome.changed) {
        (false, true) => "frozen",
        (false, false) => "was frozen already",
        (true, true) => "thawed",
        (true, false) => "was not frozen",
    };
    let prefix = if prefix.is_empty() { "everything".into() } else { text::printable(prefix) };
    format!("{prefix}: {state}, {} frozen in all\n", outcome.frozen_count)
}

fn frozen_object(prefix: &[u8], thaw: bool, outcome: FreezeOutcome) -> Value {
    let mut object = Map::new();
    text::insert_bytes(&mut object, "prefix", prefix);
    object.insert("is_frozen".to_owned(), (!thaw).into());
    object.insert("changed".to_owned(), outcome.changed.into());
    object.insert("frozen_count".to_owned(), outcome.frozen_count.into());
    object.into()
}
