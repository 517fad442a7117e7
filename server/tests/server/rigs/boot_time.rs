//! TNS: the boot-time clock stands elsewhere after a restart, as after a reboot.

use super::site::{is_root, on, wrap};
use crate::durable::local;
use crate::harness::{Server, assert_remaining};
use crate::skip::skip;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use waymaker_protocol::{ErrorCode, LockState, Request, Response, Status};

/// What there is a minute of is neither lost nor long over because the clock was moved by five.
const LEASE_MS: u32 = 60_000;

fn start_moved(directory: &Path, seconds: i32) -> Server {
    let seconds = seconds.to_string();
    let unshare = ["unshare", "--time", "--boottime", &seconds, "--monotonic", &seconds];
    Server::start_with(&mut wrap(&unshare, &on(directory, &["--workers", "2"])), None)
}

#[test]
fn every_hold_gets_its_full_lease_after_the_boot_clock_moved() {
    let can = Command::new("unshare").args(["--time", "--boottime", "1", "true"]).status();
    if !is_root() || !can.is_ok_and(|status| status.success()) {
        return skip("a moved boot clock", "this needs root and time namespaces");
    }
    for (before, after) in [(0, 300), (300, 0), (0, -300)] {
        let place = tempfile::tempdir().expect("a directory");
        let held = {
            let server = start_moved(place.path(), before);
            let mut client = server.client("first");
            let acquire = local(b"key").with_terms(|terms| terms.lease_ms = LEASE_MS);
            let held = client.ask(Request::Acquire(acquire)).granted();
            server.signal("KILL");
            held
        };
        let started = Instant::now();
        let server = start_moved(place.path(), after);
        let mut client = server.client("second");
        let refused = client.ask(Request::Acquire(local(b"key")));
        assert_eq!(refused.error().code, ErrorCode::Busy, "from {before} to {after}");
        let status = client.ask(Request::Status(Status { id: held.id, key: None }));
        let Response::Status(status) = status.response() else { panic!("{:?}", status.response()) };
        assert_eq!((status.state, status.fence), (LockState::Held, held.fence));
        // The whole lease begins with the second server.
        assert_remaining(status.remaining_ms.into(), LEASE_MS.into(), started);
        client.release(held.id);
        assert_eq!(client.ask(Request::Acquire(local(b"key"))).granted().fence, held.fence + 1);
    }
}
