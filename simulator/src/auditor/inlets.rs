//! Events and responses that a front end owes its clients. A client listens for them until it resets its
//! stream.

use super::Auditor;
use super::duties::Word;
use super::holds::Hold;
use crate::operation::Operation;
use waymaker_protocol::LockId;

impl Auditor {
    /// Records that a front end tells its client about the ends and leases of the holds that this acquire
    /// gets.
    pub(crate) fn note_followed(&mut self, connection: usize, number: u32) {
        self.connections[connection].followed.insert(number);
    }

    /// Returns whether the client of a hold gets events about its end and its lease.
    pub(super) fn is_followed(&self, hold: &Hold) -> bool {
        let record = &self.requests[hold.request];
        let listener = &self.connections[record.connection];
        let is_reset = listener.reset.contains(&record.number);
        // Another request may have taken over the hold since.
        let is_shared = matches!(record.operation, Operation::Acquire(acquire)
            if acquire.request_id.is_some() && self.has_same_request_id(hold.request, &acquire));
        !listener.is_front || listener.followed.contains(&record.number) && !is_reset && !is_shared
    }

    /// Returns whether a front end may drop the response to a request. A reset and the end of a watch have no
    /// response.
    pub(super) fn is_unheard_request(&self, connection: usize, request: usize) -> bool {
        let (listener, record) = (&self.connections[connection], &self.requests[request]);
        let is_reset = matches!(record.operation, Operation::Cancel { .. } | Operation::Unwatch { .. });
        listener.is_front && (is_reset || listener.reset.contains(&record.number))
    }

    /// Returns when an acquire whose stream was reset had surely left its queues. A connection that broke
    /// earlier may have lost the reset unread.
    pub(super) fn abandoned_ms(&self, request: usize) -> Option<u64> {
        let reset = &self.requests[self.requests[request].reset_by?];
        let left_ms = self.latest_ms(self.latest_ms(reset.arrived_ms?));
        let mut losses = self.lanes[reset.lane].losses.iter();
        let is_unread = losses.any(|loss| loss.connection == reset.connection && loss.at_ms <= left_ms);
        (!is_unread).then_some(left_ms)
    }

    /// Returns whether a front end may drop this event.
    pub(super) fn is_unheard_word(&self, connection: usize, word: Word) -> bool {
        let listener = &self.connections[connection];
        let is_followed = |id: &LockId| self.holds.get(id).is_some_and(|hold| self.is_followed(hold));
        listener.is_front
            && match word {
                Word::Revoked(id) => !is_followed(&id) || listener.told_over.contains(&id),
                // Of several leases that the client did not read only the newest is kept, and none after the
                // end of the hold.
                Word::LeaseMoved(id, remaining_ms) => {
                    let moved_ms = self.moved.get(&(id, remaining_ms));
                    !is_followed(&id)
                        || listener.told_over.contains(&id)
                        || listener.moved_ms.get(&id) >= moved_ms
                }
                // The acquire that took over the hold has its own stream.
                Word::TakenUp(..) | Word::SessionExpired => true,
                Word::KeyHeld(..) => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use crate::auditor::Auditor;
    use crate::auditor::scene::{ACQUIRE, auditor, granted, id_of, rule, says};
    use crate::operation::{Acquire, Operation};
    use waymaker_protocol::{Event, Extended, Granted, Response};

    const WAITS: Acquire = Acquire { request_id: None, release_after_ms: None, wait_ms: 100, ..ACQUIRE };
    /// Connection of a client to a front end.
    const FRONT: usize = 3;

    fn auditor_with_front() -> Auditor {
        let mut auditor = auditor();
        auditor.settings.durability = None;
        let lane = auditor.new_lane(2);
        auditor.open(lane, true);
        auditor.connections[FRONT].welcome_ms = Some(auditor.settings.start_ms);
        auditor
    }

    /// Reports the expiry of the hold, `after_ms` after the beginning of the run.
    fn says_expired(auditor: &mut Auditor, after_ms: u64) {
        let now_ms = auditor.settings.start_ms + after_ms;
        says(auditor, FRONT, 0, &Response::Event(Event::Expired { id: id_of(1) }), now_ms);
    }

    /// Returns an auditor with a hold of a stream of the front end, with a lease of 700 ms. Its client may
    /// follow the events of the hold.
    fn auditor_with_hold(is_followed: bool) -> Auditor {
        let mut auditor = auditor_with_front();
        let start_ms = auditor.settings.start_ms;
        auditor.asks(FRONT, 1, Operation::Acquire(WAITS), 0, start_ms + 1);
        if is_followed {
            auditor.note_followed(FRONT, 1);
        }
        says(&mut auditor, FRONT, 1, &Response::Granted(granted(1, start_ms + 2)), start_ms + 2);
        auditor
    }

    /// Returns the rule that is broken if a stream never gets the expiry of its hold.
    fn rule_without_expiry(is_followed: bool, is_reset: bool, after_ms: u64) -> Option<&'static str> {
        let mut auditor = auditor_with_hold(is_followed);
        if is_reset {
            auditor.note_reset(FRONT, 1);
        }
        auditor.look_at_duties(1_000 * after_ms);
        rule(&auditor)
    }

    #[test]
    fn a_listening_stream_gets_the_expiry_of_its_hold() {
        assert_eq!(rule_without_expiry(true, false, 3_000), Some("late-expiry"));
        assert_eq!(rule_without_expiry(true, false, 1_500), None, "its client may not read for a while");
        assert_eq!(rule_without_expiry(true, true, 3_000), None, "the client has reset the stream");
        assert_eq!(rule_without_expiry(false, false, 3_000), None, "the client requested only the response");
    }

    #[test]
    fn a_stream_gets_the_expiry_of_its_hold_once() {
        let mut auditor = auditor_with_hold(true);
        says_expired(&mut auditor, 703);
        auditor.look_at_duties(3_000_000);
        assert_eq!(rule(&auditor), None);
        says_expired(&mut auditor, 704);
        assert_eq!(rule(&auditor), Some("event"));
    }

    /// Returns the rule that is broken if a stream has no response 3 s after its acquire, with a wait of 100
    /// ms, arrived.
    fn rule_without_answer(is_reset: bool) -> Option<&'static str> {
        let mut auditor = auditor_with_front();
        let start_ms = auditor.settings.start_ms;
        auditor.asks(FRONT, 1, Operation::Acquire(WAITS), 0, start_ms);
        auditor.arrived(FRONT, 0, start_ms);
        if is_reset {
            auditor.note_reset(FRONT, 1);
        }
        auditor.look_at_duties(3_000_000);
        rule(&auditor)
    }

