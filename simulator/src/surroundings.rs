//! The parts of a run that the simulated network and the simulated cluster use: the time, the settings, the
//! random source, the queue of events and the trace.

use crate::event::{Event, EventQueue};
use crate::random::Random;
use crate::trace::Trace;
use crate::workload::Settings;

/// Borrowed parts of a run at one instant.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) now_us: u64,
    /// True if no more faults happen.
    pub(crate) calm: bool,
    pub(crate) settings: &'a Settings,
    pub(crate) random: &'a mut Random,
    /// Random source for the acts of clients in `Settings::edge`.
    pub(crate) edge_random: &'a mut Random,
    pub(crate) queue: &'a mut EventQueue,
    pub(crate) trace: &'a mut Trace,
}

impl Surroundings<'_> {
    /// Schedules an event after a delay.
    pub(crate) fn after(&mut self, delay_us: u64, event: Event) {
        self.at(self.now_us + delay_us, event);
    }

    pub(crate) fn at(&mut self, at_us: u64, event: Event) {
        self.queue.push(at_us.max(self.now_us), event, self.random);
    }
}
