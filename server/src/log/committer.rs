//! Makes all decisions of the log thread. It reads no clock and uses no disk. The log thread, or a simulator, carries
//! out one step after the other and reports the result.

use super::agenda::{Agenda, Next};
use super::errand::{Errand, Report};
use super::keeper::Space;
use super::port::{LogBatch, LogOrder, LogStatus, Run};
use super::writer::LogWriter;
use super::{AppendError, CompactionPlan, ObsoleteFiles};
use crate::clock::Clock;
use crate::limits::{LOG_COMPACT_SEGMENT_COUNT, LOG_GROUP_LEN_MAX, LOG_SLOW_MS};
use std::collections::VecDeque;
use std::sync::Arc;
use waymaker_engine::{ReservedEnd, Time};

/// Next step of the log thread.
#[derive(Debug)]
pub enum Step {
    /// Wait for an order, at most until this instant.
    Wait(Time),
    /// Run this step with [`Committer::run`].
    Disk(DiskStep),
    /// Report the result of these batches to the workers.
    Deliver(Vec<LogBatch>, ReservedEnd),
    /// Pass on an errand. Errands are run in their order.
    Send(Errand),
    /// End the log in order, once all errands are done.
    Close,
    /// End the server: the log failed.
    Fail(AppendError),
}

/// One call of the writer. Between any two of them the server may crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskStep {
    /// Convert the batches of the next group to frames.
    Take,
    /// Add a frame that confirms the last one as durable.
    Confirm,
    /// Append all frames.
    Append,
    /// Make all appended frames durable.
    Sync,
    /// Replace old segments by the snapshot of this plan.
    Adopt(CompactionPlan),
    /// Note that all holds that may have been lost have expired.
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
    /// Whether the first frames found no room.
    pub waits_for_room: bool,
    /// Old segments, if there are any.
    pub foldable: Option<FoldableSegments>,
    /// Time until all holds that may have been lost have expired, in milliseconds; `None` if none were lost.
    pub losses_ms: Option<u64>,
    /// Number of bytes of records after which a group is full.
    pub group_len_max: usize,
}

impl CommitterConfig {
    /// Returns the configuration for a writer that has written the first records of a start.
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

/// The state of the log thread.
///
/// ```text
/// orders -> Committer -> steps -> the disk, workers, errands
///               ^                     |
///               +---- results --------+
/// ```
///
/// Batches are taken in groups. A group is appended, synced and delivered before the next one is taken. If there is
/// no room for its frames, they are appended later, and no other batch is taken before. After a failure no batch is
/// delivered as durable.
#[derive(Debug)]
pub struct Committer {
    status: Arc<LogStatus>,
    agenda: Agenda,
    group_len_max: usize,
    /// Steps that were decided and not begun.
    steps: VecDeque<Step>,
    /// Batches that have arrived and were not taken yet.
    inbox: VecDeque<LogBatch>,
    /// The group that is not durable yet.
    taken: Vec<LogBatch>,
    /// Records of the group that is being delivered.
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

impl Committer {
    /// Returns a committer for a log whose first records were written at this instant.
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

    /// Decides the next step. The caller must carry it out before the next call.
    pub fn next(&mut self, now: Time) -> Step {
        for Run { shard, last, .. } in self.delivered.drain(..) {
            // Not before the delivery: a shard that knows of a durable record answers at once, and answers that
            // waited for the record must come first.
            self.status.set_durable(shard, last);
        }
        let step = self.decide(now);
        if let Step::Deliver(batches, ReservedEnd::Begins(_)) = &step {
            self.delivered.extend(batches.iter().flat_map(|batch| &batch.runs));
        }
        step
    }

