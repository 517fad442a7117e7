//! A client that sends far more requests than it reads responses, until the server stops reading from it.
//! Then the client reads everything.

use super::Client;
use crate::operation::Operation;
use crate::world::World;
use waymaker_protocol::{LockId, NamespaceKind};

/// Number of requests. Their responses exceed the output at which the server stops reading a connection, plus
/// the capacity of the network.
const REQUEST_COUNT: u64 = 6_000;
/// Shortest and longest time for which the client reads nothing.
const DEAF_US: (u64, u64) = (100_000, 2_000_000);

impl Client {
    /// Sends many requests on a connection without a session, and reads nothing from it for a while. Happens
    /// once in a run.
    pub(super) fn overeat(&mut self, world: &mut World) {
        let Some(edge) = world.settings.edge.filter(|edge| edge.has_glutton && self.index == 0) else {
            return;
        };
        let has_claims = matches!(self.kind, NamespaceKind::Flat | NamespaceKind::Tree | NamespaceKind::Pool);
        if self.deaf.is_some()
            || !has_claims
            || self.session.is_some()
            || self.is_front
            || !world.edge_random.once_in(edge.silent_every)
        {
            return;
        }
        let Some(lane) = self.pick_lane(world) else { return };
        let Some(connection) = self.lanes[lane].connection else { return };
        self.deaf = Some((connection, world.now_us + world.edge_random.between(DEAF_US.0, DEAF_US.1)));
        for _ in 0..REQUEST_COUNT {
            // No claim has this id.
            let id = LockId { place: 0, secret: world.edge_random.any() };
            self.ask_on(world, lane, Operation::Status { id });
        }
    }

    /// Returns whether the client does not read this connection at the moment.
    pub(super) fn is_deaf(&self, world: &World, connection: usize) -> bool {
        let until_us = self.deaf.filter(|(deaf, _)| *deaf == connection).map_or(0, |(_, until_us)| until_us);
        until_us > world.now_us && !world.calm
    }
}
