//! Tests of the committer.

use super::super::keeper::CompactError;
use super::super::port::LogPort;
use super::*;
use crate::LogState;
use crate::limits::{
    LOG_COMPACT_RETRY_MS, LOG_IDLE_MS, LOG_LOOK_MS, LOG_NO_ROOM_RETRY_MS, LOG_STALLED_MS, LOG_STOP_GRACE_MS,
};
use std::io;

const PLAN: CompactionPlan =
    CompactionPlan { log_id: 1, generation: 2, previous_snapshot: 3, first_segment: 4, last_segment: 5 };

fn at(ms: u64) -> Time {
    Time::from_millis(1_000_000 + ms)
}

fn config() -> CommitterConfig {
    let (port, _orders) = LogPort::<()>::new(1);
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

/// Returns an order with a batch whose records have this number of bytes.
fn batch(len: usize) -> LogOrder<()> {
    LogOrder::Batch(LogBatch { records: vec![0; len], record_count: 1, ..LogBatch::default() })
}

/// Returns a committer that has already requested the first errand: to create the segments for later use.
fn started(config: CommitterConfig) -> Committer<()> {
    let mut committer = Committer::new(config, at(0));
    assert_eq!(committer.said(at(0)), "prepare");
    committer
}

impl Committer<()> {
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
            Step::Deliver(batches, outcome) => {
                let lens: Vec<_> = batches.iter().map(|batch| batch.records.len()).collect();
                match outcome {
                    Outcome::Durable(since) => format!("begin {lens:?} {}", since.ms_since(at(0))),
                    Outcome::Unknown => format!("unknown {lens:?}"),
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

    fn told(&mut self, now: Time, order: LogOrder<()>) {
        self.obey(order, || now);
    }

    /// Performs a whole write without a failure of the disk.
    fn writes(&mut self, now: Time, first: &str) {
        self.says(now, &[first, "append"]);
        self.note_appended(false);
        self.says(now, &["sync"]);
        self.note_synced(now, now, false);
    }
}

/// A shard that knows that a record is durable no longer lets later responses wait for it. So the workers must have the
/// responses that waited for the record before the shard knows.
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
    let mut committer = started(CommitterConfig { waits_for_room: true, foldable: segments(1), ..config() });
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
