//! The turns of connections: a connection reads, serves and writes in its turn, gives way, or ends.

use super::{Inner, Intake, ServedConnection, Thread};
use crate::node::front::Hands;
use crate::node::io::{Io, VirtualStopwatch, unregister, write};
use crate::node::tasks::{Errands, Task};
use crate::world::World;
use std::task::Poll;
use waymaker_engine::Time;
use waymaker_server::edge::connection::{End, TurnEnd, flush};
use waymaker_server::edge::front_turn::{FrontTurnEnd, Others};
use waymaker_server::edge::turn::Turn;
use waymaker_server::limits::{READ_LEN_MAX, TURN_US};

/// Duration of a batch on the stopwatch of a turn.
const BATCH_US: u64 = 30;
/// Duration of one request of a front end on the stopwatch of a turn.
const FRONT_REQUEST_US: u64 = 2;

impl Thread {
    /// Runs the task of a connection.
    pub(super) fn give_turn(&mut self, world: &mut World, connection: usize, errands: &mut Errands) {
        let others = Others { are_there: self.connections.len() > 1, have_given_way: !self.late.is_empty() };
        let Self { worker, barrier, tasks, connections, registered, .. } = self;
        if let Some(served) = connections.get_mut(&connection)
            && !std::mem::replace(&mut served.is_known, true)
        {
            let link = &world.network.connections[connection];
            if link.to_server.is_readable() || link.server_noticed {
                tasks.note_io(world, connection);
            }
        }
        let Some(ServedConnection { inner, allowance, is_readable, is_queued: false, .. }) =
            connections.get_mut(&connection)
        else {
            return;
        };
        let (gave_way, end) = match inner {
            Inner::Binary(inner) => {
                if worker.has_input(inner.key()) {
                    world.note_served(connection);
                }
                inner.begin_turn(barrier, || world.network.connections[connection].to_server.unread_len());
                // In some turns one batch takes the whole time of the turn.
                let look_us = if world.random.once_in(4) { TURN_US } else { BATCH_US };
                let mut stopwatch = VirtualStopwatch::default();
                stopwatch.look_us = look_us;
                let mut turn = Turn::new(&mut stopwatch);
                let len_max = if world.random.once_in(8) { 40 } else { READ_LEN_MAX };
                let mut io = Io {
                    world,
                    tasks,
                    registered,
                    errands,
                    connection,
                    is_readable,
                    len_max,
                    bytes: Vec::new(),
                };
                let end = inner.run(worker, &mut turn, &mut io);
                inner.end_turn(worker, barrier, &mut turn, end);
                allowance.spent_us += stopwatch.elapsed_us();
                tasks.follow_up(world, worker, errands);
                match end {
                    TurnEnd::CaughtUp => (false, None),
                    TurnEnd::GaveWay => (true, None),
                    TurnEnd::Over(end) => (false, Some(end)),
                }
            }
            Inner::Front(front) => {
                let look_us = if world.random.once_in(8) { TURN_US } else { FRONT_REQUEST_US };
                let hands = Hands { world, worker, barrier, tasks, registered, errands, is_readable, others };
                match front.take_turn(hands, look_us) {
                    Poll::Ready(end) => (false, Some(end)),
                    Poll::Pending => {
                        let end = front.end_turn(barrier);
                        allowance.spent_us += front.spent_us();
                        match end {
                            FrontTurnEnd::CaughtUp => (false, None),
                            FrontTurnEnd::GaveWay => (true, None),
                            FrontTurnEnd::NextRound => {
                                tasks.make_ready(world, Task::Connection(connection));
                                (false, None)
                            }
                        }
                    }
                }
            }
        };
        if gave_way {
            self.give_way(world, connection);
        }
        if let Some(end) = end {
            self.finish(world, connection, end, errands);
        }
    }

    /// Queues a connection behind the connections that gave way before it.
    pub(super) fn give_way(&mut self, world: &mut World, connection: usize) {
        if let Some(served) = self.connections.get_mut(&connection) {
            served.is_queued = true;
            self.late.give_way(connection);
            self.gave_way.push_back(connection);
            self.tasks.make_ready(world, Task::Late);
        }
    }

    /// Lets one connection that gave way continue in this round of tasks.
    pub(super) fn continue_late(&mut self, world: &mut World) {
        let are_leases_due = self.worker.next_deadline() <= world.server_time();
        let continued = self.late.continue_one(are_leases_due);
        let expected = if are_leases_due { None } else { self.gave_way.pop_front() };
        if continued != expected {
            world.auditor.accuse("turns", || {
                format!(
                    "connection {continued:?} continues, but {expected:?} should; leases are due: {are_leases_due}"
                )
            });
        }
        if let Some(connection) = continued
            && let Some(served) = self.connections.get_mut(&connection)
        {
            served.is_queued = false;
            self.tasks.make_ready(world, Task::Connection(connection));
        }
        if !self.late.is_empty() {
            self.tasks.make_ready(world, Task::Late);
        }
    }

    pub(super) fn flush(&mut self, world: &mut World, errands: &mut Errands) {
        let mut is_fed = false;
        while let Some(key) = self.worker.poll_dirty() {
            let Some((registered, connection)) = self.registered.get(&key.slot).copied() else { continue };
            let Some(served) = self.connections.get_mut(&connection) else { continue };
            if registered != key {
                continue;
            }
            let worker = &mut self.worker;
            let needs_turn = match &mut served.inner {
                Inner::Binary(_) => flush(worker, key, |bytes| write(world, connection, bytes)),
                Inner::Front(front) => {
                    front.take_output(worker, key);
                    is_fed = true;
                    if let Some(number) = front.sleeper() {
                        world.auditor.accuse("listener", || {
                            format!(
                                "stream {number} of connection {connection} sleeps although its lane is closed"
                            )
                        });
                    }
                    false
                }
            };
            if needs_turn {
                self.tasks.make_ready(world, Task::Connection(connection));
            }
        }
        if is_fed {
            self.tasks.follow_up(world, &mut self.worker, errands);
        }
    }

    /// Ends a connection on this worker.
    pub(super) fn finish(&mut self, world: &mut World, connection: usize, end: End, errands: &mut Errands) {
        let Some(ServedConnection { inner, .. }) = self.connections.remove(&connection) else { return };
        self.tasks.forget(Task::Connection(connection));
        let now = world.server_time().into();
        let Self { worker, barrier, tasks, registered, .. } = self;
        let moved = match inner {
            Inner::Binary(inner) => {
                unregister(registered, inner.key());
                inner.finish(worker, barrier, end, now)
            }
            Inner::Front(front) => {
                let keys = front.finish(worker, barrier, now);
                keys.into_iter().for_each(|key| unregister(registered, key));
                None
            }
        };
        tasks.follow_up(world, worker, errands);
        if let End::Move(to) = end {
            world.network.connections[connection].thread = usize::from(to);
            let drained_max = Time::NEVER;
            return errands.moves.push((usize::from(to), Intake { connection, moved, drained_max }));
        }
        let link = &mut world.network.connections[connection];
        link.server_done = true;
        world.note_lost(connection);
        world.close(connection, false);
        world.note_done(connection);
    }
}
