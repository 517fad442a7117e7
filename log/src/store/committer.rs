//! Makes all decisions of the log thread. It has no clock and no disk of its own: the caller passes the time and the
//! [`LogWriter`]. The log thread, or a simulator, carries out one step after the other and reports the result.

use super::agenda::{Agenda, Next};
use super::errand::{Errand, Report};
use super::keeper::Space;
use super::port::{LogBatch, LogOrder, LogStatus, Run};
use super::writer::LogWriter;
use super::{AppendError, CompactionPlan, ObsoleteFiles};
use crate::Time;
use crate::limits::{LOG_COMPACT_SEGMENT_COUNT, LOG_GROUP_LEN_MAX, LOG_SLOW_MS};
use std::collections::VecDeque;
use std::sync::Arc;

/// Next step of the log thread.
#[derive(Debug)]
pub enum Step<W> {
    /// Wait for the next order, at most until this instant. An order is a batch of a worker, a result of the keeper
    /// thread, or the stop. (The keeper thread does slow work on the files of the log.)
    Wait(Time),
    /// Run this step with [`Committer::run`].
    Disk(DiskStep),
    /// Report the outcome of these batches to the workers.
    Deliver(Vec<LogBatch<W>>, Outcome),
    /// Pass this errand (a piece of slow work on the files of the log) to the keeper thread. That thread runs errands
    /// one after the other, beside the log thread.
    Send(Errand),
    /// End the log with a clean stop, once the keeper thread has done all errands.
    Close,
    /// End the server: the log failed.
    Fail(AppendError),
}

/// Outcome of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The records of the batches are durable, and became durable at this instant.
    Durable(Time),
    /// The log failed, so only a restart shows whether the records of the batches are durable.
    Unknown,
}

/// One call of the [`LogWriter`]. A simulator can let the server crash between any two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskStep {
    /// Convert the batches of the next group to frames. The batches of a group are written and synced together.
    Take,
    /// Add a frame without records, unless the last flush needs none. It says that the last flush was durable, and when
    /// it ended.
    Confirm,
    /// Append all frames that were not appended yet.
    Append,
    /// Make all appended frames durable.
    Sync,
    /// Name the snapshot of this plan in the superblock, so that it replaces the old segments.
    Adopt(CompactionPlan),
    /// Remove the note of lost records from the superblock, because all holds that may have been lost have expired.
    EndLosses,
}

/// Old segments that can be folded into a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldableSegments {
    /// Number of segments.
    pub segment_count: u64,
    /// Plan of the compaction.
    pub plan: CompactionPlan,
}

/// Configuration of a committer.
#[derive(Debug)]
pub struct CommitterConfig {
    /// State of the log for workers.
    pub status: Arc<LogStatus>,
    /// Whether the first frames of this server start still wait, because the disk had no room for them.
    pub waits_for_room: bool,
    /// Full segments that can be folded into a snapshot; `None` if there are none.
    pub foldable: Option<FoldableSegments>,
    /// Time until all holds that may have been lost have expired, in milliseconds; `None` if none were lost.
    pub losses_ms: Option<u64>,
    /// Number of bytes of records from which on a group takes no more batches. (All batches of a group are written and
    /// synced together.)
    pub group_len_max: usize,
}

impl CommitterConfig {
    /// Returns the configuration of a committer that controls this writer. The writer must have tried before to append
    /// the first records of this server start. `waits_for_room` says whether they are still to be appended.
    pub fn new(writer: &LogWriter, status: Arc<LogStatus>, losses_ms: Option<u64>) -> Self {
        Self {
            status,
            waits_for_room: writer.waits_for_room(),
            foldable: writer.foldable(),
            losses_ms,
            group_len_max: LOG_GROUP_LEN_MAX,
        }
    }
}

/// Decides the steps of the log thread, from the orders of the workers and the results of earlier steps.
///
/// ```text
/// orders -> Committer -> steps -> the disk, workers, errands
///               ^                     |
///               +---- results --------+
/// ```
///
/// Batches that have arrived are taken as a group, up to a length limit. The group is appended, synced and reported to
/// the workers before the next group is formed. If the disk has no room for the frames of a group, they are appended
/// later, and no other group is formed until then. If the log fails, all batches that were not synced get the outcome
/// [`Outcome::Unknown`].
#[derive(Debug)]
pub struct Committer<W> {
    status: Arc<LogStatus>,
    agenda: Agenda,
    group_len_max: usize,
    /// Steps that were decided and not begun.
    steps: VecDeque<Step<W>>,
    /// Batches that have arrived and belong to no group yet.
    inbox: VecDeque<LogBatch<W>>,
    /// Batches of the present group, which is not durable yet: it is being written, or waits for room on the disk.
    taken: Vec<LogBatch<W>>,
    /// Numbers of the durable records whose waiting effects the last step delivered to the workers. The next call of
    /// `next` tells the shards that these records are durable, with [`LogStatus::set_durable`].
    delivered: Vec<Run>,
    /// Time at which the current write began; `NEVER` between two writes.
    write_began: Time,
    /// Whether a segment was begun since the last sync.
    is_new_segment: bool,
    foldable: Option<FoldableSegments>,
    is_compacting: bool,
    /// The failure that ends the server.
    failure: Option<AppendError>,
}

