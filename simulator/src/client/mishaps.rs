//! Faults of a client: it loses connections, pauses, crashes, and leaves connections with requests in flight.

use super::Client;
use crate::world::World;

impl Client {
    /// Lets one fault happen to the client.
    pub(super) fn suffer(&mut self, world: &mut World) {
        let index = self.index;
        let connections: Vec<usize> = self.lanes.iter().filter_map(|lane| lane.connection).collect();
        match world.random.below(10) {
            0..=3 => {
                if let Some(connection) = world.random.pick(&connections) {
                    world.cut(connection);
                }
            }
            4..=5 => {
                if let Some(connection) = world.random.pick(&connections) {
                    let for_us = world.random.spread(1_000, world.settings.late_max_us);
                    let to_server = world.random.once_in(2);
                    world.hold_back(connection, to_server, for_us);
                }
            }
            6..=7 => {
                let for_us = world.random.spread(1_000, 4_000_000);
                self.paused_until_us = world.now_us + for_us;
                world.trace.note(world.now_us, 22, index as u64, || {
                    format!("client {index}  pauses for {} ms", for_us / 1000)
                });
            }
            8 => self.crash(world),
            _ => {
                // The client closes a working connection, to resume its lane on another one.
                let lane = world.random.below(self.lanes.len() as u64) as usize;
                if world.random.once_in(4) && self.lanes[lane].takes_requests() {
                    return self.say_goodbye(world, lane);
                }
                self.leave_connection(world, lane);
            }
        }
    }

    pub(super) fn crash(&mut self, world: &mut World) {
        let index = self.index;
        world.trace.note(world.now_us, 23, index as u64, || format!("client {index}  crashes"));
        let connections: Vec<usize> = self.lanes.iter().filter_map(|lane| lane.connection).collect();
        connections.iter().for_each(|connection| world.cut(*connection));
        connections.iter().for_each(|connection| world.network.connections[*connection].client_done = true);
        self.begin_anew(world);
    }

    /// Closes the working connection of a lane.
    pub(super) fn leave_connection(&mut self, world: &mut World, lane: usize) {
        if let Some(connection) = self.lanes[lane].connection {
            world.note_lost(connection);
            self.lose(world, lane);
        }
    }
}
