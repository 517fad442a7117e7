//! Memory that the log takes beside the node: the length of its segments costs none.

use super::disk::{MemoryDisk, can_mount};
use super::rotten::{newest_snapshot, take};
use super::site::start;
use crate::harness::{Client, peak_len, wait_until};
use std::net::TcpStream;

/// Segments of 16 MiB, far above the limit for memory. In a file system in memory they are not mapped, so they are not counted.
const SHAPE: [&str; 4] = ["--workers", "1", "--log-segment-len", "16777216"];
/// Most bytes that folding or reading two such segments of a few keys may add.
const ADDED_MAX: u64 = 8 << 20;

/// Takes and releases a lock: at least one frame of the log.
fn pass(client: &mut Client<TcpStream>, count: usize) {
    for _ in 0..count {
        let granted = take(client, b"passing");
        client.release(granted.id);
    }
}

#[test]
fn memory_of_compaction_and_recovery_does_not_grow_with_segments() {
    if !can_mount("memory of the log", "mount") {
        return;
    }
    let disk = MemoryDisk::new(160);
    let directory = disk.path().join("data");
    let mut server = start(&directory, &SHAPE);
    let mut client = server.client("somebody");
    let held = take(&mut client, b"held");
    pass(&mut client, 1000);
    let before = peak_len(&server);
    wait_until("a snapshot", || {
        pass(&mut client, 1000);
        newest_snapshot(&directory).is_some()
    });
    let added = peak_len(&server) - before;
    println!("compaction: {before} bytes and {added} more");
    assert!(added <= ADDED_MAX, "compaction took {added} bytes");
    pass(&mut client, 3000);
    for signal in ["KILL", "TERM", "KILL"] {
        server.signal(signal);
        server.wait();
        server = start(&directory, &SHAPE);
        let added = peak_len(&server).saturating_sub(before);
        println!("recovery after {signal}: {added} bytes more");
        assert!(added <= ADDED_MAX, "recovery took {added} bytes");
    }
    server.client("somebody").release(held.id);
}
