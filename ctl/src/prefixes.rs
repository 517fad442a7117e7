//! `prefixes`: stops and resumes the grants of keys with a prefix.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_client::{FreezeOutcome, Result};

use crate::connection::{Connection, connect};
use crate::exit::{self, Exit, Use};
use crate::kind::{self, Kind};
use crate::output::{complain_of, show};
use crate::{text, values};

pub(crate) const HELP: &str = "\
While a prefix is frozen, holds stay and can be renewed, waiters continue to
wait, and requests that do not wait are refused.

Examples:
  Stop all new grants below eu/, and resume them:
      waymaker-ctl prefixes freeze eu/ --reason 'the region moves'
      waymaker-ctl prefixes thaw eu/
  Stop all grants of permits:
      waymaker-ctl prefixes freeze --kind pool ''";

#[derive(Debug, Subcommand)]
pub(crate) enum PrefixesCommand {
    /// Stop new grants of all keys that begin with a prefix
    #[command(after_help = exit::after(&format!("{HELP}\n\n{}", kind::HELP), &[Use::Request]))]
    Freeze(PrefixArguments),
    /// Resume the grants of a frozen prefix
    #[command(after_help = exit::after(&format!("{HELP}\n\n{}", kind::HELP), &[Use::Request]))]
    Thaw(PrefixArguments),
}

#[derive(Debug, Args)]
pub(crate) struct PrefixArguments {
    /// First bytes of the keys; '' is the whole namespace, the only prefix that a tree accepts
    #[arg(value_parser = values::prefix())]
    prefix: OsString,
    /// Kind of the keys
    #[arg(long, value_enum, default_value = "flat", value_name = "KIND")]
    kind: Kind,
    /// Reason, for the server's audit log [default: none]
    #[arg(long, value_parser = values::reason, value_name = "TEXT")]
    reason: Option<String>,
}

/// A prefix that was frozen or thawed.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Prefix")]
pub(crate) struct PrefixObject {
    /// Prefix; empty for the whole namespace.
    prefix: String,
    /// Hexadecimal digits of the prefix. Present only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix_hex: Option<String>,
    /// Whether the prefix is frozen now.
    is_frozen: bool,
    /// Whether the command changed that.
    changed: bool,
    /// Number of frozen prefixes of the namespace.
    frozen_count: u16,
}

pub(crate) async fn run(connection: &Connection, command: &PrefixesCommand) -> Exit {
    let result = match command {
        PrefixesCommand::Freeze(arguments) => set(connection, arguments, true).await,
        PrefixesCommand::Thaw(arguments) => set(connection, arguments, false).await,
    };
    result.map_or_else(|error| complain_of(&error), |()| Exit::Success)
}

async fn set(connection: &Connection, arguments: &PrefixArguments, is_frozen: bool) -> Result<()> {
    let client = connect(connection).await?;
    let operator =
        client.operator(arguments.kind.into()).reason(arguments.reason.as_deref().unwrap_or_default());
    let prefix = text::bytes(&arguments.prefix);
    let outcome = if is_frozen { operator.freeze(prefix).await? } else { operator.thaw(prefix).await? };
    show(|| sentence(prefix, is_frozen, outcome), [object(prefix, is_frozen, outcome)]);
    client.close().await
}

fn sentence(prefix: &[u8], is_frozen: bool, outcome: FreezeOutcome) -> String {
    let state = match (is_frozen, outcome.changed) {
        (true, true) => "frozen",
        (true, false) => "already frozen",
        (false, true) => "thawed",
        (false, false) => "not frozen",
    };
    let prefix = if prefix.is_empty() { "the whole namespace".into() } else { text::printable(prefix) };
    format!("{prefix}: {state}; frozen prefixes: {}\n", outcome.frozen_count)
}

fn object(prefix: &[u8], is_frozen: bool, outcome: FreezeOutcome) -> PrefixObject {
    let FreezeOutcome { changed, frozen_count } = outcome;
    let (prefix, prefix_hex) = text::json(prefix);
    PrefixObject { prefix, prefix_hex, is_frozen, changed, frozen_count }
}
