//! Arguments and help of `log`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::exit::{self, Use};

pub(crate) const HELP: &str = "\
DIR is the --data-dir of a server. Nothing in it is changed. No server is needed,
and a server that uses DIR is not disturbed; what it writes meanwhile may be
missing in the output. A server also starts on an empty directory, so the exit
code is 0 if DIR contains no log.

Examples:
  Show what a server would find if it started now:
      waymaker-ctl log inspect /var/lib/waymaker/data
  Show every record of one key:
      waymaker-ctl log inspect /var/lib/waymaker/data --records | grep key=backup
  Print the holds for a program:
      waymaker-ctl log inspect /var/lib/waymaker/data --json | jq 'select(.about == \"hold\")'
  Check a copy:
      cp -r /var/lib/waymaker/data /backup/ && waymaker-ctl log verify /backup/data";

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Print the contents of a data directory: its files, the end of the log, and the holds
    #[command(after_help = exit::after(HELP, &[Use::Directory]))]
    Inspect(InspectArguments),
    /// Check whether a server would start on a data directory; if not, name the damaged file and byte
    #[command(after_help = exit::after(HELP, &[Use::Directory]))]
    Verify(VerifyArguments),
}

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// Data directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Print every record first, with the number, file and byte of its frame
    #[arg(long)]
    pub(crate) records: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Data directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}
