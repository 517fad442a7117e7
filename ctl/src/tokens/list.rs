//! `tokens list`.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_access::TokenRecord;

use super::files::{Failure, TokenFiles};
use super::{FileArguments, unix_seconds};
use crate::exit::Exit;
use crate::output::show;
use crate::text;

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    place: FileArguments,
}

/// A token of a file.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Token")]
pub(crate) struct TokenObject {
    /// Id of the token.
    id: String,
    /// Identity of the client.
    identity: String,
    /// Groups of the identity.
    groups: Vec<String>,
    /// Time at which the token was made, in RFC 3339 form.
    created: String,
    /// Time from which the token is refused, in RFC 3339 form. Absent if the token does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    /// Whether the token has expired.
    has_expired: bool,
    /// Text for operators; may be empty.
    note: String,
    /// Token file that has the record.
    file: String,
}

pub(super) fn run(arguments: &ListArguments) -> Result<Exit, Failure> {
    let table = TokenFiles::at(&arguments.place.path)?.read()?;
    let mut records: Vec<_> = table.records().collect();
    records.sort_by(|one, other| one.identity.cmp(&other.identity).then(one.created.cmp(&other.created)));
    let now = unix_seconds();
    let file = |record: &TokenRecord| table.file_of(record.id).unwrap_or_default().to_owned();
    show(
        || text::table(TITLE, records.iter().map(|record| row(record, now))),
        records.iter().map(|record| object(record, file(record), now)),
    );
    Ok(Exit::Success)
}

const TITLE: [&str; 6] = ["ID", "IDENTITY", "GROUPS", "CREATED", "EXPIRES", "NOTE"];

fn row(record: &TokenRecord, now: u64) -> [String; 6] {
    let expires = match record.expires {
        None => "never".to_owned(),
        Some(expires) if record.has_expired(now) => format!("expired {expires}"),
        Some(expires) => expires.to_string(),
    };
    let printable = |text: &str| text::printable(text.as_bytes());
    let groups = if record.groups.is_empty() { "-".to_owned() } else { printable(&record.groups.join(",")) };
    [
        record.id.to_string(),
        printable(&record.identity),
        groups,
        record.created.to_string(),
        expires,
        printable(&record.note),
    ]
}

fn object(record: &TokenRecord, file: String, now: u64) -> TokenObject {
    TokenObject {
        id: record.id.to_string(),
        identity: record.identity.clone(),
        groups: record.groups.clone(),
        created: record.created.to_string(),
        expires: record.expires.map(|expires| expires.to_string()),
        has_expired: record.has_expired(now),
        note: record.note.clone(),
        file,
    }
}
