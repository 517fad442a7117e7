//! The command line of `log`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) const EXAMPLES: &str = "\
DIR is what a server was given as --data-dir. Nothing in it is changed, and no
server is needed. One may run on it: it is not disturbed, and what it does
meanwhile may be missing.

Examples:
  What a server would find if it started now:
      waymaker-ctl log inspect /var/lib/waymaker
  Every record, to see what became of one key:
      waymaker-ctl log inspect /var/lib/waymaker --records | grep key=backup
  The holds, for a program:
      waymaker-ctl log inspect /var/lib/waymaker --output json | jq 'select(.about == \"hold\")'
  Check a copy before it is put away:
      cp -r /var/lib/waymaker /backup/ && waymaker-ctl log verify /backup/waymaker

Exit codes:
  0    a server would start on it
  1    it would not: the file and the byte are named
  125  wrong usage, or DIR cannot be read";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print what is in a data directory: its files, how the log ends, and what is held
    #[command(after_help = EXAMPLES)]
    Inspect(InspectArguments),
    /// Say whether a server would start on a data directory, and if not, what is damaged and where
    #[command(after_help = EXAMPLES)]
    Verify(VerifyArguments),
}

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// The data directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// First print every record, with the number of its frame, and the file and byte at which that begins
    #[arg(long)]
    pub(crate) records: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// The data directory
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}
