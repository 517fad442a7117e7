//! Bounds of the lifetime of each session.

use super::duties::{Duty, Word};
use super::holds::Hold;
use super::{Auditor, Loss, RequestRecord};
use crate::operation::Operation;
use std::collections::BTreeSet;
use waymaker_protocol::{KeptAlive, LockId, SessionId, SessionRequest, StatusAnswer, Welcome};

/// Known state of one session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    lease_ms: u32,
    /// Server clock of the earliest end that its frames allow.
    certain_until_ms: u64,
    /// Time at which a GOODBYE was sent.
    goodbye_ms: Option<u64>,
    /// Time at which a GOODBYE was answered.
    closed_ms: Option<u64>,
    lanes: Vec<usize>,
    /// Stamp of the newest WELCOME in the session.
    welcome_ms: u64,
    /// Time at which the server reported the end of the session.
    over_ms: Option<u64>,
    /// Latest end that its frames allow, while workers run.
    ceiling_ms: u64,
    /// Whether a duty to report the end exists.
    is_owed: bool,
    /// Earliest time at which the session lost its last connection.
    left_ms: Option<u64>,
    /// Whether the server was restarted since the newest WELCOME, so that it may not have restored the session.
    is_in_doubt: bool,
}

impl Session {
    /// Returns the earliest instant at which the lease or a GOODBYE may have ended the session.
    pub(crate) fn floor_ms(&self) -> u64 {
        self.certain_until_ms.min(self.goodbye_ms.unwrap_or(u64::MAX))
    }

    /// Returns the latest instant at which the session may still exist, while workers run.
    pub(super) fn ceiling_ms(&self) -> u64 {
        self.ceiling_ms
    }

    pub(super) fn lease_ms(&self) -> u64 {
        self.lease_ms.into()
    }

    /// Returns when the server reported the end of the session.
    pub(super) fn over_ms(&self) -> Option<u64> {
        self.over_ms
    }
}

impl Session {
    /// Records that a restarted server gives the session its full lease.
    pub(super) fn live_on(&mut self, now_ms: u64) {
        self.certain_until_ms = self.certain_until_ms.max(now_ms + u64::from(self.lease_ms));
    }
}

impl Auditor {
    /// Returns whether the session surely exists and the running server has sent a WELCOME in it. The auditor
    /// does not rely on sessions that only an earlier server knew, across one more restart.
    pub(super) fn surely_goes_on(&self, id: SessionId, now_ms: u64) -> bool {
        let started_ms = self.restarts.started_ms.unwrap_or(0);
        self.session_floor_ms(Some(id)) > now_ms
            && self.sessions.get(&id).is_some_and(|session| session.welcome_ms >= started_ms)
    }

    /// Records an end of the server. Sessions in `restored` are in its log and return; the others are in
    /// doubt. Even an ended session may return with a hold that has its own lease, because the log does not
    /// record ends of sessions.
    pub(super) fn end_sessions(&mut self, restored: &BTreeSet<SessionId>, now_ms: u64) {
        for (id, session) in &mut self.sessions {
            if !restored.contains(id) {
                session.certain_until_ms = session.certain_until_ms.min(now_ms);
                session.is_in_doubt = true;
            }
            (session.over_ms, session.closed_ms) = (None, None);
            session.is_owed = false;
        }
    }

    /// Records that the server read bytes, the first of which had arrived at `arrived_ms`. This renews the
    /// session if it still existed then.
    pub(crate) fn read(&mut self, connection: usize, arrived_ms: u64, now_ms: u64) {
        self.served(connection, now_ms);
        let Some(id) = self.lanes[self.connections[connection].lane].session else { return };
        let floor_ms = self.session_floor_ms(Some(id));
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if self.connections[connection].welcome_ms.is_none() {
            return;
        }
        if arrived_ms < floor_ms {
            session.certain_until_ms = session.certain_until_ms.max(now_ms + u64::from(session.lease_ms));
        }
    }

