//! Rules about request ids: a repeated request id finds its claim, and the claim moves to the lane of the
//! repetition.

use super::Auditor;
use super::duties::Word;
use super::holds::Hold;
use crate::operation::{Acquire, Operation, hears_taken_up};
use waymaker_protocol::{ErrorAnswer, ErrorDetail, Granted, LockId};

/// Message with which the server refuses a request id whose claim has lost some of its keys.
const IN_PART: &[u8] = b"the request id belongs to a claim that no longer holds all its keys";

impl Auditor {
    /// Records that an acquire with a request id may take over the claim of an earlier acquire, or end its
    /// wait.
    pub(super) fn note_same_request_id(&mut self, request: usize, acquire: &Acquire) {
        if acquire.request_id.is_none() {
            return;
        }
        let lane = self.requests[request].lane;
        let client = self.lanes[lane].client;
        for (id, hold) in &mut self.holds {
            let same = acquire.keys().iter().any(|(key, _)| hold.is_named_by(client, *key, acquire));
            if same && hold.lane != lane && hold.over_ms.is_none() {
                hold.may_have_moved = true;
                if self.lanes[hold.lane].process != self.lanes[lane].process {
                    // From now on two processes have the hold, and each may end it without telling the other.
                    hold.others_may_end = true;
                    self.reliances.doubt(*id);
                }
            }
        }
        let others: Vec<usize> = self.same_requests(request, acquire).collect();
        for other in others {
            // The server may serve either of the two first.
            self.requests[other].may_be_cancelled = true;
            self.requests[request].may_be_cancelled = true;
        }
    }

    /// Returns whether an earlier acquire of this client had the same request id.
    pub(super) fn has_same_request_id(&self, request: usize, acquire: &Acquire) -> bool {
        self.same_requests(request, acquire).next().is_some() || self.requests[request].sent_count > 1
    }

    /// Returns whether an unanswered acquire on another lane has the same request id, so that the claim may
    /// move there.
    pub(super) fn may_be_found_again(&self, request: usize, acquire: &Acquire) -> bool {
        let is_open = |other: usize| {
            self.requests[other].lane != self.requests[request].lane && !self.requests[other].is_answered
        };
        acquire.request_id.is_some() && self.same_requests(request, acquire).any(is_open)
    }

    /// Returns whether another process of the same owner sent the request id of this claim, so that it may
    /// have the claim too.
    pub(super) fn may_be_shared(&self, request: usize, acquire: &Acquire) -> bool {
        let process = |request: usize| self.lanes[self.requests[request].lane].process;
        acquire.request_id.is_some()
            && self.same_requests(request, acquire).any(|other| process(other) != process(request))
    }

    /// Returns other acquires of this client for the same keys with the same request id.
    pub(super) fn same_requests(&self, request: usize, acquire: &Acquire) -> impl Iterator<Item = usize> {
        let client = self.lanes[self.requests[request].lane].client;
        (0..self.requests.len()).filter(move |other| {
            *other != request
                && self.lanes[self.requests[*other].lane].client == client
                && matches!(self.requests[*other].operation, Operation::Acquire(earlier)
                    if earlier.form.is_same_request(&acquire.form)
                        && earlier.keys().iter().any(|(key, _)| *key == acquire.key)
                        && earlier.request_id == acquire.request_id)
        })
    }

