//! A cluster in memory, which counts when the test says so.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use waymaker_engine::{CounterName, Fence, QuorumQuestion, QuorumState};

/// It outlives every server, whatever becomes of the log.
#[derive(Debug, Default)]
pub(crate) struct FakeQuorum {
    pub(crate) state: QuorumState,
    counters: BTreeMap<CounterName, u64>,
    asked: VecDeque<QuorumQuestion>,
}

impl FakeQuorum {
    pub(crate) fn ask(&mut self, question: QuorumQuestion) {
        assert_eq!(self.state, QuorumState::Ready, "nobody is asked who does not answer");
        self.asked.push_back(question);
    }

    /// Somebody else has counted up to this.
    pub(crate) fn set(&mut self, name: CounterName, fence: u64) {
        self.counters.insert(name, fence);
    }

    /// Another server counts once.
    pub(crate) fn count_elsewhere(&mut self, name: CounterName) {
        *self.counters.entry(name).or_default() += 1;
    }

    /// The server that asked is gone. What it asked is counted all the same: its answer is lost.
    pub(crate) fn crash(&mut self) {
        self.answer(true);
    }

    /// Answers all questions: returns them, with their counted fences if they are counted.
    pub(crate) fn answer(&mut self, is_counted: bool) -> Vec<QuorumQuestion> {
        let asked = std::mem::take(&mut self.asked);
        let mut answer = |mut question: QuorumQuestion| {
            for member in &mut question.members {
                let counter = member.counter.as_ref().filter(|_| is_counted);
                let before = member.reserved.fence;
                if let Some(name) = counter {
                    let fence = self.counters.entry(name.clone()).or_default();
                    *fence = before.get().max(*fence + 1);
                    member.reserved.fence = Fence::new(*fence);
                }
            }
            let grants = question.multi_key.iter_mut().flatten();
            grants.zip(&question.members).for_each(|(key, member)| key.grant.fence = member.reserved.fence);
            question
        };
        asked.into_iter().map(&mut answer).collect()
    }
}
