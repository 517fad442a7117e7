//! An address that refuses connections.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

/// An address that refuses connections. It keeps its port, so that no other process can take it.
pub(crate) struct Nowhere(Socket);

impl Nowhere {
    pub(crate) fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        Self(socket)
    }

    /// Returns the address as `host:port`.
    pub(crate) fn address(&self) -> String {
        self.0.local_addr().unwrap().as_socket().unwrap().to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("waymaker://{}", self.address())
    }

    /// Starts to listen.
    #[allow(dead_code, reason = "only some of the packages that share this file have a test that needs it")]
    pub(crate) fn listen(self) -> std::net::TcpListener {
        self.0.listen(64).unwrap();
        self.0.into()
    }
}