    /// Records that the server serves bytes of this connection, which may postpone the end of its session.
    pub(crate) fn served(&mut self, connection: usize, now_ms: u64) {
        let lane = &self.lanes[self.connections[connection].lane];
        // A connection without a WELCOME names its session in its HELLO.
        let greeting =
            lane.requests.get(&(u32::MAX - connection as u32)).map(|hello| self.requests[*hello].operation);
        let named = match greeting {
            Some(Operation::Hello {
                session: SessionRequest::Resume { id, .. } | SessionRequest::Join { id },
                ..
            }) => Some(id),
            _ => None,
        };
        if let Some(session) = lane.session.or(named).and_then(|id| self.sessions.get_mut(&id)) {
            session.ceiling_ms = session.ceiling_ms.max(now_ms + u64::from(session.lease_ms));
        }
    }

    /// Returns when a GOODBYE was sent; `u64::MAX` if none was.
    pub(super) fn goodbye_ms(&self, id: SessionId) -> u64 {
        self.sessions.get(&id).and_then(|session| session.goodbye_ms).unwrap_or(u64::MAX)
    }

    pub(super) fn lease_ms_of_session(&self, id: Option<SessionId>) -> u32 {
        id.and_then(|id| self.sessions.get(&id)).map_or(0, |session| session.lease_ms)
    }

    /// Returns whether a restart may have ended the session of this lane.
    pub(super) fn is_session_in_doubt(&self, lane: usize) -> bool {
        let session = self.lanes[lane].session.and_then(|id| self.sessions.get(&id));
        session.is_some_and(|session| session.is_in_doubt)
    }

    /// Returns the earliest instant at which the session may have ended.
    pub(super) fn session_floor_ms(&self, id: Option<SessionId>) -> u64 {
        let session = id.and_then(|id| self.sessions.get(&id));
        session.map_or(0, |session| session.floor_ms().min(self.vacant_floor_ms(session)))
    }

    /// Returns the earliest instant at which a session with a claim may have ended.
    pub(super) fn session_lease_floor_ms(&self, id: SessionId) -> u64 {
        self.sessions.get(&id).map_or(0, Session::floor_ms)
    }

    /// Returns the earliest instant at which the server may have ended a session because it had no connection
    /// and no claim.
    fn vacant_floor_ms(&self, session: &Session) -> u64 {
        let Some(left_ms) = session.left_ms.filter(|_| self.settings.ends_vacant_sessions()) else {
            return u64::MAX;
        };
        let keeps = |(_, hold): &(&LockId, &Hold)| {
            hold.over_ms.is_none() && !hold.may_have_moved && session.lanes.contains(&hold.lane)
        };
        let held_ms = self.holds.iter().filter(keeps).map(|(id, _)| self.floor_ms(*id)).max();
        (left_ms + self.settings.session_vacant_ms).max(held_ms.unwrap_or(0))
    }

    /// Records the loss of a connection of this lane. A session without connections may end before its lease.
    pub(super) fn note_left(&mut self, lane: usize, now_ms: u64) {
        let Some(id) = self.lanes[lane].session else { return };
        if self.connections_of(id).is_empty()
            && let Some(session) = self.sessions.get_mut(&id)
        {
            session.left_ms.get_or_insert(now_ms);
        }
    }

    /// Records that the session lasts at least to `until_ms`, by a response of the server.
    pub(super) fn note_session_lives(&mut self, lane: usize, until_ms: u64) {
        if let Some(session) = self.lanes[lane].session.and_then(|id| self.sessions.get_mut(&id)) {
            session.certain_until_ms = session.certain_until_ms.max(until_ms);
        }
    }

