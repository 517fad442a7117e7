//! What is spoken at a port.

/// What is spoken on a connection, given by the port that it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The binary protocol.
    Binary,
    /// gRPC.
    Grpc,
    /// HTTP and WebSocket.
    Http,
    /// WebSocket, of Locktopus alone.
    Locktopus,
}

impl Port {
    /// Its name in the line that says that the server is ready.
    pub fn name(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Locktopus => "locktopus",
        }
    }
}
