//! The log, for the one thread that appends to it.

use std::io;
use std::sync::Arc;

use waymaker_engine::log::{
    BLOCK_LEN, BadRecord, Damage, Durable, FRAME_LIMIT, FileName, Fold, FrameFields, LastSegment, Origin,
    Position, Record, Records, SegmentHeader, SnapshotHeader, Source, Superblock, frame, write_records,
};

use super::directory::Directory;
use super::keeper;
use super::open::OpenError;
use super::read::read_all;
use super::segment_source::{BeginError, begin_segment};
use super::storage::{SegmentFile, Storage, is_no_space};
use super::superblock_file::SuperblockFile;

/// Why records were not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// They are more bytes than [`Log::records_limit`], or not as many records as was said. Nothing was written.
    #[error("log: the records do not fit in one frame")]
    NoFrame,
    /// The next segment cannot be made. Nothing was written, and the same can be tried again.
    #[error("log: no space for another segment")]
    NoSpace,
    /// The disk failed, now or before. What was not durable then may be lost, and nothing more is written.
    #[error("log: {0}")]
    Failed(#[from] io::Error),
}

/// Frames that were appended by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The frame that has the records.
    pub lsn: u64,
    /// It is the first of a new segment: the spare was used, and there is one more segment to compact.
    pub is_new_segment: bool,
}

/// What a compaction has to do. It stays right whatever is appended meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionPlan {
    /// The log.
    pub log_id: u64,
    /// The start of the server.
    pub generation: u64,
    /// The snapshot to begin from; 0 if there is none.
    pub previous_snapshot: u64,
    /// The first segment that is not in it.
    pub first_segment: u64,
    /// The last segment to be folded in.
    pub last_segment: u64,
}

/// Files that nothing needs any more, beside temporary ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// Segments before this one.
    pub segments_before: u64,
    /// Snapshots other than these two numbers.
    pub snapshots_except: [u64; 2],
}

/// A log to which one thread appends.
pub struct Log {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) superblock: SuperblockFile,
    file: Box<dyn SegmentFile>,
    header: SegmentHeader,
    /// Where the next frame goes.
    next_block: u64,
    position: Position,
    /// The last frame that was found when the log was opened.
    start: Position,
    /// The last frame that is synced.
    synced_lsn: u64,
    /// The end of the last flush; frame 0 before the first one.
    flushed: Durable,
    /// The frame that is being built, so that its memory is used again.
    frame: Vec<u8>,
    failed: Option<Failure>,
}

#[derive(Clone, Debug)]
struct Failure {
    kind: io::ErrorKind,
    text: String,
}

