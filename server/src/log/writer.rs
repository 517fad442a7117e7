//! From what workers leave to frames of the log.

use super::port::{LogBatch, LogStatus};
use super::{AppendError, CompactionPlan, Dead, Log};
use crate::clock::Clock;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use waymaker_engine::log::record::{Record, each};
use waymaker_engine::{Time, planted};

/// By how much the floor of the superblock is kept above every fence that is handed out.
const FLOOR_STEP: u64 = 1 << 20;

/// Appends what workers leave, one group after the other.
///
/// Whatever arrives while a group is synced is the next group. The lease of what was reserved in a group begins when its
/// sync has ended; the same instant stands in the next frame, so a restart knows it.
#[derive(Debug)]
pub struct LogWriter {
    log: Log,
    status: Arc<LogStatus>,
    /// Frames that are still to be appended.
    frames: VecDeque<Frame>,
    /// When everything that was synced came to be known as durable.
    durable_at: Time,
    /// The last frame has no successor that says it to be durable.
    is_unconfirmed: bool,
    /// The number of the last record of each shard.
    numbers: BTreeMap<u16, u64>,
}

/// Records of one frame.
#[derive(Debug, Default)]
struct Frame {
    records: Vec<u8>,
    record_count: u32,
}

/// A group is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Since when.
    pub at: Time,
    /// A segment was begun: another one has to be made ready.
    pub is_new_segment: bool,
}

impl LogWriter {
    /// A writer behind what was found when the log was opened, which begins with these records.
    ///
    /// # Errors
    /// If they cannot be made durable.
    pub fn start(
        log: Log,
        status: Arc<LogStatus>,
        records: &[Record<'_>],
        clock: &dyn Clock,
    ) -> Result<Self, AppendError> {
        let mut writer = Self {
            log,
            status,
            frames: VecDeque::new(),
            durable_at: clock.now(),
            is_unconfirmed: false,
            numbers: BTreeMap::new(),
        };
        let mut frame = Frame::default();
        records.iter().for_each(|record| frame.push(record));
        writer.frames.push_back(frame);
        writer.flush(clock)?;
        Ok(writer)
    }

    /// Takes some batches, which [`LogWriter::flush`] will make durable.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn take(&mut self, batches: &[LogBatch]) -> io::Result<()> {
        let limit = self.log.records_limit();
        for batch in batches.iter().filter(|batch| batch.record_count > 0) {
            self.check_numbers(batch);
            self.raise_bounds(batch)?;
            if batch.records.len() > limit {
                self.take_in_parts(batch, limit);
                continue;
            }
            match self.frames.back_mut() {
                Some(frame) if frame.records.len() + batch.records.len() <= limit => {
                    frame.records.extend_from_slice(&batch.records);
                    frame.record_count += batch.record_count;
                }
                _ => self
                    .frames
                    .push_back(Frame { records: batch.records.clone(), record_count: batch.record_count }),
            }
        }
        Ok(())
    }

    /// Writes everything that was taken, then syncs once.
    ///
    /// # Errors
    /// [`AppendError::NoSpace`]: nothing is lost, and the same can be tried again. Otherwise the disk failed, and nothing
    /// may be acknowledged any more.
    pub fn flush(&mut self, clock: &dyn Clock) -> Result<Flushed, AppendError> {
        let is_new_segment = self.write()?;
        Ok(Flushed { at: self.sync(clock)?, is_new_segment })
    }

    /// The first half of [`LogWriter::flush`]: appends everything that was taken. Says whether a segment was begun.
    ///
    /// # Errors
    /// As [`LogWriter::flush`].
    pub fn write(&mut self) -> Result<bool, AppendError> {
        let mut is_new_segment = false;
        while let Some(frame) = self.frames.front() {
            let durable_ms = self.durable_at.as_millis();
            let written = self.log.append(&frame.records, frame.record_count, durable_ms)?;
            is_new_segment |= written.is_new_segment;
            self.frames.pop_front();
        }
        Ok(is_new_segment)
    }

    /// The second half: everything that was written is durable. Says since when.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn sync(&mut self, clock: &dyn Clock) -> io::Result<Time> {
        if self.log.durable_lsn() < self.log.last_lsn() {
            if !planted!(SyncIsLeftOut) {
                self.log.sync()?;
            }
            self.durable_at = self.durable_at.max(clock.now());
            self.is_unconfirmed = true;
        }
        for (shard, number) in &self.numbers {
            self.status.set_durable(*shard, *number);
        }
        Ok(self.durable_at)
    }

    /// Nothing happens: the last frame gets a successor which says that it was durable, so that damage to it is told from
    /// a torn end.
    ///
    /// # Errors
    /// As [`LogWriter::flush`].
    pub fn confirm(&mut self, clock: &dyn Clock) -> Result<Flushed, AppendError> {
        if !self.is_unconfirmed {
            return Ok(Flushed { at: self.durable_at, is_new_segment: false });
        }
        self.frames.push_back(Frame::default());
        let flushed = self.flush(clock);
        self.is_unconfirmed = flushed.is_err();
        flushed
    }

    /// Ends the log in order.
    ///
    /// # Errors
    /// If the disk failed, or is full.
    pub fn close(self) -> Result<(), AppendError> {
        self.log.close_clean(self.durable_at.as_millis())
    }

    /// How many segments wait to be folded into a snapshot, and what is to be done with them.
    pub fn compaction_plan(&self) -> Option<(u64, CompactionPlan)> {
        self.log.compaction_plan().map(|plan| (self.log.sealed_segments(), plan))
    }

    /// A compaction is durable. Says what may be removed.
    ///
    /// # Errors
    /// If the disk failed.
    pub fn compacted(&mut self, plan: &CompactionPlan) -> io::Result<Dead> {
        self.log.compacted(plan)
    }

    /// A batch that fits no frame goes into several, and counts only if all of them are there.
    fn take_in_parts(&mut self, batch: &LogBatch, limit: usize) {
        let mut frame = Frame::default();
        frame.push(&Record::Group { count: batch.record_count });
        for record in each(&batch.records).flatten() {
            if frame.records.len() + 4 + record.len() > limit {
                self.frames.push_back(std::mem::take(&mut frame));
            }
            frame.records.extend_from_slice(&(record.len() as u32).to_le_bytes());
            frame.records.extend_from_slice(record);
            frame.record_count += 1;
        }
        self.frames.push_back(frame);
    }

    /// What a shard recorded arrives in the order in which it became true.
    fn check_numbers(&mut self, batch: &LogBatch) {
        for run in &batch.runs {
            let last = self.numbers.entry(run.shard).or_insert(0);
            assert_eq!(run.first, *last + 1, "the records of shard {} are out of order", run.shard);
            *last = run.last;
        }
    }

    /// The superblock knows a fence above all, and a lease as long as any, before anything of it is acknowledged.
    fn raise_bounds(&mut self, batch: &LogBatch) -> io::Result<()> {
        let bounds = self.log.superblock();
        let (fence_floor, longest_lease_ms) = (bounds.fence_floor, bounds.longest_lease_ms);
        if batch.fence_max > fence_floor {
            self.log.raise_floor(batch.fence_max + FLOOR_STEP)?;
        }
        let lease_ms = u64::from(batch.lease_ms_max);
        if lease_ms > longest_lease_ms {
            // To the next power of two, so that leases that grow do not write it again and again.
            self.log.note_longest_lease(lease_ms.next_power_of_two())?;
        }
        Ok(())
    }
}

impl Frame {
    fn push(&mut self, record: &Record<'_>) {
        record.encode(&mut self.records);
        self.record_count += 1;
    }
}
