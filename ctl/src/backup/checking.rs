//! Checks a backup: its manifest, the checksum of each file, and the log by the rules of a server that starts.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use waymaker_log::{BACKUP_SUPERBLOCK_NAME, Superblock, Tail};

use super::manifest::{FileEntry, MANIFEST_NAME, Manifest};
use super::problem::{BackupError, failed};
use crate::log::look::{Look, Outcome};

/// A backup whose log a server would accept.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) manifest: Manifest,
    pub(super) superblock: Superblock,
    pub(super) look: Look,
}

impl Checked {
    /// Checks the backup in this directory.
    pub(super) fn read(directory: &Path) -> Result<Self, BackupError> {
        let manifest = Manifest::read(directory)?;
        let damaged =
            |problem: String| BackupError::DamagedBackup { directory: directory.to_owned(), problem };
        for entry in &manifest.files {
            check_length(directory, entry)?.map_err(damaged)?;
        }
        let look = look_at(directory)?;
        if let Some(problem) = look.problem() {
            return Err(damaged(problem.to_string()));
        }
        let Some(superblock) = look.superblock else {
            return Err(damaged(format!("{BACKUP_SUPERBLOCK_NAME} is missing")));
        };
        let end = end_of(&look, &superblock);
        for entry in &manifest.files {
            let found = FileEntry::of(directory, &entry.name)
                .map_err(failed("read", &directory.join(&entry.name)))?;
            if found != *entry {
                // The log is intact up to its end. So other bytes behind the end differ, or one copy of the superblock.
                let place = match look.bad_copy {
                    Some(copy) if entry.name == BACKUP_SUPERBLOCK_NAME => {
                        format!("{}, byte {}: ", entry.name, copy.offset())
                    }
                    _ if end.starts_with(&entry.name) => end,
                    _ => format!("{}: ", entry.name),
                };
                return Err(damaged(format!("{place}the SHA-256 of the file differs from manifest.json")));
            }
        }
        let in_manifest = (manifest.log_id.as_str(), manifest.generation, manifest.last_lsn);
        if in_manifest != (&*format!("{:016x}", superblock.log_id), superblock.generation, look.last_lsn) {
            return Err(damaged(format!("{MANIFEST_NAME} does not describe this log")));
        }
        Ok(Self { manifest, superblock, look })
    }

    /// Returns how many sessions have holds.
    pub(super) fn session_count(&self) -> usize {
        let tags = self.look.reader.image.holds().filter_map(|hold| hold.session);
        tags.map(|tag| (tag.place, tag.secret)).collect::<BTreeSet<_>>().len()
    }
}

/// Reads the log of a backup, whose superblock has another name than in a data directory.
pub(super) fn look_at(directory: &Path) -> Result<Look, BackupError> {
    let path = directory.join(BACKUP_SUPERBLOCK_NAME);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failed("read", &path)(error)),
    };
    Look::with_superblock(directory, &bytes).map_err(failed("read", directory))
}

/// Looks whether a file is there with its length. The inner error describes the damage.
fn check_length(directory: &Path, entry: &FileEntry) -> Result<Result<(), String>, BackupError> {
    let path = directory.join(&entry.name);
    let (name, expected) = (&entry.name, entry.bytes);
    match std::fs::metadata(&path) {
        Ok(about) if about.len() == expected => Ok(Ok(())),
        Ok(about) => {
            let actual = about.len();
            Ok(Err(format!("{name}, byte {actual}: the file ends here, but it had {expected} bytes")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Err(format!("{name} is missing"))),
        Err(error) => Err(failed("read", &path)(error)),
    }
}

/// Returns the place behind the last frame, for a message: `FILE, byte OFFSET: `. Empty if nothing is behind it.
fn end_of(look: &Look, superblock: &Superblock) -> String {
    let offset = match look.outcome() {
        Outcome::Whole(Tail::Torn { offset } | Tail::OutOfOrder { offset, .. }) => *offset,
        _ => return String::new(),
    };
    let segment = waymaker_log::FileName::Segment(superblock.last_segment);
    format!("{segment}, byte {offset}: ")
}