impl<W> Committer<W> {
    /// Returns the committer of a log thread that starts at `now`, after the server has tried to append the first
    /// records of its start.
    pub fn new(config: CommitterConfig, now: Time) -> Self {
        let CommitterConfig { status, waits_for_room, foldable, losses_ms, group_len_max } = config;
        let mut this = Self {
            status,
            agenda: Agenda::new(now, losses_ms),
            group_len_max,
            steps: VecDeque::new(),
            inbox: VecDeque::new(),
            taken: Vec::new(),
            delivered: Vec::new(),
            write_began: Time::NEVER,
            is_new_segment: false,
            foldable,
            is_compacting: false,
            failure: None,
        };
        this.steps.push_back(Step::Send(Errand::Prepare));
        if waits_for_room {
            this.agenda.note_no_room(now);
            this.announce_space();
        } else {
            this.compact();
        }
        this
    }

    /// Returns the next step of the log thread: for example, to wait, to write to the disk, or to report durable
    /// batches to the workers. The caller must carry it out before the next call.
    pub fn next(&mut self, now: Time) -> Step<W> {
        for Run { shard, last, .. } in self.delivered.drain(..) {
            // The shards learn that records are durable only after the workers have the responses that waited for them.
            // A shard that knows this sends later responses without waiting. So the earlier responses must be with the
            // workers first, or the order of the responses would change.
            self.status.set_durable(shard, last);
        }
        let step = self.decide(now);
        if let Step::Deliver(batches, Outcome::Durable(_)) = &step {
            self.delivered.extend(batches.iter().flat_map(|batch| &batch.runs));
        }
        step
    }

    fn decide(&mut self, now: Time) -> Step<W> {
        if let Some(step) = self.steps.pop_front() {
            return step;
        }
        if self.failure.is_some() {
            let left: Vec<_> = self.taken.drain(..).chain(self.inbox.drain(..)).collect();
            if !left.is_empty() {
                return Step::Deliver(left, Outcome::Unknown);
            }
        }
        if let Some(error) = self.failure.take() {
            return Step::Fail(error);
        }
        match self.agenda.next(now) {
            Next::Wait(until) => return Step::Wait(until),
            Next::Close => return Step::Close,
            Next::GiveUp => self.fail(AppendError::NoSpace),
            Next::Commit => {
                self.take();
                self.write(now, Some(DiskStep::Take));
            }
            Next::Confirm => self.write(now, Some(DiskStep::Confirm)),
            Next::Retry => self.write(now, None),
            Next::Compact => self.compact(),
            Next::Look => self.prepare(),
            Next::EndLosses => {
                tracing::info!("the longest possible lease has expired; grants resume");
                self.agenda.note_losses_ended();
                self.steps.push_back(Step::Disk(DiskStep::EndLosses));
            }
        }
        self.decide(now)
    }

    /// Takes an order: a batch of a worker, a result of the keeper thread (which does slow work on the files of the
    /// log), or the stop. [`Self::next`] then returns the steps for it. May be called at any time, also between a step
    /// and its execution. `now` reads the clock.
    pub fn obey(&mut self, order: LogOrder<W>, now: impl Fn() -> Time) {
        match order {
            LogOrder::Batch(batch) => {
                self.inbox.push_back(batch);
                self.agenda.note_batch();
            }
            LogOrder::Stop => self.agenda.note_stop(now()),
            LogOrder::Report(Report::Failed(error)) => self.fail(error.into()),
            LogOrder::Report(Report::Space(space)) => {
                if self.agenda.note_space(now(), space) {
                    self.announce_space();
                }
            }
            LogOrder::Report(Report::Compacted(plan, result)) => {
                self.status.note_compaction(&result);
                match result {
                    // `is_compacting` stays true until the log has adopted the new snapshot. A compaction that began
                    // earlier would again start from the old snapshot.
                    Ok(()) => self.steps.push_back(Step::Disk(DiskStep::Adopt(plan))),
                    Err(error) => {
                        tracing::error!(%error, "compaction failed; the log keeps its old segments and grows");
                        self.is_compacting = false;
                        self.agenda.note_compaction_failed(now());
                    }
                }
            }
        }
    }

