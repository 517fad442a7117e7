//! Ports and their protocols.

/// Protocol of a connection, given by the port through which it came. A Unix socket counts as `Binary`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The binary protocol.
    Binary,
    /// gRPC.
    Grpc,
    /// HTTP and WebSocket.
    Http,
    /// WebSocket of Locktopus only.
    Locktopus,
    /// HTTP with the DynamoDB protocol.
    Dynamodb,
}

impl Port {
    /// All ports, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] = [Self::Binary, Self::Grpc, Self::Http, Self::Locktopus, Self::Dynamodb];

    /// Returns the name of the port in the line `ready` that the server prints when it is ready.
    pub fn name(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Locktopus => "locktopus",
            Self::Dynamodb => "dynamodb",
        }
    }

    /// Returns the protocols that an encrypted connection may negotiate (ALPN). Empty for the binary protocol, whose
    /// clients do not negotiate.
    pub fn tls_protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Binary => &[],
            Self::Grpc => &[b"h2"],
            Self::Http | Self::Locktopus | Self::Dynamodb => &[b"http/1.1"],
        }
    }
}
