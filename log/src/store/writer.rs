//! Conversion of batches from workers to frames of the log.

use super::committer::FoldableSegments;
use super::port::LogBatch;
use super::{AppendError, CompactionPlan, Log, ObsoleteFiles};
use crate::split::{Payload, split_batch};
use crate::{Fence, Record, Started, Time};
use std::collections::{BTreeMap, VecDeque};
use std::{io, iter};

/// Length of the field before a record that contains its length, in bytes.
const RECORD_LENGTH_LEN: usize = 4;
/// Distance by which the floor in the superblock is raised above the fences of a batch, so that few batches write the
/// superblock.
const FLOOR_STEP: u64 = 1 << 20;

/// Appends the batches of workers, one group after the other.
///
/// Batches that arrive while a group is synced form the next group. The lease of a claim that waits for its record in a
/// group begins when the sync of the group has ended. The next frame contains this instant, so a restart knows it.
#[derive(Debug)]
pub struct LogWriter {
    log: Log,
    /// Clocks of this start.
    started: Started,
    /// Frames that are still to be appended.
    frames: VecDeque<Payload>,
    /// Maximum number of bytes of records in a frame, if it is lower than the limit of the log.
    records_max: usize,
    /// Whether records were appended since the last sync.
    has_unsynced_records: bool,
    /// Whether the last frame still needs a successor that confirms it as durable.
    is_unconfirmed: bool,
    /// Number of the last record of each shard; a shard without records is absent.
    numbers: BTreeMap<u16, u64>,
}

