//! Handshake of a connection.

use std::io::{self, Read, Write};

use waymaker_protocol::limits::{ANY_WORKER, FRAME_LEN_MAX};
use waymaker_protocol::{Hello, NamespaceKind, Response, VERSION_MIN, Welcome, next_frame};

use crate::codec::refused;
use crate::plan::Plan;

/// Returns the namespace for this kind; a namespace has only one kind.
pub fn namespace(kind: NamespaceKind) -> &'static [u8] {
    match kind {
        NamespaceKind::Tree => b"loadgen-tree",
        NamespaceKind::Pool => b"loadgen-pool",
        NamespaceKind::Limit => b"loadgen-limit",
        _ => b"loadgen",
    }
}

/// Returns the HELLO of version 1 without a session. Servers of all versions accept it, so they can be compared.
pub fn hello<'a>(plan: &'a Plan, namespace: &'a [u8], kind: NamespaceKind) -> Hello<'a> {
    Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MIN,
        worker: ANY_WORKER,
        kind,
        namespace,
        owner: b"waymaker-loadgen",
        credentials: plan.credentials.as_ref(),
        ..Hello::default()
    }
}

/// Sends the HELLO on a new blocking connection and waits for the WELCOME. No other request may be in flight.
pub fn greet(stream: &mut (impl Read + Write), hello: &Hello<'_>) -> io::Result<Welcome> {
    let mut request = Vec::new();
    hello.encode(1, &mut request);
    stream.write_all(&request)?;
    read_welcome(stream)
}

fn read_welcome(stream: &mut impl Read) -> io::Result<Welcome> {
    let mut received = Vec::new();
    loop {
        if let Some(frame) =
            next_frame(&received, FRAME_LEN_MAX).map_err(|error| refused(no_waymaker(&error)))?
        {
            return match Response::decode(frame) {
                Ok(Response::Welcome(welcome)) => Ok(welcome),
                Ok(Response::Error(error)) => {
                    Err(refused(format!("the server refuses the connection: {error}")))
                }
                Ok(other) => Err(refused(no_waymaker(&format!("its first message is {other:?}")))),
                Err(error) => Err(refused(no_waymaker(&error))),
            };
        }
        let mut chunk = [0; 1024];
        match stream.read(&mut chunk)? {
            0 => return Err(refused("the server closed the connection before its greeting")),
            count => received.extend_from_slice(&chunk[..count]),
        }
    }
}

fn no_waymaker(why: &dyn std::fmt::Display) -> String {
    format!("the server does not speak the Waymaker protocol: {why}")
}
