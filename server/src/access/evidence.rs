//! Facts about the client of a connection, beside credentials.

use std::net::IpAddr;

/// Facts about a client that come from its socket and from TLS.
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
