//! The thread that accepts connections. New connections wait until it runs. Meanwhile a session may reach its
//! end that one of the waiting connections is to resume.

use super::Server;
use super::thread::Intake;
use crate::event::Event;
use crate::world::World;
use std::collections::{BTreeSet, VecDeque};
use waymaker_engine::Time;
use waymaker_server::mail::Mail;

/// Usual delay until the acceptor wakes, and the longest delay.
const WAKE_US: u64 = 200;
const WAKE_MAX_US: u64 = 20_000;

/// Connections that wait for the acceptor, and workers that wait for its report.
#[derive(Debug, Default)]
pub(super) struct Acceptor {
    connections: VecDeque<usize>,
    /// Workers to notify when all of these connections were accepted.
    askers: BTreeSet<usize>,
    is_planned: bool,
}

impl Server {
    /// Takes a new connection. Without an acceptor its worker gets the connection at once.
    pub(crate) fn accept(&mut self, world: &mut World, connection: usize) {
        self.acceptor.connections.push_back(connection);
        if self.node.0.acceptor_count() == 0 || !self.stage.accepts() {
            return self.accept_all(world);
        }
        self.plan_accept(world);
    }

    /// Notifies a worker when all connections that wait now were accepted.
    pub(super) fn ask_acceptor(&mut self, world: &mut World, asker: usize) {
        self.acceptor.askers.insert(asker);
        self.plan_accept(world);
    }

    fn plan_accept(&mut self, world: &mut World) {
        if !std::mem::replace(&mut self.acceptor.is_planned, true) {
            let is_late = !world.calm && world.edge_random.once_in(8);
            let delay_us = world.edge_random.spread(1, if is_late { WAKE_MAX_US } else { WAKE_US });
            world.auditor.note_stall(world.now_us, delay_us);
            world.after(delay_us, Event::Accept);
        }
    }

    /// Closes the waiting connections, because the workers have ended.
    pub(super) fn forget_waiting(&mut self) {
        self.acceptor.connections.clear();
        self.acceptor.askers.clear();
    }

    /// Hands all waiting connections to their workers.
    pub(super) fn accept_all(&mut self, world: &mut World) {
        self.acceptor.is_planned = false;
        for connection in std::mem::take(&mut self.acceptor.connections) {
            if !self.stage.accepts() {
                world.network.connections[connection].server_done = true;
                world.cut(connection);
                world.note_done(connection);
                continue;
            }
            let link = &mut world.network.connections[connection];
            link.accepted_us = world.now_us;
            let thread = link.thread;
            self.threads[thread].hand(world, Intake { connection, moved: None, drained_max: Time::NEVER });
        }
        if self.node.0.acceptor_count() > 0 {
            self.node.0.publish_accepted(0, world.server_time());
        }
        for asker in std::mem::take(&mut self.acceptor.askers) {
            if let Some(thread) = self.threads.get_mut(asker) {
                thread.post(world, &self.node.0, Mail::Drained);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::trace::Trace;
    use crate::workload::Settings;

    fn run() -> (World, Server) {
        let mut random = Random::new(0);
        let settings = Settings::new(0, None, &mut random);
        let mut world = World::new(settings, random, Trace::new(false, false));
        let server = Server::new(&mut world);
        (world, server)
    }

    /// Opens a connection that waits for the acceptor.
    fn waiting_connection(world: &mut World, server: &mut Server) -> usize {
        let connection = world.connect(0, 0, false);
        server.acceptor.connections.push_back(connection);
        world.now_us = 5_000;
        connection
    }

    #[test]
    fn bytes_of_a_connection_are_readable_from_its_accept_on() {
        let (mut world, mut server) = run();
        let connection = waiting_connection(&mut world, &mut server);
        server.accept_all(&mut world);
        let link = &mut world.network.connections[connection];
        // These bytes arrived while the connection waited for the acceptor.
        link.read_since_us = 4_000;
        assert_eq!(link.readable_since_us(), 5_000);
        link.read_since_us = 6_000;
        assert_eq!(link.readable_since_us(), 6_000);
    }

    #[test]
    fn a_waiting_connection_ends_with_the_workers() {
        let (mut world, mut server) = run();
        let connection = waiting_connection(&mut world, &mut server);
        server.forget_waiting();
        server.accept_all(&mut world);
        assert_eq!(world.network.connections[connection].accepted_us, 0, "the next start does not serve it");
    }
}
