//! Facts about the client of a connection, apart from credentials.

use std::net::IpAddr;

/// Facts about a client that come from its socket, from TLS and from its listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Address of the client; `None` for a Unix socket.
    pub address: Option<IpAddr>,
    /// Names in the client's certificate, alternative names before common names. Empty without a certificate, or if it
    /// has no such names.
    pub certificate_names: Vec<String>,
    /// User id of the peer process of a Unix socket; `None` for TCP.
    pub uid: Option<u32>,
    /// Whether the listener refuses clients without an identity. Rules in the access file have the same effect.
    pub needs_identity: bool,
}
