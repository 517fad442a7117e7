//! Log that one thread writes: it appends frames to segments and updates the superblock.

use std::io;
use std::sync::Arc;

use crate::{
    BLOCK_LEN, BadRecord, Damage, Durable, FRAME_LIMIT, Fence, FileName, Fold, FrameFields, LastSegment,
    Origin, Position, Record, Records, SegmentHeader, SnapshotHeader, Source, Superblock, frame,
    write_records,
};

use super::directory::Directory;
use super::keeper;
use super::open::OpenError;
use super::read::read_all;
use super::segment_source::{BeginError, begin_segment};
use super::storage::{SegmentFile, Storage, is_no_space};
use super::superblock_file::SuperblockFile;

/// Reason for which records were not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The records are longer than [`Log::records_limit`], or `records` does not contain exactly `record_count`
    /// records. Nothing was written.
    #[error("log: the records do not fit in one frame")]
    NoFrame,
    /// The disk has no room for the next segment or snapshot. No record was written. The caller may repeat the call of
    /// [`Log::append`].
    #[error("log: no space for another segment")]
    NoSpace,
    /// The disk failed, in this call or an earlier one. Frames that were not durable before the failure may be lost.
    /// The log refuses all further writes.
    #[error("log: {0}")]
    Failed(#[from] io::Error),
}

/// Result of appending one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendedFrame {
    /// Number of the frame that has the records.
    pub lsn: u64,
    /// Whether the frame is the first one in a new segment. If so, the previous segment can now be compacted, and
    /// another segment must be created for later use.
    pub is_new_segment: bool,
}

/// Plan of a compaction: which old files are folded into a new snapshot. Frames that are appended later do not change
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionPlan {
    /// Id of the log.
    pub log_id: u64,
    /// Number of the server start that makes the plan.
    pub generation: u64,
    /// Number of the previous snapshot, from which the new one begins; 0 if there is none.
    pub previous_snapshot: u64,
    /// Number of the first segment that is not in the previous snapshot.
    pub first_segment: u64,
    /// Number of the last segment whose records go into the new snapshot.
    pub last_segment: u64,
}

/// Segments and snapshots that the log no longer needs, because a newer snapshot contains their records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObsoleteFiles {
    /// The segments before the one with this number are obsolete.
    pub segments_before: u64,
    /// The snapshots with other numbers than these two are obsolete.
    pub snapshots_except: [u64; 2],
}

/// A log to which one thread appends.
pub struct Log {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) superblock: SuperblockFile,
    file: Box<dyn SegmentFile>,
    header: SegmentHeader,
    /// Number of the block in which the next frame begins.
    next_block: u64,
    position: Position,
    /// Last frame that this start found when it opened the log.
    start: Position,
    /// Number of the last frame that is synced.
    synced_lsn: u64,
    /// Last frame of the last flush, and when that flush became durable; frame 0 before the first flush.
    flushed: Durable,
    /// Buffer for the frame that is being built, kept to reuse its memory.
    frame: Vec<u8>,
    failed: Option<Failure>,
}

#[derive(Clone, Debug)]
struct Failure {
    kind: io::ErrorKind,
    text: String,
}

impl Log {
    /// Returns a log that appends to this segment, after the frame that the superblock names. `file` is the open file
    /// of the segment.
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

    /// Appends one frame of records, each preceded by its length (`u32`, little endian). The frame is durable only when
    /// [`flush`](Self::flush) has returned. The header of each frame tells recovery which frame the last flush made
    /// durable, and when. A frame without records is allowed, for its header alone.
    ///
    /// # Errors
    /// If the records form no valid frame, there is no room for another segment, or the disk failed.
    pub fn append(&mut self, records: &[u8], record_count: u32) -> Result<AppendedFrame, AppendError> {
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
        Ok(AppendedFrame { lsn: fields.lsn, is_new_segment })
    }

    /// Makes every appended frame durable. `now_ms` reads the boot-time clock after the sync. Returns the last durable
    /// frame and that time; the header of the next frame contains both.
    ///
    /// # Errors
    /// If the disk failed, now or before. The process must then end: no record that was not durable may be
    /// acknowledged.
    pub fn flush(&mut self, now_ms: impl FnOnce() -> u64) -> io::Result<Durable> {
        self.sync()?;
        if self.flushed.lsn != self.position.lsn {
            self.flushed = Durable { lsn: self.position.lsn, at_ms: now_ms().max(self.flushed.at_ms) };
        }
        Ok(self.flushed)
    }

    /// Returns the last frame of the last flush, and when that flush became durable; frame 0 before the first flush.
    pub fn flushed(&self) -> Durable {
        self.flushed
    }

    /// Returns the number of the last frame that was appended.
    pub fn last_lsn(&self) -> u64 {
        self.position.lsn
    }

    /// Returns the maximum number of bytes of records, with their lengths, in one frame.
    pub fn records_limit(&self) -> usize {
        // A frame must also fit into the next segment, which may be shorter than the current one if the configured
        // length has changed.
        let segment_len = self.header.len.min(self.superblock().segment_len) as usize;
        frame::payload_limit(FRAME_LIMIT.min(segment_len - BLOCK_LEN))
    }

    /// Returns the contents of the superblock.
    pub fn superblock(&self) -> &Superblock {
        self.superblock.current()
    }

    /// Returns the number of full segments that could be compacted: those before the current segment that are not in
    /// the snapshot.
    pub fn sealed_segments(&self) -> u64 {
        self.header.number - self.superblock().first_segment
    }

