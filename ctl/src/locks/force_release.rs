//! `locks force-release`: releases a lock as an operator.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{LockId, ReleasedClaim, Result};

use super::members::KeyMembers;
use super::{is_unknown, report_unknown_kind};
use crate::connection::{Connection, connect};
use crate::exit::Exit;
use crate::kind::Kind;
use crate::output::show;
use crate::{text, values};

pub(crate) const HELP: &str = "\
The holder or waiter gets the reason at once. `locks list` and `locks inspect`
show the ids.

Examples:
  waymaker-ctl locks force-release 00000000000000010123456789abcdef \\
      --reason 'the host is gone'
  waymaker-ctl locks force-release 00000000000000010123456789abcdef \\
      --reason 'the host is gone' --kind pool";

#[derive(Debug, Args)]
pub(crate) struct ForceReleaseArguments {
    /// Id of the lock: 32 hexadecimal digits
    #[arg(value_parser = values::lock_id)]
    id: LockId,
    /// Reason, for the holder and for the server's log
    #[arg(long, value_parser = values::reason, value_name = "TEXT")]
    reason: String,
    /// Kind of the lock
    #[arg(long, value_enum, default_value = "flat", value_name = "KIND")]
    kind: Kind,
}

/// A claim that an operator ended.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Released claim")]
pub(crate) struct ReleasedObject {
    #[serde(flatten)]
    key: KeyMembers,
    /// Owner; empty if the client has no name.
    owner: String,
    /// Hexadecimal digits of the owner. Present only if the owner is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_hex: Option<String>,
    /// Whether the claim was waiting. If false, it was held.
    was_waiting: bool,
    /// Fence of the grant; 0 if the claim was waiting.
    fence: u64,
}

pub(crate) async fn run(connection: &Connection, arguments: &ForceReleaseArguments) -> Result<Exit> {
    let client = connect(connection).await?;
    let kind = arguments.kind;
    let released = client.operator(kind.into()).force_release(arguments.id, &arguments.reason).await;
    let released = match released {
        Err(error) if is_unknown(&error) => {
            client.close().await?;
            return Ok(report_unknown_kind(arguments.id, kind));
        }
        released => released?,
    };
    show(|| sentence(&released, kind), [object(&released, kind)]);
    client.close().await?;
    Ok(Exit::Success)
}

fn sentence(released: &ReleasedClaim, kind: Kind) -> String {
    let (key, owner) = (text::key(kind, &released.key), text::client(&released.owner));
    match released.was_waiting {
        true => format!("{key}: cancelled the wait of {owner}\n"),
        false => format!("{key}: taken from {owner}, fence {}\n", released.fence),
    }
}

fn object(released: &ReleasedClaim, kind: Kind) -> ReleasedObject {
    let key = KeyMembers::new(kind, &released.key);
    let (owner, owner_hex) = text::json(&released.owner);
    let (was_waiting, fence) = (released.was_waiting, released.fence);
    ReleasedObject { key, owner, owner_hex, was_waiting, fence }
}
