//! The dialect of Locktopus: what the tests of its clients and of its lock table say, over the wire to the real server; and
//! against a server that the test plays itself, what the real one never says.

mod conflicts;
mod ends;
mod lifecycle;
mod scripted;
mod tls;

use waymaker_dialects::locktopus::{ConnectionOptions, LocktopusClient, Resource};

use crate::real::RealServer;

/// The real server with the port on which Locktopus is spoken, or the end of the test where there is none.
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

/// The resources of a set such as `W a/b, R []`: what is to be written and read. `""` is an empty segment.
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
