//! The queue of audit lines, with bounds for their number, their length, and the rate of each act.

use super::event::Act;
use crate::limits::{AUDIT_LINE_COUNT_MAX, AUDIT_LINES_PER_S_MAX, AUDIT_QUEUE_LEN_MAX, AUDIT_REPORT_MS};

/// The queue of audit lines. Its methods get the time in milliseconds from a clock that may be set back.
#[derive(Debug, Default)]
pub(super) struct Queue {
    lines: Vec<String>,
    /// Length of `lines` in bytes.
    len: usize,
    allowances: [Allowance; Act::COUNT],
    /// Number of lines that were dropped or could not be written since the start.
    dropped_count: u64,
    /// Number of dropped and unwritten lines that no line of the audit log has reported yet.
    unreported_count: u64,
    reported_at_ms: u64,
    /// Whether the file must be reopened.
    pub(super) wants_reopen: bool,
    /// Whether the thread that writes the audit log must end after it has written everything.
    pub(super) is_stopping: bool,
}

/// Number of lines that [`Queue::admit`] has admitted for one kind of audited act in its current second. The second
/// starts at `begun_at_ms`, with the first line outside the previous second. Lines above [`AUDIT_LINES_PER_S_MAX`] are
/// dropped.
#[derive(Clone, Copy, Debug, Default)]
struct Allowance {
    begun_at_ms: u64,
    count: u32,
}

/// Work for the thread that writes the audit log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct QueuedWork {
    pub(super) lines: Vec<String>,
    /// Number of dropped and unwritten lines that the thread must report now; 0 if there are none or the next report is
    /// not due.
    pub(super) dropped_count: u64,
    pub(super) wants_reopen: bool,
    pub(super) is_stopping: bool,
}

impl QueuedWork {
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Queue {
    /// Returns whether another line of this act may be pushed in the present second of the act. Counts the line, as
    /// admitted or as dropped. `push` checks whether the queue has room.
    ///
    /// Each act has its own allowance, so that a flood of refusals does not displace the acts of operators.
    pub(super) fn admit(&mut self, act: Act, now_ms: u64) -> bool {
        let allowance = &mut self.allowances[act as usize];
        if !(allowance.begun_at_ms..allowance.begun_at_ms.saturating_add(1000)).contains(&now_ms) {
            *allowance = Allowance { begun_at_ms: now_ms, count: 0 };
        }
        let is_admitted = allowance.count < AUDIT_LINES_PER_S_MAX;
        if is_admitted {
            allowance.count += 1;
        } else {
            self.drop_line();
        }
        is_admitted
    }

    /// Adds a line. If the queue is full, drops and counts the line instead.
    pub(super) fn push(&mut self, line: String) {
        if self.lines.len() >= AUDIT_LINE_COUNT_MAX || self.len + line.len() > AUDIT_QUEUE_LEN_MAX {
            return self.drop_line();
        }
        self.len += line.len();
        self.lines.push(line);
    }

    fn drop_line(&mut self) {
        self.dropped_count += 1;
        self.unreported_count += 1;
    }

    /// Counts lines that could not be written. If a further lost line reported dropped lines, `reported_count` is their
    /// number, and they must be reported again. Otherwise it is 0.
    pub(super) fn note_lost(&mut self, line_count: u64, reported_count: u64) {
        self.dropped_count += line_count;
        self.unreported_count += line_count + reported_count;
    }

    /// Returns the number of lines that were dropped or could not be written since the start.
    pub(super) fn dropped_count(&self) -> u64 {
        self.dropped_count
    }

    /// Takes all queued lines and, if it is due, the report of dropped lines.
    pub(super) fn take(&mut self, now_ms: u64) -> QueuedWork {
        self.len = 0;
        let is_due = self.is_stopping || self.report_in_ms(now_ms) == Some(0);
        let dropped_count = if is_due { std::mem::take(&mut self.unreported_count) } else { 0 };
        if dropped_count > 0 {
            self.reported_at_ms = now_ms;
        }
        QueuedWork {
            lines: std::mem::take(&mut self.lines),
            dropped_count,
            wants_reopen: std::mem::take(&mut self.wants_reopen),
            is_stopping: self.is_stopping,
        }
    }

    /// Returns the time until the next line that reports dropped and unwritten lines is due, in milliseconds; `None` if
    /// all of them were reported.
    pub(super) fn report_in_ms(&self, now_ms: u64) -> Option<u64> {
        let since_ms = now_ms.checked_sub(self.reported_at_ms).unwrap_or(AUDIT_REPORT_MS);
        (self.unreported_count > 0).then(|| AUDIT_REPORT_MS.saturating_sub(since_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_MS: u64 = 1_000_000;

    #[test]
    fn a_flood_of_one_act_is_dropped_and_another_act_is_not() {
        let mut queue = Queue::default();
        for _ in 0..AUDIT_LINES_PER_S_MAX {
            assert!(queue.admit(Act::Authenticate, START_MS));
        }
        assert!(!queue.admit(Act::Authenticate, START_MS + 999));
        assert!(queue.admit(Act::ForceRelease, START_MS));
        assert!(queue.admit(Act::Authenticate, START_MS + 1000), "a new second");
        assert!(queue.admit(Act::ForceRelease, START_MS - 5000), "the clock was set back");
        assert_eq!(queue.dropped_count(), 1);
    }

    #[test]
    fn the_queue_is_bounded_by_count_and_by_bytes() {
        let mut queue = Queue::default();
        (0..AUDIT_LINE_COUNT_MAX + 3).for_each(|_| queue.push(String::from("x")));
        assert_eq!(queue.dropped_count(), 3);
        assert_eq!(queue.take(START_MS).lines.len(), AUDIT_LINE_COUNT_MAX);
        let long = "x".repeat(AUDIT_QUEUE_LEN_MAX / 2);
        (0..3).for_each(|_| queue.push(long.clone()));
        assert_eq!(queue.dropped_count(), 4);
        assert_eq!(queue.take(START_MS).lines.len(), 2);
    }

    #[test]
    fn dropped_lines_are_reported_at_most_once_a_second() {
        let mut queue = Queue::default();
        assert_eq!((queue.report_in_ms(START_MS), queue.take(START_MS).is_nothing()), (None, true));
        queue.drop_line();
        assert_eq!(queue.take(START_MS).dropped_count, 1);
        queue.drop_line();
        queue.drop_line();
        assert_eq!(
            (queue.report_in_ms(START_MS + 400), queue.take(START_MS + 400).dropped_count),
            (Some(600), 0)
        );
        assert_eq!(queue.take(START_MS + AUDIT_REPORT_MS).dropped_count, 2);
        queue.drop_line();
        queue.is_stopping = true;
        assert_eq!(queue.take(START_MS + AUDIT_REPORT_MS).dropped_count, 1, "the last chance");
    }
}
