//! The requests that one connection may have in flight.

use crate::target::Claim;

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SlotState {
    /// Nothing; the next request is an acquire.
    #[default]
    Idle,
    /// An acquire is in flight.
    Acquiring,
    /// A hold is there; the next request is its release.
    Held,
    /// A release is in flight.
    Releasing,
    /// Busy was the answer; the next request is the same acquire again.
    Refused,
    /// Its work is over.
    Done,
}

/// One request that may be in flight, and the hold between an acquire and its release.
#[derive(Clone, Debug, Default)]
pub struct Slot<Hold> {
    /// When the request in flight was sent, or should have been.
    pub sent_at_ns: u64,
    /// See [`crate::workload::Workload::fence_floor`].
    pub fence_floor: u64,
    /// What was asked for.
    pub claim: Claim,
    /// Of the request in flight.
    pub number: u32,
    /// What it is doing.
    pub state: SlotState,
    /// What the release must show.
    pub hold: Hold,
}

/// All slots of one connection. A request number is the slot in its low bits and a count above, so an answer finds its
/// slot without a search and an old number never fits a new request.
#[derive(Debug)]
pub struct Slots<Hold> {
    slots: Vec<Slot<Hold>>,
    slot_bits: u32,
    sequence: u32,
}

impl<Hold: Default + Clone> Slots<Hold> {
    /// `depth` idle slots.
    pub fn new(depth: u32) -> Self {
        let slot_bits = depth.next_power_of_two().trailing_zeros();
        Self { slots: vec![Slot::default(); depth as usize], slot_bits, sequence: 0 }
    }

    /// The slot at this index.
    #[inline]
    pub fn at(&mut self, index: u32) -> &mut Slot<Hold> {
        &mut self.slots[index as usize]
    }

    /// A number for a new request of this slot; never 0.
    #[inline]
    pub fn next_number(&mut self, index: u32) -> u32 {
        let sequence_max = u32::MAX >> self.slot_bits;
        self.sequence = if self.sequence == sequence_max { 1 } else { self.sequence + 1 };
        (self.sequence << self.slot_bits) | index
    }

    /// The slot whose request in flight has this number.
    #[inline]
    pub fn in_flight(&mut self, number: u32) -> Option<(u32, &mut Slot<Hold>)> {
        let index = number & ((1 << self.slot_bits) - 1);
        let slot = self.slots.get_mut(index as usize)?;
        let is_in_flight =
            slot.number == number && matches!(slot.state, SlotState::Acquiring | SlotState::Releasing);
        is_in_flight.then_some((index, slot))
    }

    /// How many are not done.
    pub fn active_count(&self) -> u32 {
        self.slots.iter().filter(|slot| slot.state != SlotState::Done).count() as u32
    }

    /// Requests in flight.
    pub fn in_flight_count(&self) -> u32 {
        self.slots
            .iter()
            .filter(|slot| matches!(slot.state, SlotState::Acquiring | SlotState::Releasing))
            .count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::{SlotState, Slots};

    #[test]
    fn a_number_finds_its_slot_once() {
        let mut slots = Slots::<()>::new(3);
        let number = slots.next_number(2);
        let slot = slots.at(2);
        (slot.number, slot.state) = (number, SlotState::Acquiring);
        let (index, slot) = slots.in_flight(number).expect("in flight");
        assert_eq!(index, 2);
        slot.state = SlotState::Idle;
        assert!(slots.in_flight(number).is_none());
        assert!(slots.in_flight(3).is_none(), "an index beyond the depth");
        assert_ne!(slots.next_number(2), number);
    }

    #[test]
    fn numbers_are_never_zero() {
        let mut slots = Slots::<()>::new(1);
        slots.sequence = u32::MAX - 1;
        let numbers = [slots.next_number(0), slots.next_number(0), slots.next_number(0)];
        assert_eq!(numbers, [u32::MAX, 1, 2]);
    }
}
