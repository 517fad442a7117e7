//! The end of vacant sessions: a session without a connection and without a claim ends before its lease.
//!
//! A worker does not know the claims of its sessions. It asks the shards that know one of their lanes. The worker that
//! serves the last of these shards reports if no shard has a claim. Only a connection can begin a claim, so the report
//! stays true until a client connects to the session again. The report makes the lease of the session expire at once.
//! As after every expiry, the session ends only when new connections are accepted and all sockets are read. A client
//! that has connected to the session by then keeps it.

use super::State;
use super::turns::ShardTurn;
use crate::limits::VACANT_LANES_PER_TICK;
use crate::mail::{Batch, Mail, Vacancy};
use crate::node::Node;
use crate::worker::sessions::SessionSlot;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A question to the shards that is in progress: does a session without a connection still have a claim? Each shard
/// looks up every lane of the session, which takes long for many lanes. So the worker asks one shard after the other,
/// and pauses after a limited number of lookups.
#[derive(Debug)]
pub(super) struct VacancyCheck {
    vacancy: Arc<Vacancy>,
    /// Shards to which the question has not gone yet.
    shards: Vec<u16>,
}

impl State {
    /// If no lane of a session has a connection, notes the time, so that the session is later checked for claims.
    /// Called after a connection was lost or the session was restored.
    pub(super) fn note_left(&mut self, session: SessionSlot) {
        let Some(lanes) = self.sessions.get(session).map(|session| &session.lanes) else { return };
        if lanes.values().all(|lane| self.lanes[*lane].epoch == 0) {
            self.sessions.note_left(session, self.now);
            self.timers.wake_at(self.sessions.next_look());
        }
    }

    /// Asks shards whether sessions that have had no connection for a while still have a claim. A session whose lanes
    /// no shard knows has none, and its lease ends at once. Stops after questions for `VACANT_LANES_PER_TICK` lookups
    /// of lanes; a later tick continues.
    pub(super) fn look_at_vacant_sessions(&mut self, node: &Node) {
        let mut lane_count = 0;
        while lane_count < VACANT_LANES_PER_TICK {
            let Some(mut asking) = self.vacancy_check.take().or_else(|| self.next_vacant()) else { return };
            // Count the question about a session as at least one lane, even if the session has no lanes. Otherwise any
            // number of such sessions would be checked in one tick.
            lane_count += asking.vacancy.lane_count().max(1);
            match asking.shards.pop() {
                // Requests of the session's lanes may wait in this shard for another worker, which has the turn. The
                // question about the session's claims waits behind them, so its answer takes the claims of these
                // requests into account.
                Some(shard) => self.hand_over(node, shard, Batch::Vacancy(Arc::clone(&asking.vacancy))),
                None => self.vacate(&asking.vacancy),
            }
            self.vacancy_check = Some(asking).filter(|asking| !asking.shards.is_empty());
        }
    }

    /// Returns the next question to the shards: whether a certain session, which has had no connection for a while,
    /// still has a claim. Returns `None` if no session is due for this question.
    fn next_vacant(&mut self) -> Option<VacancyCheck> {
        let (slot, left_at) = self.sessions.take_look(self.passed)?;
        let (session, worker) = (self.sessions.id(slot), self.index);
        let lanes = self.sessions.get(slot).into_iter().flat_map(|session| session.lanes.values());
        let lanes: Vec<_> = lanes.map(|lane| &self.lanes[*lane]).collect();
        let shards: BTreeSet<u16> = lanes.iter().flat_map(|lane| lane.known_to.iter().copied()).collect();
        let lanes = lanes.into_iter().map(|lane| lane.address).collect();
        let left = AtomicUsize::new(shards.len());
        let vacancy = Arc::new(Vacancy { worker, session, left_at, lanes, left });
        Some(VacancyCheck { vacancy, shards: shards.into_iter().collect() })
    }

    /// Looks for claims of the session in the shard whose turn is held. If this is the last shard and no shard has a
    /// claim, informs the worker of the session.
    pub(super) fn look_for_claims(&mut self, node: &Node, turn: &ShardTurn<'_>, vacancy: Arc<Vacancy>) {
        let has_claims = vacancy.lanes.iter().any(|lane| turn.shard.has_claims(*lane));
        if !has_claims && vacancy.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.mail(node, vacancy.worker, Mail::Vacant(vacancy));
        }
    }

    /// Ends the lease of a session that has no claim in any shard, unless the session has had a connection since.
    pub(super) fn vacate(&mut self, vacancy: &Vacancy) {
        self.sessions.vacate(vacancy.session, vacancy.left_at, self.now);
    }
}
