//! The dialect of the gRPC contract `waymaker.WaymakerService`.

mod connecting;
mod fake;
mod guards;
mod leases;
mod multi_key;
mod queueing;
mod rebinding;
mod request_ids;
mod tokens;

use std::time::Duration;

use waymaker_client::Client;
use waymaker_dialects::waymaker::{Error, LockEvent, LockEvents, LockRequest, Waymaker};

use crate::patience::{HOUR, SOON, eventually, soon};
use crate::real::{RealServer, server};

/// Arguments of a server with gRPC.
const GRPC: &[&str] = &["--grpc-listen", "127.0.0.1:0"];
/// Arguments of a server that speaks gRPC and has one worker, for [`undisturbed`](crate::undisturbed::undisturbed).
const GRPC_OF_ONE_WORKER: &[&str] = &["--grpc-listen", "127.0.0.1:0", "--workers", "1"];
/// Times to try one after the other, for a test that must do something before the end of one of them.
const LONGER_AND_LONGER: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_secs(3), Duration::from_secs(30)];

/// Connects; tries again if the server does not answer in time.
async fn client(server: &RealServer) -> Waymaker {
    client_at(&format!("http://{}", server.listener("grpc"))).await
}

async fn client_at(address: &str) -> Waymaker {
    soon(async {
        loop {
            if let Ok(client) = Waymaker::connect(address).await {
                return client;
            }
        }
    })
    .await
}

/// Waits long, and leases long.
fn patient(key: &str) -> LockRequest {
    LockRequest::new(key).max_wait_period(SOON).max_lease_period(HOUR)
}

/// A grant.
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

fn as_acquired(event: LockEvent) -> Acquired {
    match event {
        LockEvent::Acquired { id, fence_token, lease_expires_at, acquired_at } => {
            Acquired { id, fence_token, lease_expires_at, acquired_at }
        }
        other => panic!("it should be acquired: {other:?}"),
    }
}

async fn acquired(events: &mut LockEvents) -> Acquired {
    as_acquired(next(events).await)
}

/// Waits for the grant, with or without a `Waiting` before it.
async fn acquired_in_the_end(events: &mut LockEvents) -> Acquired {
    loop {
        match next(events).await {
            LockEvent::Waiting { .. } => {}
            event => return as_acquired(event),
        }
    }
}

/// Waits until this many claims wait on the server.
async fn until_queued(beside: &Client, count: u64) {
    let is_so = async || {
        let namespaces = soon(beside.namespaces()).await.unwrap();
        namespaces.iter().map(|namespace| namespace.waiting).sum::<u64>() == count
    };
    eventually(is_so).await;
}

async fn failed(events: &mut LockEvents) -> Error {
    let LockEvent::Failed { error, .. } = next(events).await else { panic!("it should fail") };
    assert!(events.next().await.is_none(), "nothing follows a failure");
    error
}

/// Waits for the end of the lock and skips heartbeats. Returns whether the local deadline alone reported the end.
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

/// Returns whether a try finds the key free. Leaves the key unchanged.
async fn is_free(client: &Waymaker, key: &str) -> bool {
    match client.acquire(LockRequest::new(key)).await {
        Ok(held) => held.unlock().await.is_ok(),
        Err(Error::Timeout(_)) => false,
        Err(error) => panic!("a try should not end so: {error}"),
    }
}

/// Waits until a try finds the key free.
async fn until_free(client: &Waymaker, key: &str) {
    eventually(async || is_free(client, key).await).await;
}
