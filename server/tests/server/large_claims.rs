//! Claims whose records fill several frames and segments of the log.

use crate::durable::{Place, local};
use crate::harness::{Client, Server, wait_until};
use std::net::TcpStream;
use waymaker_protocol::limits::{FRAME_LEN_MAX, ITEM_COUNT_MAX, METADATA_LEN_MAX, SEGMENT_LEN_MAX};
use waymaker_protocol::{
    AcquireKeys, AcquireOptions, AcquireSet, AcquireTerms, Items, KeyItem, LockId, NamespaceKind, PathItem,
    PathKey, Request, Response,
};

const LEASE_MS: u32 = 600_000;

/// A server whose segments hold less than one large claim.
fn start(place: &Place, workers: &str) -> Server {
    let path = place.path();
    let log = ["--data-dir", &path, "--log-segment-len", "65536"];
    Server::start(&[&log[..], &["--workers", workers, "--drain", "10ms"]].concat())
}

/// Takes as many keys as one claim may have.
fn take_keys(client: &mut Client<TcpStream>, claim: usize, options: AcquireOptions<'_>) -> Vec<LockId> {
    let keys: Vec<_> = (0..ITEM_COUNT_MAX).map(|key| format!("{claim}/{key}")).collect();
    let mut buffer = Vec::new();
    let items =
        Items::new(keys.iter().map(|key| KeyItem { shared: false, key: key.as_bytes() }), &mut buffer);
    let items = items.expect("a list of keys");
    let acquire =
        AcquireKeys { items, terms: AcquireTerms { lease_ms: LEASE_MS, options, ..AcquireTerms::default() } };
    match client.ask(Request::AcquireKeys(acquire)).response() {
        Response::GrantedKeys(granted) => granted.keys.iter().map(|lock| lock.id).collect(),
        other => panic!("{other:?}"),
    }
}

/// Takes the largest set of paths that fits a frame of the wire, with all metadata that a claim may have.
fn take_largest_set(client: &mut Client<TcpStream>, options: AcquireOptions<'_>) -> LockId {
    let metadata = [0xab; METADATA_LEN_MAX];
    let options = AcquireOptions { metadata: Some(&metadata), ..options };
    // What stands around the paths, and around each of them.
    let (mut left, around) = (FRAME_LEN_MAX - METADATA_LEN_MAX - 128, 8);
    let mut paths: Vec<Vec<u8>> = Vec::new();
    while left > 2 * SEGMENT_LEN_MAX {
        let first = paths.len().to_string();
        let segment = "s".repeat(SEGMENT_LEN_MAX);
        let count = (left / (SEGMENT_LEN_MAX + 2)).min(63) - 1;
        let segments = std::iter::once(first.as_str()).chain(std::iter::repeat_n(segment.as_str(), count));
        let mut path = Vec::new();
        PathKey::append(segments, &mut path).expect("a path");
        left = left.saturating_sub(path.len() + around);
        paths.push(path);
    }
    let path = |path| PathItem { write: true, path: PathKey::new(path).expect("a path key") };
    let mut buffer = Vec::new();
    let items = Items::new(paths.iter().map(|bytes| path(bytes)), &mut buffer).expect("a list of paths");
    let paths_len: usize = paths.iter().map(Vec::len).sum();
    assert!(paths_len > 1_000_000, "{paths_len} bytes of paths");
    let acquire =
        AcquireSet { items, terms: AcquireTerms { lease_ms: LEASE_MS, options, ..AcquireTerms::default() } };
    client.ask(Request::AcquireSet(acquire)).granted().id
}

/// How many of these holds are there.
fn held_count(client: &mut Client<TcpStream>, ids: &[LockId]) -> usize {
    ids.iter().filter(|id| client.is_held(**id)).count()
}

#[test]
fn a_large_claim_survives_a_kill_after_its_first_segment_is_compacted() {
    for workers in ["1", "2"] {
        let place = Place::new();
        let mut server = start(&place, workers);
        let mut client = server.client("first");
        let mut ids = take_keys(&mut client, 0, local(b"").terms.options);
        let has_snapshot = || {
            let names = std::fs::read_dir(place.path()).expect("a directory").flatten();
            names
                .map(|entry| entry.file_name())
                .any(|name| name.to_string_lossy() == "snapshot-0000000000000002")
        };
        for claim in 1..4 {
            ids.extend(take_keys(&mut client, claim, local(b"").terms.options));
        }
        wait_until("a snapshot of a snapshot", has_snapshot);
        server.signal("KILL");
        server.wait();
        let server = start(&place, workers);
        assert_eq!(held_count(&mut server.client("second"), &ids), ids.len(), "holds after the kill");
    }
}

#[test]
fn the_largest_local_set_survives_a_clean_stop_and_a_kill() {
    let place = Place::new();
    let mut server = start(&place, "2");
    let id = take_largest_set(&mut server.client_of(NamespaceKind::Tree, "first"), local(b"").terms.options);
    for signal in ["TERM", "KILL", "TERM"] {
        server.signal(signal);
        assert_eq!(server.wait().success(), signal == "TERM", "ended by SIG{signal}");
        server = start(&place, "2");
        let mut client = server.client_of(NamespaceKind::Tree, "second");
        assert_eq!(held_count(&mut client, &[id]), 1, "after SIG{signal}");
    }
}

#[test]
fn the_largest_ephemeral_set_survives_a_clean_stop() {
    let place = Place::new();
    let mut server = start(&place, "2");
    let id = take_largest_set(&mut server.client_of(NamespaceKind::Tree, "first"), AcquireOptions::default());
    server.signal("TERM");
    assert!(server.wait().success(), "a clean stop");
    let server = start(&place, "2");
    let mut client = server.client_of(NamespaceKind::Tree, "second");
    assert_eq!(held_count(&mut client, &[id]), 1);
}