    pub(super) fn note_welcome(&mut self, connection: usize, welcome: &Welcome, now_ms: u64) {
        if welcome.session_id == SessionId::default() {
            return;
        }
        let lane = self.connections[connection].lane;
        self.judge_order_of_welcomes(connection, lane, welcome.stamp_ms);
        let id = welcome.session_id;
        let until_ms = welcome.stamp_ms + u64::from(welcome.session_lease_ms);
        self.doubt_holds_of_restored(id, welcome.stamp_ms);
        // The server has not noticed the loss yet.
        let is_lost = self.connections[connection].is_lost && self.connections_of(id).is_empty();
        let session = self.sessions.entry(id).or_default();
        session.left_ms = is_lost.then_some(welcome.stamp_ms);
        session.is_in_doubt = false;
        session.lease_ms = welcome.session_lease_ms;
        session.welcome_ms = session.welcome_ms.max(welcome.stamp_ms);
        session.certain_until_ms = session.certain_until_ms.max(until_ms);
        session.ceiling_ms = session.ceiling_ms.max(now_ms + u64::from(session.lease_ms));
        let (ceiling_ms, is_owed) = (session.ceiling_ms, std::mem::replace(&mut session.is_owed, true));
        if !session.lanes.contains(&lane) {
            session.lanes.push(lane);
        }
        // A WELCOME that was decided before the end may be sent after it.
        if session.over_ms.is_some_and(|over_ms| welcome.stamp_ms > over_ms) {
            self.accuse("lost-session", || {
                format!("session {id} got a WELCOME after the server had reported its end")
            });
        }
        if !is_owed {
            self.owe(self.to_us(ceiling_ms), Duty::SessionEnd(id));
        }
        self.lanes[lane].session = Some(id);
        self.note_lane_back(connection, now_ms);
    }

    /// Rule `lost-session`: the HELLO of a connection that its client replaced by a later one does not take
    /// the lane from the later one.
    fn judge_order_of_welcomes(&mut self, connection: usize, lane: usize, stamp_ms: u64) {
        self.connections[connection].welcomed_ms = Some(stamp_ms);
        let lost_it = |later: &usize| {
            let later_ms = self.connections[*later].welcomed_ms;
            later_ms.is_some_and(|at_ms| at_ms < stamp_ms && !self.restarts.happened_since(at_ms))
        };
        let later =
            self.lanes[lane].connections.iter().copied().filter(|later| *later > connection).find(lost_it);
        if let Some(later) = later {
            self.accuse("lost-session", || {
                format!(
                    "connection {connection} took lane {lane} from the later connection {later} at {stamp_ms} ms"
                )
            });
        }
    }

    /// Marks holds of a session that may have ended before a restart as possibly over. The server welcomes
    /// such a session if one of its holds has its own lease; holds on the lease of the session ended with it.
    fn doubt_holds_of_restored(&mut self, id: SessionId, now_ms: u64) {
        let floor_ms = self.session_floor_ms(Some(id));
        if floor_ms >= now_ms || !self.restarts.happened_since(floor_ms) {
            return;
        }
        for hold in self.holds.values_mut().filter(|hold| hold.session == Some(id)) {
            hold.may_end_ms = hold.may_end_ms.min(floor_ms);
            hold.others_may_end = true;
            // No release is needed any more to explain that the hold is gone.
            hold.release_count += 2;
        }
    }

    /// Records a GOODBYE. It ends the session of the lane; a lane without a session counts as lost.
    pub(super) fn note_goodbye(&mut self, lane: usize, now_ms: u64) {
        let lanes = match self.lanes[lane].session.and_then(|id| self.sessions.get_mut(&id)) {
            Some(session) => {
                session.goodbye_ms.get_or_insert(now_ms);
                session.lanes.clone()
            }
            None => {
                let Some(connection) = self.lanes[lane].connections.last().copied() else { return };
                self.lanes[lane].losses.push(Loss { connection, at_ms: now_ms, back_ms: None });
                [lane].into()
            }
        };
        for lane in lanes {
            self.limit_belief_in_lane(lane);
        }
    }

    /// Rule `lost-session`: the server reports the end of a session only if the session may have ended.
    pub(super) fn note_session_over(&mut self, id: SessionId, now_ms: u64) {
        let floor_ms = self.session_floor_ms(Some(id));
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let was_over = session.over_ms.is_some();
        session.over_ms.get_or_insert(now_ms);
        if now_ms < floor_ms {
            self.accuse("lost-session", || {
                format!(
                    "the server reports the end of session {id} at {now_ms} ms, but the session lasts to {floor_ms} ms"
                )
            });
        }
        if !was_over && self.goodbye_ms(id) > now_ms {
            self.ended_sessions.push_back((id, floor_ms));
            for connection in self.connections_of(id) {
                self.owe(self.to_us(now_ms), Duty::Event { connection, word: Word::SessionExpired });
            }
        }
    }