    fn decide(&mut self, now: Time) -> Step {
        if let Some(step) = self.steps.pop_front() {
            return step;
        }
        if self.failure.is_some() {
            let left: Vec<_> = self.taken.drain(..).chain(self.inbox.drain(..)).collect();
            if !left.is_empty() {
                return Step::Deliver(left, ReservedEnd::Unknown);
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

    /// Takes an order. This is possible at any time, also between two steps.
    pub fn obey(&mut self, order: LogOrder, clock: &dyn Clock) {
        match order {
            LogOrder::Batch(batch) => {
                self.inbox.push_back(batch);
                self.agenda.note_batch();
            }
            LogOrder::Stop => self.agenda.note_stop(clock.now()),
            LogOrder::Report(Report::Failed(error)) => self.fail(error.into()),
            LogOrder::Report(Report::Space(space)) => {
                if self.agenda.note_space(clock.now(), space) {
                    self.announce_space();
                }
            }
            LogOrder::Report(Report::Compacted(plan, result)) => {
                self.status.note_compaction(&result);
                match result {
                    // The next compaction must wait for this step: before it, the compaction would begin from the
                    // same old snapshot.
                    Ok(()) => self.steps.push_back(Step::Disk(DiskStep::Adopt(plan))),
                    Err(error) => {
                        tracing::error!(%error, "compaction failed; the log keeps its old segments and grows");
                        self.is_compacting = false;
                        self.agenda.note_compaction_failed(clock.now());
                    }
                }
            }
        }
    }

    /// Carries out a step and processes its result.
    pub fn run(&mut self, step: DiskStep, writer: &mut LogWriter, clock: &dyn Clock) {
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
                let synced = writer.sync(clock);
                synced.map(|at| self.note_synced(clock.now(), at, writer.is_confirmed())).map_err(From::from)
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
            Err(AppendError::NoSpace) => self.note_no_room(clock.now()),
            Err(error) => self.fail(error),
        }
    }

    /// Begins a write, which ends with a sync or because of missing room.
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

    /// Notes that all frames are durable since `at`.
    fn note_synced(&mut self, now: Time, at: Time, is_confirmed: bool) {
        self.end_write(now);
        self.agenda.note_flushed(now, is_confirmed);
        if !self.taken.is_empty() {
            let taken = std::mem::take(&mut self.taken);
            self.steps.push_back(Step::Deliver(taken, ReservedEnd::Begins(at)));
        }
        if std::mem::take(&mut self.is_new_segment) {
            self.prepare();
            self.compact();
        }
    }

    /// Notes that the disk is full. The frames stay in the writer, and the group waits for them.
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
            // Prepare after the removal, so that the report says whether the removal made enough room.
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

    /// Ends the server. Groups that are already durable are still delivered to workers.
    fn fail(&mut self, error: AppendError) {
        self.steps.retain(|step| matches!(step, Step::Deliver(..)));
        self.failure.get_or_insert(error);
    }
}

#[cfg(test)]
mod tests {
    use super::super::keeper::CompactError;
    use super::super::port::LogPort;
    use super::*;
    use crate::limits::{
        LOG_COMPACT_RETRY_MS, LOG_IDLE_MS, LOG_LOOK_MS, LOG_NO_ROOM_RETRY_MS, LOG_STALLED_MS,
        LOG_STOP_GRACE_MS,
    };
    use std::io;
    use waymaker_engine::LogState;

    const PLAN: CompactionPlan =
        CompactionPlan { log_id: 1, generation: 2, previous_snapshot: 3, first_segment: 4, last_segment: 5 };

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    /// A clock that stands still.
    #[derive(Debug)]
    struct Standing(Time);

    impl Clock for Standing {
        fn now(&self) -> Time {
            self.0
        }

        fn nanos(&self) -> u64 {
            0
        }

        fn unix_micros(&self) -> i64 {
            0
        }
    }

    fn config() -> CommitterConfig {
        let (port, _orders) = LogPort::new(1);
        CommitterConfig {
            status: Arc::clone(port.status()),
            waits_for_room: false,
            foldable: None,
            losses_ms: None,
            group_len_max: 100,
        }
    }

    fn segments(segment_count: u64) -> Option<FoldableSegments> {
        Some(FoldableSegments { segment_count, plan: PLAN })
    }

    /// Returns a batch with this number of bytes.
    fn batch(len: usize) -> LogOrder {
        LogOrder::Batch(LogBatch { records: vec![0; len], record_count: 1, ..LogBatch::default() })
    }

    /// Returns a committer whose keeper has begun to create segments.
    fn started(config: CommitterConfig) -> Committer {
        let mut committer = Committer::new(config, at(0));
        assert_eq!(committer.said(at(0)), "prepare");
        committer
    }

    impl Committer {
        /// Returns the next step as text, with the lengths of its batches.
        fn said(&mut self, now: Time) -> String {
            match self.next(now) {
                Step::Wait(Time::NEVER) => "wait".to_owned(),
                Step::Wait(until) => format!("wait {}", until.ms_since(at(0))),
                Step::Disk(DiskStep::Adopt(plan)) => {
                    assert_eq!(plan, PLAN);
                    "adopt".to_owned()
                }
                Step::Disk(step) => format!("{step:?}").to_lowercase(),
                Step::Deliver(batches, end) => {
                    let lens: Vec<_> = batches.iter().map(|batch| batch.records.len()).collect();
                    match end {
                        ReservedEnd::Begins(since) => format!("begin {lens:?} {}", since.ms_since(at(0))),
                        _ => format!("unknown {lens:?}"),
                    }
                }
                Step::Send(Errand::Prepare) => "prepare".to_owned(),
                Step::Send(Errand::Compact(plan)) => {
                    assert_eq!(plan, PLAN);
                    "compact".to_owned()
                }
                Step::Send(Errand::Remove(_)) => "remove".to_owned(),
                Step::Close => "close".to_owned(),
                Step::Fail(error) => format!("fail: {error}"),
            }
        }

        fn says(&mut self, now: Time, steps: &[&str]) {
            for step in steps {
                assert_eq!(self.said(now), *step);
            }
        }

        fn told(&mut self, now: Time, order: LogOrder) {
            self.obey(order, &Standing(now));
        }

        /// Performs a whole write without a failure of the disk.
        fn writes(&mut self, now: Time, first: &str) {
            self.says(now, &[first, "append"]);
            self.note_appended(false);
            self.says(now, &["sync"]);
            self.note_synced(now, now, false);
        }
    }

    /// A shard that knows of a durable record answers at once. So the workers must have the answers that waited for
    /// the record before that.
    #[test]
    fn a_shard_sees_a_record_as_durable_after_workers_got_its_answers() {
        let mut committer = started(config());
        let runs = vec![Run { shard: 0, first: 1, last: 1 }];
        let batch = LogBatch { records: vec![0; 3], record_count: 1, runs, ..LogBatch::default() };
        committer.told(at(0), LogOrder::Batch(batch));
        committer.writes(at(1), "take");
        committer.says(at(1), &["begin [3] 1"]);
        assert_eq!(committer.status.durable(0), 0);
        committer.said(at(1));
        assert_eq!(committer.status.durable(0), 1);
    }

    fn failed() -> io::Error {
        io::Error::other("it broke")
    }

    fn full() -> CompactError {
        CompactError::Io(io::ErrorKind::StorageFull.into())
    }

    #[test]
    fn a_group_is_delivered_after_its_sync_with_the_sync_time() {
        let mut committer = started(config());
        committer.told(at(1), batch(10));
        committer.says(at(1), &["take", "append"]);
        committer.note_appended(false);
        committer.told(at(2), batch(20));
        committer.says(at(2), &["sync"]);
        committer.told(at(3), batch(30));
        committer.note_synced(at(5), at(4), false);
        committer.told(at(5), batch(40));
        committer.says(at(5), &["begin [10] 4", "take", "append"]);
        committer.note_appended(false);
        committer.says(at(5), &["sync"]);
        committer.note_synced(at(6), at(6), false);
        committer.says(at(6), &["begin [20, 30, 40] 6"]);
    }

    #[test]
    fn a_group_has_a_byte_limit() {
        let mut committer = started(config());
        for len in [99, 1, 1, 50, 49, 200, 7] {
            committer.told(at(0), batch(len));
        }
        for group in ["[99, 1]", "[1, 50, 49]", "[200]", "[7]"] {
            committer.writes(at(0), "take");
            committer.says(at(0), &[&format!("begin {group} 0")]);
        }
    }

    #[test]
    fn an_idle_log_is_confirmed_once() {
        let mut committer = started(config());
        let idle = at(LOG_IDLE_MS);
        committer.says(at(0), &[&format!("wait {LOG_IDLE_MS}")]);
        committer.says(idle, &["confirm", "append"]);
        committer.note_appended(false);
        committer.says(idle, &["sync"]);
        committer.note_synced(idle, idle, true);
        committer.says(idle, &["wait"]);
    }

    #[test]
    fn a_group_without_room_blocks_later_groups() {
        let mut committer = started(config());
        let status = Arc::clone(&committer.status);
        committer.told(at(0), batch(10));
        committer.says(at(0), &["take", "append"]);
        committer.foldable = segments(1);
        committer.note_no_room(at(0));
        assert_eq!(status.state(at(0)), LogState::NoSpace);
        committer.told(at(0), batch(20));
        committer.says(at(0), &["prepare", "compact", &format!("wait {LOG_NO_ROOM_RETRY_MS}")]);
        let retry = at(LOG_NO_ROOM_RETRY_MS);
        committer.says(retry, &["append"]);
        committer.note_no_room(retry);
        committer.says(retry, &[&format!("wait {}", 2 * LOG_NO_ROOM_RETRY_MS)]);
        committer.told(at(1_500), LogOrder::Report(Report::Space(Space::Ample)));
        assert_eq!(status.state(at(1_500)), LogState::Ready);
        committer.says(at(1_500), &["append"]);
        committer.note_appended(true);
        committer.says(at(1_500), &["sync"]);
        committer.note_synced(at(1_501), at(1_501), false);
        committer.says(at(1_501), &["begin [10] 1501", "prepare", "take"]);
    }

    #[test]
    fn a_full_disk_is_checked_periodically_while_batches_arrive() {
        let mut committer = started(config());
        committer.told(at(0), LogOrder::Report(Report::Space(Space::Low)));
        for look in 1..4 {
            let now = at(look * LOG_LOOK_MS);
            committer.told(now, batch(1));
            committer.says(now, &["prepare"]);
            committer.writes(now, "take");
            committer.told(now, LogOrder::Report(Report::Space(Space::Low)));
            assert!(committer.said(now).starts_with("begin"));
        }
        let now = at(4 * LOG_LOOK_MS - 1);
        committer.told(now, LogOrder::Report(Report::Space(Space::Ample)));
        committer.writes(at(5 * LOG_LOOK_MS), "confirm");
    }

    #[test]
    fn a_start_without_room_compacts_and_writes_its_first_frames_later() {
        let mut committer =
            started(CommitterConfig { waits_for_room: true, foldable: segments(1), ..config() });
        assert_eq!(committer.status.state(at(0)), LogState::NoSpace);
        committer.told(at(0), batch(10));
        committer.says(at(0), &["compact", &format!("wait {LOG_NO_ROOM_RETRY_MS}")]);
        committer.writes(at(LOG_NO_ROOM_RETRY_MS), "append");
    }

    #[test]
    fn a_new_segment_triggers_preparation_and_one_compaction_at_a_time() {
        let mut committer = started(config());
        for (count, steps) in [(1, &["prepare", "take"][..]), (2, &["prepare", "compact", "take"])] {
            committer.told(at(0), batch(10));
            committer.says(at(0), &["take", "append"]);
            committer.foldable = segments(count);
            committer.note_appended(true);
            committer.says(at(0), &["sync"]);
            committer.note_synced(at(0), at(0), false);
            committer.says(at(0), &["begin [10] 0"]);
            committer.told(at(0), batch(20));
            committer.says(at(0), steps);
            committer.says(at(0), &["append"]);
            committer.note_appended(false);
            committer.says(at(0), &["sync"]);
            committer.note_synced(at(0), at(0), false);
            committer.says(at(0), &["begin [20] 0"]);
        }
        committer.foldable = segments(9);
        committer.compact();
        assert!(committer.said(at(0)).starts_with("wait"), "one compaction at a time");
        committer.told(at(0), LogOrder::Report(Report::Compacted(PLAN, Ok(()))));
        committer.compact();
        committer.says(at(0), &["adopt"]);
        committer.foldable = segments(2);
        committer.note_adopted(ObsoleteFiles { segments_before: 6, snapshots_except: [3, 4] });
        committer.says(at(0), &["remove", "compact"]);
    }

    #[test]
    fn a_start_compacts_segments_left_by_the_previous_run() {
        let mut committer = started(CommitterConfig { foldable: segments(2), ..config() });
        committer.says(at(0), &["compact"]);
        let mut committer = started(CommitterConfig { foldable: segments(1), ..config() });
        assert!(committer.said(at(0)).starts_with("wait"));
    }

    #[test]
    fn a_full_disk_is_checked_again_once_old_files_are_removed() {
        let mut committer = started(config());
        committer.foldable = segments(1);
        committer.told(at(0), LogOrder::Report(Report::Space(Space::Low)));
        committer.says(at(0), &["compact"]);
        committer.told(at(0), LogOrder::Report(Report::Compacted(PLAN, Ok(()))));
        committer.says(at(0), &["adopt"]);
        committer.foldable = None;
        committer.note_adopted(ObsoleteFiles { segments_before: 6, snapshots_except: [3, 4] });
        committer.says(at(0), &["remove", "prepare"]);
    }

    #[test]
    fn a_failed_compaction_changes_nothing_and_is_retried() {
        let mut committer = started(CommitterConfig { foldable: segments(2), ..config() });
        committer.says(at(0), &["compact"]);
        committer.told(at(0), LogOrder::Report(Report::Compacted(PLAN, Err(full()))));
        assert_eq!(committer.status.compaction_failures(), 1);
        committer.writes(at(LOG_IDLE_MS), "confirm");
        committer.agenda.note_flushed(at(LOG_IDLE_MS), true);
        committer.says(at(LOG_IDLE_MS), &[&format!("wait {LOG_COMPACT_RETRY_MS}")]);
        committer.says(at(LOG_COMPACT_RETRY_MS), &["compact"]);
    }

    #[test]
    fn the_wait_after_losses_ends_once_while_batches_arrive() {
        let mut committer = started(CommitterConfig { losses_ms: Some(300), ..config() });
        committer.says(at(0), &["wait 300"]);
        committer.told(at(299), batch(1));
        committer.writes(at(299), "take");
        committer.says(at(299), &["begin [1] 299"]);
        committer.told(at(300), batch(2));
        committer.says(at(300), &["endlosses", "take", "append"]);
    }

    #[test]
    fn a_stop_makes_everything_durable_first() {
        let mut committer = started(config());
        committer.told(at(0), batch(100));
        committer.told(at(0), batch(10));
        committer.told(at(0), LogOrder::Stop);
        for group in ["[100]", "[10]"] {
            committer.writes(at(0), "take");
            committer.says(at(0), &[&format!("begin {group} 0")]);
        }
        committer.says(at(0), &["close"]);
    }

    #[test]
    fn a_stop_without_room_gives_up_and_answers_unknown() {
        let mut committer = started(config());
        committer.told(at(0), batch(10));
        committer.says(at(0), &["take", "append"]);
        committer.note_no_room(at(0));
        committer.says(at(0), &["prepare"]);
        committer.told(at(10), batch(20));
        committer.told(at(10), LogOrder::Stop);
        committer.says(at(10), &["append"]);
        committer.note_no_room(at(10));
        let end = 10 + LOG_STOP_GRACE_MS;
        committer.says(at(10), &[&format!("wait {end}")]);
        committer.says(at(end), &["unknown [10, 20]", "fail: log: no space for another segment"]);
    }

    #[test]
    fn after_a_failure_only_groups_already_durable_are_confirmed() {
        let mut committer = started(config());
        committer.told(at(0), batch(100));
        committer.told(at(0), batch(10));
        committer.says(at(0), &["take", "append"]);
        committer.note_appended(true);
        committer.says(at(0), &["sync"]);
        committer.note_synced(at(0), at(0), false);
        committer.told(at(0), LogOrder::Report(Report::Failed(failed())));
        committer.told(at(0), batch(20));
        committer.says(at(0), &["begin [100] 0", "unknown [10, 20]", "fail: log: it broke"]);
    }

    #[test]
    fn a_failed_sync_fails_the_log_with_unknown_outcomes() {
        let mut committer = started(config());
        committer.told(at(0), batch(10));
        committer.says(at(0), &["take", "append"]);
        committer.note_appended(false);
        committer.says(at(0), &["sync"]);
        committer.fail(failed().into());
        committer.says(at(0), &["unknown [10]", "fail: log: it broke"]);
    }

    #[test]
    fn workers_see_a_stalled_write_in_the_log_state() {
        let mut committer = started(config());
        let status = Arc::clone(&committer.status);
        committer.told(at(0), batch(10));
        committer.says(at(5), &["take", "append"]);
        assert_eq!(status.state(at(5 + LOG_STALLED_MS)), LogState::Slow);
        assert_eq!(status.state(at(4 + LOG_STALLED_MS)), LogState::Ready);
        committer.note_appended(false);
        committer.says(at(6), &["sync"]);
        committer.note_synced(at(7), at(7), false);
        assert_eq!(status.state(at(9 + 2 * LOG_STALLED_MS)), LogState::Ready);
    }
}
