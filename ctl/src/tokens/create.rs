//! `tokens create`.

use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_access::{Timestamp, Token, TokenRecord};
use zeroize::Zeroizing;

use super::files::{Failure, TokenFiles};
use super::{FileArguments, unix_seconds};
use crate::exit::Exit;
use crate::output::{note, show};
use crate::{text, values};

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// Identity of the client: a name of at most 256 bytes
    #[arg(value_name = "IDENTITY")]
    identity: String,
    #[command(flatten)]
    place: FileArguments,
    /// Group of the identity; can be given several times
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Time until the token expires
    #[arg(long, value_parser = values::limit, default_value = "365d", value_name = "TIME", conflicts_with = "no_expiry")]
    expires: Duration,
    /// Make a token that does not expire
    #[arg(long)]
    no_expiry: bool,
    /// Text for operators, such as the purpose of the token
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    note: String,
}

/// A token that was made.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Created token")]
pub(crate) struct CreatedObject {
    /// The token. It is not shown again.
    token: String,
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
    /// Token file that has the record.
    file: String,
}

pub(super) fn run(arguments: &CreateArguments) -> Result<Exit, Failure> {
    let mut random = Zeroizing::new([0; Token::RANDOM_LEN]);
    getrandom::fill(&mut *random).map_err(|error| Failure::NoRandomness(error.to_string()))?;
    let token = Token::from_random(&random);
    let record = record(arguments, &token, unix_seconds());
    record.check()?;
    let files = TokenFiles::at(&arguments.place.path)?;
    let file = files.add(&record)?;
    let file = file.display().to_string();
    let text = token.text();
    let is_printed = show(|| format!("{}\n", text.as_str()), [object(&record, &text, &file)]);
    if !is_printed {
        // The secret is lost, so the record has no use. `output::finish` reports the failure.
        files.remove(record.id)?;
        return Ok(Exit::Internal);
    }
    let end = record.expires.map_or("without an end".to_owned(), |expires| format!("until {expires}"));
    let (id, identity) = (record.id, text::printable(record.identity.as_bytes()));
    note(&format!("token {id} of {identity}, valid {end}, is in {file}; its secret is not shown again"));
    Ok(Exit::Success)
}

fn record(arguments: &CreateArguments, token: &Token, now: u64) -> TokenRecord {
    let expires = (!arguments.no_expiry).then(|| now.saturating_add(arguments.expires.as_secs().max(1)));
    TokenRecord {
        id: token.id,
        identity: arguments.identity.clone(),
        groups: arguments.groups.clone(),
        secret_sha256: token.secret.digest(),
        created: Timestamp::from_unix_seconds(now),
        expires: expires.map(Timestamp::from_unix_seconds),
        note: arguments.note.clone(),
    }
}

fn object(record: &TokenRecord, token: &str, file: &str) -> CreatedObject {
    CreatedObject {
        token: token.to_owned(),
        id: record.id.to_string(),
        identity: record.identity.clone(),
        groups: record.groups.clone(),
        created: record.created.to_string(),
        expires: record.expires.map(|expires| expires.to_string()),
        file: file.to_owned(),
    }
}
