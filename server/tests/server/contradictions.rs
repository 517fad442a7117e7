//! Logs with two holds of one key, which servers of log format version 1 could leave behind.

use crate::durable::Place;
use crate::harness::{Server, refused};
use std::sync::Arc;
use waymaker_engine::{ClaimId, Fence, Scope};
use waymaker_log::store::{Device, Disk, Log, OpenOptions};
use waymaker_log::{Hold, Item, Record, Started};
use waymaker_protocol::LockId;

const KEY: &[u8] = b"key";
const LEASE_MS: u32 = 600_000;

fn id_of(fence: u64) -> LockId {
    LockId { place: fence, secret: !fence }
}

/// A record of a hold of the key. Each is in a claim of its own.
fn held(fence: u64) -> Record<'static> {
    let LockId { place, secret } = id_of(fence);
    Record::Held(Hold {
        id: ClaimId { place, secret },
        namespace: 0,
        scope: Scope::Local,
        shared: false,
        session_lease: false,
        endless: false,
        clamped: false,
        waited: false,
        repeated: false,
        fence: Fence::new(fence),
        begins_counted: false,
        awaits_count: false,
        since_ms: 0,
        deadline_ms: None,
        lease_ms: LEASE_MS,
        release_after_ms: None,
        priority: 0,
        number: 0,
        session: None,
        owner: b"somebody",
        identity: None,
        request_id: None,
        metadata: None,
        set_hash: None,
        item: Item::Key(KEY),
    })
}

/// Leaves a log in which the end of the first hold is missing.
fn leave_two_holds(directory: &str) {
    std::fs::create_dir(directory).expect("a directory");
    let disk = Disk::open(directory.as_ref(), Device::Write).expect("a directory");
    let options = OpenOptions { segment_len: 65_536, log_id: 7, accept_damage: false };
    let (mut log, ..) = Log::open::<waymaker_log::Image>(Arc::new(disk), &options).expect("a new log");
    let namespace = Record::Namespace { number: 0, kind: 0, name: b"default" };
    let records = [Record::Started(Started::default()), namespace, held(1), held(2)];
    let mut bytes = Vec::new();
    records.iter().for_each(|record| record.encode(&mut bytes));
    log.append(&bytes, records.len() as u32).expect("a frame");
    log.flush(|| 1).expect("a disk");
    log.note_longest_lease(1).expect("a disk");
}

fn is_held(server: &Server, fence: u64) -> bool {
    server.client("somebody").is_held(id_of(fence))
}

#[test]
fn two_holds_of_one_key_are_refused_unless_damage_is_accepted() {
    let place = Place::new();
    leave_two_holds(&place.path());
    let path = place.path();
    for _ in 0..2 {
        let (status, said) = refused(&["--data-dir", &path]);
        assert_eq!(status.code(), Some(1), "{said}");
        for word in
            ["key \"key\" has two conflicting holds", "with fence 1", "with fence 2", "--accept-damage"]
        {
            assert!(said.contains(word), "no {word:?} in: {said}");
        }
    }
    for more in [&["--accept-damage"][..], &[]] {
        let mut server = place.start(more);
        assert_eq!((is_held(&server, 1), is_held(&server, 2)), (false, true), "with {more:?}");
        server.signal("KILL");
        server.wait();
    }
}
