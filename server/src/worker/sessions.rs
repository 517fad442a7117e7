//! The sessions of one worker.

use super::window::SessionAnswers;
use crate::limits::{LANES_PER_SESSION_MAX, SESSION_LEASE_MIN_MS};
use crate::node::Node;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use waymaker_engine::{Accounts, Counted, LaneSlot, QuotaReached, Resource, Time};
use waymaker_log::SessionTag;
use waymaker_protocol::SessionId;

/// Place of a session among the sessions of its worker. A place is used again after its session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionSlot(u32);

impl SessionSlot {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// A session: a client keeps all its claims on the session lease alive with one message.
///
/// A session and all its connections belong to one worker. A connection that resumes or joins the session is moved
/// there. Any bytes on these connections only set `deadline`, the end of the session, to a later time. The timer for
/// the end stays at its old time. When it fires before the deadline, it is set again for the deadline.
#[derive(Debug)]
pub(crate) struct Session {
    generation: u16,
    secret: u64,
    /// Identity of the client, if it is known. Clients with another identity do not find the session.
    pub(crate) identity: Option<Arc<str>>,
    /// Counts the session for the quotas of its client, if any, until the session ends. `None` for a restored session.
    _counted: Option<Counted>,
    pub(crate) lease_ms: u32,
    pub(crate) deadline: Time,
    /// Instant for which its timer is set.
    armed: Time,
    /// Time at which the session lost its last connection, or was restored; `None` while it has a connection.
    left_at: Option<Time>,
    /// Time of the next check whether the session has claims; a session without claims then ends. `NEVER` while the
    /// session has a connection, or if its lease ends before the check.
    look_at: Time,
    /// Id that an earlier server gave the session; `None` if this server opened it.
    restored_id: Option<SessionId>,
    /// Slots of the session's lanes, with and without a connection, by the numbers of the lanes.
    pub(crate) lanes: BTreeMap<u16, LaneSlot>,
    /// Number from which the session looks for a free number for the next lane that joins.
    next_lane: u16,
    /// Total length of the long answers that its lanes keep.
    pub(crate) answers: SessionAnswers,
}

/// Reason to refuse a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionRefusal {
    /// The lease is shorter than the minimum.
    TooShort,
    /// The worker has the maximum number of sessions.
    TooMany,
    /// The client has as many sessions as its quota allows.
    Quota(QuotaReached),
}

/// Limits for the sessions of one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLimits {
    /// Maximum number of sessions.
    count_max: usize,
    /// Pause before each check whether a session without a connection has claims, in milliseconds. A session without a
    /// claim then ends.
    vacant_ms: u64,
    /// Lease of a session that requests 0.
    lease_default_ms: u32,
    /// Maximum lease; longer leases are clamped.
    lease_max_ms: u32,
}

impl SessionLimits {
    /// Returns the limits for the sessions of each worker of this node.
    pub(crate) fn of(node: &Node) -> Self {
        Self {
            count_max: (node.set.sessions as usize / node.worker_count()).max(1),
            vacant_ms: node.set.session_idle.as_u64(),
            lease_default_ms: node.set.session_lease_default.get(),
            lease_max_ms: node.set.session_lease_max.get(),
        }
    }
}

/// The sessions of one worker, by slot.
#[derive(Debug)]
pub(crate) struct Sessions {
    worker: u16,
    limits: SessionLimits,
    slots: Vec<Option<Session>>,
    generations: Vec<u16>,
    free: Vec<SessionSlot>,
    timers: BTreeSet<(Time, SessionSlot)>,
    /// Sessions without a connection, each with the time at which the worker next asks the shards whether the session
    /// has a claim. A session without a claim then ends early. Sessions whose lease ends before that time are not here.
    looks: BTreeSet<(Time, SessionSlot)>,
    /// Sessions of an earlier server, by the ids that it gave them.
    restored: BTreeMap<SessionId, SessionSlot>,
    secrets: StdRng,
}

impl Sessions {
    pub(crate) fn new(worker: u16, seed: [u8; 32], limits: SessionLimits) -> Self {
        let mut seed = seed;
        for (byte, worker) in seed.iter_mut().zip(worker.to_le_bytes()) {
            *byte ^= worker;
        }
        let secrets = StdRng::from_seed(seed);
        let (slots, generations, free) = (Vec::new(), Vec::new(), Vec::new());
        let (timers, looks, restored) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { worker, limits, slots, generations, free, timers, looks, restored, secrets }
    }

