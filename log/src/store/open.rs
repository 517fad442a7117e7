//! Opening a log. The superblock, the current snapshot and the segments after it are read and checked. After that, the
//! superblock is updated with the number of the new server start.

use std::io;
use std::sync::Arc;

use crate::frame::known_versions;
use crate::{
    Damage, FileName, Fold, Found, LastSegment, SUPERBLOCK_FILE_LEN, SegmentHeader, Superblock,
    SuperblockError, Tail,
};

use super::directory::Directory;
use super::keeper;
use super::log::{Log, ObsoleteFiles};
use super::read::{AcceptedLoss, give_up_behind, read_all};
use super::segment_source::{BeginError, begin_segment};
use super::storage::{SegmentFile, Storage};
use super::superblock_file::SuperblockFile;

/// Options for opening a log.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Length of new segments in bytes; see [`SegmentHeader::is_len_valid`].
    pub segment_len: u64,
    /// Random number that identifies the log, used only if the directory has no log yet and one is created.
    pub log_id: u64,
    /// Whether to start even if a segment or the current snapshot is damaged. Such a start keeps the records before the
    /// damage, without an incomplete group at their end, and deletes all later ones. If the current snapshot is
    /// damaged, only the records of the previous one are kept, or none if that cannot be read either. A superblock that
    /// cannot be used, and a file of a newer version, are refused in any case.
    pub accept_damage: bool,
}

/// State of a log that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenResult {
    /// Whether the directory had no log, so that this start created one.
    pub is_new: bool,
    /// Whether the previous server stopped cleanly, and this start accepted no damage. If so, the log has every record
    /// of that server, acknowledged or not.
    pub is_clean: bool,
    /// State of the bytes behind the last frame in the last segment.
    pub tail: Tail,
    /// Number of the last frame, behind which this start appends. This frame and all frames before it are durable. If
    /// the operator accepted damage, some of them may have been dropped.
    pub last_lsn: u64,
    /// Number of this start.
    pub generation: u64,
    /// Whether the log was restored from a backup, and no server has started on it yet.
    pub is_restored: bool,
    /// Whether a copy of the superblock was damaged, missing, or older than the other one, or the file had a wrong
    /// length. Both copies are equal again.
    pub was_superblock_mended: bool,
    /// The loss, if this start accepted damage.
    pub lost: Option<AcceptedLoss>,
    /// Names of entries in the directory that do not belong to the log, without `lost+found`.
    pub foreign: Vec<String>,
}

