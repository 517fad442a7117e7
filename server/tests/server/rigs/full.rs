//! THIN: there is no more room, in the file system or on the disk under it.

use super::client::RigClient;
use super::disk::{Ballast, MemoryDisk, MountedImage, can_mount};
use super::load::Load;
use super::site::{has, judge, on, start, wrap};
use crate::durable::local;
use crate::harness::{Client, Server, Watchdog, wait_for, wait_until};
use crate::skip::skip;
use std::net::TcpStream;
use std::path::Path;
use waymaker_protocol::{ErrorCode, Extend, Granted, Inspect, LockState, Request, Response, Status};

/// Longer than any test takes.
const LEASE_MS: u32 = 600_000;
const SHAPE: [&str; 4] = ["--workers", "2", "--log-segment-len", "1048576"];

fn take(client: &mut Client<TcpStream>, key: &[u8]) -> Result<Granted, ErrorCode> {
    let answer = client.ask(Request::Acquire(local(key).with_terms(|terms| terms.lease_ms = LEASE_MS)));
    match answer.response() {
        Response::Granted(granted) => Ok(granted),
        Response::Error(error) => Err(error.code),
        other => panic!("{other:?}"),
    }
}

/// Takes and releases durable locks until there is no room for any more. `fill` takes whatever room there is.
fn use_up(client: &mut Client<TcpStream>, mut fill: impl FnMut()) {
    let mut watchdog = Watchdog::start();
    loop {
        watchdog.look_again(|| "a full disk that takes no more".to_owned());
        fill();
        match take(client, b"another") {
            Ok(granted) => client.release(granted.id),
            Err(code) => return assert_eq!(code, ErrorCode::NoSpace),
        }
    }
}

/// What goes on while nothing durable can be granted.
fn assert_goes_on(client: &mut Client<TcpStream>, held: &Granted, given_back: &Granted) {
    for _ in 0..20 {
        let extended =
            client.ask(Request::Extend(Extend { id: held.id, lease_ms: LEASE_MS, key: None, own: false }));
        assert!(matches!(extended.response(), Response::Extended(_)), "{:?}", extended.response());
        let ephemeral = client.acquire(b"ephemeral", 0);
        client.release(ephemeral.id);
        let inspected = client.ask(Request::Inspect(Inspect { key: b"held" }));
        assert!(matches!(inspected.response(), Response::Inspected(found) if found.holder_count == 1));
    }
    client.release(given_back.id);
    // A release is not waited for, but what comes later is never durable before it.
    let extended =
        client.ask(Request::Extend(Extend { id: held.id, lease_ms: 2 * LEASE_MS, key: None, own: false }));
    assert!(matches!(extended.response(), Response::Extended(_)), "{:?}", extended.response());
}

fn assert_resumes(client: &mut Client<TcpStream>) {
    let granted = wait_for("a grant once there is room again", || match take(client, b"given back") {
        Ok(granted) => Some(granted),
        Err(code) => {
            assert_eq!(code, ErrorCode::NoSpace);
            None
        }
    });
    assert_eq!(granted.fence, 2);
}

fn assert_held(client: &mut Client<TcpStream>, held: &Granted) {
    let status = client.ask(Request::Status(Status { id: held.id, key: None }));
    let Response::Status(status) = status.response() else { panic!("{:?}", status.response()) };
    assert_eq!((status.state, status.fence), (LockState::Held, held.fence));
}

/// The whole story: the file system of `root` has no more room because that of `full` has none.
fn fill_and_empty(root: &Path, full: &Path) {
    let directory = root.join("data");
    let held = {
        let mut server = start(&directory, &SHAPE);
        let mut client = server.client("somebody");
        let held = take(&mut client, b"held").expect("there is room");
        let given_back = take(&mut client, b"given back").expect("there is room");
        let ballast = Ballast::new(full);
        use_up(&mut client, || ballast.fill());
        assert_goes_on(&mut client, &held, &given_back);
        // What was tried in vain has left its room below to those who try again.
        if root == full {
            assert_eq!(take(&mut client, b"another"), Err(ErrorCode::NoSpace));
        }
        assert!(!server.has_ended());
        drop(ballast);
        assert_resumes(&mut client);
        server.signal("KILL");
        server.wait();
        held
    };
    let server = start(&directory, &SHAPE);
    assert_held(&mut server.client("somebody else"), &held);
}

