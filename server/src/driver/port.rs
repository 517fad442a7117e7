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
    /// HTTP, as DynamoDB speaks it.
    Dynamodb,
}

impl Port {
    /// All ports, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] = [Self::Binary, Self::Grpc, Self::Http, Self::Locktopus, Self::Dynamodb];

    /// Its name in the line that says that the server is ready.
    pub fn name(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Locktopus => "locktopus",
            Self::Dynamodb => "dynamodb",
        }
    }

    /// The protocols that an encrypted connection may agree on (ALPN). None where there is only one behind the port, and its
    /// clients do not ask.
    pub fn tls_protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Binary => &[],
            Self::Grpc => &[b"h2"],
            Self::Http | Self::Locktopus | Self::Dynamodb => &[b"http/1.1"],
        }
    }
}