impl LogWriter {
    /// Starts the writer of a log that was just opened. It first writes a `Started` record and then these records. If
    /// the disk has no room, they stay in memory, and [`append`](Self::append) writes them before any batch. `now`
    /// reads the clock.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn start(
        log: Log,
        started: Started,
        records: &[Record<'_>],
        now: impl Fn() -> Time,
    ) -> Result<Self, AppendError> {
        let mut writer = Self {
            log,
            started,
            frames: VecDeque::new(),
            records_max: usize::MAX,
            has_unsynced_records: false,
            is_unconfirmed: false,
            numbers: BTreeMap::new(),
        };
        // Each record has a batch of its own, so that they form no group: a start record drops the group that it is in.
        let batch = |record| {
            let mut batch = LogBatch::<()>::default();
            batch.add(record);
            batch
        };
        let first = Record::Started(started);
        writer.take(&iter::once(&first).chain(records).map(batch).collect::<Vec<_>>())?;
        match writer.append() {
            Ok(_) => _ = writer.sync(now)?,
            Err(AppendError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        Ok(writer)
    }

    /// Limits the bytes of records in a frame further, so that few records need several frames. For tests.
    pub fn limit_records(&mut self, records_max: usize) {
        self.records_max = records_max;
    }

    /// Returns the number of segments that are not in a snapshot.
    pub fn segment_count(&self) -> u64 {
        self.log.sealed_segments() + 1
    }

    /// Returns the clocks of this start.
    pub fn started(&self) -> Started {
        self.started
    }

    /// Returns whether frames wait to be appended, because they found no room.
    pub fn waits_for_room(&self) -> bool {
        !self.frames.is_empty()
    }

    /// Converts some batches to frames, for [`LogWriter::append`].
    ///
    /// # Errors
    /// If the disk failed.
    pub fn take<W>(&mut self, batches: &[LogBatch<W>]) -> io::Result<()> {
        let limit = self.log.records_limit().min(self.records_max);
        for batch in batches.iter().filter(|batch| batch.record_count > 0) {
            self.check_numbers(batch);
            self.raise_bounds(batch)?;
            if batch.records.len() > limit {
                let frames = &mut self.frames;
                split_batch(&batch.records, batch.record_count, limit, &mut |frame| frames.push_back(frame));
                continue;
            }
            match self.frames.back_mut() {
                Some(frame) if frame.bytes.len() + batch.records.len() <= limit => {
                    frame.bytes.extend_from_slice(&batch.records);
                    frame.count += batch.record_count;
                }
                _ => {
                    self.frames
                        .push_back(Payload { bytes: batch.records.clone(), count: batch.record_count });
                }
            }
        }
        Ok(())
    }

    /// Appends all frames that `take` made. Returns whether a segment was begun. An earlier failed call of this
    /// function may have begun segments too.
    ///
    /// # Errors
    /// [`AppendError::NoSpace`]: all frames are kept, and the call can be repeated. Otherwise the disk
    /// failed, and no record may be acknowledged any more.
    pub fn append(&mut self) -> Result<bool, AppendError> {
        let mut is_new_segment = false;
        while let Some(frame) = self.frames.front() {
            is_new_segment |= self.log.append(&frame.bytes, frame.count)?.is_new_segment;
            self.has_unsynced_records |= frame.count > 0;
            self.frames.pop_front();
        }
        Ok(is_new_segment)
    }

    /// Makes all appended frames durable. `now` reads the clock. Returns the instant since which they are durable.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn sync(&mut self, now: impl Fn() -> Time) -> io::Result<Time> {
        if self.log.flushed().lsn < self.log.last_lsn() {
            // If the last frame has records, a later frame must say that it is durable. Otherwise recovery takes damage
            // to it for a torn write, and drops its records. A frame without records has none to lose.
            self.is_unconfirmed = std::mem::take(&mut self.has_unsynced_records);
        }
        let durable = self.log.flush(|| now().as_millis())?;
        Ok(Time::from_millis(durable.at_ms))
    }

    /// Adds a frame without records if the last frame still needs a successor that confirms it as durable. Recovery
    /// can then distinguish damage to the last frame from a torn end.
    pub fn add_confirmation(&mut self) {
        // Frames that found no room are appended later, and confirm the last frame as well.
        if self.is_unconfirmed && self.frames.is_empty() {
            self.frames.push_back(Payload::default());
        }
    }

    /// Returns whether the last frame needs no later frame that confirms it as durable, because it has no records.
    pub fn is_confirmed(&self) -> bool {
        !self.is_unconfirmed
    }

    /// Ends the log in order. If the next start would refuse its files, a snapshot replaces them. `write` provides
    /// the records of the snapshot, which must result in the same state as the log after the start record. `now` reads
    /// the clock.
    ///
    /// # Errors
    /// If the disk failed or is full. If the directory contains another log now; then no file is replaced.
    pub fn close(
        self,
        now: impl Fn() -> Time,
        write: impl Fn(&mut dyn FnMut(&Record<'_>)),
    ) -> Result<(), AppendError> {
        let log = self.log.close_clean(|| now().as_millis())?;
        log.find()?;
        // Verify only after `close_clean`. Without the mark of a clean stop, a last frame that the disk has lost
        // looks like the end of the log.
        let Err(damage) = log.verify() else { return Ok(()) };
        tracing::error!(%damage, "the log is damaged; replacing it with a snapshot from memory");
        let mut bytes = Vec::new();
        let mut contents = |out: &mut dyn FnMut(&[u8])| {
            let mut put = |record: &Record<'_>| {
                bytes.clear();
                record.encode(&mut bytes);
                out(&bytes[RECORD_LENGTH_LEN..]);
            };
            put(&Record::Started(self.started));
            write(&mut put);
            put(&Record::Stopped);
        };
        let log = log.replace(&mut contents)?;
        log.verify().map_err(|damage| AppendError::Failed(io::Error::other(damage)))
    }

    /// Removes the losses from the superblock, because all holds that may have been lost have expired. Later starts
    /// then need not wait.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn end_losses(&mut self) -> io::Result<()> {
        self.log.end_losses()
    }

    /// Returns the old segments that can be folded into a snapshot; `None` if there are none.
    pub fn foldable(&self) -> Option<FoldableSegments> {
        let segment_count = self.log.sealed_segments();
        self.log.compaction_plan().map(|plan| FoldableSegments { segment_count, plan })
    }

    /// Names the snapshot of this plan in the superblock. Returns the files that may be removed.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn compacted(&mut self, plan: &CompactionPlan) -> io::Result<ObsoleteFiles> {
        self.log.compacted(plan)
    }

    /// Panics unless the records of each shard arrive without gaps and in order.
    fn check_numbers<W>(&mut self, batch: &LogBatch<W>) {
        for run in &batch.runs {
            let last = self.numbers.entry(run.shard).or_insert(0);
            assert_eq!(run.first, *last + 1, "the records of shard {} are out of order", run.shard);
            *last = run.last;
        }
    }

    /// Raises the bounds in the superblock before any record of the batch is acknowledged. Afterwards no fence is above
    /// the floor, and no lease is longer than the noted maximum.
    fn raise_bounds<W>(&mut self, batch: &LogBatch<W>) -> io::Result<()> {
        let bounds = self.log.superblock();
        let (fence_floor, longest_lease_ms) = (bounds.fence_floor, bounds.longest_lease_ms);
        if batch.fence_max > fence_floor {
            self.log.raise_floor(Fence::new(batch.fence_max.get() + FLOOR_STEP))?;
        }
        let lease_ms = u64::from(batch.lease_ms_max);
        if lease_ms > longest_lease_ms {
            // Round up to the next power of two, so that growing leases do not write the superblock again and again.
            self.log.note_longest_lease(lease_ms.next_power_of_two())?;
        }
        Ok(())
    }
}
