//! Records of requests that have no response yet, by their tickets.

use std::collections::BTreeMap;
use waymaker_engine::{LaneAddress, Ticket};

/// Key of one record in the map of `ByTicket`: the ticket of a request and the number of the record. A client may give
/// several requests the same number and so the same ticket, so the ticket alone is not unique.
pub(super) type Place = (Ticket, u64);

/// The records of one kind: one for each request with an open audit event, or with an open span.
#[derive(Debug)]
pub(super) struct ByTicket<T> {
    records: BTreeMap<Place, T>,
    next_number: u64,
}

impl<T> Default for ByTicket<T> {
    fn default() -> Self {
        Self { records: BTreeMap::new(), next_number: 0 }
    }
}

impl<T> ByTicket<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn insert(&mut self, ticket: Ticket, record: T) {
        self.records.insert((ticket, self.next_number), record);
        self.next_number += 1;
    }

    /// Returns the records with this ticket, oldest first.
    pub(super) fn of(&self, ticket: Ticket) -> impl Iterator<Item = (&Place, &T)> {
        self.records.range((ticket, 0)..=(ticket, u64::MAX))
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        self.records.get_mut(&place)
    }

    /// Removes the oldest record with this ticket.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<T> {
        let (&place, _) = self.of(ticket).next()?;
        self.records.remove(&place)
    }

    /// Returns the ticket of each record of a lane.
    pub(super) fn tickets_of(&self, lane: LaneAddress) -> Vec<Ticket> {
        let ticket = |number| Ticket { lane, number };
        let of_lane = self.records.range((ticket(0), 0)..=(ticket(u32::MAX), u64::MAX));
        of_lane.map(|((ticket, _), _)| *ticket).collect()
    }
}