    /// Returns the number of sessions.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Opens a session with one lane.
    pub(crate) fn open(
        &mut self,
        lease_ms: u32,
        identity: Option<Arc<str>>,
        accounts: &Accounts,
        lane: LaneSlot,
        now: Time,
    ) -> Result<SessionSlot, SessionRefusal> {
        let lease_ms = match lease_ms {
            0 => self.limits.lease_default_ms,
            short if short < SESSION_LEASE_MIN_MS => return Err(SessionRefusal::TooShort),
            lease_ms => lease_ms.min(self.limits.lease_max_ms),
        };
        if self.len() >= self.limits.count_max {
            return Err(SessionRefusal::TooMany);
        }
        let counted = accounts.count(Resource::Sessions).map_err(SessionRefusal::Quota)?;
        let slot = self.add(lease_ms, identity, BTreeMap::from([(0, lane)]), None, 1, now);
        if let Some(Some(session)) = self.slots.get_mut(slot.index()) {
            session._counted = Some(counted);
        }
        Ok(slot)
    }

    /// Restores a session of an earlier server, with its full lease from now on. Its client may know lanes that this
    /// server does not, so lanes that join are numbered from `next_lane` on.
    pub(crate) fn restore(
        &mut self,
        id: SessionId,
        lease_ms: u32,
        identity: Option<Arc<str>>,
        lanes: BTreeMap<u16, LaneSlot>,
        next_lane: u16,
        now: Time,
    ) -> SessionSlot {
        let slot = self.add(lease_ms, identity, lanes, Some(id), next_lane, now);
        self.restored.insert(id, slot);
        slot
    }

