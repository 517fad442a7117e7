//! How long a session lives for sure.

use super::duties::{Duty, Word};
use super::{Asked, Auditor, Loss};
use crate::operation::Operation;
use std::collections::BTreeSet;
use waymaker_protocol::{KeptAlive, SessionId, SessionRequest, Welcome};

/// One session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    lease_ms: u32,
    /// The server's clock at the earliest end that its frames allow.
    certain_until_ms: u64,
    /// A goodbye was sent then.
    goodbye_ms: Option<u64>,
    /// A goodbye was answered then.
    closed_ms: Option<u64>,
    lanes: Vec<usize>,
    /// Somebody was last welcome in it.
    welcome_ms: u64,
    /// It was said then that it is over.
    over_ms: Option<u64>,
    /// The latest end that its frames allow, workers running.
    ceiling_ms: u64,
    /// Its end is owed.
    is_owed: bool,
}

impl Session {
    /// The earliest instant at which it may have ended.
    pub(crate) fn floor_ms(&self) -> u64 {
        self.certain_until_ms.min(self.goodbye_ms.unwrap_or(u64::MAX))
    }

    /// The latest instant at which it may still live, workers running.
    pub(super) fn ceiling_ms(&self) -> u64 {
        self.ceiling_ms
    }

    pub(super) fn lease_ms(&self) -> u64 {
        self.lease_ms.into()
    }

    /// When it was said that it is over.
    pub(super) fn over_ms(&self) -> Option<u64> {
        self.over_ms
    }
}

impl Session {
    /// A server that starts again gives it all of its lease.
    pub(super) fn live_on(&mut self, now_ms: u64) {
        self.certain_until_ms = self.certain_until_ms.max(now_ms + u64::from(self.lease_ms));
    }
}

impl Auditor {
    /// Whether it surely lives, and this server has welcomed somebody in it. What a server before this one knew of it is not
    /// reckoned on over one more restart.
    pub(super) fn surely_goes_on(&self, id: SessionId, now_ms: u64) -> bool {
        let started_ms = self.restarts.started_ms.unwrap_or(0);
        self.session_floor_ms(Some(id)) > now_ms
            && self.sessions.get(&id).is_some_and(|session| session.welcome_ms >= started_ms)
    }

    /// The server ended. Those of which it had something to write come back; of others nobody knows. Even one that is over
    /// may come back with a hold that has a lease of its own: the log does not say when sessions end.
    pub(super) fn end_sessions(&mut self, restored: &BTreeSet<SessionId>, now_ms: u64) {
        for (id, session) in &mut self.sessions {
            if !restored.contains(id) {
                session.certain_until_ms = session.certain_until_ms.min(now_ms);
            }
            (session.over_ms, session.closed_ms) = (None, None);
            session.is_owed = false;
        }
    }

    /// The server read bytes, the first of which had arrived at that time: the session lives on, if it was alive then.
    pub(crate) fn read(&mut self, connection: usize, arrived_ms: u64, now_ms: u64) {
        self.served(connection, now_ms);
        let Some(id) = self.lanes[self.connections[connection].lane].session else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if self.connections[connection].welcome_ms.is_none() {
            return;
        }
        if arrived_ms < session.floor_ms() {
            session.certain_until_ms = session.certain_until_ms.max(now_ms + u64::from(session.lease_ms));
        }
    }

    /// The server serves bytes of this connection, which may move the end of its session.
    pub(crate) fn served(&mut self, connection: usize, now_ms: u64) {
        let lane = &self.lanes[self.connections[connection].lane];
        // One that is not welcome yet names its session in its greeting.
        let greeting =
            lane.asked.get(&(u32::MAX - connection as u32)).map(|hello| self.requests[*hello].operation);
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

    /// When a goodbye was sent; later than everything if none was.
    pub(super) fn goodbye_ms(&self, id: SessionId) -> u64 {
        self.sessions.get(&id).and_then(|session| session.goodbye_ms).unwrap_or(u64::MAX)
    }

    /// The lease of a session.
    pub(super) fn lease_ms_of_session(&self, id: Option<SessionId>) -> u32 {
        id.and_then(|id| self.sessions.get(&id)).map_or(0, |session| session.lease_ms)
    }

    pub(super) fn session_floor_ms(&self, id: Option<SessionId>) -> u64 {
        id.and_then(|id| self.sessions.get(&id)).map_or(0, Session::floor_ms)
    }

    /// The server said that so much of the session was left.
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
        let session = self.sessions.entry(id).or_default();
        session.lease_ms = welcome.session_lease_ms;
        session.welcome_ms = session.welcome_ms.max(welcome.stamp_ms);
        session.certain_until_ms = session.certain_until_ms.max(until_ms);
        session.ceiling_ms = session.ceiling_ms.max(now_ms + u64::from(session.lease_ms));
        let (ceiling_ms, is_owed) = (session.ceiling_ms, std::mem::replace(&mut session.is_owed, true));
        if !session.lanes.contains(&lane) {
            session.lanes.push(lane);
        }
        // What was decided before may be said after.
        if session.over_ms.is_some_and(|over_ms| welcome.stamp_ms > over_ms) {
            self.accuse("lost-session", || format!("session {id} is over and lives again"));
        }
        if !is_owed {
            self.owe(self.to_us(ceiling_ms), Duty::SessionEnd(id));
        }
        self.lanes[lane].session = Some(id);
        self.note_lane_back(connection, now_ms);
    }

