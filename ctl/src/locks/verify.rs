//! `locks verify`: whether a fence is the newest of its key.

use std::ffi::OsString;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{Result, Verification};

use crate::connection::{Connection, connect};
use crate::exit::Exit;
use crate::output::show;
use crate::{text, values};

pub(crate) const HELP: &str = "\
The exit code is 0 if the fence is the newest of the key, held or not. It is 121
if the key was granted again since, or if the server does not know the fence:
ephemeral fences begin again after a crash.

Example:
  waymaker-ctl locks verify feed \"$WAYMAKER_FENCE\"";

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Key of the lock
    #[arg(value_parser = values::key())]
    key: OsString,
    /// Fence of the grant, as in WAYMAKER_FENCE
    #[arg(value_parser = values::fence, allow_negative_numbers = true)]
    fence: u64,
}

/// The comparison of a fence with the newest fence of its key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Verification")]
pub(crate) struct VerificationObject {
    /// Key.
    key: String,
    /// Hexadecimal digits of the key. Present only if the key is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// The fence of the command line.
    fence: u64,
    /// Whether the fence is the newest of the key.
    is_newest: bool,
    /// Whether the grant with this fence is still held.
    is_held: bool,
    /// Newest fence of the key.
    newest_fence: u64,
}

pub(crate) async fn run(connection: &Connection, arguments: &VerifyArguments) -> Result<Exit> {
    let client = connect(connection).await?;
    let (key, fence) = (text::bytes(&arguments.key), arguments.fence);
    let mut verification = client.verify(key, fence).await?;
    // No grant has the fence 0, which is the newest fence of a key without grants.
    verification.is_newest &= fence > 0;
    show(|| sentence(key, fence, verification), [object(key, fence, verification)]);
    client.close().await?;
    Ok(if verification.is_newest { Exit::Success } else { Exit::Lost })
}

fn sentence(key: &[u8], fence: u64, verification: Verification) -> String {
    let Verification { is_newest, is_held, newest_fence } = verification;
    let key = text::printable(key);
    if fence == 0 {
        return format!("{key}: fence 0 was never granted\n");
    }
    let state = match (is_newest, is_held) {
        (true, true) => "the newest, and held".to_owned(),
        (true, false) => "the newest, and no longer held".to_owned(),
        (false, _) if fence > newest_fence => format!(
            "above every fence that this server knows (newest {newest_fence}); \
             an ephemeral fence from before a crash looks like this"
        ),
        (false, _) => format!("old; the newest is {newest_fence}"),
    };
    format!("{key}: fence {fence} is {state}\n")
}

fn object(key: &[u8], fence: u64, verification: Verification) -> VerificationObject {
    let Verification { is_newest, is_held, newest_fence } = verification;
    let (key, key_hex) = text::json(key);
    VerificationObject { key, key_hex, fence, is_newest, is_held, newest_fence }
}
