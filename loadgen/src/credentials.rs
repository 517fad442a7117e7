//! Token of the clients of a load.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use waymaker_client::Credentials;

use crate::address::Address;

/// Environment variable with the token itself.
const TOKEN_VARIABLE: &str = "WAYMAKER_TOKEN";

/// Token for targets that authenticate their clients.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options for targets with tokens")]
pub struct TokenOptions {
    /// waymaker, grpc, locktopus: file with the token of the clients. No option takes the token itself, because other users can read the command line
    /// [default: the token in the variable WAYMAKER_TOKEN]
    #[arg(long, env = "WAYMAKER_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

impl TokenOptions {
    /// Reads the token. Other systems than Waymaker never get it.
    pub fn credentials(&self, target: &Address) -> Result<Credentials> {
        let accepts_tokens = target.system.is_ours();
        match &self.token_file {
            Some(_) if !accepts_tokens => {
                bail!(
                    "--token-file: {target} accepts no tokens; use waymaker://, grpc:// or \
                     locktopus://HOST:PORT"
                )
            }
            Some(file) => Ok(Credentials::from_file(file)?),
            None if accepts_tokens => {
                let token = std::env::var_os(TOKEN_VARIABLE).unwrap_or_default();
                Ok(Credentials::new(token.as_encoded_bytes().trim_ascii()))
            }
            None => Ok(Credentials::default()),
        }
    }
}