/// Error in opening a log.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The requested segment length is invalid.
    #[error("log: {0} bytes is not a valid segment length")]
    SegmentLen(u64),
    /// Neither copy of the superblock can be used.
    #[error("log: superblock, byte 0: {0}")]
    Superblock(SuperblockError),
    /// There is a log without its superblock.
    #[error("log: the file superblock is missing, but the directory has other files of a log")]
    NoSuperblock,
    /// A directory entry has the name of a log file, but is something else, for example a directory.
    #[error("log: {0} is not a file; move it out of the data directory, because the server needs this name")]
    NotAFile(FileName),
    /// A newer server wrote this file, or a part of it.
    #[error("log: {file} has format version {version}, but this server reads only {known}; use the newer server", known = known_versions())]
    NewerVersion {
        /// File that the newer server wrote.
        file: FileName,
        /// Format version of the file.
        version: u16,
    },
    /// Durable data is damaged or missing, or cannot be read.
    #[error("log: {0}")]
    Damage(Damage),
    /// The disk has no room for the segment that this start must create.
    #[error(
        "log: no space for another segment: the disk is full, or a quota or the file size limit is reached"
    )]
    NoSpace,
    /// An operation on the data directory failed.
    #[error("log: cannot {doing}: {error}")]
    Io {
        /// The action that failed.
        doing: String,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl From<Damage> for OpenError {
    fn from(damage: Damage) -> Self {
        match damage.newer_version() {
            Some(version) => Self::NewerVersion { file: damage.file(), version },
            None => Self::Damage(damage),
        }
    }
}

fn failed(doing: impl Into<String>) -> impl FnOnce(io::Error) -> OpenError {
    let doing = doing.into();
    move |error| OpenError::Io { doing, error }
}

impl Log {
    /// Opens the log in this directory, to append after its last frame. No other process may use the directory. If the
    /// directory has no log, creates an empty one. Before any file is read, the superblock, the segments and the
    /// snapshots are synced, because an earlier process may have left bytes of them unsynced.
    ///
    /// # Errors
    /// If the state of the files cannot result from a crash, unless the options accept that damage. The error usually
    /// names the file and the byte. If an option is invalid, a newer server wrote the log, or the disk is full or
    /// fails.
    pub fn open<F: Fold>(
        storage: Arc<dyn Storage>,
        options: &OpenOptions,
    ) -> Result<(Self, F, OpenResult), OpenError> {
        if !SegmentHeader::is_len_valid(options.segment_len) {
            return Err(OpenError::SegmentLen(options.segment_len));
        }
        let mut directory = list(&*storage)?;
        if let Some(file) = directory.not_a_file() {
            return Err(OpenError::NotAFile(file));
        }
        let is_new = directory.is_fresh();
        if is_new {
            let superblock =
                Superblock { sequence: 1, log_id: options.log_id, first_segment: 1, ..Default::default() };
            SuperblockFile::create(&*storage, &superblock).map_err(failed("make superblock"))?;
            directory = list(&*storage)?;
        }
        if directory.len_of(FileName::Superblock).is_none() {
            return Err(OpenError::NoSuperblock);
        }
        make_durable(&*storage, &directory)?;
        let bytes = storage.read(&FileName::Superblock.to_string()).map_err(failed("read superblock"))?;
        let (superblock, first) = match Superblock::decode_file(&bytes) {
            Ok(decoded) => decoded,
            Err(SuperblockError::NewerVersion(version)) => {
                return Err(OpenError::NewerVersion { file: FileName::Superblock, version });
            }
            Err(error) => return Err(OpenError::Superblock(error)),
        };
        let was_superblock_mended = first.is_some() || bytes.len() != SUPERBLOCK_FILE_LEN;
        let mut file = SuperblockFile::open(&*storage, superblock, first)
            .map_err(failed("open superblock for writing"))?;

        let (found, lost) = match read_all::<F>(&*storage, &directory, &superblock) {
            Ok(found) => (found, None),
            Err(unread) if !options.accept_damage || unread.damage.newer_version().is_some() => {
                return Err(unread.damage.into());
            }
            Err(unread) => {
                let (found, lost) = give_up_behind(&*storage, &directory, &superblock, unread)
                    .map_err(failed("write a snapshot of the undamaged records"))?;
                (found, Some(lost))
            }
        };
        // The directory is listed again, because the first list (`directory`) may be outdated. If the operator accepted
        // damage, `give_up_behind` has written a snapshot above, and may have used and renamed a temporary file of the
        // first list.
        remove_temporary(&*storage, &list(&*storage)?).map_err(failed("remove temporary files"))?;
        let generation = found.generation.max(superblock.generation) + 1;
        let (segment, segment_file) =
            open_segment(&*storage, &found, superblock.log_id, generation, options.segment_len)?;
        // This update of the superblock writes the last frame and the number of this start. From then on, frames behind
        // the last frame are valid only if this start wrote them. So older bytes behind that frame can no longer be
        // taken for frames.
        file.update(|superblock| {
            superblock.generation = generation;
            superblock.segment_len = options.segment_len;
            superblock.first_segment = found.first_segment;
            superblock.last_segment = segment.header.number;
            superblock.snapshot = found.snapshot;
            superblock.clean_lsn = 0;
            superblock.start = found.position;
            if lost.is_some() {
                // The note of lost records is written in the same update as the new end of the log: after a crash, the
                // next start must see both or neither.
                superblock.note_losses();
            }
        })
        .map_err(failed("write superblock"))?;
        keeper::remove(&*storage, &ObsoleteFiles::behind(file.current()))
            .map_err(failed("remove old files"))?;
        let opened = OpenResult {
            is_new,
            is_clean: superblock.clean_lsn != 0 && lost.is_none(),
            tail: found.tail,
            last_lsn: found.position.lsn,
            generation,
            // A log with a snapshot but without any segment was made by `waymaker-ctl restore`. Servers always have a
            // segment.
            is_restored: superblock.snapshot != 0 && superblock.last_segment == 0,
            was_superblock_mended,
            lost,
            foreign: directory.foreign().to_vec(),
        };
        Ok((Self::new(storage, file, segment, segment_file), found.fold, opened))
    }
}

/// Opens the segment to which the log appends. A new segment is created only if the log has none: a new or restored
/// log, or a log whose damage was accepted. So most starts need no room on the disk.
fn open_segment<F>(
    storage: &dyn Storage,
    found: &Found<F>,
    log_id: u64,
    generation: u64,
    len: u64,
) -> Result<(LastSegment, Box<dyn SegmentFile>), OpenError> {
    if let Some(last) = found.last_segment {
        let name = FileName::Segment(last.header.number).to_string();
        let file = storage.open_segment(&name).map_err(failed(format!("open {name} for writing")))?;
        return Ok((last, file));
    }
    let header =
        SegmentHeader { log_id, number: found.first_segment, generation, len, after: found.position };
    match begin_segment(storage, &header) {
        Ok(file) => Ok((LastSegment { header, end_block: 1 }, file)),
        Err(BeginError::NoSpace) => Err(OpenError::NoSpace),
        Err(BeginError::Failed(error)) => Err(failed("begin a segment")(error)),
    }
}

fn list(storage: &dyn Storage) -> Result<Directory, OpenError> {
    Directory::list(storage).map_err(failed("list the data directory"))
}

/// Syncs the superblock, the segments, the snapshots and the directory before the files are read. Some bytes of an
/// earlier process may be only in the page cache. A crash could lose these bytes after this start has relied on them.
fn make_durable(storage: &dyn Storage, directory: &Directory) -> Result<(), OpenError> {
    for file in directory.files() {
        if matches!(file, FileName::Superblock | FileName::Segment(_) | FileName::Snapshot(_)) {
            let name = file.to_string();
            let sync = || storage.open(&name)?.sync();
            sync().map_err(failed(format!("sync {name}")))?;
        }
    }
    storage.sync_directory().map_err(failed("sync the data directory"))
}

/// Removes temporary files that an earlier process did not complete. No reader uses them, and they take up room on the
/// disk.
fn remove_temporary(storage: &dyn Storage, directory: &Directory) -> io::Result<()> {
    let is_temporary = |file: &FileName| matches!(file, FileName::Temporary(_));
    directory.files().filter(is_temporary).try_for_each(|file| storage.remove(&file.to_string()))
}
