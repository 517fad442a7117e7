//! `tokens revoke`.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use waymaker_access::TokenId;

use super::FileArguments;
use super::files::{Failure, TokenFiles};
use crate::exit::Exit;
use crate::output::{complain, show};

#[derive(Debug, Args)]
pub(crate) struct RevokeArguments {
    /// Id of the token: the 16 digits after `wm_`
    #[arg(value_name = "ID")]
    id: TokenId,
    #[command(flatten)]
    place: FileArguments,
}

/// A token that was removed.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Revoked token")]
pub(crate) struct RevokedObject {
    /// Id of the token.
    id: String,
    /// Token file that had the record.
    file: String,
}

pub(super) fn run(arguments: &RevokeArguments) -> Result<Exit, Failure> {
    let RevokeArguments { id, place } = arguments;
    let Some(file) = TokenFiles::at(&place.path)?.remove(*id)? else {
        return Ok(complain(&format!("{}: there is no token {id}", place.path.display()), Exit::Absent));
    };
    let file = file.display().to_string();
    show(
        || format!("{id}: removed from {file}\n"),
        [RevokedObject { id: id.to_string(), file: file.clone() }],
    );
    Ok(Exit::Success)
}
