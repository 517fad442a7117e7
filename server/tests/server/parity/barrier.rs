//! Waits for a server that has caught up.

use crate::harness::{Received, default_hello};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Acquire, Event, Hello, Request, Response, next_frame};

/// The shortest lease.
const LEASE_MS: u32 = 10;
/// Turns of this runtime in which the tasks of a client do all that they can do: end, close a socket, read what has arrived.
const TURNS: usize = 32;

/// Waits until the server at this address has ended all that is due, and has read all that was sent to it by now, the ends of
/// connections included.
///
/// It lets a lease end: that happens only after each worker has read its sockets, and has handed on what it read. The second
/// lease is for tasks of the front ends that end with a connection.
pub(super) async fn pass(address: &str) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut stream = TcpStream::connect(address).await.expect("the server accepts");
    stream.set_nodelay(true).expect("a socket");
    let mut received = Vec::new();
    let mut bytes = Vec::new();
    Request::Hello(Hello { namespace: b"barriers", ..default_hello() }).encode(1, &mut bytes);
    for _ in 0..2 {
        let key = NUMBER.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let acquire = Acquire { key: &key, lease_ms: LEASE_MS, ..Acquire::default() };
        Request::Acquire(acquire).encode(2, &mut bytes);
        stream.write_all(&bytes).await.expect("the server reads");
        bytes.clear();
        while !has_ended(&mut received) {
            let len = stream.read_buf(&mut received).await.expect("the server answers");
            assert_ne!(len, 0, "the server closed the connection");
        }
    }
}

/// Whether the end of the lease is among what was received, which is read in any case.
fn has_ended(received: &mut Vec<u8>) -> bool {
    while let Some(frame) = next_frame(received, FRAME_LEN_MAX).expect("frames are whole") {
        let len = frame.len();
        let frame = Received::new(received.drain(..len).collect());
        match frame.response() {
            Response::Event(Event::Expired { .. }) => return true,
            Response::Error(error) => panic!("{error:?}"),
            _ => {}
        }
    }
    false
}

/// Like [`pass`], also for clients of this runtime: they have closed what they gave up before, and have heard all that the server
/// has told them.
pub(super) async fn settle(address: &str) {
    take_turns().await;
    pass(address).await;
    take_turns().await;
}

async fn take_turns() {
    for _ in 0..TURNS {
        yield_now().await;
    }
}
