//! Files that prevent a snapshot of old segments: foreign files, and damaged files of the log.

use super::disk::{Ballast, MemoryDisk, can_mount};
use super::site::{on, start};
use crate::addresses::get;
use crate::durable::local;
use crate::harness::{Client, Server, wait_until};
use std::fs::OpenOptions;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use waymaker_log::{BLOCK_LEN, FileName};
use waymaker_protocol::{Granted, LockState, Request, Response, Status};

const LEASE_MS: u32 = 600_000;
/// The shortest segments: fifteen groups fill one.
const SHAPE: [&str; 6] = ["--workers", "1", "--log-segment-len", "65536", "--http-listen", "127.0.0.1:0"];
/// Groups that fill several segments.
const GROUPS: usize = 200;
/// Segments that wait, one that is written, and some that a compaction in progress has not removed yet.
const SEGMENTS_MAX: usize = 6;

fn numbers(directory: &Path, number: fn(FileName) -> Option<u64>) -> Vec<u64> {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten();
    entries.filter_map(|entry| number(FileName::parse(entry.file_name().to_str()?)?)).collect()
}

fn segments(directory: &Path) -> Vec<u64> {
    numbers(directory, |name| if let FileName::Segment(number) = name { Some(number) } else { None })
}

fn segment_count(directory: &Path) -> usize {
    segments(directory).len()
}

/// A bit of this byte of a file flips.
fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], offset).expect("a byte");
}

pub(super) fn newest_snapshot(directory: &Path) -> Option<u64> {
    let number = |name| if let FileName::Snapshot(number) = name { Some(number) } else { None };
    numbers(directory, number).into_iter().max()
}

/// Fills some segments.
pub(super) fn fill(client: &mut Client<TcpStream>) {
    for _ in 0..GROUPS {
        let granted = take(client, b"passing");
        client.release(granted.id);
    }
}

pub(super) fn take(client: &mut Client<TcpStream>, key: &[u8]) -> Granted {
    client.ask(Request::Acquire(local(key).with_terms(|terms| terms.lease_ms = LEASE_MS))).granted()
}

fn assert_held(server: &Server, held: &Granted) {
    let status = server.client("somebody").ask(Request::Status(Status { id: held.id, key: None }));
    let Response::Status(status) = status.response() else { panic!("{:?}", status.response()) };
    assert_eq!((status.state, status.fence), (LockState::Held, held.fence));
}

/// The value of this metric.
pub(super) fn metric(server: &Server, name: &str) -> u64 {
    let page = get(server, "/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("no {name} in {page}"));
    value.parse::<f64>().expect("a number") as u64
}

/// A bit of the first frame of a snapshot flips.
fn rot(directory: &Path, snapshot: u64) {
    flip(&directory.join(FileName::Snapshot(snapshot).to_string()), BLOCK_LEN as u64 + 90);
}

/// A bit of the head of the newest segment flips, or the file goes.
fn rot_segment(directory: &Path, is_removed: bool) {
    let newest = segments(directory).into_iter().max().expect("a segment");
    let path = directory.join(FileName::Segment(newest).to_string());
    if is_removed {
        return std::fs::remove_file(path).expect("a segment");
    }
    flip(&path, 20);
}

#[test]
fn a_clean_stop_succeeds_with_a_damaged_or_missing_segment() {
    for is_removed in [false, true] {
        let place = tempfile::tempdir().expect("a directory");
        let mut server = start(place.path(), &SHAPE);
        let held = take(&mut server.client("somebody"), b"held");
        rot_segment(place.path(), is_removed);
        server.signal("TERM");
        assert!(server.wait().success());
        let server = start(place.path(), &SHAPE);
        assert_held(&server, &held);
    }
}

/// The exit code tells the supervisor that the next start will refuse the log.
#[test]
fn a_damaged_log_that_cannot_be_replaced_exits_with_75() {
    if !can_mount("a rotten log on a full disk", "mount") {
        return;
    }
    let disk = MemoryDisk::new(4);
    let directory = disk.path().join("data");
    let mut server = start(&directory, &SHAPE);
    take(&mut server.client("somebody"), b"held");
    rot_segment(&directory, false);
    let ballast = Ballast::new(disk.path());
    ballast.fill();
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(75));
}

