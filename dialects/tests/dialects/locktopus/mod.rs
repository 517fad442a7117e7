//! The dialect of Locktopus: the cases of the tests of its clients and of its lock table, against the real server. A server
//! that follows a script sends messages that the real server never sends.

mod conflicts;
mod ends;
mod lifecycle;
mod scripted;
mod tls;

use waymaker_dialects::locktopus::{ConnectionOptions, LocktopusClient, Resource};

use crate::real::RealServer;

/// Starts the real server with the port of Locktopus.
macro_rules! locktopus_server {
    () => {
        $crate::real::server!(None, &["--http-listen", "127.0.0.1:0"])
    };
}
use locktopus_server;

/// The address of a namespace.
fn url(server: &RealServer, namespace: &str) -> String {
    format!("ws://{}/v1?namespace={namespace}", server.listener("http"))
}

/// A namespace by options.
fn options(server: &RealServer, namespace: &str) -> ConnectionOptions {
    let (host, port) = server.listener("http").rsplit_once(':').expect("a host and a port");
    ConnectionOptions::new(host, port.parse().expect("a port"), namespace)
}

async fn connect(server: &RealServer) -> LocktopusClient {
    LocktopusClient::connect(&url(server, "test")).await.unwrap()
}

/// Returns the resources of a set such as `W a/b, R []`, with `W` for write and `R` for read. `""` is an empty segment.
fn set(text: &str) -> Vec<Resource> {
    let resource = |text: &str| {
        let (access, path) = text.split_once(' ').expect("an access and a path");
        let path = match path {
            "[]" => vec![],
            path => path.split('/').map(|segment| segment.trim_matches('"')).collect(),
        };
        if access == "W" { Resource::write(path) } else { Resource::read(path) }
    };
    text.split(", ").map(resource).collect()
}
