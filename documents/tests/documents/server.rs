//! The server of a document, and the addresses that the documents use for it.

use std::path::Path;

use crate::real::RealServer;

/// Default addresses of the binary protocol, of gRPC and of HTTP.
const DEFAULTS: [&str; 3] = ["127.0.0.1:7420", "127.0.0.1:7421", "127.0.0.1:7422"];

/// Addresses of a server, in the order of [`DEFAULTS`].
#[derive(Clone, Debug)]
pub(crate) struct Addresses([String; 3]);

impl Addresses {
    /// Replaces the default addresses in a text.
    pub(crate) fn put_into(&self, text: &str) -> String {
        DEFAULTS.iter().zip(&self.0).fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}

/// Starts a server with all listeners on free ports.
pub(crate) fn start(data: &Path) -> (RealServer, Addresses) {
    let arguments = ["--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let server = RealServer::start(Some(data), &arguments);
    let binary = server.url().trim_start_matches("waymaker://").to_owned();
    let addresses =
        Addresses([binary, server.listener("grpc").to_owned(), server.listener("http").to_owned()]);
    (server, addresses)
}