    /// Rule `number`: KEPT_ALIVE reports the full lease of the session, counted from the time when the frame
    /// was read.
    pub(super) fn judge_kept_alive(&mut self, request: usize, kept: &KeptAlive) {
        let record = &self.requests[request];
        // The response to a repeated request may be the one to its first arrival.
        let (lane, arrived_ms) = (record.lane, record.arrived_ms.filter(|_| record.sent_count == 1));
        self.note_session_lives(lane, kept.stamp_ms + u64::from(kept.remaining_ms));
        let lease_ms =
            self.lanes[lane].session.and_then(|id| self.sessions.get(&id)).map_or(0, Session::lease_ms);
        let until_ms = kept.stamp_ms + u64::from(kept.remaining_ms);
        let is_short = arrived_ms.is_some_and(|arrived_ms| lease_ms > 0 && until_ms < arrived_ms + lease_ms);
        if u64::from(kept.remaining_ms) > lease_ms || is_short {
            self.accuse("number", || {
                format!(
                    "the session has a lease of {lease_ms} ms; KEPT_ALIVE must report all of it: {kept:?}"
                )
            });
        }
    }

    /// Rule `number`: STATUS of a hold on the lease of the session, requested in that session, shows the full
    /// lease, counted from the time when the frame was read. If the loss of a connection was to end the hold,
    /// that end may still apply.
    pub(super) fn judge_session_shown(&mut self, request: usize, id: LockId, status: &StatusAnswer<'_>) {
        let (Some(hold), record) = (self.holds.get(&id), &self.requests[request]) else { return };
        let is_own = hold.lane == record.lane && !hold.may_have_moved && hold.release_after_ms.is_none();
        let arrived_ms =
            record.arrived_ms.filter(|_| is_own && status.session_lease && record.sent_count == 1);
        let lease_ms = u64::from(self.lease_ms_of_session(self.lanes[record.lane].session));
        let until_ms = status.stamp_ms + u64::from(status.remaining_ms);
        if arrived_ms.is_some_and(|arrived_ms| until_ms < arrived_ms + lease_ms) {
            self.accuse("number", || {
                format!(
                    "{id} has the lease of its session, which must last {lease_ms} ms from {arrived_ms:?} ms: {status:?}"
                )
            });
        }
    }

    /// Records that a GOODBYE on one connection ended the session. All other connections must get
    /// SESSION_EXPIRED.
    pub(super) fn owe_end_to_others(&mut self, connection: usize, now_ms: u64) {
        let Some(id) = self.lanes[self.connections[connection].lane].session else { return };
        for other in self.connections_of(id) {
            // A connection that sends GOODBYE too gets FAREWELL instead.
            let lane = &self.lanes[self.connections[other].lane];
            let says_goodbye = |request: &usize| self.requests[*request].operation == Operation::Goodbye;
            if other != connection && !lane.requests.values().any(says_goodbye) {
                self.owe(self.to_us(now_ms), Duty::Event { connection: other, word: Word::SessionExpired });
            }
        }
    }

