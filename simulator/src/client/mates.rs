//! Clients that share a session, as processes do that were given its id.
//!
//! Each keeps its own view of the session: what another one's frames add to its life it does not know of. A goodbye of
//! one ends it for all, without a word to the others before the server's.

use super::Client;
use crate::operation::Operation;
use crate::world::World;
use waymaker_protocol::SessionId;

impl Client {
    /// The session that it is to join.
    pub(super) fn session_of_mate(&self, world: &World) -> Option<SessionId> {
        self.mate.and_then(|mate| world.sessions.get(&mate)).copied()
    }

    /// What it was to join is over, though its mate may not know yet.
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
            // The server reads nothing that stands behind a goodbye.
            let acquire = self.choose_acquire(world);
            self.ask_on(world, lane, Operation::Acquire(acquire));
            self.ask_on(world, lane, Operation::KeepAlive);
        }
    }

    /// What one that crashed held would last as long as the others keep the session alive: it ends with them.
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
