//! What a connection shows of its client, beside credentials.

use std::net::IpAddr;

/// What the server knows of a client without being told: it comes from the socket and from TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Address of the client; `None` at a Unix socket.
    pub address: Option<IpAddr>,
    /// Names in the client's certificate, the most specific first.
    pub certificate_names: Vec<String>,
    /// The user of the process at the other end of a Unix socket.
    pub uid: Option<u32>,
    /// The listener serves no client without an identity.
    pub needs_identity: bool,
}
