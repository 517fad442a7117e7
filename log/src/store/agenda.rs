//! Decides the next action of the log thread, and when it is due. The `committer` divides each action into steps.

use super::keeper::Space;
use crate::Time;
use crate::limits::{
    LOG_COMPACT_RETRY_MS, LOG_IDLE_MS, LOG_LOOK_MS, LOG_NO_ROOM_RETRY_MS, LOG_NO_SPACE_PACE_MS,
    LOG_STOP_GRACE_MS,
};

/// Next action of the log thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for the next order, at most until this instant. An order is a batch of a worker, a result of the keeper
    /// thread, or the stop.
    Wait(Time),
    /// Convert batches to frames, append them and flush them.
    Commit,
    /// Try again to append the frames for which the disk had no room, and flush them.
    Retry,
    /// Append and flush a frame without records. It says that the last flush was durable, and when it ended.
    Confirm,
    /// Fold old segments into a snapshot, after an earlier try has failed. Does nothing if too few segments are left.
    Compact,
    /// Check whether the disk has room again.
    Look,
    /// Remove the fence floor and the waiting time for lost records from the superblock. All holds that may have been
    /// lost have expired, so later starts need not wait.
    EndLosses,
    /// End the log with a clean stop.
    Close,
    /// End the server with an error. The server is stopping, and the disk still has no room for the last frames after
    /// the time allowed.
    GiveUp,
}

/// Work of the log thread that is due now or later, each with its time.
#[derive(Clone, Debug)]
pub(super) struct Agenda {
    /// Whether there are batches that were not taken into a group yet.
    has_batches: bool,
    /// Time to retry the frames for which the disk had no room; `None` if there are none.
    retry_at: Option<Time>,
    /// Time to append a frame that says that the last flush was durable; `None` if that is not needed.
    confirm_at: Option<Time>,
    /// Earliest time of the next group of batches while the disk is full. Each group uses up at least one block of the
    /// segments that are left, so the log waits until more batches can share a group.
    pace_until: Time,
    space: Space,
    /// Time to retry a failed compaction; `None` if no retry is planned.
    compact_at: Option<Time>,
    /// Time to check whether a full disk has room again; `None` while it has room or while a check is running.
    look_at: Option<Time>,
    /// Time at which all holds in lost records have expired; `None` if the superblock has no note of lost records.
    /// (Records are lost if an operator accepts damage or restores a backup.) The log thread then removes the note.
    losses_end_at: Option<Time>,
    /// Time at which a stopping server ends although the disk has no room for its last frames; `None` while the server
    /// runs.
    give_up_at: Option<Time>,
}

impl Agenda {
    /// Returns the agenda (the list of work that is due now or later) of a log thread that starts at `now`. The server
    /// has already tried to append the first records of its start. If records were lost, `losses_ms` is the time from
    /// `now` until all holds in them have expired; otherwise `None`.
    pub(super) fn new(now: Time, losses_ms: Option<u64>) -> Self {
        Self {
            has_batches: false,
            retry_at: None,
            confirm_at: Some(now.after_ms(LOG_IDLE_MS)),
            pace_until: now,
            space: Space::Ample,
            compact_at: None,
            look_at: None,
            losses_end_at: losses_ms.map(|wait_ms| now.after_ms(wait_ms)),
            give_up_at: None,
        }
    }

