//! `tokens`: makes, lists and revokes the tokens of clients. No server is needed.
//!
//! `files` finds and changes token files. `waymaker-access` defines their format and the text of a token.

mod create;
mod files;
mod list;
mod revoke;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};

use crate::exit::{self, Exit, Use};
use crate::output::complain;

pub(crate) use create::CreatedObject;
pub(crate) use list::TokenObject;
pub(crate) use revoke::RevokedObject;

use create::CreateArguments;
use files::Failure;
use list::ListArguments;
use revoke::RevokeArguments;

pub(crate) const HELP: &str = "\
A client proves its identity to the server with a token. The server reads token
files, which contain the SHA-256 of each secret but no secret. PATH is one file
with all tokens, or a directory with *.toml files; in a directory, `create` makes
a file for each token. A new file has mode 0600 and belongs to the caller. The
user that runs the server must be able to read it.

`create` prints the token once, and nothing else on stdout. Store it in a file
that only the client can read, and name the file with --token-file.

Examples:
  Make a token for the service `billing`, valid for 90 days:
      waymaker-ctl tokens create billing --file tokens.toml --expires 90d > billing.token
  Use it:
      waymaker-ctl --token-file billing.token locks list
  List the tokens; revoke one:
      waymaker-ctl tokens list --file tokens.toml
      waymaker-ctl tokens revoke 0f3a9c5d7e1b2468 --file tokens.toml";

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Make a token for an identity, and print it
    #[command(after_help = exit::after(HELP, &[Use::Local]))]
    Create(CreateArguments),
    /// List the tokens of a file or directory, ordered by identity
    #[command(after_help = exit::after(HELP, &[Use::Local]))]
    List(ListArguments),
    /// Remove a token, so that the server refuses it from its next reload on
    #[command(after_help = exit::after(HELP, &[Use::Revoke, Use::Local]))]
    Revoke(RevokeArguments),
}

#[derive(Debug, Args)]
pub(crate) struct FileArguments {
    /// Token file, or directory with token files
    #[arg(long = "file", value_name = "PATH")]
    path: PathBuf,
}

pub(crate) fn run(command: &TokensCommand) -> Exit {
    let result = match command {
        TokensCommand::Create(arguments) => create::run(arguments),
        TokensCommand::List(arguments) => list::run(arguments),
        TokensCommand::Revoke(arguments) => revoke::run(arguments),
    };
    result.unwrap_or_else(|failure: Failure| complain(&failure.to_string(), failure.exit()))
}

fn unix_seconds() -> u64 {
    // A clock before 1970 is wrong; every token is then new.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
