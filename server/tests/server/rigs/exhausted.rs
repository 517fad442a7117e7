//! The disk stays full until everything that was set aside is used up: spare, reserve and the rest of the segment.

use super::disk::{Ballast, MemoryDisk, can_mount};
use super::rotten::metric;
use super::site::{count, start};
use crate::durable::local;
use crate::harness::{
    Client, Server, Watchdog, again_if_given_up, give_up, processor_time, wait_for, wait_until,
};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};
use waymaker_log::{BLOCK_LEN, FileName, FrameHeader, SegmentHeader};
use waymaker_protocol::{ErrorCode, Extend, Granted, Request, Response};

const LEASE_MS: u32 = 600_000;
/// The shortest segments: what is set aside is used up soon.
const SHAPE: [&str; 6] = ["--workers", "2", "--log-segment-len", "65536", "--http-listen", "127.0.0.1:0"];
/// Grants resume within this time once there is room.
const RESUMED: Duration = Duration::from_secs(5);
/// A server that is told to stop ends within this time: its drain, 10 ms, and two seconds.
const STOPPED: Duration = Duration::from_millis(2_010);

fn take(client: &mut Client<TcpStream>, key: &[u8]) -> Result<Granted, ErrorCode> {
    let answer = client.ask(Request::Acquire(local(key).with_terms(|terms| terms.lease_ms = LEASE_MS)));
    match answer.response() {
        Response::Granted(granted) => Ok(granted),
        Response::Error(error) => Err(error.code),
        other => panic!("{other:?}"),
    }
}

/// A server on a full disk that has not even room for one more frame.
struct Exhausted {
    server: Server,
    ballast: Ballast,
    /// A hold from before.
    held: Granted,
    disk: MemoryDisk,
}

impl Exhausted {
    fn new() -> Self {
        let disk = MemoryDisk::new(4);
        let server = start(&disk.path().join("data"), &SHAPE);
        let mut client = server.client("somebody");
        let held = take(&mut client, b"held").expect("there is room");
        let ballast = Ballast::new(disk.path());
        let mut watchdog = Watchdog::start();
        ballast.fill();
        while !is_full(&disk.path().join("data")) {
            watchdog.look_again(|| "a log without room for one more frame".to_owned());
            // A lease that is longer than before is a frame.
            std::thread::sleep(Duration::from_millis(1));
            let extend = Extend { id: held.id, lease_ms: LEASE_MS, key: None, own: false };
            let answer = client.ask(Request::Extend(extend));
            assert!(matches!(answer.response(), Response::Extended(_)), "{:?}", answer.response());
            ballast.fill();
        }
        // One that finds no room, so it is not answered.
        client.send(Request::Extend(Extend { id: held.id, lease_ms: 2 * LEASE_MS, key: None, own: false }));
        Self { server, ballast, held, disk }
    }
}

/// The segments in this directory.
fn segments(directory: &Path) -> Vec<(SegmentHeader, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).expect("a directory").flatten();
    let segment = |entry: std::fs::DirEntry| {
        let name = FileName::parse(entry.file_name().to_str()?)?;
        let bytes = matches!(name, FileName::Segment(_)).then(|| std::fs::read(entry.path()).ok())??;
        Some((SegmentHeader::decode(&bytes).ok()?, bytes))
    };
    entries.filter_map(segment).collect()
}

fn last_lsn(directory: &Path) -> u64 {
    let segments = segments(directory);
    let lsns = segments.iter().map(|(header, bytes)| FrameHeader::highest_lsn(&header.origin(), bytes));
    lsns.max().expect("a segment")
}

/// Whether the last block of the last segment is used, and no other segment is ready.
fn is_full(directory: &Path) -> bool {
    let is_ready = |name: &str| directory.join(name).exists();
    let segments = segments(directory);
    let (header, bytes) = segments.iter().max_by_key(|(header, _)| header.number).expect("a segment");
    let last_block = (bytes.len() / BLOCK_LEN) as u32 - 1;
    !is_ready("spare")
        && !is_ready("reserve")
        && FrameHeader::decode(&header.origin(), bytes, last_block).is_ok()
}

#[test]
fn a_log_without_room_pauses_and_resumes_when_there_is_room() {
    if can_mount("a log without any room", "mount") {
        again_if_given_up(stand_still_and_go_on);
    }
}

fn stand_still_and_go_on() {
    let exhausted = Exhausted::new();
    let server = &exhausted.server;
    let mut client = server.client("somebody");
    let directory = exhausted.disk.path().join("data");
    let lsn = last_lsn(&directory);
    let seconds = count("WAYMAKER_FULL_SECONDS", 4);
    let (begun, used) = (Instant::now(), processor_time(server));
    for _ in 0..seconds {
        assert_eq!(take(&mut client, b"another"), Err(ErrorCode::NoSpace));
        std::thread::sleep(Duration::from_secs(1));
    }
    let (took, used) = (begun.elapsed(), processor_time(server) - used);
    assert_eq!(metric(server, "waymaker_disk_full"), 1);
    println!("{used:?} of processor time in {took:?} without room");
    assert!(used * 20 < took, "{used:?} of processor time in {took:?} without room");
    assert_eq!(last_lsn(&directory), lsn, "nothing is written");
    drop(exhausted.ballast);
    let freed = Instant::now();
    wait_for("a grant once there is room again", || match take(&mut client, b"another") {
        Ok(granted) => Some(granted),
        Err(code) => {
            assert_eq!(code, ErrorCode::NoSpace);
            None
        }
    });
    let took = freed.elapsed();
    assert_eq!(metric(server, "waymaker_disk_full"), 0);
    let written = last_lsn(&directory) - lsn;
    assert!(written < 50, "{written} frames were waiting");
    if took >= RESUMED {
        give_up("grants resumed late");
    }
}

/// Spare and reserve are there, so everything finds its room.
#[test]
fn a_server_on_a_full_disk_stops_cleanly_in_its_preallocated_room() {
    if !can_mount("a stop on a full disk", "mount") {
        return;
    }
    let disk = MemoryDisk::new(4);
    let directory = disk.path().join("data");
    let mut server = start(&directory, &SHAPE);
    let mut client = server.client("somebody");
    let held = take(&mut client, b"held").expect("there is room");
    wait_until("room that is set aside", || directory.join("spare").exists());
    let ephemeral = client.acquire(b"ephemeral", LEASE_MS);
    let ballast = Ballast::new(disk.path());
    ballast.fill();
    server.signal("TERM");
    assert!(server.wait().success());
    drop(ballast);
    let server = start(&directory, &SHAPE);
    let mut client = server.client("somebody");
    client.release(held.id);
    client.release(ephemeral.id);
}

#[test]
fn a_stop_without_any_room_ends_in_time_with_the_disk_failure_code() {
    if can_mount("a stop without any room", "mount") {
        again_if_given_up(stop_in_time);
    }
}

fn stop_in_time() {
    let Exhausted { mut server, ballast, held, disk } = Exhausted::new();
    let begun = Instant::now();
    server.signal("TERM");
    wait_until("the end of a server without room", || server.has_ended());
    if begun.elapsed() >= STOPPED {
        give_up("the server stopped late");
    }
    assert_eq!(server.wait().code(), Some(75));
    drop(ballast);
    // As after a crash.
    let server = start(&disk.path().join("data"), &SHAPE);
    let mut client = server.client("somebody");
    assert_eq!(take(&mut client, b"held"), Err(ErrorCode::Busy));
    client.release(held.id);
    assert_eq!(take(&mut client, b"held").map(|granted| granted.fence), Ok(2));
}