    /// Returns the next action. The result stays the same until one of the `note` functions reports a change, or until
    /// another action becomes due.
    pub(super) fn next(&self, now: Time) -> Next {
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.look_at) {
            return Next::Look;
        }
        if is_due(self.losses_end_at) {
            return Next::EndLosses;
        }
        match self.next_write(now) {
            Next::Wait(_) if is_due(self.compact_at) => Next::Compact,
            Next::Wait(until) => {
                let others = [self.look_at, self.losses_end_at, self.compact_at];
                Next::Wait(others.into_iter().flatten().fold(until, Time::min))
            }
            next => next,
        }
    }

    fn next_write(&self, now: Time) -> Next {
        let when = |at: Time, next| if at <= now { next } else { Next::Wait(at) };
        match (self.retry_at, self.give_up_at) {
            // The frames for which the disk had no room must be written before any other frames.
            (Some(retry_at), None) => when(retry_at, Next::Retry),
            (Some(_), Some(give_up_at)) if give_up_at <= now => Next::GiveUp,
            (Some(retry_at), Some(give_up_at)) => when(retry_at.min(give_up_at), Next::Retry),
            (None, Some(_)) => {
                if self.has_batches {
                    Next::Commit
                } else {
                    Next::Close
                }
            }
            (None, None) if self.has_batches => when(self.pace_until, Next::Commit),
            (None, None) => self.confirm_at.map_or(Next::Wait(Time::NEVER), |at| when(at, Next::Confirm)),
        }
    }

    /// Notes that a batch has arrived.
    pub(super) fn note_batch(&mut self) {
        self.has_batches = true;
    }

    /// Notes that batches were taken into a group, to be converted to frames. If `has_more`, other batches are left,
    /// and [`Agenda::next`] returns [`Next::Commit`] again for them.
    pub(super) fn note_taken(&mut self, has_more: bool) {
        self.has_batches = has_more;
    }

    /// Notes that all appended frames are durable, and that none is left, so that no retry is due. Unless
    /// `is_confirmed`, also plans a frame without records, whose header confirms that they are durable. (Frames without
    /// records need no confirmation.) While the disk is full, delays the next batches.
    pub(super) fn note_flushed(&mut self, now: Time, is_confirmed: bool) {
        self.retry_at = None;
        self.confirm_at = (!is_confirmed).then(|| now.after_ms(LOG_IDLE_MS));
        if self.space == Space::Low {
            self.pace_until = now.after_ms(LOG_NO_SPACE_PACE_MS);
        }
    }

    /// Notes that the disk had no room for frames, and plans a retry. Returns `true` if no retry was planned before:
    /// these frames fail for the first time. The caller must then tell the keeper thread (which works on files beside
    /// the log thread) to create segments. Later, [`Next::Look`] tells the caller to do so.
    pub(super) fn note_no_room(&mut self, now: Time) -> bool {
        self.space = Space::Low;
        self.retry_at.replace(now.after_ms(LOG_NO_ROOM_RETRY_MS)).is_none()
    }

    /// Notes whether the disk has room for the next segments. If it has, planned retries are due at once; if not, plans
    /// the next check. Returns whether the room differs from the noted one.
    pub(super) fn note_space(&mut self, now: Time, space: Space) -> bool {
        self.look_at = (space == Space::Low).then(|| now.after_ms(LOG_LOOK_MS));
        if space == Space::Ample {
            self.pace_until = now;
            self.retry_at = self.retry_at.map(|_| now);
            self.compact_at = self.compact_at.map(|_| now);
        }
        std::mem::replace(&mut self.space, space) != space
    }

    /// Notes that a check whether the disk has room for segments has begun. No other check is planned until
    /// [`Agenda::note_space`] gets the result.
    pub(super) fn note_looked(&mut self) {
        self.look_at = None;
    }

    /// Notes that the log thread is about to remove the note of lost records from the superblock.
    pub(super) fn note_losses_ended(&mut self) {
        self.losses_end_at = None;
    }

    /// Notes that a compaction failed. It is retried after a while, when there is room again, or when another segment
    /// is full; during the stop of the log it is not retried.
    pub(super) fn note_compaction_failed(&mut self, now: Time) {
        self.compact_at = self.give_up_at.is_none().then(|| now.after_ms(LOG_COMPACT_RETRY_MS));
    }

    /// Cancels the planned retry of a failed compaction, because a compaction begins or runs, or because there are too
    /// few old segments for one. (A compaction folds old segments into a snapshot.)
    pub(super) fn note_compaction_tried(&mut self) {
        self.compact_at = None;
    }

    /// Begins the stop of the log, cancels the planned retry of a compaction, and makes a planned retry of frames due
    /// at once. [`Agenda::next`] now returns the remaining writes and then [`Next::Close`]. If the disk still has no
    /// room for the last frames after a grace period, `next` returns [`Next::GiveUp`]. No batch arrives after this
    /// call.
    pub(super) fn note_stop(&mut self, now: Time) {
        self.compact_at = None;
        self.give_up_at = Some(now.after_ms(LOG_STOP_GRACE_MS));
        self.retry_at = self.retry_at.map(|_| now);
    }

    /// Returns the room on the disk, as last noted.
    pub(super) fn space(&self) -> Space {
        self.space
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    fn agenda() -> Agenda {
        Agenda::new(at(0), None)
    }

    #[test]
    fn batches_are_committed_at_once_and_confirmed_when_the_log_is_idle() {
        let mut agenda = agenda();
        agenda.note_batch();
        assert_eq!(agenda.next(at(0)), Next::Commit);
        agenda.note_taken(false);
        agenda.note_flushed(at(10), false);
        assert_eq!(agenda.next(at(10)), Next::Wait(at(10 + LOG_IDLE_MS)));
        assert_eq!(agenda.next(at(10 + LOG_IDLE_MS)), Next::Confirm);
        agenda.note_flushed(at(600), true);
        assert_eq!(agenda.next(at(600)), Next::Wait(Time::NEVER));
    }

    #[test]
    fn frames_without_room_are_retried_and_nothing_else_is_written() {
        let mut agenda = agenda();
        agenda.note_batch();
        agenda.note_taken(true);
        let mut tries = 0;
        let mut asked = 0;
        for ms in 0..60_000 {
            match agenda.next(at(ms)) {
                Next::Wait(until) => assert!(until > at(ms)),
                Next::Commit | Next::Retry => {
                    tries += 1;
                    asked += u64::from(agenda.note_no_room(at(ms)));
                }
                other => panic!("{other:?}"),
            }
            // While the frames without room wait for their retry, further batches, and reports that the disk is still
            // full, do not change the next action.
            agenda.note_batch();
            agenda.note_space(at(ms), Space::Low);
        }
        assert!((30..=61).contains(&tries), "{tries} tries in a minute");
        assert_eq!(asked, 1, "room is asked for once");
    }

    #[test]
    fn a_confirmation_without_room_is_retried_like_any_frame() {
        let mut agenda = agenda();
        assert_eq!(agenda.next(at(LOG_IDLE_MS)), Next::Confirm);
        agenda.note_no_room(at(LOG_IDLE_MS));
        let retry_at = LOG_IDLE_MS + LOG_NO_ROOM_RETRY_MS;
        assert_eq!(agenda.next(at(LOG_IDLE_MS)), Next::Wait(at(retry_at)));
        assert_eq!(agenda.next(at(retry_at)), Next::Retry);
    }

    #[test]
    fn frames_are_written_as_soon_as_there_is_room() {
        let mut agenda = agenda();
        agenda.note_space(at(5), Space::Ample);
        assert_ne!(agenda.next(at(5)), Next::Retry, "there is nothing to write");
        agenda.note_no_room(at(5));
        assert!(agenda.note_space(at(6), Space::Ample));
        assert_eq!(agenda.next(at(6)), Next::Retry);
    }

    #[test]
    fn batches_are_paced_while_the_disk_is_full() {
        let mut agenda = agenda();
        assert!(agenda.note_space(at(0), Space::Low));
        assert!(!agenda.note_space(at(0), Space::Low));
        agenda.note_flushed(at(0), false);
        agenda.note_batch();
        assert_eq!(agenda.next(at(1)), Next::Wait(at(LOG_NO_SPACE_PACE_MS)));
        assert_eq!(agenda.next(at(LOG_NO_SPACE_PACE_MS)), Next::Commit);
        agenda.note_space(at(2), Space::Ample);
        assert_eq!(agenda.next(at(2)), Next::Commit);
    }

    #[test]
    fn a_failed_compaction_is_retried_later_or_when_there_is_room() {
        let mut agenda = agenda();
        agenda.note_flushed(at(0), true);
        agenda.note_compaction_failed(at(0));
        assert_eq!(agenda.next(at(0)), Next::Wait(at(LOG_COMPACT_RETRY_MS)));
        agenda.note_batch();
        assert_eq!(agenda.next(at(LOG_COMPACT_RETRY_MS)), Next::Commit, "nobody waits for a compaction");
        agenda.note_taken(false);
        assert_eq!(agenda.next(at(LOG_COMPACT_RETRY_MS)), Next::Compact);
        agenda.note_compaction_tried();
        assert_eq!(agenda.next(at(LOG_COMPACT_RETRY_MS)), Next::Wait(Time::NEVER));
        agenda.note_compaction_failed(at(0));
        agenda.note_space(at(1), Space::Low);
        agenda.note_looked();
        assert_eq!(agenda.next(at(1)), Next::Wait(at(LOG_COMPACT_RETRY_MS)));
        agenda.note_space(at(2), Space::Ample);
        assert_eq!(agenda.next(at(2)), Next::Compact);
    }

    /// A stop must end within its grace period, for every agenda that a few events can lead to, whether the disk has
    /// room or not.
    #[test]
    fn a_stop_completes_from_every_state() {
        type Event = fn(&mut Agenda, Time);
        let events: [Event; 7] = [
            |agenda, _| agenda.note_batch(),
            |agenda, now| agenda.note_flushed(now, false),
            |agenda, now| agenda.note_flushed(now, true),
            |agenda, now| _ = agenda.note_no_room(now),
            |agenda, now| _ = agenda.note_space(now, Space::Low),
            |agenda, now| _ = agenda.note_space(now, Space::Ample),
            |agenda, now| agenda.note_compaction_failed(now),
        ];
        for has_room in [false, true] {
            for number in 0..events.len().pow(4) {
                let mut agenda = agenda();
                (0..4).for_each(|step| {
                    events[number / events.len().pow(step) % events.len()](&mut agenda, at(0));
                });
                agenda.note_stop(at(0));
                // A compaction that ran when the stop began may fail now.
                agenda.note_compaction_failed(at(0));
                agenda.note_space(at(0), Space::Ample);
                let (mut now, mut steps) = (at(0), 0);
                let end = loop {
                    steps += 1;
                    assert!(now <= at(LOG_STOP_GRACE_MS) && steps < 100, "{number}: no end");
                    match agenda.next(now) {
                        Next::Wait(until) => now = until,
                        Next::Close => break Next::Close,
                        Next::GiveUp => break Next::GiveUp,
                        Next::Compact => panic!("{number}: a server that stops folds segments"),
                        Next::Look => agenda.note_looked(),
                        Next::EndLosses => panic!("{number}: nothing was lost"),
                        Next::Commit | Next::Retry | Next::Confirm => {
                            agenda.note_taken(false);
                            if has_room {
                                agenda.note_flushed(now, false);
                            } else {
                                agenda.note_no_room(now);
                            }
                        }
                    }
                };
                assert!(!has_room || end == Next::Close, "{number}: there is room, and it gives up");
            }
        }
    }
}
