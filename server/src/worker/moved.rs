//! Connections on their way from one worker to another.

use super::Client;

/// A connection on its way to another worker.
#[derive(Debug)]
pub struct MovedConnection {
    /// Bytes that were read from the connection and not served.
    pub input: Vec<u8>,
    /// Client of the connection.
    pub client: Client,
    /// Identification of the move.
    pub ticket: MoveTicket,
}

/// Identifies one move of a connection from one worker to another.
///
/// A connection that moves may have bytes that arrived before the worker that it leaves began its present reading of
/// all sockets (a sweep). So that worker publishes the end of the sweep only after the other worker has served these
/// bytes. The worker `from` waits no longer if the connection has ended, or has used up the time for these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveTicket {
    /// Worker that sent the connection on.
    pub from: u16,
    /// Number of the move among those of the worker `from`.
    pub number: u64,
}
