//! Bytes between clients and the server. The auditor learns of their arrival and of lost connections.

use super::World;

impl World {
    /// Opens a connection of a client to a worker.
    pub(crate) fn connect(&mut self, client: usize, thread: usize, is_front: bool) -> usize {
        let (mut around, network, _) = self.surroundings();
        network.connect(&mut around, client, thread, is_front)
    }

    /// Sends as many bytes as fit. Returns the number of bytes.
    pub(crate) fn send(&mut self, connection: usize, to_server: bool, bytes: &[u8]) -> usize {
        let (mut around, network, _) = self.surroundings();
        network.send(&mut around, connection, to_server, bytes)
    }

    /// Lets the bytes arrive whose time has come.
    pub(crate) fn arrive(&mut self, connection: usize, to_server: bool) {
        let arrived_count = self.network.arrive(self.now_us, connection, to_server);
        if let Some(count) = arrived_count.filter(|_| to_server) {
            self.auditor.arrived(connection, count, self.settings.server_ms(self.now_us));
        }
    }

    /// Closes one direction of a connection. Bytes that were sent before still arrive.
    pub(crate) fn close(&mut self, connection: usize, to_server: bool) {
        let (mut around, network, _) = self.surroundings();
        network.close(&mut around, connection, to_server);
    }

    /// Cuts a connection, possibly in the middle of a frame. Each side learns of it at a time of its own.
    pub(crate) fn cut(&mut self, connection: usize) {
        let (mut around, network, _) = self.surroundings();
        if network.cut(&mut around, connection) {
            self.note_lost(connection);
        }
    }

    /// Lets nothing arrive in one direction for a while.
    pub(crate) fn hold_back(&mut self, connection: usize, to_server: bool, for_us: u64) {
        let (mut around, network, _) = self.surroundings();
        network.hold_back(&mut around, connection, to_server, for_us);
    }
}
