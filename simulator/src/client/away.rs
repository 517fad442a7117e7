//! A client that leaves all its connections for about as long as a session lasts that has neither a connection nor a claim.

use super::Client;
use crate::world::World;

/// Every how many acts a client goes away.
const AWAY_EVERY: u64 = 40;
/// How much earlier or later than the session may end the client comes back, at most.
const AROUND_US: u64 = 20_000;

impl Client {
    /// Leaves its connections, with its holds or without, and comes back around one of the looks at its session.
    pub(super) fn go_away(&mut self, world: &mut World) {
        let away_for_ms = world.settings.session_vacant_ms;
        if world.calm
            || !world.settings.ends_vacant_sessions()
            || self.session.is_none()
            || !world.random.once_in(AWAY_EVERY)
        {
            return;
        }
        if world.random.once_in(2) {
            self.give_back_everything(world);
            self.flush(world);
        }
        for lane in 0..self.lanes.len() {
            self.leave_connection(world, lane);
        }
        let looks_us = 1_000 * away_for_ms * world.random.between(1, 2);
        let until_us = looks_us.saturating_sub(AROUND_US) + world.random.below(3 * AROUND_US);
        self.paused_until_us = world.now_us + until_us;
    }
}
