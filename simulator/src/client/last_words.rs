//! A client that sends no more on a connection, and still reads the answers.

use super::Client;
use super::lane::Stage;
use crate::operation::Operation;
use crate::world::World;

impl Client {
    /// Asks a last time on some connection and ends that direction of it, now and then.
    pub(super) fn say_last_words(&mut self, world: &mut World) {
        let Some(edge) = world.settings.edge.filter(|_| !world.calm && !self.is_front) else { return };
        if !world.edge_random.once_in(edge.last_words_every) {
            return;
        }
        let Some(lane) = self.pick_lane(world) else { return };
        let number = self.ask_on(world, lane, Operation::KeepAlive);
        let Some(connection) = self.lanes[lane].connection.filter(|_| self.lanes[lane].output.is_empty())
        else {
            return;
        };
        world.auditor.note_last_words(connection, number);
        world.note_lost(connection);
        world.close(connection, true);
        self.lanes[lane].stage = Stage::OnlyReads;
    }
}