    fn add(
        &mut self,
        lease_ms: u32,
        identity: Option<Arc<str>>,
        lanes: BTreeMap<u16, LaneSlot>,
        restored_id: Option<SessionId>,
        next_lane: u16,
        now: Time,
    ) -> SessionSlot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.generations.push(0);
            SessionSlot(self.slots.len() as u32 - 1)
        });
        let generation = self.generations[slot.index()].wrapping_add(1);
        self.generations[slot.index()] = generation;
        let deadline = now.after_ms(u64::from(lease_ms));
        let secret = self.secrets.next_u64();
        self.timers.insert((deadline, slot));
        let armed = deadline;
        let (left_at, look_at) = (None, Time::NEVER);
        let session = Session {
            generation,
            secret,
            identity,
            _counted: None,
            lease_ms,
            deadline,
            armed,
            left_at,
            look_at,
            answers: SessionAnswers::default(),
            restored_id,
            lanes,
            next_lane,
        };
        self.slots[slot.index()] = Some(session);
        slot
    }

    /// Returns the tag that identifies this lane of a session in the durable log.
    pub(crate) fn tag(&self, slot: SessionSlot, lane: u16) -> Option<SessionTag> {
        let SessionId { place, secret } = self.id(slot);
        self.get(slot).map(|session| SessionTag { place, secret, lease_ms: session.lease_ms, lane })
    }

    /// Whether the session was restored: its client may know more lanes than this server does.
    pub(crate) fn is_restored(&self, slot: SessionSlot) -> bool {
        self.get(slot).is_some_and(|session| session.restored_id.is_some())
    }

    /// Returns the session of this worker with this id, if it exists.
    pub(crate) fn find(&self, id: SessionId) -> Option<SessionSlot> {
        if let Some(slot) = self.restored.get(&id) {
            return Some(*slot);
        }
        let slot = SessionSlot(id.place as u32);
        let session = self.slots.get(slot.index())?.as_ref()?;
        (self.id_of(slot, session) == id).then_some(slot)
    }

    pub(crate) fn id(&self, slot: SessionSlot) -> SessionId {
        self.get(slot).map(|session| self.id_of(slot, session)).unwrap_or_default()
    }

    fn id_of(&self, slot: SessionSlot, session: &Session) -> SessionId {
        if let Some(id) = session.restored_id {
            return id;
        }
        let place = u64::from(slot.0) | u64::from(session.generation) << 32 | u64::from(self.worker) << 48;
        SessionId { place, secret: session.secret }
    }

    /// Returns the worker that assigned this id. Ids come from clients, or from an earlier server, so this worker may
    /// not exist.
    pub(crate) fn worker_of(id: SessionId) -> u16 {
        (id.place >> 48) as u16
    }

    pub(crate) fn get(&self, slot: SessionSlot) -> Option<&Session> {
        self.slots.get(slot.index())?.as_ref()
    }

    /// Renews a session because bytes arrived on one of its connections. Returns its new deadline, or `ZERO` if there
    /// is no such session.
    #[inline]
    pub(crate) fn renew(&mut self, slot: SessionSlot, now: Time) -> Time {
        match self.slots.get_mut(slot.index()) {
            Some(Some(session)) => {
                session.deadline = now.after_ms(u64::from(session.lease_ms));
                session.deadline
            }
            _ => Time::ZERO,
        }
    }

    /// Adds a lane and returns its number, or `None` if the session has the maximum number of lanes.
    pub(crate) fn join(&mut self, slot: SessionSlot, lane: LaneSlot) -> Option<u16> {
        let session = self.slots.get_mut(slot.index())?.as_mut()?;
        if session.lanes.len() >= LANES_PER_SESSION_MAX {
            return None;
        }
        while session.lanes.contains_key(&session.next_lane) {
            session.next_lane = session.next_lane.wrapping_add(1);
        }
        session.lanes.insert(session.next_lane, lane);
        Some(session.next_lane)
    }

    /// Adds a lane to a restored session under the number that an earlier server gave the lane. The client knows this
    /// number and resumes the lane. The log does not contain the lane, because the lane held nothing. Returns false if
    /// the session has the maximum number of lanes.
    pub(crate) fn join_again(&mut self, slot: SessionSlot, number: u16, lane: LaneSlot) -> bool {
        let Some(Some(session)) = self.slots.get_mut(slot.index()) else { return false };
        let has_room = session.lanes.len() < LANES_PER_SESSION_MAX;
        if has_room {
            session.lanes.insert(number, lane);
        }
        has_room
    }

    /// Removes a session and returns the lanes that it had; none if it had ended before.
    pub(crate) fn end(&mut self, slot: SessionSlot) -> BTreeMap<u16, LaneSlot> {
        let Some(session) = self.slots.get_mut(slot.index()).and_then(Option::take) else {
            return BTreeMap::new();
        };
        self.timers.remove(&(session.armed, slot));
        self.looks.remove(&(session.look_at, slot));
        if let Some(id) = session.restored_id {
            self.restored.remove(&id);
        }
        self.free.push(slot);
        session.lanes
    }

    /// Returns a session whose deadline has passed, if there is one. Postpones the timers that have fired for sessions
    /// that were renewed.
    pub(crate) fn first_over(&mut self, now: Time) -> Option<SessionSlot> {
        while let Some(&(armed, slot)) = self.timers.first().filter(|(armed, _)| *armed <= now) {
            if let Some(Some(session)) = self.slots.get_mut(slot.index()) {
                if session.deadline <= now {
                    return Some(slot);
                }
                session.armed = session.deadline;
                self.timers.insert((session.deadline, slot));
            }
            self.timers.remove(&(armed, slot));
        }
        None
    }

    /// Notes that the session has no connection from now on, and schedules the check whether it has claims.
    pub(crate) fn note_left(&mut self, slot: SessionSlot, now: Time) {
        if let Some(Some(session)) = self.slots.get_mut(slot.index()) {
            session.left_at = Some(now);
            self.look_later(slot, now);
        }
    }

    /// Notes that the session has a connection, and cancels the check whether it has claims.
    pub(crate) fn note_connected(&mut self, slot: SessionSlot) {
        if let Some(Some(session)) = self.slots.get_mut(slot.index()) {
            self.looks.remove(&(session.look_at, slot));
            (session.left_at, session.look_at) = (None, Time::NEVER);
        }
    }

    /// Schedules the next check of a session without a connection, unless its lease ends before.
    fn look_later(&mut self, slot: SessionSlot, now: Time) {
        let Some(Some(session)) = self.slots.get_mut(slot.index()) else { return };
        self.looks.remove(&(session.look_at, slot));
        let at = now.after_ms(self.limits.vacant_ms);
        session.look_at = if at < session.deadline { at } else { Time::NEVER };
        if session.look_at != Time::NEVER {
            self.looks.insert((session.look_at, slot));
        }
    }

    /// Returns a session without a connection if it is time to ask the shards whether the session has a claim. Also
    /// returns the time at which the session lost its last connection. Schedules the next question about it.
    pub(crate) fn take_look(&mut self, now: Time) -> Option<(SessionSlot, Time)> {
        let (_, slot) = *self.looks.first().filter(|(at, _)| *at <= now)?;
        self.look_later(slot, now);
        let left_at = self.get(slot)?.left_at?;
        Some((slot, left_at))
    }

    /// Returns when the next check of a session is due.
    pub(crate) fn next_look(&self) -> Time {
        self.looks.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Ends the lease of a session that had no claim after it lost its last connection at `left_at`. Has no effect if
    /// the session has had a connection after that.
    pub(crate) fn vacate(&mut self, id: SessionId, left_at: Time, now: Time) {
        let Some(slot) = self.find(id) else { return };
        let Some(Some(session)) = self.slots.get_mut(slot.index()) else { return };
        if session.left_at == Some(left_at) && now < session.deadline {
            self.timers.remove(&(session.armed, slot));
            (session.deadline, session.armed) = (now, now);
            self.timers.insert((now, slot));
        }
    }

    /// Returns when the next timer fires.
    pub(crate) fn next_deadline(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |(armed, _)| *armed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SESSION_VACANT_MS;

    const LIMITS: SessionLimits = SessionLimits {
        count_max: 2,
        vacant_ms: SESSION_VACANT_MS,
        lease_default_ms: 10_000,
        lease_max_ms: 86_400_000,
    };

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn a_session_expires_one_lease_after_its_last_frame() {
        let mut sessions = Sessions::new(0, [1; 32], LIMITS);
        let slot = sessions.open(1000, None, &Accounts::NONE, LaneSlot(0), at(0)).unwrap();
        sessions.renew(slot, at(700));
        assert_eq!(sessions.first_over(at(1699)), None);
        assert_eq!(sessions.next_deadline(), at(1700));
        assert_eq!(sessions.first_over(at(1700)), Some(slot));
        assert_eq!(sessions.end(slot), BTreeMap::from([(0, LaneSlot(0))]));
        assert_eq!(sessions.next_deadline(), Time::NEVER);
    }

    #[test]
    fn an_ended_session_id_is_unknown_after_its_slot_is_reused() {
        let mut sessions = Sessions::new(3, [1; 32], LIMITS);
        let slot = sessions.open(0, None, &Accounts::NONE, LaneSlot(0), at(0)).unwrap();
        let id = sessions.id(slot);
        assert_eq!(Sessions::worker_of(id), 3);
        assert_eq!(sessions.find(id), Some(slot));
        sessions.end(slot);
        assert_eq!(sessions.open(0, None, &Accounts::NONE, LaneSlot(0), at(0)), Ok(slot));
        assert_eq!(sessions.find(id), None);
    }

    #[test]
    fn a_session_has_a_minimum_lease_and_a_maximum_number_of_lanes() {
        let mut sessions = Sessions::new(0, [1; 32], LIMITS);
        assert_eq!(
            sessions.open(1, None, &Accounts::NONE, LaneSlot(0), at(0)),
            Err(SessionRefusal::TooShort)
        );
        let slot = sessions.open(0, None, &Accounts::NONE, LaneSlot(0), at(0)).unwrap();
        for number in 1..LANES_PER_SESSION_MAX {
            assert_eq!(sessions.join(slot, LaneSlot(number as u32)), Some(number as u16));
        }
        assert_eq!(sessions.join(slot, LaneSlot(99)), None);
    }

    #[test]
    fn a_lane_that_joins_a_restored_session_gets_an_unused_number() {
        let mut sessions = Sessions::new(0, [1; 32], LIMITS);
        let id = SessionId { place: 7, secret: 7 };
        // The log contains only lane 0, because lane 1 held nothing. The client knows both lanes.
        let slot = sessions.restore(id, 1000, None, BTreeMap::from([(0, LaneSlot(0))]), 640, at(0));
        assert_eq!(sessions.join(slot, LaneSlot(1)), Some(640));
        assert!(sessions.join_again(slot, 1, LaneSlot(2)));
        assert_eq!(
            sessions.get(slot).unwrap().lanes,
            BTreeMap::from([(0, 0), (1, 2), (640, 1)].map(|(number, lane)| (number, LaneSlot(lane))))
        );
    }

    #[test]
    fn the_number_of_sessions_is_limited() {
        let mut sessions = Sessions::new(0, [1; 32], LIMITS);
        let slot = sessions.open(0, None, &Accounts::NONE, LaneSlot(0), at(0)).unwrap();
        sessions.open(0, None, &Accounts::NONE, LaneSlot(1), at(0)).unwrap();
        assert_eq!(sessions.open(0, None, &Accounts::NONE, LaneSlot(2), at(0)), Err(SessionRefusal::TooMany));
        sessions.end(slot);
        assert_eq!(sessions.open(0, None, &Accounts::NONE, LaneSlot(2), at(0)), Ok(slot));
    }
}
