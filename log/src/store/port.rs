//! Interface between workers and the log thread: batches of records go to the log thread, and its state goes back.

#![expect(clippy::disallowed_types, reason = "shares the reason of a failed compaction")]

use super::errand::Report;
use super::keeper::CompactError;
use crate::limits::{LOG_BATCH_LEN, LOG_STALLED_MS};
use crate::{Fence, LogState, Record, Time};
use crossbeam_channel::{Receiver, Sender, unbounded};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Records of one or more shard turns, and the effects (such as responses) that wait until the records are durable. A
/// batch becomes durable as a whole, or not at all.
#[derive(Debug)]
pub struct LogBatch<W> {
    /// Encoded records, each after its length.
    pub records: Vec<u8>,
    /// Number of records.
    pub record_count: u32,
    /// Runs of records with consecutive numbers, each run of one shard. Records that belong to no single shard are in
    /// no run.
    pub runs: Vec<Run>,
    /// Highest fence of a hold in the records that grant holds or set their fences.
    pub fence_max: Fence,
    /// Longest lease of a hold or of its session in the records of grants and renewals, in milliseconds.
    pub lease_ms_max: u32,
    /// Effects, such as responses, to deliver once this batch and all batches that were posted before it are durable.
    pub waiting: Vec<W>,
}

/// Consecutive records of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The shard of the records.
    pub shard: u16,
    /// The number of the first record.
    pub first: u64,
    /// The number of the last record.
    pub last: u64,
}

impl<W> LogBatch<W> {
    /// Returns whether the batch has neither records nor waiting effects.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.record_count == 0 && self.waiting.is_empty()
    }

    /// Adds the record that has this number in its shard. Each shard numbers its records without gaps.
    pub fn push(&mut self, shard: u16, number: u64, record: &Record<'_>) {
        self.add(record);
        match self.runs.last_mut() {
            Some(run) if run.shard == shard && run.last + 1 == number => run.last = number,
            _ => self.runs.push(Run { shard, first: number, last: number }),
        }
    }

    /// Adds a record that belongs to no single shard.
    pub fn add(&mut self, record: &Record<'_>) {
        if self.records.capacity() == 0 {
            // The first record reserves room for several, because growing the buffer in small steps would cost more
            // than encoding the record.
            self.records.reserve(LOG_BATCH_LEN);
        }
        record.encode(&mut self.records);
        self.record_count += 1;
        match record {
            Record::Held(hold) => {
                self.fence_max = self.fence_max.max(hold.fence);
                let session_ms = hold.session.map_or(0, |session| session.lease_ms);
                self.lease_ms_max = self.lease_ms_max.max(hold.lease_ms).max(session_ms);
            }
            Record::Counted { fence, .. } => self.fence_max = self.fence_max.max(*fence),
            Record::LeaseMoved { lease_ms, .. } => self.lease_ms_max = self.lease_ms_max.max(*lease_ms),
            _ => {}
        }
    }
}

// `Default` is not derived, because a derived impl would require `W: Default`.
impl<W> Default for LogBatch<W> {
    #[inline]
    fn default() -> Self {
        Self {
            records: Vec::new(),
            record_count: 0,
            runs: Vec::new(),
            fence_max: Fence::NONE,
            lease_ms_max: 0,
            waiting: Vec::new(),
        }
    }
}

/// Order to the log thread.
#[derive(Debug)]
pub enum LogOrder<W> {
    /// Make this batch durable.
    Batch(LogBatch<W>),
    /// The result of an errand of the keeper thread.
    Report(Report),
    /// End the log with a clean stop. No batch follows this order.
    Stop,
}

/// Port to which workers post their records. A post never blocks.
#[derive(Debug)]
pub struct LogPort<W> {
    sender: Sender<LogOrder<W>>,
    status: Arc<LogStatus>,
}

/// State of the log, as published by the log thread.
#[derive(Debug)]
pub struct LogStatus {
    has_no_space: AtomicBool,
    /// Number of compactions that failed.
    compaction_failures: AtomicU64,
    /// Reason for which old segments cannot be removed; `None` if the last compaction succeeded, or if it failed
    /// because the disk is full.
    compaction_failure: Mutex<Option<String>>,
    /// Time at which the current write began, in milliseconds; `NEVER` between two writes.
    busy_since: AtomicU64,
    /// For each shard, the number of the last record up to which all its records are durable.
    durable: Box<[CachePadded<AtomicU64>]>,
}

impl<W> LogPort<W> {
    /// Returns a port for a server with this number of shards, and the receiver of its orders for the log thread.
    pub fn new(shard_count: usize) -> (Self, Receiver<LogOrder<W>>) {
        let (sender, receiver) = unbounded();
        let durable = (0..shard_count).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        let busy_since = AtomicU64::new(Time::NEVER.as_millis());
        let status = Arc::new(LogStatus {
            has_no_space: AtomicBool::new(false),
            compaction_failures: AtomicU64::new(0),
            compaction_failure: Mutex::new(None),
            busy_since,
            durable,
        });
        (Self { sender, status }, receiver)
    }

