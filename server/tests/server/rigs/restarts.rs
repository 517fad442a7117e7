//! A supervisor that starts the server again and again: no start uses up room, and no start needs any.

use super::disk::{Ballast, MemoryDisk, can_mount};
use super::site::start;
use crate::durable::local;
use crate::harness::{Client, wait_until};
use std::net::TcpStream;
use std::path::Path;
use waymaker_log::FileName;
use waymaker_protocol::{Granted, LockState, Request, Response, Status};

const STARTS: usize = 50;
const LEASE_MS: u32 = 600_000;
const SHAPE: [&str; 4] = ["--workers", "2", "--log-segment-len", "1048576"];
/// The shortest segments: some starts fill one.
const SHORT: [&str; 4] = ["--workers", "1", "--log-segment-len", "65536"];

/// How many segments there are, beside the spare and the reserve.
fn segment_count(directory: &Path) -> usize {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten();
    let names = entries.filter_map(|entry| FileName::parse(entry.file_name().to_str()?));
    names.filter(|name| matches!(name, FileName::Segment(_))).count()
}

fn assert_held(client: &mut Client<TcpStream>, held: &Granted) {
    let status = client.ask(Request::Status(Status { id: held.id, key: None }));
    let Response::Status(status) = status.response() else { panic!("{:?}", status.response()) };
    assert_eq!((status.state, status.fence), (LockState::Held, held.fence));
}

/// Starts the server again and again, each time ended by the next of these signals, and at once. `before_start` runs before
/// each start. Returns the most segments that there were.
fn start_often(directory: &Path, shape: &[&str], signals: &[&str], mut before_start: impl FnMut()) -> usize {
    let mut server = start(directory, shape);
    let mut client = server.client("somebody");
    let held =
        client.ask(Request::Acquire(local(b"held").with_terms(|terms| terms.lease_ms = LEASE_MS))).granted();
    wait_until("room that is set aside", || {
        ["spare", "reserve"].iter().all(|name| directory.join(name).exists())
    });
    let mut segments = 0;
    for signal in signals.iter().cycle().take(STARTS) {
        server.signal(signal);
        server.wait();
        before_start();
        server = start(directory, shape);
        assert_held(&mut server.client("somebody"), &held);
        segments = segments.max(segment_count(directory));
    }
    segments
}

#[test]
fn repeated_quick_starts_use_up_no_room() {
    let signals: [&[&str]; 3] = [&["TERM"], &["KILL"], &["TERM", "KILL", "KILL"]];
    for signals in signals {
        let place = tempfile::tempdir().expect("a directory");
        let segments = start_often(place.path(), &SHAPE, signals, || {});
        assert_eq!(segments, 1, "{STARTS} starts, each ended by {signals:?}");
    }
}

#[test]
fn starts_on_a_full_disk_need_no_room() {
    if !can_mount("starts on a full disk", "mount") {
        return;
    }
    // Without any room left a stop takes a second.
    let short: &[&str] = &["TERM", "KILL", "KILL", "KILL", "KILL"];
    for (shape, signals) in [(&SHAPE, &["TERM"][..]), (&SHAPE, &["KILL"]), (&SHORT, short)] {
        let disk = MemoryDisk::new(8);
        let ballast = Ballast::new(disk.path());
        start_often(&disk.path().join("data"), shape, signals, || ballast.fill());
    }
}
