//! Reasons why there is no backup, or why it is not restored.

use std::io;
use std::path::PathBuf;

use nix::sys::signal::Signal;

use crate::exit::Exit;
use crate::text;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    /// The data directory has no log.
    #[error("{0} has no log; pass the data directory of the server with --data-dir")]
    NoLog(PathBuf),
    /// A server would not start on the data directory.
    #[error("{directory}: {problem}; a server would not start from this log, so it was not backed up")]
    DamagedLog { directory: PathBuf, problem: String },
    /// The server changed its files during every attempt.
    #[error(
        "{directory}: the server replaced files of the log during {attempts} attempts ({last}); try again"
    )]
    Unsettled { directory: PathBuf, attempts: u32, last: String },
    /// A directory that must be new has contents.
    #[error("{0} is not empty; choose a directory that does not exist or is empty")]
    NotEmpty(PathBuf),
    /// A backup and a data directory would have each other's files.
    #[error("{directory} is inside {other}; choose a directory outside it")]
    Inside { directory: PathBuf, other: PathBuf },
    /// There is something else instead of a directory.
    #[error("{0} is not a directory; choose a directory that does not exist or is empty")]
    NotADirectory(PathBuf),
    /// The directory has no manifest.
    #[error("{0} is not a backup: it has no file manifest.json")]
    NotABackup(PathBuf),
    /// A newer version made the backup.
    #[error(
        "{directory}: the backup has version {version}, but this waymaker-ctl reads only 1; use the newer one"
    )]
    NewerBackup { directory: PathBuf, version: u64 },
    /// The bytes of the backup have changed since it was made.
    #[error("{directory}: the backup is damaged: {problem}; use another backup")]
    DamagedBackup { directory: PathBuf, problem: String },
    /// The data directory to restore has a log.
    #[error(
        "{directory} already has files of a log ({file}); restore to an empty directory, or move them away first"
    )]
    HasLog { directory: PathBuf, file: String },
    /// The data directory to restore has files that do not belong to a log.
    #[error(
        "{directory} has other files ({file}); restore to the data_dir of the server, which must be empty"
    )]
    HasFiles { directory: PathBuf, file: String },
    /// A server uses the data directory.
    #[error("{directory} is in use ({user}); stop that server, or restore to another directory")]
    InUse { directory: PathBuf, user: String },
    /// The clock would make fences repeat.
    #[error(
        "the clock of this machine shows {now}, but {reason}: fences could repeat; set the clock, or pass --fences-above with a \
         fence above any that was ever issued"
    )]
    Clock { now: String, reason: String },
    /// A fence is so large that programs would round it.
    #[error("fences would begin above {0}; the maximum is 2^53, above which JSON programs round numbers")]
    FencesTooLarge(u64),
    /// A file could not be read or written.
    #[error("cannot {doing}: {error}{}", advice(.error))]
    Io { doing: String, error: io::Error },
    /// The command was interrupted.
    #[error("interrupted by {0}; nothing was kept")]
    Interrupted(Signal),
}

/// Returns the end of a message that says what to do.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space, then try again",
        io::ErrorKind::FileTooLarge => "; raise the limit on the length of files (ulimit -f), then try again",
        io::ErrorKind::PermissionDenied => "; run the command as the user of the server",
        _ => "",
    }
}

/// Returns a function that adds the failed step and the path to an error of the system.
pub(super) fn failed(doing: &str, path: &std::path::Path) -> impl Fn(io::Error) -> BackupError {
    let doing = format!("{doing} {}", text::printable(text::bytes(path.as_os_str())));
    move |error| BackupError::Io { doing: doing.clone(), error }
}

impl BackupError {
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::DamagedLog { .. } | Self::DamagedBackup { .. } | Self::NewerBackup { .. } => Exit::Damaged,
            Self::Io { .. } | Self::Unsettled { .. } => Exit::Internal,
            Self::Interrupted(signal) => Exit::Signal(*signal as u8),
            Self::NoLog(_)
            | Self::NotEmpty(_)
            | Self::Inside { .. }
            | Self::NotADirectory(_)
            | Self::NotABackup(_)
            | Self::HasLog { .. }
            | Self::HasFiles { .. }
            | Self::InUse { .. }
            | Self::Clock { .. }
            | Self::FencesTooLarge(_) => Exit::Usage,
        }
    }
}
