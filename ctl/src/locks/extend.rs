//! `locks extend`: moves the end of a lease.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{LockId, Result};

use super::{is_unknown, report_unknown};
use crate::connection::{Connection, connect};
use crate::exit::Exit;
use crate::output::{note_shorter_lease, show};
use crate::{text, values};

/// Default of --release-after.
pub(super) const RELEASE_AFTER_DEFAULT: &str = "5m";

pub(crate) const HELP: &str = "\
The new end of the lease is --release-after from now, which may be earlier than
the old end. A holder elsewhere is notified of the new end.

Example:
  waymaker-ctl locks extend deploy/eu \"$id\" --release-after 1h";

#[derive(Debug, Args)]
pub(crate) struct ExtendArguments {
    /// Key of the lock
    #[arg(value_parser = values::key())]
    key: OsString,
    /// Id of the lock: 32 hexadecimal digits
    #[arg(value_parser = values::lock_id)]
    id: LockId,
    /// Time until the server frees the lock, counted from now; at most 24h
    #[arg(long, default_value = RELEASE_AFTER_DEFAULT, value_parser = values::lease, value_name = "TIME")]
    release_after: Duration,
}

/// An extended lock.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Extended lock")]
pub(crate) struct ExtendedObject {
    /// Key.
    key: String,
    /// Hexadecimal digits of the key. Present only if the key is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// Id of the lock, 32 hexadecimal digits.
    id: String,
    /// Remaining lease in milliseconds.
    remaining_ms: u64,
    /// End of the lease by the clock of this machine, in milliseconds since 1970-01-01T00:00:00Z.
    end_unix_ms: u64,
    /// Whether the server granted a shorter lease than --release-after.
    clamped: bool,
}

pub(crate) async fn run(connection: &Connection, arguments: &ExtendArguments) -> Result<Exit> {
    let client = connect(connection).await?;
    let key = text::bytes(&arguments.key);
    // The request has no key, so the key is compared first.
    let is_of_key = match client.status(arguments.id).await {
        Err(error) if is_unknown(&error) => false,
        claim => claim?.key == key,
    };
    if !is_of_key {
        client.close().await?;
        return Ok(report_unknown(arguments.id, key));
    }
    let lease = client.extend(arguments.id, arguments.release_after).await?;
    let end = SystemTime::now() + lease;
    let clamped = lease < arguments.release_after;
    let name = text::printable(key);
    if clamped {
        note_shorter_lease(key, lease, "--release-after");
    }
    let (key, key_hex) = text::json(key);
    let object = ExtendedObject {
        key,
        key_hex,
        id: arguments.id.to_string(),
        remaining_ms: text::milliseconds(lease),
        end_unix_ms: text::milliseconds(end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
        clamped,
    };
    let when = humantime::format_rfc3339_seconds(end);
    show(|| format!("{name}: held until {when}, for {}\n", text::pause(lease)), [object]);
    client.close().await?;
    Ok(Exit::Success)
}