    /// Records the response to a GOODBYE. It is sent once all shards have closed all connections of the
    /// session, so holds on its lease have ended.
    pub(super) fn note_closed(&mut self, connection: usize, now_ms: u64) {
        let Some(id) = self.lanes[self.connections[connection].lane].session else { return };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.closed_ms.get_or_insert(now_ms);
        }
        for hold in self.holds.values_mut().filter(|hold| hold.session == Some(id) && !hold.may_have_moved) {
            hold.over_ms.get_or_insert(now_ms);
        }
    }

    /// Returns whether the session of a lane was closed before `at_ms`.
    pub(super) fn is_session_closed_before(&self, lane: usize, at_ms: u64) -> bool {
        let session = self.lanes[lane].session.and_then(|id| self.sessions.get(&id));
        session.is_some_and(|session| session.closed_ms.is_some_and(|closed_ms| closed_ms < at_ms))
    }

    /// Returns whether the server may refuse requests of this lane because its session has ended.
    pub(super) fn may_be_gone(&self, lane: usize, now_ms: u64) -> bool {
        self.lanes[lane].session.is_none_or(|id| now_ms >= self.session_floor_ms(Some(id)))
    }

    /// Returns the number of requests to join a session.
    pub(super) fn lane_count(&self, id: SessionId) -> usize {
        let joins = |record: &&RequestRecord| match record.operation {
            Operation::Hello { session: SessionRequest::Join { id: joined }, .. } => joined == id,
            _ => false,
        };
        self.requests.iter().filter(joins).count()
    }

    /// Returns the next session that the server reported as over, with its earliest possible end.
    pub(crate) fn next_ended_session(&mut self) -> Option<(SessionId, u64)> {
        self.ended_sessions.pop_front()
    }

    /// Returns the connections of a session that are not known to be lost.
    pub(crate) fn connections_of(&self, id: SessionId) -> Vec<usize> {
        let lanes = self.sessions.get(&id).map(|session| session.lanes.as_slice()).unwrap_or_default();
        let last = |lane: &usize| self.lanes[*lane].connections.last().copied();
        // A connection without a WELCOME does not belong to the session yet.
        let belongs = |connection: &usize| {
            !self.connections[*connection].is_lost && self.connections[*connection].welcome_ms.is_some()
        };
        lanes.iter().filter_map(last).filter(belongs).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::auditor::Auditor;
    use crate::auditor::scene::{ACQUIRE, asks, auditor, granted, rule, says, says_granted};
    use crate::operation::Acquire;
    use waymaker_protocol::{Event, Response, SessionId, Welcome};

    const LEASE_MS: u32 = 5_000;
    const VACANT_MS: u64 = 100;

    fn welcome(now_ms: u64) -> Welcome {
        let session_id = SessionId { place: 1, secret: 1 };
        Welcome { session_id, session_lease_ms: LEASE_MS, stamp_ms: now_ms, ..Welcome::default() }
    }

    /// Returns an auditor with a session of one lane, whose connection is lost 10 ms after the beginning.
    fn left_session(has_hold: bool) -> Auditor {
        let mut auditor = auditor();
        auditor.settings.session_vacant_ms = VACANT_MS;
        let start_ms = auditor.settings.start_ms;
        auditor.note_welcome(0, &welcome(start_ms), start_ms);
        if has_hold {
            let acquire = Acquire { request_id: None, release_after_ms: None, ..ACQUIRE };
            asks(&mut auditor, 0, acquire, start_ms + 1);
            says_granted(&mut auditor, 0, granted(1, start_ms + 2));
        }
        auditor.connections[0].welcome_ms = Some(start_ms);
        auditor.lost(0, start_ms + 10);
        auditor
    }

    /// Returns the rule that is broken if the session ends `after_ms` after the beginning.
    fn rule_if_over(mut auditor: Auditor, after_ms: u64) -> Option<&'static str> {
        let now_ms = auditor.settings.start_ms + after_ms;
        auditor.note_session_over(welcome(now_ms).session_id, now_ms);
        rule(&auditor)
    }

    #[test]
    fn a_session_without_a_connection_or_a_claim_may_end_before_its_lease() {
        assert_eq!(rule_if_over(left_session(false), 10 + VACANT_MS), None);
        assert_eq!(rule_if_over(left_session(false), 9 + VACANT_MS), Some("lost-session"));
    }

    #[test]
    fn a_hold_keeps_a_session_without_a_connection() {
        assert_eq!(rule_if_over(left_session(true), 10 + VACANT_MS), Some("lost-session"));
        assert_eq!(rule_if_over(left_session(true), 703), None, "the lease of the hold is over");
    }

    #[test]
    fn a_connection_keeps_a_session() {
        let mut auditor = left_session(false);
        let lane = auditor.connections[0].lane;
        auditor.open(lane, false);
        let back_ms = auditor.settings.start_ms + 50;
        auditor.note_welcome(3, &welcome(back_ms), back_ms);
        auditor.connections[3].welcome_ms = Some(back_ms);
        let now_ms = auditor.settings.start_ms + 500;
        says(&mut auditor, 3, 0, &Response::Event(Event::SessionExpired), now_ms);
        assert_eq!(rule(&auditor), Some("lost-session"));
    }
}
