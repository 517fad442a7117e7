//! Reads a data directory by the rules of a server that starts.

use std::io::{self, IsTerminal};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use waymaker_client::NamespaceKind;
use waymaker_log::{
    Copy, FileName, FileReader, Found, SegmentHeader, SnapshotHeader, Superblock, SuperblockError, Tail,
    Unread, read_log,
};

use super::directory::{DataDirectory, Listing};
use super::problem::Problem;
use super::reader::{Reader, RecordSink};

/// Most attempts to read a directory that a server changes at the same time.
const LOOKS_MAX: u32 = 20;

/// The contents of a data directory.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) directory: DataDirectory,
    /// Description of the server that uses the directory.
    pub(crate) user: Option<String>,
    pub(crate) listing: Listing,
    pub(crate) superblock: Option<Superblock>,
    /// Copy of the superblock that is damaged, or older than the other one, as after a crash.
    pub(crate) bad_copy: Option<Copy>,
    /// Frames and records before the first damage.
    pub(crate) reader: Reader,
    /// Number of the last frame.
    pub(crate) last_lsn: u64,
    outcome: Outcome,
}

/// Outcome of a start of a server on this directory.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// There is no log yet; a server would create one.
    Fresh,
    /// All durable records are present.
    Whole(Tail),
    /// The server would not start.
    Problem(Problem),
}

impl Look {
    /// Reads the directory. If a server changes it at the same time, reads it again, unless the sink has received records.
    pub(crate) fn at(path: &Path, mut sink: Option<RecordSink>) -> io::Result<Self> {
        let is_repeatable = sink.is_none();
        let mut looks = 1;
        loop {
            let before = DataDirectory::new(path).read(FileName::Superblock, false).ok();
            let look = Self::once(path, before.as_deref(), sink.take())?;
            let after = || look.directory.read(FileName::Superblock, false).ok();
            if look.problem().is_none() || !is_repeatable || looks == LOOKS_MAX || after() == before {
                return Ok(look);
            }
            looks += 1;
        }
    }

    /// Reads a directory whose superblock, with these bytes, is kept elsewhere.
    pub(crate) fn with_superblock(path: &Path, superblock: &[u8]) -> io::Result<Self> {
        Self::once(path, Some(superblock), None)
    }

    /// Returns the reason why a server would not start.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        if let Outcome::Problem(problem) = &self.outcome { Some(problem) } else { None }
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Returns whether the server stopped cleanly, so that the log contains all its state.
    pub(crate) fn is_clean(&self) -> bool {
        self.superblock.is_some_and(|superblock| superblock.clean_lsn != 0)
    }

    /// Returns the header of a segment, if it is valid.
    pub(crate) fn segment_header(&self, number: u64) -> Option<SegmentHeader> {
        let block = self.directory.read_block(FileName::Segment(number)).ok()?;
        SegmentHeader::decode(&block).ok()
    }

    /// Returns the header of a snapshot, if it is valid.
    pub(crate) fn snapshot_header(&self, number: u64) -> Option<SnapshotHeader> {
        let block = self.directory.read_block(FileName::Snapshot(number)).ok()?;
        SnapshotHeader::decode(&block).ok()
    }

    /// Reads the directory once. `superblock` must be read before the names of the files, so that the names include all files that it
    /// refers to.
    fn once(path: &Path, superblock: Option<&[u8]>, sink: Option<RecordSink>) -> io::Result<Self> {
        let directory = DataDirectory::new(path);
        let user = directory.user();
        let listing = directory.list()?;
        let mut look = Self {
            directory,
            user,
            listing,
            superblock: None,
            bad_copy: None,
            reader: Reader::default(),
            last_lsn: 0,
            outcome: Outcome::Fresh,
        };
        look.outcome = look.read(superblock, sink);
        Ok(look)
    }

    fn read(&mut self, superblock: Option<&[u8]>, sink: Option<RecordSink>) -> Outcome {
        if let Some(file) = self.listing.not_a_file {
            return Outcome::Problem(Problem::NotAFile(file));
        }
        let is_fresh = |(file, _): &(FileName, u64)| matches!(file, FileName::Lock | FileName::Temporary(_));
        let Some(bytes) = superblock else {
            let is_fresh = self.listing.files.iter().all(is_fresh);
            return if is_fresh { Outcome::Fresh } else { Outcome::Problem(Problem::NoSuperblock) };
        };
        let (superblock, first) = match Superblock::decode_file(bytes) {
            Ok(decoded) => decoded,
            Err(error) => return Outcome::Problem(Problem::Superblock(error)),
        };
        self.superblock = Some(superblock);
        self.bad_copy = first;
        let segments = self.listing.files.iter().filter_map(|(file, len)| match file {
            FileName::Segment(number) => Some((*number, *len)),
            _ => None,
        });
        let newest = segments.clone().map(|(number, _)| number).max().unwrap_or(0);
        let counting = segments.filter(|(number, _)| *number >= superblock.first_segment);
        let progress = progress_bar(counting.map(|(_, len)| len).sum());
        let directory = &self.directory;
        let mut read = |file| {
            let is_last = matches!(file, FileName::Segment(number) if number >= superblock.last_segment);
            let bytes = directory.read(file, is_last)?;
            progress.inc(bytes.len() as u64);
            Ok(Box::new(bytes) as Box<dyn FileReader>)
        };
        let read = read_log(&superblock, newest, Reader::new(sink), &mut read);
        progress.finish_and_clear();
        match read {
            Ok(Found { fold, position, tail, .. }) => {
                (self.reader, self.last_lsn) = (fold.without_sink(), position.lsn);
                let contradiction =
                    || self.reader.image.contradictions().into_iter().next().map(Problem::Contradiction);
                self.unknown_kind().or_else(contradiction).map_or(Outcome::Whole(tail), Outcome::Problem)
            }
            Err(Unread { fold, position, damage }) => {
                (self.reader, self.last_lsn) = (fold.without_sink(), position.lsn);
                Outcome::Problem(Problem::Damage(damage))
            }
        }
    }

    fn unknown_kind(&self) -> Option<Problem> {
        let mut namespaces = self.reader.image.namespaces();
        let (namespace, kind, _) =
            namespaces.find(|(_, kind, _)| usize::from(*kind) >= NamespaceKind::ALL.len())?;
        Some(Problem::UnknownKind { namespace, kind })
    }
}

impl Problem {
    /// Whether the data is of a newer format instead of damaged.
    pub(crate) fn is_newer(&self) -> bool {
        match self {
            Self::Superblock(error) => matches!(error, SuperblockError::NewerVersion(_)),
            Self::Damage(damage) => damage.newer_version().is_some(),
            Self::UnknownKind { .. } => true,
            Self::NotAFile(_) | Self::NoSuperblock | Self::Contradiction(_) => false,
        }
    }
}

/// Returns a progress bar. It is hidden without a terminal and for a log that is read quickly.
pub(crate) fn progress_bar(len: u64) -> ProgressBar {
    const SOON_READ: u64 = 256 << 20;
    if len < SOON_READ || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {bytes} of {total_bytes}");
    ProgressBar::new(len).with_style(style.expect("a constant template"))
}
