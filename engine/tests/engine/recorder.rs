//! Keeps what a turn says.

use waymaker_engine::{Answer, Effects, Event, LaneAddress, Ticket};

/// One effect of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Answer(Ticket, Answer),
    Event(LaneAddress, Event),
}

/// Effects in the order in which they became true.
#[derive(Debug, Default)]
pub(crate) struct Recorder(pub(crate) Vec<Effect>);

impl Effects for Recorder {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.0.push(Effect::Answer(ticket, answer));
    }

    fn event(&mut self, lane: LaneAddress, event: Event) {
        self.0.push(Effect::Event(lane, event));
    }
}
