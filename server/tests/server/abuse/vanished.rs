//! A peer that is gone without a word.

use super::http2::Http2;
use super::server;
use std::net::Shutdown;
use std::time::{Duration, Instant};
use waymaker_proto::waymaker::{
    LockRequest, MultiLockKey, MultiLockRequest, MultiLockResponse, UnLockRequest, UnLockResponse,
};

/// Time after which the server drops a silent peer: one interval until its ping, and one for the answer.
const LIMIT: Duration = Duration::from_secs(20);

fn lock(key: &str, wait: u32) -> MultiLockRequest {
    MultiLockRequest {
        keys: vec![MultiLockKey { key: key.to_owned(), write_lock: true }],
        max_wait_period: wait,
        max_lease_period: 600_000,
        ..Default::default()
    }
}

/// The server reads the request and the end of the connection at once.
#[test]
fn a_request_is_served_even_if_its_client_disconnects_at_once() {
    let server = server();
    let path = "/waymaker.WaymakerService/MultiLock";
    let mut other = Http2::connect(&server);
    for number in 0..20 {
        let key = format!("released {number}");
        let mut client = Http2::connect(&server);
        let held = client.ask::<MultiLockResponse>(path, &lock(&key, 0)).leases.remove(0);
        server.pause();
        client.send("/waymaker.WaymakerService/UnLock", &UnLockRequest { key: held.key, id: held.id });
        client.socket.shutdown(Shutdown::Write).expect("a socket");
        server.resume();
        let granted: MultiLockResponse = other.ask(path, &lock(&key, 10_000));
        assert!(granted.success, "{key}: {granted:?}");
    }
}

#[test]
fn a_peer_that_answers_no_ping_is_dropped_with_its_waiters() {
    let server = server();
    let mut holder = Http2::connect(&server);
    let path = "/waymaker.WaymakerService/MultiLock";
    let keys = ["awaited by a call", "awaited by a stream"];
    let held = keys.map(|key| holder.ask::<MultiLockResponse>(path, &lock(key, 0)).leases.remove(0));

    drop(holder);
    let mut vanished = Http2::connect(&server);
    vanished.answers_pings = false;
    let begun = Instant::now();
    vanished.send(path, &lock(keys[0], 600_000));
    let wait = LockRequest {
        key: keys[1].to_owned(),
        max_wait_period: 600_000,
        max_lease_period: 600_000,
        ..Default::default()
    };
    vanished.send("/waymaker.WaymakerService/Lock", &wait);
    let mut witness = server.witness(2 * LIMIT);
    vanished.assert_ends_before(&mut witness);
    let took = begun.elapsed();
    assert!(took >= LIMIT, "dropped after {took:?}");

    let mut holder = Http2::connect(&server);
    // Nobody stands in the way of whoever comes next, once the others let go.
    for lease in held {
        let unlock = UnLockRequest { key: lease.key, id: lease.id };
        let released: UnLockResponse = holder.ask("/waymaker.WaymakerService/UnLock", &unlock);
        assert!(released.success, "{released:?}");
    }
    for key in keys {
        let granted: MultiLockResponse = holder.ask(path, &lock(key, 0));
        assert!(granted.success, "{granted:?}");
    }
}
