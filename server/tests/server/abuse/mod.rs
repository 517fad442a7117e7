//! Clients that do harm at the ports of the front ends, and what others notice of it.

mod binary;
mod bystander;
mod descriptors;
mod every_front_end;
mod every_opcode;
mod expiry;
mod fill;
mod floods;
mod half_requests;
mod headers;
mod hpack;
mod http2;
mod latency;
mod long_lists;
mod memory;
mod messages;
mod pause;
mod request_count;
mod slow_loris;
mod slow_readers;
mod untaken;
mod vanished;
pub(crate) mod web_socket;
mod web_socket_frames;

use crate::harness::Server;

/// The ports of all front ends.
const PORTS: [&str; 6] =
    ["--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--locktopus-listen", "127.0.0.1:0"];

/// A server with all front ends and one worker, which everybody has to share.
fn server() -> Server {
    Server::start(&[&PORTS[..], &["--workers", "1"]].concat())
}