    #[test]
    fn a_stream_is_answered_unless_it_was_reset() {
        assert_eq!(rule_without_answer(false), Some("late-answer"));
        assert_eq!(rule_without_answer(true), None);
    }

    /// Returns how many acquires may wait for the key 1 s after an acquire was reset. `arrives`: the reset
    /// has arrived; `breaks`: the connection broke then.
    fn waiters_after_a_reset(arrives: bool, breaks: bool) -> u64 {
        let mut auditor = auditor_with_front();
        let start_ms = auditor.settings.start_ms;
        auditor.asks(FRONT, 1, Operation::Acquire(Acquire { wait_ms: u32::MAX, ..WAITS }), 0, start_ms);
        auditor.arrived(FRONT, 0, start_ms);
        auditor.asks(FRONT, 2, Operation::Cancel { acquire: 1, key: 0 }, 1, start_ms + 5);
        if arrives {
            auditor.arrived(FRONT, 1, start_ms + 6);
        }
        if breaks {
            auditor.lost(FRONT, start_ms + 6);
        }
        auditor.waiters_max(0, None, start_ms + 1_000, start_ms + 1_001)
    }

    #[test]
    fn an_abandoned_acquire_leaves_its_queue() {
        assert_eq!(waiters_after_a_reset(true, false), 0);
        assert_eq!(waiters_after_a_reset(false, false), 1);
        assert_eq!(
            waiters_after_a_reset(true, true),
            1,
            "the server may not have noticed the end of the connection"
        );
    }

    /// Returns the rule that is broken if the lease of a hold is moved twice, and its stream gets only the
    /// moves to these lengths.
    fn rule_of_moves(heard_ms: &[u32]) -> Option<&'static str> {
        let mut auditor = auditor_with_hold(true);
        let start_ms = auditor.settings.start_ms;
        for (number, lease_ms) in [(2, 5_000), (3, 5_500)] {
            let now_ms = start_ms + 10 + u64::from(number);
            auditor.asks(FRONT, number, Operation::Extend { id: id_of(1), lease_ms, own: false }, 0, now_ms);
            let extended = Extended { remaining_ms: lease_ms, stamp_ms: now_ms, clamped: false };
            says(&mut auditor, FRONT, number, &Response::Extended(extended), now_ms);
            if heard_ms.contains(&lease_ms) {
                let moved = Event::LeaseMoved { id: id_of(1), remaining_ms: lease_ms, stamp_ms: now_ms };
                says(&mut auditor, FRONT, 0, &Response::Event(moved), now_ms);
            }
        }
        auditor.look_at_duties(3_000_000);
        rule(&auditor)
    }

    #[test]
    fn a_stream_gets_the_newest_lease_set_by_another_stream_of_its_connection() {
        assert_eq!(rule_of_moves(&[5_000, 5_500]), None);
        assert_eq!(rule_of_moves(&[5_500]), None, "only the newest is kept");
        assert_eq!(rule_of_moves(&[5_000]), Some("event"));
    }

    #[test]
    fn an_expiry_without_a_front_end_is_not_delayed() {
        let mut auditor = auditor_with_front();
        let start_ms = auditor.settings.start_ms;
        auditor.connections[0].welcome_ms = Some(start_ms);
        auditor.asks(0, 1, Operation::Acquire(WAITS), 0, start_ms + 1);
        let granted = Granted { waited: true, ..granted(1, start_ms + 2) };
        says(&mut auditor, 0, 1, &Response::Granted(granted), start_ms + 2);
        auditor.look_at_duties(1_500_000);
        assert_eq!(rule(&auditor), Some("late-expiry"), "only a front end may delay an event");
    }
}
