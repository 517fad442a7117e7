//! A limit on the length of files (`ulimit -f`), which ends a process by a signal unless that is handled.

use super::rotten::{fill, metric, take};
use super::site::{on, start, wrap};
use crate::durable::local;
use crate::harness::{Server, wait_until};
use std::path::Path;
use std::process::{Command, Stdio};
use waymaker_protocol::{AcquireOptions, Request};

/// A server on this directory that may not write files longer than this.
fn limited(directory: &Path, limit_kib: u32) -> Command {
    let script = format!("ulimit -f {limit_kib}; exec \"$@\"");
    let shape = ["--workers", "1", "--log-segment-len", "1048576", "--http-listen", "127.0.0.1:0"];
    wrap(&["bash", "-c", &script, "bash"], &on(directory, &shape))
}

#[test]
fn a_start_fails_if_a_segment_exceeds_the_file_size_limit() {
    let place = tempfile::tempdir().expect("a directory");
    let output = limited(place.path(), 512).stderr(Stdio::piped()).output().expect("a process");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?}: {said}", output.status);
    assert!(said.contains("no space for another segment"), "{said}");
}

/// The segments may be so long, but not the snapshot of all holds.
#[test]
fn a_snapshot_beyond_the_file_size_limit_does_not_stop_the_server() {
    let place = tempfile::tempdir().expect("a directory");
    let mut server = Server::start_with(&mut limited(place.path(), 1024), None);
    let mut client = server.client("somebody");
    let held = take(&mut client, b"held");
    let metadata = [b'x'; 1000];
    for number in 0..1500_u32 {
        let key = number.to_le_bytes();
        let acquire = local(&key);
        let options = AcquireOptions { metadata: Some(&metadata), ..acquire.terms.options };
        client
            .ask(Request::Acquire(acquire.with_terms(|terms| {
                terms.lease_ms = 600_000;
                terms.options = options;
            })))
            .granted();
    }
    wait_until("a compaction that fails", || {
        fill(&mut client);
        assert!(!server.has_ended(), "the server ended");
        metric(&server, "waymaker_compaction_failures_total") > 0
    });
    client.release(held.id);
    server.signal("TERM");
    assert!(server.wait().success());
    let server = start(place.path(), &[]);
    assert_eq!(take(&mut server.client("somebody"), b"held").fence, 2);
}
