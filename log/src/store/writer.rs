//! Conversion of the batches of workers to frames, and writing of these frames to the log.

use super::committer::FoldableSegments;
use super::port::LogBatch;
use super::{AppendError, CompactionPlan, Log, ObsoleteFiles};
use crate::split::{Payload, split_batch};
use crate::{Fence, Record, Started, Time};
use std::collections::{BTreeMap, VecDeque};
use std::{io, iter};

/// Length in bytes of the field before a record, which contains the length of the record.
const RECORD_LENGTH_LEN: usize = 4;
/// Distance by which the fence floor in the superblock is raised above the highest fence of a batch. So most later
/// batches stay below the floor, and need no write of the superblock.
const FLOOR_STEP: u64 = 1 << 20;

/// Appends the batches of workers to the log, one group after the other. All batches of a group are written and synced
/// together.
///
/// Batches that arrive while a group is synced form the next group. If a claim's lease begins with its record, the
/// lease begins when the sync of the record's group has ended. The next frame contains this instant, so a restarted
/// server knows it.
#[derive(Debug)]
pub struct LogWriter {
    log: Log,
    /// Clocks of this start.
    started: Started,
    /// Frames that are still to be appended.
    frames: VecDeque<Payload>,
    /// Maximum number of bytes of records in a frame that a test has set. It matters only if it is lower than the limit
    /// of the log.
    records_max: usize,
    /// Whether records were appended since the last sync.
    has_unsynced_records: bool,
    /// Whether the last flush had records, and no later frame says yet that it was durable.
    is_unconfirmed: bool,
    /// Number of the last record of each shard; a shard without records is absent.
    numbers: BTreeMap<u16, u64>,
}

impl LogWriter {
    /// Starts the writer of a log that was just opened. The writer first appends a `Started` record and then `records`.
    /// If the disk has no room, it keeps their frames in memory, and [`append`](Self::append) appends them before any
    /// batch. `now` reads the clock.
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
        // Each record gets a batch of its own, because a batch that needs several frames becomes a group. A `Started`
        // record inside a group would drop that group when it is read.
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

    /// Limits the number of bytes of records in a frame, so that a few records already need several frames. For tests.
    pub fn limit_records(&mut self, records_max: usize) {
        self.records_max = records_max;
    }

    /// Returns the number of segments of the log that are not in the snapshot, including the current one.
    pub fn segment_count(&self) -> u64 {
        self.log.sealed_segments() + 1
    }

    /// Returns the clocks of this start.
    pub fn started(&self) -> Started {
        self.started
    }

    /// Returns whether frames that [`Self::take`] made from the batches of workers are not appended yet. After a call
    /// of `append`, this means that the disk had no room for them.
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

    /// Appends all frames that `take` made. Returns whether this call began a segment. If an earlier call began a
    /// segment and failed afterwards, the result does not say so.
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

    /// Makes all appended frames durable. `now` reads the clock. Returns the instant at which the frames became
    /// durable.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn sync(&mut self, now: impl Fn() -> Time) -> io::Result<Time> {
        if self.log.flushed().lsn < self.log.last_lsn() {
            // If the flushed frames have records, a later frame must confirm that they were durable. Otherwise recovery
            // takes damage to the last of them for a torn write, and drops its records. Frames without records need no
            // confirmation, because their loss loses no record.
            self.is_unconfirmed = std::mem::take(&mut self.has_unsynced_records);
        }
        let durable = self.log.flush(|| now().as_millis())?;
        Ok(Time::from_millis(durable.at_ms))
    }

    /// Adds a frame without records, if the last flush had records and no later frame says yet that it was durable.
    /// With this frame, recovery can distinguish damage to the flushed frames from a write that a crash interrupted.
    pub fn add_confirmation(&mut self) {
        // No frame is added if frames without room still wait to be appended, because their headers will confirm the
        // last flush as well.
        if self.is_unconfirmed && self.frames.is_empty() {
            self.frames.push_back(Payload::default());
        }
    }

    /// Returns whether no later frame must confirm that the last flush was durable: it had no records, or a later frame
    /// has confirmed it.
    pub fn is_confirmed(&self) -> bool {
        !self.is_unconfirmed
    }

    /// Ends the log with a clean stop. If the next start would refuse the files of the log, a snapshot replaces them.
    /// `write` provides the records of this snapshot. After a `Started` record, they must give the same state as the
    /// log. `now` reads the clock.
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
        // `close_clean` writes the number of the last frame to the superblock. Without this number, a log whose last
        // frame the disk has lost looks as if it ended earlier, and `verify` would not notice the loss. So the log is
        // verified only now.
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

    /// Removes the note of lost records from the superblock, because all holds that may have been lost have expired.
    /// Later starts need not wait any more.
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

    /// Names the snapshot of this plan in the superblock. Returns the files that may be removed, because the snapshot
    /// contains their records.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn compacted(&mut self, plan: &CompactionPlan) -> io::Result<ObsoleteFiles> {
        self.log.compacted(plan)
    }

    /// Panics unless the numbers of each shard's records continue without gaps and in order.
    fn check_numbers<W>(&mut self, batch: &LogBatch<W>) {
        for run in &batch.runs {
            let last = self.numbers.entry(run.shard).or_insert(0);
            assert_eq!(run.first, *last + 1, "the records of shard {} are out of order", run.shard);
            *last = run.last;
        }
    }

    /// Raises the fence floor and the longest lease in the superblock, if the batch exceeds them, before its records
    /// can be acknowledged. So no acknowledged fence is above the floor, and no acknowledged lease is longer than the
    /// noted maximum.
    fn raise_bounds<W>(&mut self, batch: &LogBatch<W>) -> io::Result<()> {
        let bounds = self.log.superblock();
        let (fence_floor, longest_lease_ms) = (bounds.fence_floor, bounds.longest_lease_ms);
        if batch.fence_max > fence_floor {
            self.log.raise_floor(Fence::new(batch.fence_max.get() + FLOOR_STEP))?;
        }
        let lease_ms = u64::from(batch.lease_ms_max);
        if lease_ms > longest_lease_ms {
            // The longest lease in the superblock is rounded up to the next power of two. So slowly growing leases do
            // not write the superblock again and again.
            self.log.note_longest_lease(lease_ms.next_power_of_two())?;
        }
        Ok(())
    }
}