impl Log {
    /// A log that continues in this segment, which is open in `file`, behind the frame that the superblock names.
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        superblock: SuperblockFile,
        segment: LastSegment,
        file: Box<dyn SegmentFile>,
    ) -> Self {
        let start = superblock.current().start;
        Self {
            storage,
            superblock,
            file,
            header: segment.header,
            next_block: segment.end_block.into(),
            position: start,
            start,
            synced_lsn: start.lsn,
            flushed: Durable::default(),
            frame: Vec::new(),
            failed: None,
        }
    }

    /// Appends one frame of records, each behind its length (`u32`, little endian). It is durable only when
    /// [`flush`](Self::flush) has returned. A frame without records is allowed: it tells recovery that the frames before it
    /// were durable, and since when.
    ///
    /// # Errors
    /// If they make no frame, there is no room for another segment, or the disk failed.
    pub fn append(&mut self, records: &[u8], record_count: u32) -> Result<Written, AppendError> {
        self.check()?;
        if records.len() > self.records_limit() || Records::check(records, record_count).is_none() {
            return Err(AppendError::NoFrame);
        }
        let len = frame::frame_len(records.len()) as u64;
        let is_new_segment = self.next_block * BLOCK_LEN as u64 + len > self.header.len;
        if is_new_segment {
            self.begin_next_segment()?;
        }
        let fields = FrameFields {
            lsn: self.position.lsn + 1,
            durable: self.flushed,
            block: self.next_block as u32,
            previous: self.position.checksum,
        };
        let SegmentHeader { log_id, number, .. } = self.header;
        let origin = Origin::segment(log_id, number, self.superblock().generation);
        let checksum = frame::encode(&origin, &fields, records, record_count, &mut self.frame);
        let result = self.file.write_at(self.next_block * BLOCK_LEN as u64, &self.frame);
        self.keep(result)?;
        self.next_block += len / BLOCK_LEN as u64;
        self.position = Position { lsn: fields.lsn, checksum };
        Ok(Written { lsn: fields.lsn, is_new_segment })
    }

    /// Makes every frame durable that was appended. `now_ms` reads the boot-time clock once that is done. The next frame says
    /// what this returns.
    ///
    /// # Errors
    /// If the disk failed, now or before. The process must end then: nothing that was not durable may be acknowledged.
    pub fn flush(&mut self, now_ms: impl FnOnce() -> u64) -> io::Result<Durable> {
        self.sync()?;
        if self.flushed.lsn != self.position.lsn {
            self.flushed = Durable { lsn: self.position.lsn, at_ms: now_ms().max(self.flushed.at_ms) };
        }
        Ok(self.flushed)
    }

    /// The end of the last flush; frame 0 before the first one.
    pub fn flushed(&self) -> Durable {
        self.flushed
    }

    /// The highest frame that was appended.
    pub fn last_lsn(&self) -> u64 {
        self.position.lsn
    }

    /// The most bytes of records, with their lengths, that one frame can have.
    pub fn records_limit(&self) -> usize {
        // The next segment may be shorter than the one of an earlier start.
        let segment_len = self.header.len.min(self.superblock().segment_len) as usize;
        frame::payload_limit(FRAME_LIMIT.min(segment_len - BLOCK_LEN))
    }

    /// What is in the superblock.
    pub fn superblock(&self) -> &Superblock {
        self.superblock.current()
    }

    /// How many segments before the one that is appended to are not in a snapshot.
    pub fn sealed_segments(&self) -> u64 {
        self.header.number - self.superblock().first_segment
    }

    /// Raises the floor of fences to at least this, durably.
    ///
    /// # Errors
    /// If the disk failed, now or before.
    pub fn raise_floor(&mut self, fence_floor: u64) -> io::Result<()> {
        if fence_floor <= self.superblock().fence_floor {
            return self.check();
        }
        self.update(|superblock| superblock.fence_floor = fence_floor)
    }

    /// Notes that a lease of this length may be granted, durably.
    ///
    /// # Errors
    /// If the disk failed, now or before.
    pub fn note_longest_lease(&mut self, lease_ms: u64) -> io::Result<()> {
        if lease_ms <= self.superblock().longest_lease_ms {
            return self.check();
        }
        self.update(|superblock| superblock.longest_lease_ms = lease_ms)
    }

    /// Notes, durably, that records were given up.
    ///
    /// # Errors
    /// If the disk failed, now or before.
    pub fn note_losses(&mut self) -> io::Result<()> {
        self.update(Superblock::note_losses)
    }

    /// Notes, durably, that all holds that may have been lost have expired.
    ///
    /// # Errors
    /// If the disk failed, now or before.
    pub fn end_losses(&mut self) -> io::Result<()> {
        self.update(|superblock| superblock.losses = None)
    }

    /// What a compaction would do now; `None` if there is nothing to fold in.
    pub fn compaction_plan(&self) -> Option<CompactionPlan> {
        let superblock = self.superblock();
        (self.sealed_segments() > 0).then(|| CompactionPlan {
            log_id: superblock.log_id,
            generation: superblock.generation,
            previous_snapshot: superblock.snapshot,
            first_segment: superblock.first_segment,
            last_segment: self.header.number - 1,
        })
    }

    /// Makes the snapshot count that [`super::keeper::compact`] wrote for this plan, and says what may be removed now.
    /// The previous snapshot stays for one round.
    ///
    /// # Errors
    /// If the disk failed, now or before.
    pub fn compacted(&mut self, plan: &CompactionPlan) -> io::Result<Dead> {
        self.check()?;
        let superblock = self.superblock();
        if (plan.previous_snapshot, plan.first_segment) != (superblock.snapshot, superblock.first_segment) {
            return Err(io::Error::other("another compaction finished first"));
        }
        let (snapshot, first_segment) = (plan.previous_snapshot + 1, plan.last_segment + 1);
        self.update(|superblock| {
            superblock.snapshot = snapshot;
            superblock.first_segment = first_segment;
        })?;
        Ok(Dead::behind(self.superblock()))
    }

    /// Ends the log so that the next start knows that nothing is missing. All frames are durable then. Returns the ended log.
    ///
    /// # Errors
    /// If the disk failed, now or before; [`AppendError::NoSpace`] if the last frame found no room. Frames that were durable stay so.
    pub fn close_clean(mut self, now_ms: impl FnOnce() -> u64) -> Result<Self, AppendError> {
        self.flush(now_ms)?;
        // A start without any frame leaves nothing behind that would need a last one.
        if self.position != self.start || self.position.lsn == 0 {
            self.append(&[], 0)?;
            self.sync()?;
        }
        let clean_lsn = self.position.lsn;
        self.update(|superblock| superblock.clean_lsn = clean_lsn)?;
        Ok(self)
    }

    /// Replaces all files of an ended log by a snapshot, so damage to them does not matter any more. `contents` hands out records, each
    /// without its length, that add up to the same as the log. Returns the log.
    ///
    /// # Errors
    /// If the disk failed, now or before; [`AppendError::NoSpace`] if the snapshot or the segment behind it found no room. Frames that
    /// were durable stay so.
    pub fn replace(mut self, contents: &mut Source<'_>) -> Result<Self, AppendError> {
        // The segment in use may be the damaged file.
        self.begin_next_segment()?;
        let (snapshot, segment) = (self.write_contents(contents)?, self.header.number);
        self.update(|superblock| {
            superblock.snapshot = snapshot;
            superblock.first_segment = segment;
        })?;
        Ok(self)
    }

    /// Looks whether the next start would find this log: its directory, and in it its superblock. If they were replaced, the server
    /// still wrote to the old files.
    ///
    /// # Errors
    /// If it would not.
    pub fn find(&self) -> io::Result<()> {
        if let Some(file) = Directory::list(&*self.storage)?.not_a_file() {
            return Err(io::Error::other(OpenError::NotAFile(file)));
        }
        let bytes = self.storage.read(&FileName::Superblock.to_string())?;
        match Superblock::decode_file(&bytes) {
            Ok((found, _)) if found == *self.superblock() => Ok(()),
            _ => Err(io::Error::other("the file superblock was replaced while the server ran")),
        }
    }

    /// Reads an ended log as the next start will.
    ///
    /// # Errors
    /// If that start would refuse it.
    pub fn verify(&self) -> Result<(), Damage> {
        let unreadable = |error: io::Error| Damage::Unreadable {
            file: FileName::Superblock,
            reason: format!("the data directory: {error}"),
        };
        let directory = Directory::list(&*self.storage).map_err(unreadable)?;
        match read_all::<Verified>(&*self.storage, &directory, self.superblock()) {
            Ok(_) => Ok(()),
            Err(unread) => Err(unread.damage),
        }
    }

    /// Writes a snapshot that covers all frames. Returns its number.
    fn write_contents(&self, contents: &mut Source<'_>) -> Result<u64, AppendError> {
        let superblock = self.superblock();
        let header = SnapshotHeader {
            log_id: superblock.log_id,
            number: superblock.snapshot + 1,
            generation: superblock.generation,
            covers: self.position,
            next_segment: self.header.number,
        };
        let mut write = |out: &mut dyn FnMut(&[u8])| write_records(&header, contents, out);
        match keeper::write_snapshot(&*self.storage, header.number, &mut write) {
            Ok(()) => Ok(header.number),
            Err(error) if is_no_space(&error) => Err(AppendError::NoSpace),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.check()?;
        if self.synced_lsn != self.position.lsn {
            let result = self.file.sync();
            self.keep(result)?;
            self.synced_lsn = self.position.lsn;
        }
        Ok(())
    }

    fn begin_next_segment(&mut self) -> Result<(), AppendError> {
        // The header of the next segment says that everything before it is durable. The flush goes on.
        self.sync()?;
        let header = SegmentHeader {
            log_id: self.header.log_id,
            number: self.header.number + 1,
            generation: self.superblock().generation,
            len: self.superblock().segment_len,
            after: self.position,
        };
        let file = match begin_segment(&*self.storage, &header) {
            Ok(file) => file,
            Err(BeginError::NoSpace) => return Err(AppendError::NoSpace),
            Err(BeginError::Failed(error)) => return Err(self.keep::<()>(Err(error)).unwrap_err().into()),
        };
        // So that a start misses this segment if it is gone.
        self.update(|superblock| superblock.last_segment = header.number)?;
        self.file = file;
        self.header = header;
        self.next_block = 1;
        Ok(())
    }

    fn update(&mut self, change: impl FnOnce(&mut Superblock)) -> io::Result<()> {
        self.check()?;
        let result = self.superblock.update(change);
        self.keep(result)
    }

    /// The failure that ended this log, if there was one.
    fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some(failure) => Err(io::Error::new(failure.kind, failure.text.clone())),
            None => Ok(()),
        }
    }

    /// Remembers the first failure for ever: after a failed sync, a later one succeeds although data is gone.
    fn keep<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| Failure { kind: error.kind(), text: error.to_string() });
        }
        result
    }
}

impl Dead {
    /// What nothing needs beside this superblock.
    pub(super) fn behind(superblock: &Superblock) -> Self {
        let snapshot = superblock.snapshot;
        Self {
            segments_before: superblock.first_segment,
            snapshots_except: [snapshot, snapshot.saturating_sub(1)],
        }
    }

    /// Whether nothing needs this file.
    pub(super) fn contains(&self, file: FileName) -> bool {
        match file {
            FileName::Segment(number) => number < self.segments_before,
            FileName::Snapshot(number) => !self.snapshots_except.contains(&number),
            _ => false,
        }
    }
}

/// Decodes each record and keeps none.
#[derive(Debug, Default)]
struct Verified;

impl Fold for Verified {
    type Error = BadRecord;

    fn apply(&mut self, _lsn: u64, record: &[u8]) -> Result<(), BadRecord> {
        Record::decode(record).map(drop)
    }

    fn durable(&mut self, _durable: Durable) {}

    fn write(&self, _out: &mut dyn FnMut(&[u8])) {}
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("superblock", self.superblock())
            .field("position", &self.position)
            .field("flushed", &self.flushed)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
