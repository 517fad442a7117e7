//! Slots for the requests that one connection may have in flight.

use crate::codec::Claim;

/// State of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SlotState {
    /// Idle; the next request is an acquire.
    #[default]
    Idle,
    /// An acquire is in flight.
    Acquiring,
    /// Holds a lock; the next request is its release.
    Held,
    /// A release is in flight.
    Releasing,
    /// The acquire was answered busy; the next request repeats it.
    Refused,
    /// The slot sends no more requests.
    Done,
}

/// Slot for one request in flight, and for the hold between an acquire and its release.
#[derive(Clone, Debug, Default)]
pub struct Slot<Hold> {
    /// Time at which the request in flight was sent; in an open loop, the time at which it was due.
    pub sent_at_ns: u64,
    /// See [`crate::workload::Workload::fence_floor`].
    pub fence_floor: u64,
    /// Claim of the acquire.
    pub claim: Claim,
    /// Number of the request in flight.
    pub number: u32,
    /// State of the slot.
    pub state: SlotState,
    /// Data that the release must send.
    pub hold: Hold,
}

/// All slots of one connection. A request number has the slot index in its low bits and a counter above, so a
/// response finds its slot without a search, and an old number never matches a new request.
#[derive(Debug)]
pub struct Slots<Hold> {
    slots: Vec<Slot<Hold>>,
    slot_bits: u32,
    sequence: u32,
}

impl<Hold: Default + Clone> Slots<Hold> {
    /// Creates `depth` idle slots.
    pub fn new(depth: u32) -> Self {
        let slot_bits = depth.next_power_of_two().trailing_zeros();
        Self { slots: vec![Slot::default(); depth as usize], slot_bits, sequence: 0 }
    }

    /// Returns the slot at this index.
    #[inline]
    pub fn at(&mut self, index: u32) -> &mut Slot<Hold> {
        &mut self.slots[index as usize]
    }

    /// Returns a number for a new request of this slot; never 0.
    #[inline]
    pub fn next_number(&mut self, index: u32) -> u32 {
        let sequence_max = u32::MAX >> self.slot_bits;
        self.sequence = if self.sequence == sequence_max { 1 } else { self.sequence + 1 };
        (self.sequence << self.slot_bits) | index
    }

    /// Returns the slot whose request in flight has this number.
    #[inline]
    pub fn in_flight(&mut self, number: u32) -> Option<(u32, &mut Slot<Hold>)> {
        let index = number & ((1 << self.slot_bits) - 1);
        let slot = self.slots.get_mut(index as usize)?;
        let is_in_flight =
            slot.number == number && matches!(slot.state, SlotState::Acquiring | SlotState::Releasing);
        is_in_flight.then_some((index, slot))
    }

    /// Returns the number of slots that are not done.
    pub fn active_count(&self) -> u32 {
        self.slots.iter().filter(|slot| slot.state != SlotState::Done).count() as u32
    }

    /// Returns the number of requests in flight.
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
    fn a_number_matches_its_slot_only_once() {
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