#[test]
fn a_foreign_file_is_harmless_and_reported_once_per_start() {
    let place = tempfile::tempdir().expect("a directory");
    let mut server = start(place.path(), &SHAPE);
    let mut client = server.client("somebody");
    let held = take(&mut client, b"held");
    for name in [".segment.swp", "segment-0000000000000001~", "superblock.bak"] {
        std::fs::write(place.path().join(name), "mine").expect("a file");
    }
    std::fs::create_dir(place.path().join("notes")).expect("a directory");
    fill(&mut client);
    wait_until("old segments are folded", || segment_count(place.path()) <= SEGMENTS_MAX);
    assert!(get(&server, "/readyz").starts_with("HTTP/1.1 200"));
    server.signal("TERM");
    assert!(server.wait().success());
    let log = tempfile::NamedTempFile::new().expect("a file for the log");
    let stderr = log.reopen().expect("a file for the log");
    let mut command = on(place.path(), &SHAPE);
    let command = command.env("WAYMAKER_LOG", "warn").env("NO_COLOR", "1").stderr(stderr);
    let server = Server::start_with(command, None);
    assert_held(&server, &held);
    fill(&mut server.client("somebody"));
    let said = std::fs::read_to_string(log.path()).expect("text");
    let lines: Vec<_> = said.lines().filter(|line| line.contains(".segment.swp")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains("superblock.bak") && lines[0].contains("notes"), "{said}");
    assert!(place.path().join("superblock.bak").exists(), "it is left alone");
}

#[test]
fn a_damaged_snapshot_is_reported_and_a_clean_stop_succeeds_without_it() {
    stop_with_rotten_snapshot(true);
}

#[test]
fn a_clean_stop_succeeds_with_an_undetected_damaged_snapshot() {
    stop_with_rotten_snapshot(false);
}

fn stop_with_rotten_snapshot(is_found_before: bool) {
    let place = tempfile::tempdir().expect("a directory");
    let mut server = start(place.path(), &SHAPE);
    let mut client = server.client("somebody");
    let held = take(&mut client, b"held");
    let mut snapshot = None;
    wait_until("a snapshot", || {
        fill(&mut client);
        snapshot = newest_snapshot(place.path());
        snapshot.is_some()
    });
    wait_until("old segments are folded", || segment_count(place.path()) <= 3);
    assert_eq!(metric(&server, "waymaker_compaction_failures_total"), 0);
    let mut newest = newest_snapshot(place.path()).expect("a snapshot");
    rot(place.path(), newest);
    if is_found_before {
        wait_until("a compaction that fails", || {
            fill(&mut client);
            // A compaction that was in progress had read the snapshot before.
            let snapshot = newest_snapshot(place.path()).expect("a snapshot");
            if snapshot != newest {
                newest = snapshot;
                rot(place.path(), newest);
            }
            metric(&server, "waymaker_compaction_failures_total") > 0
        });
        let ready = get(&server, "/readyz");
        assert!(
            ready.starts_with("HTTP/1.1 200") && ready.contains("degraded\ncompaction_failing: "),
            "{ready}"
        );
        assert!(ready.contains(&FileName::Snapshot(newest).to_string()), "{ready}");
    }
    let ephemeral = client.acquire(b"ephemeral", LEASE_MS);
    let other = take(&mut client, b"other");
    server.signal("TERM");
    assert!(server.wait().success());
    for _ in 0..2 {
        let mut server = start(place.path(), &SHAPE);
        for hold in [&held, &other, &ephemeral] {
            assert_held(&server, hold);
        }
        assert!(get(&server, "/readyz").starts_with("HTTP/1.1 200"));
        fill(&mut server.client("somebody"));
        wait_until("old segments are folded", || segment_count(place.path()) <= SEGMENTS_MAX);
        server.signal("TERM");
        assert!(server.wait().success());
    }
}
