//! The log and the cluster that counts, which workers hear of late.

use super::mail::News;
use super::requests::KEYS;
use super::{Mail, Run};
use crate::recorder::Effect;
use waymaker_engine::{CounterName, LogState, QuorumState, ReservedEnd, WhenDurable};

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
        for then in then {
            match then {
                WhenDurable::Answer(ticket, answer) | WhenDurable::AnswerWaiter(ticket, answer) => {
                    self.auditor.was_decided_before(ticket);
                    self.hear(&Effect::Answer(ticket, answer));
                }
                WhenDurable::Tell(lane, event) => self.hear(&Effect::Event(lane, event)),
                begin => self.end(ReservedEnd::Begins(now), begin),
            }
        }
    }

    pub(super) fn count_or_refuse(&mut self) {
        let is_counted = self.dice.percent(70);
        self.count(is_counted);
    }

    /// The cluster answers all questions.
    pub(super) fn count(&mut self, is_counted: bool) {
        let now = self.time();
        for question in self.node.quorum.answer(is_counted) {
            if is_counted {
                self.node.log.note_counted(question, now);
            } else {
                question.begin().for_each(|then| self.end(ReservedEnd::NotCounted, then));
            }
        }
    }

    /// Another server counts a key.
    pub(super) fn count_elsewhere(&mut self) {
        let (key, _) = self.dice.pick(&KEYS);
        self.node.quorum.count_elsewhere(CounterName { namespace: 0, key: key.into() });
    }

    /// Tells the worker of the lane of a reserved claim how the claim goes on.
    fn end(&mut self, end: ReservedEnd, then: WhenDurable) {
        let (worker, news) = match then {
            WhenDurable::Begin(reserved) => {
                (reserved.lane.worker, News::Mail(reserved.shard, Mail::End(end, reserved)))
            }
            WhenDurable::BeginMultiKey(together) => {
                (together.members[0].lane.worker, News::MultiShard(end, together))
            }
            WhenDurable::Answer(..) | WhenDurable::AnswerWaiter(..) | WhenDurable::Tell(..) => return,
        };
        self.workers[usize::from(worker)].passing.push_back(news);
    }
}