    /// Carries out a step on the disk with `writer`, and plans the steps that follow from its result. For example, a
    /// sync follows an append, and the end of the server follows an error of the disk. If the disk is full, a retry
    /// follows. `now` reads the clock.
    pub fn run(&mut self, step: DiskStep, writer: &mut LogWriter, now: impl Fn() -> Time) {
        let result = match step {
            DiskStep::Take => writer.take(&self.taken).map_err(AppendError::from),
            DiskStep::Confirm => {
                writer.add_confirmation();
                Ok(())
            }
            DiskStep::Append => {
                let appended = writer.append();
                self.foldable = writer.foldable();
                appended.map(|is_new_segment| self.note_appended(is_new_segment))
            }
            DiskStep::Sync => {
                let synced = writer.sync(&now);
                synced.map(|at| self.note_synced(now(), at, writer.is_confirmed())).map_err(From::from)
            }
            DiskStep::Adopt(plan) => {
                let adopted = writer.compacted(&plan);
                self.foldable = writer.foldable();
                adopted.map(|dead| self.note_adopted(dead)).map_err(From::from)
            }
            DiskStep::EndLosses => writer.end_losses().map_err(From::from),
        };
        match result {
            Ok(()) => {}
            Err(AppendError::NoSpace) => self.note_no_room(now()),
            Err(error) => self.fail(error),
        }
    }

    /// Begins a write of the log. The write ends when its frames are synced, or when the disk has no room for them. A
    /// failure of the disk ends the log.
    fn write(&mut self, now: Time, first: Option<DiskStep>) {
        self.write_began = now;
        self.status.set_busy_since(now);
        self.steps.extend(first.into_iter().chain([DiskStep::Append]).map(Step::Disk));
    }

    /// Takes batches for one group.
    fn take(&mut self) {
        let mut len = 0;
        while len < self.group_len_max
            && let Some(batch) = self.inbox.pop_front()
        {
            len += batch.records.len();
            self.taken.push(batch);
        }
        self.agenda.note_taken(!self.inbox.is_empty());
    }

    fn note_appended(&mut self, is_new_segment: bool) {
        self.is_new_segment |= is_new_segment;
        self.steps.push_back(Step::Disk(DiskStep::Sync));
    }

    /// Ends a write, because all appended frames became durable at the instant `at`. Plans a step that reports this to
    /// the workers and, after the beginning of a segment, other steps. `is_confirmed` says whether no later frame must
    /// confirm that these frames are durable.
    fn note_synced(&mut self, now: Time, at: Time, is_confirmed: bool) {
        self.end_write(now);
        self.agenda.note_flushed(now, is_confirmed);
        if !self.taken.is_empty() {
            let taken = std::mem::take(&mut self.taken);
            self.steps.push_back(Step::Deliver(taken, Outcome::Durable(at)));
        }
        if std::mem::take(&mut self.is_new_segment) {
            self.prepare();
            self.compact();
        }
    }

    /// Notes that the disk is full. The writer keeps the frames that have no room, and their group stays unfinished
    /// until they are written.
    fn note_no_room(&mut self, now: Time) {
        self.end_write(now);
        let was_low = self.agenda.space() == Space::Low;
        if self.agenda.note_no_room(now) {
            self.prepare();
        }
        if !was_low {
            self.announce_space();
        }
    }

    fn note_adopted(&mut self, dead: ObsoleteFiles) {
        self.is_compacting = false;
        self.steps.push_back(Step::Send(Errand::Remove(dead)));
        self.compact();
        if self.agenda.space() == Space::Low {
            // The keeper thread runs errands in their order: it first removes the old files, and then creates the spare
            // and reserve segments. Its report on free space, which follows, shows whether the removal has made enough
            // room.
            self.prepare();
        }
    }

    fn end_write(&mut self, now: Time) {
        let took_ms = now.ms_since(self.write_began);
        if took_ms >= LOG_SLOW_MS {
            tracing::warn!(took_ms, "a write to the log was slow");
        }
        self.write_began = Time::NEVER;
        self.status.set_busy_since(Time::NEVER);
    }

    fn prepare(&mut self) {
        self.agenda.note_looked();
        self.steps.push_back(Step::Send(Errand::Prepare));
    }

    fn compact(&mut self) {
        self.agenda.note_compaction_tried();
        if let Some(FoldableSegments { segment_count, plan }) = self.foldable
            && !self.is_compacting
            && (segment_count >= LOG_COMPACT_SEGMENT_COUNT || self.agenda.space() == Space::Low)
        {
            self.is_compacting = true;
            self.steps.push_back(Step::Send(Errand::Compact(plan)));
        }
    }

    fn announce_space(&mut self) {
        let has_no_space = self.agenda.space() == Space::Low;
        self.status.set_no_space(has_no_space);
        if has_no_space {
            tracing::error!("the disk of the log is full: durable grants are refused until space is free");
            self.compact();
        } else {
            tracing::info!("the disk of the log has free space again; durable grants resume");
        }
    }

    /// Makes the log end the server with this error, or with an earlier one. Drops all planned steps except the
    /// delivery of batches that are already durable.
    fn fail(&mut self, error: AppendError) {
        self.steps.retain(|step| matches!(step, Step::Deliver(..)));
        self.failure.get_or_insert(error);
    }
}

#[cfg(test)]
mod tests;
