//! Keeps what a turn says.

use crate::fake_log::encoded;
pub(crate) use crate::judge::Effect;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use waymaker_engine::multi_key::MultiKeyClaim;
use waymaker_engine::{Answer, Effects, Event, LaneAddress, QuorumQuestion, Ticket, WhenDurable};
use waymaker_log::Record;

/// What a turn leaves to be done with the turns of other shards.
#[derive(Debug)]
pub(crate) enum FollowUp {
    Recheck(Arc<MultiKeyClaim>),
    Withdraw(Arc<MultiKeyClaim>),
}

/// What a turn says to the log.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    Record {
        shard: u16,
        number: u64,
        bytes: Vec<u8>,
    },
    /// That a cluster counted further, which is no matter of one shard.
    Counted(Vec<u8>),
    /// To be done once what stands before it is durable.
    Then(WhenDurable),
}

/// Effects in the order in which they became true.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) said: Vec<Effect>,
    pub(crate) follow_ups: VecDeque<FollowUp>,
    pub(crate) written: Vec<Written>,
    pub(crate) asked: Vec<QuorumQuestion>,
    /// Acquires that wait. A worker counts them, so the response to each must be that of a waiter.
    pub(crate) waiting: BTreeSet<Ticket>,
}

impl Effects for Recorder {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.said.push(Effect::Answer(ticket, answer));
    }

    fn answer_acquire(&mut self, ticket: Ticket, answer: Answer) {
        assert!(!self.waiting.contains(&ticket), "the acquire of {ticket:?} waits: {answer:?}");
        self.answer(ticket, answer);
    }

    fn waits(&mut self, ticket: Ticket) {
        assert!(self.waiting.insert(ticket), "the acquire of {ticket:?} waits twice");
    }

    fn answer_waiter(&mut self, ticket: Ticket, answer: Answer) {
        assert!(self.waiting.remove(&ticket), "the acquire of {ticket:?} does not wait: {answer:?}");
        self.answer(ticket, answer);
    }

    fn event(&mut self, lane: LaneAddress, event: Event) {
        self.said.push(Effect::Event(lane, event));
    }

    fn recheck(&mut self, claim: &Arc<MultiKeyClaim>) {
        self.follow_ups.push_back(FollowUp::Recheck(Arc::clone(claim)));
    }

    fn withdraw(&mut self, claim: &Arc<MultiKeyClaim>) {
        self.follow_ups.push_back(FollowUp::Withdraw(Arc::clone(claim)));
    }

    fn record(&mut self, shard: u16, number: u64, record: &Record<'_>) {
        self.written.push(Written::Record { shard, number, bytes: encoded(record) });
    }

    fn when_durable(&mut self, then: WhenDurable) {
        self.written.push(Written::Then(then));
    }

    fn ask_quorum(&mut self, question: QuorumQuestion) {
        self.asked.push(question);
    }
}
