//! Clients that share a session, as processes do that were given its id.
//!
//! Each client has its own view of the session and does not know of renewals by the others. A GOODBYE of one
//! client ends the session for all of them. The others learn of it only from the server.

use super::Client;
use crate::operation::Operation;
use crate::world::World;
use waymaker_protocol::SessionId;

impl Client {
    /// Returns the session that the client is to join.
    pub(super) fn session_of_mate(&self, world: &World) -> Option<SessionId> {
        self.mate.and_then(|mate| world.sessions.get(&mate)).copied()
    }

    /// Forgets the session that the client was to join, because it has ended. The other client may not know
    /// yet.
    pub(super) fn forget_session_of_mate(&self, world: &mut World) {
        if let Some(mate) = self.mate {
            world.sessions.remove(&mate);
        }
    }

    pub(super) fn say_goodbye(&mut self, world: &mut World, lane: usize) {
        if let Some(session) = &mut self.session {
            session.is_leaving = true;
        }
        self.holds_on_session().into_iter().for_each(|id| self.forget(world, id));
        let number = self.ask_on(world, lane, Operation::Goodbye);
        if number.is_multiple_of(2) && !self.is_front {
            // The server must not serve frames behind a GOODBYE.
            let acquire = self.choose_acquire(world);
            self.ask_on(world, lane, Operation::Acquire(acquire));
            self.ask_on(world, lane, Operation::KeepAlive);
        }
    }

    /// Ends the shared session of a client that crashed. Otherwise the holds of this client would last as
    /// long as the other clients keep the session alive.
    pub(super) fn leave_shared_session(&mut self, world: &mut World) {
        let Some(session) = self.session else { return };
        if !session.is_leaving
            && world.shared_sessions.contains(&session.id)
            && let Some(lane) = self.pick_lane(world)
        {
            self.say_goodbye(world, lane);
        }
    }
}