    /// Rules `request-id` and `old-id` for a repeated grant: it is the hold that the request id names, the
    /// hold was not over, and its lease is not longer.
    pub(super) fn judge_repeated_grant(
        &mut self,
        request: usize,
        acquire: &Acquire,
        granted: &Granted,
        now_ms: u64,
    ) {
        self.owe_taken_up(request, acquire, granted.id, now_ms);
        let lane = self.requests[request].lane;
        let client = self.lanes[lane].client;
        let first_sent_ms = self.requests[request].first_sent_ms;
        let is_alone = self.came_alone(request, acquire);
        let session = self.lanes[lane].session;
        let Some(hold) = self.holds.get_mut(&granted.id) else { return };
        let same = hold.is_named_by(client, acquire.key, acquire)
            && hold.shared == acquire.shared
            && hold.fence == granted.fence;
        let is_over = hold.was_over_before(first_sent_ms);
        if hold.lane != lane {
            hold.lane = lane;
            hold.since_ms = first_sent_ms;
        }
        if is_alone && !hold.is_inherited {
            (hold.may_have_moved, hold.settled_ms) = (false, now_ms);
            hold.session = hold.session.and(session);
        }
        let known_end_ms = hold.lease_end_ms.max(hold.late_ms);
        let lease_is_known = hold.session.is_none()
            && hold.may_move.is_empty()
            && hold.release_after_ms.is_none()
            && !hold.lease_is_open
            && granted.stamp_ms > hold.lease_stamp_ms
            && granted.remaining_ms > 0;
        let end_ms = granted.stamp_ms + u64::from(granted.remaining_ms);
        if !same {
            self.accuse("request-id", || {
                format!(
                    "client {client} got another hold than its request id names: {acquire:?}: {granted:?}"
                )
            });
        } else if is_over {
            self.accuse("old-id", || {
                format!("{} had ended before the request was sent, but is granted again", granted.id)
            });
        } else if lease_is_known && end_ms > known_end_ms {
            self.accuse("request-id", || {
                format!(
                    "the lease ends at {known_end_ms} ms, but the repeated grant shows a later end: {granted:?}"
                )
            });
        }
    }

    /// Returns whether the server may refuse this request id because its claim differs from the request. The
    /// claim has lost keys only if it was granted.
    pub(super) fn may_name_another_claim(
        &self,
        request: usize,
        acquire: &Acquire,
        error: &ErrorAnswer<'_>,
    ) -> bool {
        let is_in_part =
            matches!(error.detail, ErrorDetail::Text { message, .. } if message.ends_with(IN_PART));
        let may_be_granted = |other: usize| {
            let other = &self.requests[other];
            let is_refused_once = other.is_answered && !other.is_granted && other.sent_count == 1;
            !is_refused_once || self.restarts.happened_since(other.first_sent_ms)
        };
        acquire.request_id.is_some()
            && (!is_in_part
                || self.requests[request].sent_count > 1
                || self.same_requests(request, acquire).any(may_be_granted))
    }

    /// Returns whether the server can serve no other acquire with the same request id after this one, because
    /// each was answered before this one was sent.
    fn came_alone(&self, request: usize, acquire: &Acquire) -> bool {
        let record = &self.requests[request];
        let is_settled = |other: usize| {
            let other = &self.requests[other];
            let was_before = other.answered_ms.is_some_and(|answered_ms| answered_ms < record.first_sent_ms);
            other.is_answered && other.sent_count == 1 && was_before
        };
        record.sent_count == 1
            && !self.is_front(record.lane)
            && self.same_requests(request, acquire).all(is_settled)
    }

    /// Rule `answers`: TAKEN_UP reaches the acquire of a hold that a later acquire with the same request id
    /// may have taken over.
    pub(super) fn judge_taken_up(&mut self, lane: usize, number: u32, id: LockId) {
        let request = self.lanes[lane].requests.get(&number).map(|request| self.requests[*request].operation);
        let is_fair = matches!(request, Some(Operation::Acquire(Acquire { request_id: Some(_), .. })));
        if !is_fair {
            self.accuse("answers", || {
                format!(
                    "lane {lane}, request {number}: TAKEN_UP names {id}, but the request is no acquire with a request id"
                )
            });
        }
    }

    /// Adds the duty to send TAKEN_UP to the acquire that had the hold before, if its connection requested
    /// such events.
    fn owe_taken_up(&mut self, request: usize, acquire: &Acquire, id: LockId, now_ms: u64) {
        let Some(hold) = self.holds.get(&id) else { return };
        let (first, record) = (&self.requests[hold.request], &self.requests[request]);
        let mut others = self.same_requests(request, acquire);
        // Of more than two, it is unknown which one had the hold last.
        let is_certain = others.next() == Some(hold.request) && others.next().is_none();
        drop(others);
        let once = first.sent_count == 1 && record.sent_count == 1 && !hold.was_repeated;
        let connection = self.lanes[first.lane].connections.last().copied();
        if is_certain
            && once
            && connection.is_some_and(hears_taken_up)
            && !self.guards.is_real(first.lane)
            && hold.request != request
        {
            let word = Word::TakenUp(first.number, id);
            self.owe_event(first.lane, record.first_sent_ms, now_ms, word);
        }
    }