#[test]
fn a_full_file_system_refuses_only_new_durable_grants() {
    if can_mount("a full file system", "mkfs.ext4") {
        let disk = MountedImage::ext4(24);
        fill_and_empty(disk.path(), disk.path());
    }
}

#[test]
fn a_full_memory_file_system_refuses_only_new_durable_grants() {
    if can_mount("a full memory file system", "mount") {
        let disk = MemoryDisk::new(16);
        fill_and_empty(disk.path(), disk.path());
    }
}

#[test]
fn a_full_disk_below_its_file_system_refuses_only_new_durable_grants() {
    if can_mount("a disk that runs out", "mkfs.ext4") {
        let disk = MountedImage::thin(256, 24);
        disk.use_log_of_file_system();
        fill_and_empty(disk.path(), disk.below());
    }
}

#[test]
fn a_failed_preallocation_refuses_only_new_durable_grants() {
    if !has("strace") {
        return skip("no room to set aside", "there is no strace");
    }
    let place = tempfile::tempdir().expect("a directory");
    let directory = place.path().join("data");
    // The first start sets aside what the second uses up.
    let mut first = start(&directory, &SHAPE);
    let mut client = first.client("somebody");
    let held = take(&mut client, b"held").expect("there is room");
    let given_back = take(&mut client, b"given back").expect("there is room");
    first.signal("TERM");
    assert!(first.wait().success());
    let strace = ["strace", "-D", "-f", "-o", "/dev/null", "-e", "trace=fallocate"];
    let strace = [&strace[..], &["-e", "inject=fallocate:error=ENOSPC:when=1+"]].concat();
    let mut server = Server::start_with(&mut wrap(&strace, &on(&directory, &SHAPE)), None);
    let mut client = server.client("somebody");
    use_up(&mut client, || {});
    assert_goes_on(&mut client, &held, &given_back);
    assert!(!server.has_ended());
    server.signal("KILL");
    server.wait();
    let server = start(&directory, &SHAPE);
    let mut client = server.client("somebody else");
    assert_held(&mut client, &held);
    take(&mut client, b"a new one").expect("there is room again");
}

/// Here the file system may fail as a whole, because its own log finds no room. Then the server may end, but only as one
/// whose disk failed, never in the middle of a store.
#[test]
fn a_file_system_failure_on_a_full_disk_loses_no_granted_hold() {
    if !can_mount("a file system that fails", "mkfs.ext4") {
        return;
    }
    // Enough that there is room for the log once more when the ballast is gone.
    let disk = MountedImage::thin(256, 48);
    let directory = disk.path().join("data");
    let load = Load::new(RigClient::run);
    let mut server = start(&directory, &SHAPE);
    load.turn_to(&server);
    assert!(load.wait_for_grants(100, &mut server), "there is room");
    let ballast = Ballast::new(disk.below());
    ballast.fill();
    wait_until("a full disk that takes no more", || load.is_refused_for_room() || server.has_ended());
    let lived = !server.has_ended();
    if lived {
        server.signal("KILL");
        server.wait();
    } else {
        assert_eq!(server.wait().code(), Some(75), "it ends as one whose disk failed");
    }
    drop(ballast);
    disk.remount();
    let mut server = start(&directory, &SHAPE);
    load.turn_to(&server);
    assert!(load.wait_for_grants(50, &mut server), "there is room again");
    judge(&format!("a thin disk, which the server survived: {lived}"), &load.stop());
    server.signal("KILL");
    server.wait();
}
