//! Every record of the log has the bytes that released servers wrote and read.

use std::collections::BTreeSet;
use std::path::PathBuf;

use waymaker_engine::{ClaimId, Fence, Scope};
use waymaker_log::frame::FORMAT_VERSION;
use waymaker_log::{Hold, Item, Record, SessionTag, Started};

use crate::fixture::folder;

const REWRITE: &str = "WAYMAKER_REWRITE_LOG_FIXTURES";
const ID: ClaimId = ClaimId { place: 0x0706_0504_0302_0100, secret: 0x0f0e_0d0c_0b0a_0908 };

fn hold(item: Item<'_>) -> Hold<'_> {
    Hold {
        id: ID,
        namespace: 0x1110,
        scope: Scope::Local,
        shared: false,
        session_lease: false,
        endless: false,
        clamped: false,
        waited: false,
        repeated: false,
        fence: Fence::new(0x1716_1514_1312_1110),
        begins_counted: false,
        awaits_count: false,
        since_ms: 0x2726_2524_2322_2120,
        deadline_ms: None,
        lease_ms: 0x3332_3130,
        release_after_ms: None,
        priority: 0x4342_4140,
        number: 0x5352_5150,
        session: None,
        owner: b"owner",
        identity: None,
        request_id: None,
        metadata: None,
        set_hash: None,
        item,
    }
}

/// A record of every kind, and holds with every field. Later versions add to the end.
fn samples() -> Vec<(&'static str, Record<'static>)> {
    let key = hold(Item::Key(b"key"));
    let everything = Hold {
        scope: Scope::Ephemeral,
        shared: true,
        session_lease: true,
        endless: true,
        clamped: true,
        deadline_ms: Some(0x6766_6564_6362_6160),
        release_after_ms: Some(0x7372_7170),
        session: Some(SessionTag {
            place: 0x8786_8584_8382_8180,
            secret: 0x8f8e_8d8c_8b8a_8988,
            lease_ms: 0x9392_9190,
            lane: 0x9594,
        }),
        request_id: Some(b"request"),
        metadata: Some(b"metadata"),
        set_hash: Some(0xa7a6_a5a4_a3a2_a1a0),
        ..key.clone()
    };
    let counted = Hold { scope: Scope::Quorum, begins_counted: true, ..key.clone() };
    let awaiting = Hold { scope: Scope::Quorum, awaits_count: true, ..key.clone() };
    let identified = Hold { identity: Some("identity"), awaits_count: true, ..key.clone() };
    let found = Hold { waited: true, repeated: true, ..key.clone() };
    let permits = Item::Permits { permits: 3, capacity: 10, by_timestamp: true, name: b"pool" };
    let paths = Item::Paths(vec![(b"\x01\0a", true), (b"", false)]);
    let entry = |lazy| Item::Registration { key: b"entry", type_name: b"type", end_ms: -2, lazy };
    let (namespace, fence, key_name) = (0x1110, 0x1716_1514_1312_1110, b"key");
    let counter = |scope| Record::Counter { namespace, scope, fence: Fence::new(fence), key: key_name };
    vec![
        ("started", Record::Started(Started { boot_id: *b"0123456789abcdef", now_ms: fence, unix_ms: -2 })),
        ("namespace", Record::Namespace { number: namespace, kind: 4, name: b"name" }),
        ("held", Record::Held(key)),
        ("held_everything", Record::Held(everything)),
        ("held_counted", Record::Held(counted)),
        ("held_permits", Record::Held(hold(permits))),
        ("held_paths", Record::Held(hold(paths))),
        ("held_entry", Record::Held(hold(entry(false)))),
        ("held_lazy_entry", Record::Held(hold(entry(true)))),
        ("lease_moved", Record::LeaseMoved { id: ID, deadline_ms: fence, lease_ms: 0x3332_3130 }),
        ("ended", Record::Ended { id: ID }),
        ("recounted", Record::Counted { id: ID, fence: Fence::new(fence) }),
        ("counter_ephemeral", counter(Scope::Ephemeral)),
        ("counter_local", counter(Scope::Local)),
        ("counter_quorum", counter(Scope::Quorum)),
        ("folded", Record::Folded { namespace, key: key_name }),
        ("floor", Record::Floor { fence: Fence::new(fence) }),
        ("begin_above", Record::BeginAbove { fence: Fence::new(fence) }),
        ("group", Record::Group { count: 0x3332_3130 }),
        ("pool_set", Record::PoolSet { namespace, capacity: fence, by_timestamp: true, name: b"pool" }),
        ("frozen", Record::Frozen { namespace, frozen: true, prefix: b"prefix" }),
        ("thawed", Record::Frozen { namespace, frozen: false, prefix: b"prefix" }),
        ("stopped", Record::Stopped),
        ("part", Record::Part { left: 0x3332_3130, bytes: b"beginning" }),
        ("held_found", Record::Held(found)),
        ("held_awaiting_count", Record::Held(awaiting)),
        ("namespace_removed", Record::NamespaceRemoved { number: namespace }),
        ("held_identified", Record::Held(identified)),
    ]
}

/// Numbers the kinds of records, so that a new one cannot be forgotten among the samples.
fn kind(record: &Record<'_>) -> usize {
    match record {
        Record::Started(_) => 0,
        Record::Namespace { .. } => 1,
        Record::Held(_) => 2,
        Record::LeaseMoved { .. } => 3,
        Record::Ended { .. } => 4,
        Record::Counter { .. } => 5,
        Record::Folded { .. } => 6,
        Record::Floor { .. } => 7,
        Record::PoolSet { .. } => 8,
        Record::Frozen { .. } => 9,
        Record::Stopped => 10,
        Record::BeginAbove { .. } => 11,
        Record::Group { .. } => 12,
        Record::Counted { .. } => 13,
        Record::Part { .. } => 14,
        Record::NamespaceRemoved { .. } => 15,
    }
}

const KIND_COUNT: usize = 16;

/// How many of the samples each version has.
const SAMPLE_COUNTS: [usize; FORMAT_VERSION as usize] = [23, 28];

fn path(version: u16) -> PathBuf {
    folder(version).join("records.hex")
}

fn encoded(record: &Record<'_>) -> String {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let pair = |index| u8::from_str_radix(&digits[index..index + 2], 16).expect("two hexadecimal digits");
    (0..digits.len()).step_by(2).map(pair).collect()
}

#[test]
fn every_record_encodes_to_its_released_bytes_and_decodes_from_them() {
    let is_released = folder(FORMAT_VERSION).join("files.txt").exists();
    if std::env::var_os(REWRITE).is_some() && !is_released {
        std::fs::create_dir_all(folder(FORMAT_VERSION)).expect("a folder");
        let line = |(name, record): &(&str, Record<'_>)| format!("{name} {}\n", encoded(record));
        let text: String = samples().iter().map(line).collect();
        std::fs::write(path(FORMAT_VERSION), text).expect("a file");
    }
    for (version, sample_count) in (1..).zip(SAMPLE_COUNTS) {
        let text = std::fs::read_to_string(path(version)).expect("the records of each version");
        let released: Vec<_> =
            text.lines().map(|line| line.split_once(' ').expect("a name and bytes")).collect();
        let samples = &samples()[..sample_count];
        let now: Vec<_> = samples.iter().map(|(name, record)| (*name, encoded(record))).collect();
        assert_eq!(released, now.iter().map(|(name, digits)| (*name, digits.as_str())).collect::<Vec<_>>());
        for ((name, record), (_, digits)) in samples.iter().zip(&released) {
            let bytes = bytes_of(digits);
            assert_eq!(bytes[..4], (bytes.len() as u32 - 4).to_le_bytes(), "{name}: its length comes first");
            assert_eq!(Record::decode(&bytes[4..]).as_ref(), Ok(record), "{name}");
        }
    }
}

#[test]
fn the_samples_have_every_kind_of_record_and_unknown_kinds_are_rejected() {
    let kinds: BTreeSet<_> = samples().iter().map(|(_, record)| kind(record)).collect();
    assert_eq!(kinds, (0..KIND_COUNT).collect());
    // Kinds are numbered from 1 on.
    for unknown in [0, KIND_COUNT as u8 + 1, u8::MAX] {
        let refused = Record::decode(&[unknown]).expect_err("no such kind");
        assert_eq!(refused.to_string(), "not a record of this version: an unknown kind", "{unknown}");
    }
}