    /// Posts a batch. A batch that is posted later becomes durable later, or at the same time.
    pub fn post(&self, batch: LogBatch<W>) {
        self.tell(LogOrder::Batch(batch));
    }

    /// Sends an order to the log thread. The thread reads it after all earlier orders.
    pub fn tell(&self, order: LogOrder<W>) {
        // An error is ignored, because it means that the log thread has ended. The thread ends after
        // [`LogOrder::Stop`], which is the last order, or because the log failed. After a failure, the process is about
        // to end.
        let _ = self.sender.send(order);
    }

    /// Returns the state of the log.
    pub fn status(&self) -> &Arc<LogStatus> {
        &self.status
    }
}

// `Clone` is not derived, because a derived impl would require `W: Clone`.
impl<W> Clone for LogPort<W> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), status: Arc::clone(&self.status) }
    }
}

impl LogStatus {
    /// Returns which records the log accepts at `now`. Never returns `LogState::Absent`, because a `LogStatus` exists
    /// only with a log.
    #[inline]
    pub fn state(&self, now: Time) -> LogState {
        let busy_since = Time::from_millis(self.busy_since.load(Ordering::Relaxed));
        if self.has_no_space() {
            LogState::NoSpace
        } else if busy_since.after_ms(LOG_STALLED_MS) <= now {
            LogState::Slow
        } else {
            LogState::Ready
        }
    }

    /// Returns whether the disk is full.
    #[inline]
    pub fn has_no_space(&self) -> bool {
        self.has_no_space.load(Ordering::Relaxed)
    }

    /// Sets whether the disk is full from now on.
    pub(super) fn set_no_space(&self, has_no_space: bool) {
        self.has_no_space.store(has_no_space, Ordering::Relaxed);
    }

    /// Returns the number of compactions that have failed.
    pub fn compaction_failures(&self) -> u64 {
        self.compaction_failures.load(Ordering::Relaxed)
    }

    /// Returns the reason for which the last compaction failed. Until a compaction succeeds, the log grows. Returns
    /// `None` if the last compaction succeeded, or if there was none. Also returns `None` if it failed because the disk
    /// is full, because [`has_no_space`](Self::has_no_space) tells that.
    pub fn compaction_failure(&self) -> Option<String> {
        self.compaction_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the result of a compaction.
    pub(super) fn note_compaction(&self, result: &Result<(), CompactError>) {
        if result.is_err() {
            self.compaction_failures.fetch_add(1, Ordering::Relaxed);
        }
        let failure = result.as_ref().err().filter(|error| !error.is_no_space()).map(ToString::to_string);
        *self.compaction_failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Sets the time at which the current write began; `NEVER` when no write is in progress.
    pub fn set_busy_since(&self, since: Time) {
        self.busy_since.store(since.as_millis(), Ordering::Relaxed);
    }

    /// Returns the number of the last record up to which all records of a shard are durable.
    #[inline]
    pub fn durable(&self, shard: u16) -> u64 {
        self.durable[usize::from(shard)].load(Ordering::Acquire)
    }

    /// Publishes that all records of a shard up to this number are durable. A worker reads the number with
    /// [`Self::durable`] at the beginning of a turn of the shard, and passes it to the shard.
    pub fn set_durable(&self, shard: u16, number: u64) {
        self.durable[usize::from(shard)].store(number, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClaimId, Hold, Item, Scope, SessionTag};

    /// After a loss of records, grants resume only when the longest lease in the lost records has expired. So a batch
    /// must know the longest lease of its records.
    #[test]
    fn a_batch_tracks_the_longest_lease_of_its_renewals() {
        let mut batch = LogBatch::<()>::default();
        for lease_ms in [20, 70_000, 30] {
            let id = ClaimId { place: 1, secret: 1 };
            batch.add(&Record::LeaseMoved { id, deadline_ms: 100_000, lease_ms });
        }
        assert_eq!(batch.lease_ms_max, 70_000);
    }

    /// A hold that lasts as long as its session may last for the whole lease of the session. So if its record is lost,
    /// the server must wait that long.
    #[test]
    fn a_batch_tracks_the_longest_session_lease_of_its_holds() {
        let mut batch = LogBatch::<()>::default();
        batch.add(&Record::Held(Hold {
            id: ClaimId { place: 1, secret: 1 },
            namespace: 0,
            scope: Scope::Local,
            shared: false,
            session_lease: true,
            endless: false,
            clamped: false,
            waited: false,
            repeated: false,
            fence: Fence::new(1),
            begins_counted: false,
            awaits_count: false,
            since_ms: 0,
            deadline_ms: None,
            lease_ms: 20,
            release_after_ms: None,
            priority: 0,
            number: 1,
            session: Some(SessionTag { place: 1, secret: 1, lease_ms: 70_000, lane: 0 }),
            owner: b"",
            identity: None,
            request_id: None,
            metadata: None,
            set_hash: None,
            item: Item::Key(b"key"),
        }));
        assert_eq!(batch.lease_ms_max, 70_000);
    }
}
