//! The log and the cluster that counts, which workers hear of late.

use super::asking::KEYS;
use super::{Mail, Run};
use crate::recorder::Effect;
use waymaker_engine::{CounterName, LogState, QuorumState, Reserved, ReservedEnd, WhenDurable};

impl Run {
    pub(super) fn set_ready(&mut self) {
        self.node.set_log_state(LogState::Ready);
        if self.character.has_quorum {
            self.node.set_quorum_state(QuorumState::Ready);
        }
    }

    pub(super) fn sync_some(&mut self) {
        let pending = self.node.log.pending_count() as u64;
        let count = self.dice.below(pending + 1);
        self.sync(count as usize);
    }

    /// Makes at least this many items of the log durable.
    pub(super) fn sync(&mut self, count: usize) {
        let now = self.time();
        let then = self.node.log.sync(count, now);
        self.node.set_log_state(LogState::Ready);
        let mut lasts = Vec::new();
        for then in then {
            match then {
                WhenDurable::Answer(ticket, answer) | WhenDurable::AnswerWaiter(ticket, answer) => {
                    self.auditor.was_decided_before(ticket);
                    self.hear(&Effect::Answer(ticket, answer));
                }
                WhenDurable::Tell(lane, event) => self.hear(&Effect::Event(lane, event)),
                WhenDurable::Begin(reserved) => {
                    // The member that has the answer for all begins last.
                    let is_last = reserved.several.is_some();
                    if is_last { lasts.push(reserved) } else { self.end(ReservedEnd::Begins(now), reserved) }
                }
            }
        }
        for reserved in lasts {
            self.end(ReservedEnd::Begins(now), reserved);
        }
    }

    pub(super) fn count_or_refuse(&mut self) {
        let is_counted = self.dice.percent(70);
        self.count(is_counted);
    }

    /// The cluster answers all questions.
    pub(super) fn count(&mut self, is_counted: bool) {
        let now = self.time();
        for members in self.node.quorum.answer(is_counted) {
            if is_counted {
                self.node.log.note_counted(&members, now);
                continue;
            }
            for member in members.into_iter().rev() {
                self.end(ReservedEnd::NotCounted, member.reserved);
            }
        }
    }

    /// Another server counts a key.
    pub(super) fn count_elsewhere(&mut self) {
        let (key, _) = self.dice.pick(&KEYS);
        self.node.quorum.count_elsewhere(CounterName { namespace: 0, key: key.into() });
    }

    /// Tells the shard of a reserved grant, by way of the worker of its lane.
    fn end(&mut self, end: ReservedEnd, reserved: Reserved) {
        let worker = &mut self.workers[usize::from(reserved.lane.worker)];
        worker.passing.push_back((reserved.shard, Mail::End(end, reserved)));
    }
}
