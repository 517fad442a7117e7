//! Opening a log: all files are read and checked, then the superblock says where this start continues.

use std::io;
use std::sync::Arc;

use waymaker_engine::log::{
    Damage, FileName, Fold, Found, LastSegment, Losses, SUPERBLOCK_FILE_LEN, SegmentHeader, Superblock,
    SuperblockError, Tail,
};

use waymaker_engine::log::frame::known_versions;

use super::directory::Directory;
use super::keeper;
use super::log::{Dead, Log};
use super::read::{Lost, give_up_behind, read_all};
use super::segment_source::{BeginError, begin_segment};
use super::storage::{SegmentFile, Storage};
use super::superblock_file::SuperblockFile;

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// The bytes of new segments; see [`SegmentHeader::is_len_valid`].
    pub segment_len: u64,
    /// A random number for the log, if there is none yet.
    pub log_id: u64,
    /// Whether to go on behind damage with what is whole before it. What comes behind it is deleted.
    pub accept_damage: bool,
}

/// What was found when a log was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// There was no log.
    pub is_new: bool,
    /// The server was stopped cleanly: nothing is missing, not even what was never acknowledged.
    pub is_clean: bool,
    /// How the last segment ended.
    pub tail: Tail,
    /// The last frame that was read. All up to it are durable.
    pub last_lsn: u64,
    /// The number of this start.
    pub generation: u64,
    /// The log was restored from a backup, and no server has started on it yet.
    pub is_restored: bool,
    /// One copy of the superblock was damaged, or older after a crash. It is whole again.
    pub was_superblock_mended: bool,
    /// What was lost, if damage was accepted by this start.
    pub lost: Option<Lost>,
    /// What this start has to make up for, also if an earlier one accepted the damage.
    pub losses: Option<Losses>,
    /// The names of files in the directory that are no part of the log.
    pub foreign: Vec<String>,
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The length asked for cannot be that of a segment.
    #[error("log: {0} bytes is not a valid segment length")]
    SegmentLen(u64),
    /// No copy of the superblock can be used.
    #[error("log: superblock, byte 0: {0}")]
    Superblock(SuperblockError),
    /// There is a log without its superblock.
    #[error("log: the file superblock is missing, but the directory has other files of a log")]
    NoSuperblock,
    /// An entry of the directory has the name of a file of the log and is something else.
    #[error("log: {0} is not a file; move it out of the data directory, because the server needs this name")]
    NotAFile(FileName),
    /// A newer server wrote this.
    #[error("log: {file} has format version {version}, but this server reads only {known}; use the newer server", known = known_versions())]
    NewerVersion {
        /// The file.
        file: FileName,
        /// Its version.
        version: u16,
    },
    /// Something that was durable is damaged or gone.
    #[error("log: {0}")]
    Damage(Damage),
    /// There is no room to begin a segment.
    #[error(
        "log: no space for another segment: the disk is full, or a quota or the file size limit is reached"
    )]
    NoSpace,
    /// The disk failed.
    #[error("log: cannot {doing}: {error}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
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
    /// Opens the log in this directory, which nobody else may use, to append behind its last frame. An empty directory becomes an
    /// empty log. Before anything else all that was written by an earlier process is made durable.
    ///
    /// # Errors
    /// If anything is there that a crash cannot explain, each case naming the file and the byte; or the disk fails.
    pub fn open<F: Fold>(
        storage: Arc<dyn Storage>,
        options: &OpenOptions,
    ) -> Result<(Self, F, Opened), OpenError> {
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
        // Listed anew: a snapshot of what is whole may have taken the place of an older temporary file.
        remove_temporary(&*storage, &list(&*storage)?).map_err(failed("remove temporary files"))?;
        let generation = found.generation.max(superblock.generation) + 1;
        let (segment, segment_file) =
            open_segment(&*storage, &found, superblock.log_id, generation, options.segment_len)?;
        // From here on frames of this start count, and older bytes behind the last frame do not.
        file.update(|superblock| {
            superblock.generation = generation;
            superblock.segment_len = options.segment_len;
            superblock.first_segment = found.first_segment;
            superblock.last_segment = segment.header.number;
            superblock.snapshot = found.snapshot;
            superblock.clean_lsn = 0;
            superblock.start = found.position;
            if lost.is_some() {
                // Together with the truncation: a start that comes after a crash must know of both or of none.
                superblock.note_losses();
            }
        })
        .map_err(failed("write superblock"))?;
        keeper::remove(&*storage, &Dead::behind(file.current())).map_err(failed("remove old files"))?;
        let opened = Opened {
            is_new,
            is_clean: superblock.clean_lsn != 0 && lost.is_none(),
            tail: found.tail,
            last_lsn: found.position.lsn,
            generation,
            // Only `waymaker-ctl restore` leaves a snapshot without any segment.
            is_restored: superblock.snapshot != 0 && superblock.last_segment == 0,
            was_superblock_mended,
            lost,
            losses: file.current().losses,
            foreign: directory.foreign().to_vec(),
        };
        Ok((Self::new(storage, file, segment, segment_file), found.fold, opened))
    }
}

/// Opens the segment that the log continues in. Only a log without segments begins one, so a start needs no room.
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

/// What is read must be what stays: an earlier process may have left some of it in the cache.
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

/// What was being made when an earlier process ended takes up room and means nothing.
fn remove_temporary(storage: &dyn Storage, directory: &Directory) -> io::Result<()> {
    let is_temporary = |file: &FileName| matches!(file, FileName::Temporary(_));
    directory.files().filter(is_temporary).try_for_each(|file| storage.remove(&file.to_string()))
}