    /// Rule `request-id`: a new claim with a request id is granted only if the earlier claim with this id may
    /// have ended.
    pub(super) fn judge_new_with_request_id(&mut self, client: usize, acquire: &Acquire, granted: &Granted) {
        let Granted { id, fence, stamp_ms, .. } = *granted;
        let same = |hold: &Hold| hold.is_named_by(client, acquire.key, acquire) && hold.fence < fence;
        let older: Vec<LockId> =
            self.holds.iter().filter(|(_, hold)| same(hold)).map(|(older, _)| *older).collect();
        for older in older {
            let floor_ms = self.floor_ms(older);
            if floor_ms > stamp_ms && self.holds.get(&older).is_some_and(|hold| hold.over_ms.is_none()) {
                self.accuse("request-id", || {
                    format!(
                        "{id} was granted as a new claim at {stamp_ms} ms, but the claim {older} with the same request id lasts to {floor_ms} ms"
                    )
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::auditor::Auditor;
    use crate::auditor::scene::{ACQUIRE, asks, auditor, granted, id_of, rule, says_busy, says_granted};
    use crate::operation::{Acquire, Operation};
    use waymaker_protocol::Granted;

    fn next_is_granted_at_once(auditor: &mut Auditor) {
        says_granted(auditor, 0, granted(1, 130));
        asks(auditor, 2, Acquire { request_id: None, ..ACQUIRE }, 130);
        says_granted(auditor, 2, granted(2, 131));
    }

    #[test]
    fn a_hold_may_end_with_a_connection_that_requested_its_id_before_the_grant() {
        let mut auditor = auditor();
        asks(&mut auditor, 1, ACQUIRE, 100);
        auditor.lost(1, 110);
        // The server has not read the second request yet. It may find the hold, move it to the lost lane, and
        // release it.
        asks(&mut auditor, 0, ACQUIRE, 120);
        next_is_granted_at_once(&mut auditor);
        assert_eq!(auditor.violation(), None);
    }

    #[test]
    fn a_hold_stays_on_its_lane_if_every_acquire_with_its_id_was_answered() {
        let mut auditor = auditor();
        // Another client may be in the way.
        asks(&mut auditor, 2, Acquire { shared: true, request_id: None, ..ACQUIRE }, 95);
        asks(&mut auditor, 1, ACQUIRE, 100);
        says_busy(&mut auditor, 1, 105);
        auditor.lost(1, 110);
        asks(&mut auditor, 0, ACQUIRE, 120);
        next_is_granted_at_once(&mut auditor);
        assert_eq!(rule(&auditor), Some("early-grant"));
    }

    /// The hold of `granted(1, 130)` is found again with a longer lease than in its grant.
    fn is_found_longer(auditor: &mut Auditor) {
        let lasting = Acquire { release_after_ms: None, ..ACQUIRE };
        says_granted(auditor, 0, granted(1, 130));
        asks(auditor, 1, lasting, 200);
        says_granted(auditor, 1, Granted { repeated: true, stamp_ms: 210, ..granted(1, 130) });
    }

    #[test]
    fn a_repeated_grant_may_show_a_longer_lease_after_an_extend_by_another_client() {
        let mut auditor = auditor();
        asks(&mut auditor, 0, Acquire { release_after_ms: None, ..ACQUIRE }, 120);
        // The other client has the id from a list.
        auditor.asks(2, 1, Operation::Extend { id: id_of(1), lease_ms: 1_000, own: false }, 0, 125);
        is_found_longer(&mut auditor);
        assert_eq!(auditor.violation(), None);
    }

    #[test]
    fn a_repeated_grant_without_an_extend_shows_the_rest_of_the_lease() {
        let mut auditor = auditor();
        asks(&mut auditor, 0, Acquire { release_after_ms: None, ..ACQUIRE }, 120);
        is_found_longer(&mut auditor);
        assert_eq!(rule(&auditor), Some("request-id"));
    }
}
