//! Keeps what a turn says.

use std::collections::VecDeque;
use std::sync::Arc;
use waymaker_engine::several::Several;
use waymaker_engine::{Answer, Effects, Event, LaneAddress, Ticket};

/// One effect of a turn that somebody hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Answer(Ticket, Answer),
    Event(LaneAddress, Event),
}

/// What a turn leaves to be done with the turns of other shards.
#[derive(Debug)]
pub(crate) enum FollowUp {
    Recheck(Arc<Several>),
    Withdraw(Arc<Several>),
}

/// Effects in the order in which they became true.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) said: Vec<Effect>,
    pub(crate) follow_ups: VecDeque<FollowUp>,
}

impl Effects for Recorder {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.said.push(Effect::Answer(ticket, answer));
    }

    fn event(&mut self, lane: LaneAddress, event: Event) {
        self.said.push(Effect::Event(lane, event));
    }

    fn recheck(&mut self, several: &Arc<Several>) {
        self.follow_ups.push_back(FollowUp::Recheck(Arc::clone(several)));
    }

    fn withdraw(&mut self, several: &Arc<Several>) {
        self.follow_ups.push_back(FollowUp::Withdraw(Arc::clone(several)));
    }
}
