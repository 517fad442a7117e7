//! `backup` and `restore`: copies of the log of a data directory.
//!
//! `copying` copies the files beside a running server and explains why the copy is complete. `staging` lets a backup appear in one step,
//! `manifest` describes its files, and `checking` checks it. `restoring` makes a data directory of a backup: `plan` decides where fences
//! continue and how long grants wait, `target` writes the directory. `page` and `objects` print the results.

mod apart;
mod arguments;
mod checking;
mod copying;
mod interrupt;
mod manifest;
mod objects;
mod page;
mod plan;
mod problem;
mod restoring;
mod staging;
mod target;

use std::path::Path;
use std::time::SystemTime;

use waymaker_log::{FileName, Superblock};

use crate::exit::Exit;
use crate::log::directory::DataDirectory;
use crate::output::{complain, show};
use crate::text;

pub(crate) use arguments::{BackupArguments, HELP, RESTORE_HELP, RestoreArguments};
pub(crate) use objects::{BackupObject, RestoredObject};

use arguments::BackupCommand;
use checking::Checked;
use copying::{Attempt, Copied};
use interrupt::Interrupt;
use manifest::{FileEntry, MANIFEST_NAME, Manifest, TakenAt};
use problem::{BackupError, failed};
use staging::Staging;

/// Most attempts to copy a log while its server replaces files.
const ATTEMPTS_MAX: u32 = 20;

pub(crate) fn run(arguments: &BackupArguments) -> Exit {
    let done = match (&arguments.command, &arguments.directory) {
        (Some(BackupCommand::Verify(arguments)), _) => {
            Checked::read(&arguments.directory).map(|checked| (arguments.directory.clone(), checked))
        }
        (None, Some(directory)) => {
            back_up(&arguments.data_dir, directory).map(|checked| (directory.clone(), checked))
        }
        (None, None) => unreachable!("clap requires the directory"),
    };
    match done {
        Ok((directory, checked)) => {
            show(|| page::backup(&directory, &checked), [BackupObject::new(&directory, &checked)]);
            Exit::Success
        }
        Err(error) => refuse(&error),
    }
}

pub(crate) fn run_restore(arguments: &RestoreArguments) -> Exit {
    match restoring::restore(arguments) {
        Ok(restored) => {
            show(|| page::restored(&restored), [RestoredObject::new(&restored)]);
            Exit::Success
        }
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &BackupError) -> Exit {
    complain(&text::printable(error.to_string().as_bytes()), error.exit())
}

/// Makes a backup of the log in `data_dir`, and returns it as it was checked.
fn back_up(data_dir: &Path, directory: &Path) -> Result<Checked, BackupError> {
    let interrupt = Interrupt::catch().map_err(failed("catch signals for", directory))?;
    check_log(data_dir)?;
    apart::check(directory, data_dir)?;
    let staging = Staging::begin(directory)?;
    let mut last = String::new();
    for _ in 0..ATTEMPTS_MAX {
        staging.clear().map_err(failed("clear", staging.path()))?;
        let taken_at = TakenAt(SystemTime::now());
        let (before, reason) = match copying::copy(data_dir, &staging, &interrupt)? {
            Attempt::Failed { before, reason } => (before, reason),
            Attempt::Copied(copied) => {
                let look = checking::look_at(staging.path())?;
                match look.problem() {
                    Some(problem) => (Some(copied.before), problem.to_string()),
                    None => {
                        let checked = finish(data_dir, &staging, taken_at, &copied, look.last_lsn)?;
                        interrupt.check()?;
                        staging.publish()?;
                        return Ok(checked);
                    }
                }
            }
        };
        last = reason;
        if let (Some(before), Some(now)) = (before, superblock_of(data_dir)?)
            && !copying::has_moved(&before, &now)
        {
            return Err(BackupError::DamagedLog { directory: data_dir.to_owned(), problem: last });
        }
    }
    let directory = data_dir.to_owned();
    Err(match superblock_of(data_dir)? {
        Some(_) => BackupError::Unsettled { directory, attempts: ATTEMPTS_MAX, last },
        None => BackupError::DamagedLog { directory, problem: last },
    })
}

/// Returns the superblock of a data directory, if it is there and intact.
fn superblock_of(data_dir: &Path) -> Result<Option<Superblock>, BackupError> {
    let bytes = copying::read_superblock(data_dir)?;
    Ok(bytes.and_then(|bytes| Some(Superblock::decode_file(&bytes).ok()?.0)))
}

/// Writes the manifest of copied files that a server would accept, and checks the backup as a whole.
fn finish(
    data_dir: &Path,
    staging: &Staging,
    taken_at: TakenAt,
    copied: &Copied,
    last_lsn: u64,
) -> Result<Checked, BackupError> {
    let manifest = manifest(data_dir, staging, taken_at, copied, last_lsn)?;
    let path = staging.path().join(MANIFEST_NAME);
    staging.write(MANIFEST_NAME, manifest.text().as_bytes()).map_err(failed("write", &path))?;
    Checked::read(staging.path())
}

/// Fails if there is no log in the data directory.
fn check_log(data_dir: &Path) -> Result<(), BackupError> {
    let listing = DataDirectory::new(data_dir).list().map_err(failed("read", data_dir))?;
    let is_fresh = |(file, _): &(FileName, u64)| matches!(file, FileName::Lock | FileName::Temporary(_));
    if listing.files.iter().all(is_fresh) {
        return Err(BackupError::NoLog(data_dir.to_owned()));
    }
    Ok(())
}

fn manifest(
    data_dir: &Path,
    staging: &Staging,
    taken_at: TakenAt,
    copied: &Copied,
    last_lsn: u64,
) -> Result<Manifest, BackupError> {
    let entry = |name: &String| {
        FileEntry::of(staging.path(), name).map_err(failed("read", &staging.path().join(name)))
    };
    Ok(Manifest {
        version: Manifest::version(),
        taken_at: taken_at.text(),
        taken_unix_ms: taken_at.unix_ms(),
        waymaker_ctl: env!("CARGO_PKG_VERSION").to_owned(),
        server: DataDirectory::new(data_dir).user(),
        data_dir: std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned()).display().to_string(),
        log_id: format!("{:016x}", copied.before.log_id),
        generation: copied.before.generation,
        last_lsn,
        files: copied.names.iter().map(entry).collect::<Result<_, _>>()?,
    })
}
