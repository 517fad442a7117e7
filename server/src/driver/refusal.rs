//! Reasons to refuse a new connection, for its client, the log and the metrics.

use super::addresses::Excess;
use super::socket::StdSocket;
use crate::memory;
use waymaker_protocol::{ErrorAnswer, ErrorCode, ErrorDetail};

/// The limit that makes the server refuse a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// The number of open connections is at this maximum.
    Connections(usize),
    /// The memory use of the server has reached this maximum in bytes.
    Memory(u64),
    /// A limit of the source address is reached.
    Address(Excess),
}

impl Refusal {
    /// Returns the index of the label in `REFUSAL_LABELS` of the metrics.
    pub(super) fn label_index(self) -> usize {
        match self {
            Self::Connections(_) => 0,
            Self::Memory(_) => 1,
            Self::Address(Excess::Connections(_)) => 2,
            Self::Address(Excess::NewConnections(_)) => 3,
            Self::Address(Excess::Handshakes(_)) => 4,
        }
    }

    /// Returns the name of the limit, its value and a message about it.
    fn describe(self) -> (&'static str, u64, String) {
        match self {
            Self::Connections(limit) => (
                "connections",
                limit as u64,
                format!("the server has {limit} connections, the maximum; try again later"),
            ),
            Self::Memory(limit) => (memory::LIMIT_NAME, limit, memory::refusal(limit)),
            Self::Address(Excess::Connections(limit)) => (
                "connections per address",
                limit.into(),
                format!("this address has {limit} connections, the maximum (--connections-per-address)"),
            ),
            Self::Address(Excess::NewConnections(limit)) => (
                "new connections per second",
                limit.into(),
                format!(
                    "this address opens more than {limit} connections per second (--new-connections-per-second); try \
                     again in a second"
                ),
            ),
            Self::Address(Excess::Handshakes(limit)) => (
                "handshakes per address",
                limit.into(),
                format!(
                    "this address has {limit} unfinished TLS handshakes, the maximum (--handshakes-per-address)"
                ),
            ),
        }
    }

    /// Sends the refusal to the client, without waiting. Only for unencrypted connections of the binary protocol. A
    /// failed or partial write is ignored.
    pub(super) fn tell(self, socket: &StdSocket) {
        let (field, value, message) = self.describe();
        let detail = ErrorDetail::Text { value, field: field.as_bytes(), message: message.as_bytes() };
        let mut frame = Vec::new();
        ErrorAnswer { code: ErrorCode::Overloaded, detail }.encode(0, &mut frame);
        let _ = socket.try_write(&frame);
    }
}
