//! The manifest of a backup: its origin, and the checksum of each file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use waymaker_protocol::Hex;

use super::problem::{BackupError, failed};

/// Name of the manifest in the directory of a backup.
pub(super) const MANIFEST_NAME: &str = "manifest.json";
/// Version of the manifest and of the layout of a backup.
const BACKUP_VERSION: u64 = 1;
/// Most bytes of a file that are read at once.
pub(super) const CHUNK_LEN: usize = 64 << 10;

/// The contents of the manifest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Version of the backup.
    pub(super) version: u64,
    /// Time at which the backup began, in RFC 3339 form.
    pub(super) taken_at: String,
    /// The same as Unix time in milliseconds.
    pub(super) taken_unix_ms: u64,
    /// Version of the waymaker-ctl that made the backup.
    pub(super) waymaker_ctl: String,
    /// Description of the server that ran meanwhile, from its file `LOCK`.
    pub(super) server: Option<String>,
    /// Path of the data directory.
    pub(super) data_dir: String,
    /// Id of the log, 16 hexadecimal digits.
    pub(super) log_id: String,
    /// Number of the last start of the server.
    pub(super) generation: u64,
    /// Number of the last frame.
    pub(super) last_lsn: u64,
    /// The files, except the manifest.
    pub(super) files: Vec<FileEntry>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileEntry {
    pub(super) name: String,
    /// Length in bytes.
    pub(super) bytes: u64,
    /// SHA-256 of all bytes, 64 hexadecimal digits.
    pub(super) sha256: String,
}

/// The time at which a backup began.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenAt(pub(super) SystemTime);

impl TakenAt {
    pub(super) fn unix_ms(self) -> u64 {
        let since_1970 = self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn text(self) -> String {
        let whole_ms = SystemTime::UNIX_EPOCH + Duration::from_millis(self.unix_ms());
        humantime::format_rfc3339_millis(whole_ms).to_string()
    }
}

impl Manifest {
    pub(super) fn version() -> u64 {
        BACKUP_VERSION
    }

    pub(super) fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a manifest has text keys only");
        text.push('\n');
        text
    }

    /// Reads the manifest of the backup in this directory.
    pub(super) fn read(directory: &Path) -> Result<Self, BackupError> {
        let path = directory.join(MANIFEST_NAME);
        let text = std::fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                BackupError::NotABackup(directory.to_owned())
            }
            _ => failed("read", &path)(error),
        })?;
        let damaged = |error: serde_json::Error| BackupError::DamagedBackup {
            directory: directory.to_owned(),
            problem: format!("{MANIFEST_NAME}: {error}"),
        };
        // A newer manifest may have other members, so its version is read first.
        #[derive(Deserialize)]
        struct Version {
            version: u64,
        }
        match serde_json::from_slice(&text).map_err(damaged)? {
            Version { version } if version > BACKUP_VERSION => {
                Err(BackupError::NewerBackup { directory: directory.to_owned(), version })
            }
            _ => serde_json::from_slice(&text).map_err(damaged),
        }
    }
}

impl FileEntry {
    /// Reads a file of a backup and describes it.
    pub(super) fn of(directory: &Path, name: &str) -> io::Result<Self> {
        let mut file = File::open(directory.join(name))?;
        let mut hash = Sha256::new();
        let mut chunk = vec![0; CHUNK_LEN];
        let mut bytes = 0;
        loop {
            let len = file.read(&mut chunk)?;
            if len == 0 {
                break;
            }
            hash.update(&chunk[..len]);
            bytes += len as u64;
        }
        let sha256 = Hex(&hash.finalize()).to_string();
        Ok(Self { name: name.to_owned(), bytes, sha256 })
    }
}
