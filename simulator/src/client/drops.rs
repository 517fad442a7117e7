//! A client that no longer wants a claim right after it asked for it. The client cancels, closes the
//! connection or crashes before the request arrives, before the response arrives, or before it has read the
//! response.

use super::Client;
use crate::operation::Operation;
use crate::world::World;

impl Client {
    /// Asks for a claim, and gives up the request or the connection, or crashes, at once or soon.
    pub(super) fn ask_and_drop(&mut self, world: &mut World) {
        if self.choose_without_queue(world) {
            return;
        }
        let acquire = self.choose_acquire(world);
        let Some(lane) = self.pick_lane(world) else { return };
        let number = self.ask_on(world, lane, Operation::Acquire(acquire));
        if self.is_front && acquire.request_id.is_some() && self.lanes[lane].takes_requests() {
            // The newer request takes the claim up, possibly before the older one is given up.
            self.ask_on(world, lane, Operation::Acquire(acquire));
        }
        match world.random.below(8) {
            0..=1 => {
                self.ask_on(world, lane, Operation::Cancel { acquire: number, key: acquire.key });
            }
            2 => self.leave_connection(world, lane),
            3 => {
                if let Some(connection) = self.lanes[lane].connection {
                    world.cut(connection);
                }
            }
            4 => self.crash(world),
            _ => {
                // The pause is about as long as a round trip. The client never reads bytes that arrive during
                // the pause.
                self.leaves_unread = self.lanes[lane].connection;
                let for_us = world.random.spread(1, 8 * world.settings.latency_us);
                self.paused_until_us = self.paused_until_us.max(world.now_us + for_us);
            }
        }
    }

    /// Closes the connection that was to be left without reading it, if it still exists.
    pub(super) fn leave_unread(&mut self, world: &mut World) {
        let Some(connection) = self.leaves_unread.take() else { return };
        let lane = self.lanes.iter().position(|lane| lane.connection == Some(connection));
        if let Some(lane) = lane {
            self.leave_connection(world, lane);
        }
    }
}
