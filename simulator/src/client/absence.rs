//! A client that leaves all its connections for about as long as a session without a connection and without a
//! claim lasts.

use super::Client;
use crate::world::World;

/// One of this number of acts makes a client go away.
const AWAY_EVERY: u64 = 40;
/// Largest difference between the client's return and the end of its session.
const AROUND_US: u64 = 20_000;

impl Client {
    /// Closes all connections, with or without holds, and returns around one of the times at which the server
    /// looks for empty sessions.
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
