//! Sockets and stopwatches of connections, implemented on the simulated network and in virtual time.

use super::tasks::{Errands, Task, Tasks};
use crate::event::Event;
use crate::network::ReadResult;
use crate::world::World;
use std::collections::BTreeMap;
use std::time::Duration;
use waymaker_engine::LaneSlot;
use waymaker_server::clock::Moment;
use waymaker_server::edge::connection::{ConnectionIo, Read, Write};
use waymaker_server::edge::turn::Stopwatch;
use waymaker_server::limits::READ_LEN_MAX;
use waymaker_server::mail::ConnectionKey;
use waymaker_server::worker::Worker;

/// The connection that is written to when the worker names a lane, by the slot of the lane.
pub(super) type LaneTable = BTreeMap<LaneSlot, (ConnectionKey, usize)>;

/// Stopwatch on which time passes between any two looks.
#[derive(Debug, Default)]
pub(super) struct VirtualStopwatch {
    elapsed_us: u64,
    pub(super) look_us: u64,
}

impl VirtualStopwatch {
    /// Returns the elapsed time without advancing it.
    pub(super) fn elapsed_us(&self) -> u64 {
        self.elapsed_us
    }
}

impl Stopwatch for &mut VirtualStopwatch {
    fn start(&mut self) {
        VirtualStopwatch::start(self);
    }

    fn elapsed(&mut self) -> Duration {
        VirtualStopwatch::elapsed(self)
    }

    fn restart(&mut self) {
        VirtualStopwatch::restart(self);
    }

    fn elapsed_if_started(&mut self) -> Duration {
        VirtualStopwatch::elapsed_if_started(self)
    }
}

impl Stopwatch for VirtualStopwatch {
    fn start(&mut self) {}

    fn elapsed(&mut self) -> Duration {
        let elapsed = Duration::from_micros(self.elapsed_us);
        self.elapsed_us += self.look_us;
        elapsed
    }

    fn restart(&mut self) {
        self.elapsed_us = 0;
    }

    fn elapsed_if_started(&mut self) -> Duration {
        self.elapsed()
    }
}

/// The parts of the thread that a connection uses in one turn.
pub(super) struct Io<'a> {
    pub(super) world: &'a mut World,
    pub(super) tasks: &'a mut Tasks,
    pub(super) registered: &'a mut LaneTable,
    pub(super) errands: &'a mut Errands,
    pub(super) connection: usize,
    pub(super) is_readable: &'a mut bool,
    /// Largest number of bytes of the next read.
    pub(super) len_max: usize,
    /// Bytes of the last read.
    pub(super) bytes: Vec<u8>,
}

impl ConnectionIo for Io<'_> {
    fn read(&mut self) -> Read<'_> {
        let len_max = std::mem::replace(&mut self.len_max, READ_LEN_MAX);
        match read(self.world, self.connection, self.is_readable, len_max) {
            Arrival::Nothing => Read::Nothing,
            Arrival::Failed => Read::Failed,
            Arrival::End => Read::End,
            Arrival::Bytes(bytes) => {
                self.bytes = bytes;
                Read::Bytes(&self.bytes, self.now())
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Write {
        write(self.world, self.connection, bytes)
    }

    fn now(&self) -> Moment {
        self.world.server_time().into()
    }

    fn rebind(&mut self, old: ConnectionKey, new: ConnectionKey) {
        unregister(self.registered, old);
        register(self.world, self.tasks, self.registered, new, self.connection);
    }

    fn follow_up(&mut self, worker: &mut Worker) {
        self.tasks.follow_up(self.world, worker, self.errands);
    }
}

/// Result of a read from a socket.
#[derive(Debug)]
pub(super) enum Arrival {
    Bytes(Vec<u8>),
    Nothing,
    End,
    Failed,
}

/// Reads a socket. A socket that was found empty has nothing until the operating system names it again.
pub(super) fn read(world: &mut World, connection: usize, is_readable: &mut bool, len_max: usize) -> Arrival {
    if !*is_readable {
        return Arrival::Nothing;
    }
    let link = &mut world.network.connections[connection];
    let is_broken = link.server_noticed;
    let pipe = &mut link.to_server;
    let unread_since_us = pipe.unread_since_us();
    match pipe.read(len_max) {
        ReadResult::Nothing if is_broken => Arrival::Failed,
        ReadResult::Nothing => {
            *is_readable = false;
            Arrival::Nothing
        }
        ReadResult::End => Arrival::End,
        ReadResult::Bytes(bytes) => {
            // A read that leaves room in the buffer has emptied the socket. Its end can still be read.
            *is_readable = bytes.len() == len_max || pipe.is_readable() || is_broken;
            world.trace.bytes(&bytes);
            if std::mem::take(&mut pipe.wants_room) {
                world.after(1, Event::ArriveAtClient(connection));
            }
            world.note_read(connection, unread_since_us.unwrap_or(world.now_us));
            Arrival::Bytes(bytes)
        }
    }
}

/// Writes as many bytes as the connection takes.
pub(super) fn write(world: &mut World, connection: usize, bytes: &[u8]) -> Write {
    let len = world.send(connection, false, bytes);
    world.auditor.note_flow(connection, len == bytes.len(), world.now_us);
    if len == 0 {
        return Write::Full;
    }
    world.trace.bytes(&bytes[..len]);
    world.note_said(connection, &bytes[..len]);
    Write::Written(len)
}

/// Lets the flusher write to this connection from now on. A connection that has lost the lane learns of that
/// in its next turn.
pub(super) fn register(
    world: &mut World,
    tasks: &mut Tasks,
    registered: &mut LaneTable,
    key: ConnectionKey,
    connection: usize,
) {
    if let Some((_, old)) = registered.insert(key.slot, (key, connection))
        && old != connection
    {
        tasks.make_ready(world, Task::Connection(old));
    }
}

pub(super) fn unregister(registered: &mut LaneTable, key: ConnectionKey) {
    if registered.get(&key.slot).is_some_and(|(registered, _)| *registered == key) {
        registered.remove(&key.slot);
    }
}
