//! A client that half-closes a connection: it sends nothing more and still reads the responses.

use super::Client;
use super::lane::Stage;
use crate::operation::Operation;
use crate::world::World;

impl Client {
    /// In some cases, sends a last request on a connection and closes that direction.
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
