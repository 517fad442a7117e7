//! Waits until a server has processed everything that was sent to it.

use crate::harness::{Received, default_hello};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use waymaker_protocol::limits::FRAME_LEN_MAX;
use waymaker_protocol::{Acquire, AcquireTerms, Event, Hello, Request, Response, next_frame};

/// The shortest lease.
const LEASE_MS: u32 = 10;
/// Turns of the runtime after which each task of a client has ended, closed its socket, or read all bytes that have arrived.
const TURNS: usize = 32;

/// Waits until the server at this address has expired everything that is due, and has read all its sockets, including closed
/// connections.
///
/// A lease expires only after every worker has read its sockets and served the requests in them. This waits for the expiry of two
/// leases, because tasks of a front end end a few turns after their connection.
pub(super) async fn pass(address: &str) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut stream = TcpStream::connect(address).await.expect("the server accepts");
    stream.set_nodelay(true).expect("a socket");
    let mut received = Vec::new();
    let mut bytes = Vec::new();
    Request::Hello(Hello { namespace: b"barriers", ..default_hello() }).encode(1, &mut bytes);
    for _ in 0..2 {
        let key = NUMBER.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let acquire = Acquire {
            key: &key,
            terms: AcquireTerms { lease_ms: LEASE_MS, ..AcquireTerms::default() },
            ..Acquire::default()
        };
        Request::Acquire(acquire).encode(2, &mut bytes);
        stream.write_all(&bytes).await.expect("the server reads");
        bytes.clear();
        while !has_ended(&mut received) {
            let len = stream.read_buf(&mut received).await.expect("the server answers");
            assert_ne!(len, 0, "the server closed the connection");
        }
    }
}

/// Reads all whole frames. Returns whether one of them announces an expiry.
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

/// Waits like [`pass`], after the clients of this runtime have closed the connections that they gave up. Then waits until they have
/// read all events from the server.
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