    /// The greeting of a connection that its client left for a later one does not take the lane from that one.
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
                    "connection {connection} took lane {lane} from the later connection {later} at {stamp_ms}"
                )
            });
        }
    }

    /// Doubts the holds of a session that may have ended before a restart. The server welcomes such a session if one of its holds
    /// has its own lease; holds that lasted as long as the session ended with it.
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

    /// A session ends with its goodbye; a lane without one counts as lost.
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

    /// The server said that this session is over.
    pub(super) fn note_session_over(&mut self, id: SessionId, now_ms: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let (floor_ms, was_over) = (session.floor_ms(), session.over_ms.is_some());
        session.over_ms.get_or_insert(now_ms);
        if now_ms < floor_ms {
            self.accuse("lost-session", || {
                format!("session {id} is over at {now_ms}, it lives to {floor_ms}")
            });
        }
        if !was_over && self.goodbye_ms(id) > now_ms {
            self.ended_sessions.push_back((id, floor_ms));
            for connection in self.connections_of(id) {
                self.owe(self.to_us(now_ms), Duty::Event { connection, word: Word::SessionExpired });
            }
        }
    }

    /// What KEPT_ALIVE says is left of the session: all of its lease from when the frame was read.
    pub(super) fn judge_kept_alive(&mut self, request: usize, kept: &KeptAlive) {
        let asked = &self.requests[request];
        // The response to a repeated request may be that to its first arrival.
        let (lane, arrived_ms) = (asked.lane, asked.arrived_ms.filter(|_| asked.sent_count == 1));
        self.note_session_lives(lane, kept.stamp_ms + u64::from(kept.remaining_ms));
        let lease_ms =
            self.lanes[lane].session.and_then(|id| self.sessions.get(&id)).map_or(0, Session::lease_ms);
        let until_ms = kept.stamp_ms + u64::from(kept.remaining_ms);
        let is_short = arrived_ms.is_some_and(|arrived_ms| lease_ms > 0 && until_ms < arrived_ms + lease_ms);
        if u64::from(kept.remaining_ms) > lease_ms || is_short {
            self.accuse("number", || format!("the session has a lease of {lease_ms} ms: {kept:?}"));
        }
    }

    /// A goodbye on one connection ended the session: all others must hear so.
    pub(super) fn owe_end_to_others(&mut self, connection: usize, now_ms: u64) {
        let Some(id) = self.lanes[self.connections[connection].lane].session else { return };
        for other in self.connections_of(id) {
            // One that says goodbye too hears another word.
            let lane = &self.lanes[self.connections[other].lane];
            let says_goodbye = |request: &usize| self.requests[*request].operation == Operation::Goodbye;
            if other != connection && !lane.asked.values().any(says_goodbye) {
                self.owe(self.to_us(now_ms), Duty::Event { connection: other, word: Word::SessionExpired });
            }
        }
    }

    /// A goodbye is answered once all connections of its session are closed in all shards: what lasted as long as the session is over.
    pub(super) fn note_closed(&mut self, connection: usize, now_ms: u64) {
        let Some(id) = self.lanes[self.connections[connection].lane].session else { return };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.closed_ms.get_or_insert(now_ms);
        }
        for hold in self.holds.values_mut().filter(|hold| hold.session == Some(id) && !hold.may_have_moved) {
            hold.over_ms.get_or_insert(now_ms);
        }
    }

    /// Whether the session of a lane was closed before that time.
    pub(super) fn is_session_closed_before(&self, lane: usize, at_ms: u64) -> bool {
        let session = self.lanes[lane].session.and_then(|id| self.sessions.get(&id));
        session.is_some_and(|session| session.closed_ms.is_some_and(|closed_ms| closed_ms < at_ms))
    }

    /// Whether requests of this lane may be refused because its session is over.
    pub(super) fn may_be_gone(&self, lane: usize, now_ms: u64) -> bool {
        self.lanes[lane].session.is_none_or(|id| now_ms >= self.session_floor_ms(Some(id)))
    }

    /// Returns how many clients asked to join a session.
    pub(super) fn lane_count(&self, id: SessionId) -> usize {
        let joins = |asked: &&Asked| match asked.operation {
            Operation::Hello { session: SessionRequest::Join { id: joined }, .. } => joined == id,
            _ => false,
        };
        self.requests.iter().filter(joins).count()
    }

    /// A session that was said to be over, and when it might have ended at the earliest.
    pub(crate) fn next_ended_session(&mut self) -> Option<(SessionId, u64)> {
        self.ended_sessions.pop_front()
    }

    /// Connections of a session that are not known to be lost.
    pub(crate) fn connections_of(&self, id: SessionId) -> Vec<usize> {
        let lanes = self.sessions.get(&id).map(|session| session.lanes.as_slice()).unwrap_or_default();
        let last = |lane: &usize| self.lanes[*lane].connections.last().copied();
        // What is not welcome yet does not belong to the session yet.
        let belongs = |connection: &usize| {
            !self.connections[*connection].is_lost && self.connections[*connection].welcome_ms.is_some()
        };
        lanes.iter().filter_map(last).filter(belongs).collect()
    }
}