    /// Raises the fence floor in the superblock to at least this value. The floor is durable when this function
    /// returns.
    ///
    /// # Errors
    /// If the disk failed, now or before.
    pub fn raise_floor(&mut self, fence_floor: Fence) -> io::Result<()> {
        if fence_floor <= self.superblock().fence_floor {
            return self.check();
        }
        self.update(|superblock| superblock.fence_floor = fence_floor)
    }

    /// Notes in the superblock that leases of up to this length may be granted. The note is durable when this function
    /// returns.
    ///
    /// # Errors
    /// If the disk failed, now or before.
    pub fn note_longest_lease(&mut self, lease_ms: u64) -> io::Result<()> {
        if lease_ms <= self.superblock().longest_lease_ms {
            return self.check();
        }
        self.update(|superblock| superblock.longest_lease_ms = lease_ms)
    }

    /// Writes to the superblock that holds may have been lost. Until [`end_losses`](Self::end_losses) is called, each
    /// server start raises all fences. It also refuses grants for as long as the longest lease lasts.
    ///
    /// # Errors
    /// If the disk failed, now or before.
    pub fn note_losses(&mut self) -> io::Result<()> {
        self.update(Superblock::note_losses)
    }

    /// Removes the note of lost holds from the superblock, because all holds that may have been lost have expired.
    ///
    /// # Errors
    /// If the disk failed, now or before.
    pub fn end_losses(&mut self) -> io::Result<()> {
        self.update(|superblock| superblock.losses = None)
    }

    /// Returns the plan for a compaction of all full segments; `None` if there are none.
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

    /// Names the snapshot that [`super::keeper::compact`] wrote for this plan in the superblock. Returns the files that
    /// may now be removed. The previous snapshot is not among them: it stays until the next compaction.
    ///
    /// # Errors If the disk failed, now or before, or if another compaction finished first.
    pub fn compacted(&mut self, plan: &CompactionPlan) -> io::Result<ObsoleteFiles> {
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
        Ok(ObsoleteFiles::behind(self.superblock()))
    }

    /// Makes all frames durable, appends a last frame without records, and writes the number of that frame to the
    /// superblock. If this start has appended no frame, and the log is not empty, the frame that it found is the last
    /// one. If the log of the next start ends with the last frame, no record is missing. Returns the log, which is
    /// ended.
    ///
    /// # Errors
    /// If the disk failed, now or before; [`AppendError::NoSpace`] if the last frame found no room. Frames
    /// that were durable stay so.
    pub fn close_clean(mut self, now_ms: impl FnOnce() -> u64) -> Result<Self, AppendError> {
        self.flush(now_ms)?;
        // If this start wrote no frame, no last frame is appended: the superblock already says that the frame which the
        // start found is durable. An empty log still gets a frame, because the number 0 in the superblock means that
        // there was no clean stop.
        if self.position != self.start || self.position.lsn == 0 {
            self.append(&[], 0)?;
            self.sync()?;
        }
        let clean_lsn = self.position.lsn;
        self.update(|superblock| superblock.clean_lsn = clean_lsn)?;
        Ok(self)
    }

    /// Replaces all files of an ended log by a snapshot, so that damage to these files no longer matters. `contents`
    /// provides records that give the same state as the log, each without its length field. Returns the log.
    ///
    /// # Errors
    /// If the disk failed, now or before; [`AppendError::NoSpace`] if the snapshot or the segment after it
    /// found no room. Frames that were durable stay so.
    pub fn replace(mut self, contents: &mut Source<'_>) -> Result<Self, AppendError> {
        // A new segment is begun first, because the current one may be the damaged file.
        self.begin_next_segment()?;
        let (snapshot, segment) = (self.write_contents(contents)?, self.header.number);
        self.update(|superblock| {
            superblock.snapshot = snapshot;
            superblock.first_segment = segment;
        })?;
        Ok(self)
    }

    /// Checks that the next start would find this log: the directory must still contain the superblock that this log
    /// wrote last. If files were replaced while the server ran, its last writes went to the replaced files.
    ///
    /// # Errors
    /// If the next start would not find it.
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

    /// Reads an ended log in the same way as the next start will, to check that it is not damaged.
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

    /// Writes a snapshot with these records. Once the superblock names it, it replaces all frames of the log, including
    /// the last one that was appended. Returns the number of the snapshot.
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
        // All frames are synced first, because the header of the next segment says that the frames before it are
        // durable. This sync does not change `flushed`, the position and time from which recovery begins leases: they
        // begin only when a whole flush is durable.
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
        // The superblock names this segment before a frame is written to it. So the next start notices if the file is
        // missing.
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

    /// Returns the failure that ended this log, if there was one.
    fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some(failure) => Err(io::Error::new(failure.kind, failure.text.clone())),
            None => Ok(()),
        }
    }

    /// Returns this result. Remembers the first failure, and with it the log refuses all further writes. After a failed
    /// sync, the next sync of the same file may succeed although data was lost.
    fn keep<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| Failure { kind: error.kind(), text: error.to_string() });
        }
        result
    }
}

impl ObsoleteFiles {
    /// Returns which files are no longer needed: segments that are in the snapshot, and all snapshots but the current
    /// and the previous one.
    pub(super) fn behind(superblock: &Superblock) -> Self {
        let snapshot = superblock.snapshot;
        Self {
            segments_before: superblock.first_segment,
            snapshots_except: [snapshot, snapshot.saturating_sub(1)],
        }
    }

    /// Returns whether this file is no longer needed.
    pub(super) fn contains(&self, file: FileName) -> bool {
        match file {
            FileName::Segment(number) => number < self.segments_before,
            FileName::Snapshot(number) => !self.snapshots_except.contains(&number),
            _ => false,
        }
    }
}

/// Fold that checks that each record can be decoded, and keeps no state.
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
