//! Arguments and help of `backup` and `restore`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::exit::{self, Use};
use crate::values;

pub(crate) const HELP: &str = "\
Run it on the machine of the server, as the user of the server. The server may
run meanwhile. The backup has every change that the server confirmed before the
command began. It has no counters of quorum scope, which are in etcd, and neither
certificates nor tokens. Only its owner can read it.

DIR appears complete or not at all. A server does not start on a backup:
`waymaker-ctl restore` makes a data directory of it.

Examples:
  Make a backup, and print its contents:
      waymaker-ctl backup /backup/waymaker --data-dir /var/lib/waymaker/data
  Make one each night, with the date in its name:
      waymaker-ctl backup /backup/waymaker-$(date +%F) --data-dir /var/lib/waymaker/data
  Check a backup:
      waymaker-ctl backup verify /backup/waymaker";

pub(crate) const RESTORE_HELP: &str = "\
Stop the old server first, and keep it stopped. Run the command as the user of the
server. BACKUP does not change, and DATA_DIR gets a new log.

The old server may have granted locks after the backup. Therefore:
  - All fences continue above any fence that a server issued before the restore.
    The bound follows from the clock of this machine, so the clock must be right.
  - The next start of the server refuses new grants (`recovering`) until the
    longest lease has expired. /readyz shows the remaining time.
  - Holds in the backup get their full lease again. They may have ended since, so
    a key can stay blocked until the lease expires.

Examples:
  Show what would be restored:
      waymaker-ctl restore /backup/waymaker /var/lib/waymaker/data --dry-run
  Restore, and start the server:
      waymaker-ctl restore /backup/waymaker /var/lib/waymaker/data
      systemctl start waymaker
  Restore if clients use leases of up to an hour:
      waymaker-ctl restore /backup/waymaker /var/lib/waymaker/data --longest-lease 1h";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BackupArguments {
    /// Directory of the backup, which must not exist or be empty
    #[arg(value_name = "DIR", required = true)]
    pub(crate) directory: Option<PathBuf>,
    /// Data directory of the server
    #[arg(
        long,
        env = "WAYMAKER_DATA_DIR",
        hide_env_values = true,
        default_value = "waymaker-data",
        value_name = "PATH"
    )]
    pub(crate) data_dir: PathBuf,
    #[command(subcommand)]
    pub(crate) command: Option<BackupCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Check a backup, and show its contents
    #[command(after_help = exit::after(HELP, &[Use::Backup]))]
    Verify(VerifyArguments),
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Directory of the backup
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// Directory of the backup
    #[arg(value_name = "BACKUP")]
    pub(crate) backup: PathBuf,
    /// Data directory to make, which must not have a log
    #[arg(value_name = "DATA_DIR")]
    pub(crate) data_dir: PathBuf,
    /// Check everything and show the result, but write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Longest lease that the old server can have granted, also after the backup; grants wait for it [default: the longest lease before
    /// the backup, at least 1m]
    #[arg(long, value_parser = values::limit, value_name = "TIME")]
    pub(crate) longest_lease: Option<Duration>,
    /// Let fences begin above this one instead of a bound from the clock
    #[arg(long, value_name = "FENCE")]
    pub(crate) fences_above: Option<u64>,
    /// Restore no hold that has a lease, so that no client can renew a hold that has ended since
    #[arg(long)]
    pub(crate) drop_holds: bool,
}
