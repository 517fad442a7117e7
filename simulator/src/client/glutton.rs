//! A client that asks for far more than it reads, until the server reads nothing of it, and then reads everything.

use super::Client;
use crate::operation::Operation;
use crate::world::World;
use waymaker_protocol::{LockId, NamespaceKind};

/// Number of requests. Their answers are longer than the output of a connection that the server still reads, and the network, together.
const REQUEST_COUNT: u64 = 6_000;
/// How long the client reads nothing.
const DEAF_US: (u64, u64) = (100_000, 2_000_000);

impl Client {
    /// Asks for much on a connection without a session, and does not read it for a while. Once in a run.
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

    /// Returns whether the client leaves this connection unread now.
    pub(super) fn is_deaf(&self, world: &World, connection: usize) -> bool {
        let until_us = self.deaf.filter(|(deaf, _)| *deaf == connection).map_or(0, |(_, until_us)| until_us);
        until_us > world.now_us && !world.calm
    }
}
