//! The dialect of the gRPC contract `waymaker.WaymakerService`.

mod connecting;
mod fake;
mod guards;
mod leases;
mod queueing;
mod rebinding;
mod request_ids;
mod several_keys;
mod tokens;

use std::time::Duration;

use waymaker_client::dialect::waymaker::{Error, LockEvent, LockEvents, LockRequest, Waymaker};

use crate::fake::{SOON, soon};
use crate::real::{RealServer, server};

/// What a server is told to speak gRPC.
const GRPC: &[&str] = &["--grpc-listen", "127.0.0.1:0"];

async fn client(server: &RealServer) -> Waymaker {
    Waymaker::connect(&format!("http://{}", server.listener("grpc"))).await.expect("it is there")
}

/// Waits long, and leases long.
fn patient(key: &str) -> LockRequest {
    LockRequest::new(key).max_wait_period(SOON).max_lease_period(Duration::from_secs(60))
}

/// What was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Acquired {
    id: String,
    fence_token: u64,
    lease_expires_at: i64,
    acquired_at: i64,
}

async fn next(events: &mut LockEvents) -> LockEvent {
    soon(events.next()).await.expect("an event follows").expect("and no error")
}

/// The id of the place in the queue.
async fn waiting(events: &mut LockEvents) -> String {
    match next(events).await {
        LockEvent::Waiting { id, .. } => id,
        other => panic!("it should wait: {other:?}"),
    }
}

async fn acquired(events: &mut LockEvents) -> Acquired {
    match next(events).await {
        LockEvent::Acquired { id, fence_token, lease_expires_at, acquired_at } => {
            Acquired { id, fence_token, lease_expires_at, acquired_at }
        }
        other => panic!("it should be acquired: {other:?}"),
    }
}

async fn failed(events: &mut LockEvents) -> Error {
    let LockEvent::Failed { error, .. } = next(events).await else { panic!("it should fail") };
    assert!(events.next().await.is_none(), "nothing follows a failure");
    error
}

/// Waits until the lock is expired, past heartbeats; whether nobody but the local deadline said so.
async fn expired(events: &mut LockEvents) -> bool {
    loop {
        match next(events).await {
            LockEvent::Heartbeat { .. } => {}
            LockEvent::Expired { local, .. } => {
                assert!(events.next().await.is_none(), "nothing follows the end");
                return local;
            }
            other => panic!("it should expire: {other:?}"),
        }
    }
}

/// Waits until another stream has taken this one's place, past heartbeats.
async fn superseded(events: &mut LockEvents) {
    loop {
        match soon(events.next()).await.expect("an event follows") {
            Ok(LockEvent::Heartbeat { .. }) => {}
            Err(Error::Superseded) => break,
            other => panic!("it should be superseded: {other:?}"),
        }
    }
    assert!(events.next().await.is_none(), "nothing follows");
}

/// Whether a try finds the key free; it leaves it as it was.
async fn is_free(client: &Waymaker, key: &str) -> bool {
    match client.acquire(LockRequest::new(key)).await {
        Ok(held) => held.unlock().await.is_ok(),
        Err(Error::Timeout(_)) => false,
        Err(error) => panic!("a try should not end so: {error}"),
    }
}

/// Waits until a try finds the key free.
async fn until_free(client: &Waymaker, key: &str) {
    let freed = async {
        while !is_free(client, key).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(freed).await;
}
