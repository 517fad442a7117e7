//! Logs of released servers: recovery finds in each what its server had promised, in this version and in every later one.

use waymaker_log::frame::FORMAT_VERSION;

use crate::fixture::{Fact, Fixture, NAMES, folder, pack, recovered, unpack};
use crate::frozen_folder::FrozenFolder;

/// Every released format version, with the checksum of the list of its fixtures. An entry is never changed.
const FROZEN: [(u16, u32); 1] = [(1, 0x615c_ebe9)];

#[test]
fn recovery_restores_exactly_what_the_server_of_each_fixture_promised() {
    for fixture in Fixture::all() {
        let name = &fixture.name;
        let lines = |facts: &[Fact]| facts.iter().map(|fact| fact.line() + "\n").collect::<String>();
        let mut expected = fixture.facts.clone();
        expected.sort();
        assert_eq!(lines(&recovered(&fixture.files)), lines(&expected), "{name}");
    }
}

#[test]
fn every_released_fixture_is_unchanged() {
    for (version, list_checksum) in FROZEN {
        FrozenFolder { path: folder(version), list_checksum }.assert_unchanged();
    }
    let released: Vec<_> = FROZEN.iter().map(|(version, _)| *version).collect();
    assert_eq!(released, (1..=released.len() as u16).collect::<Vec<_>>());
    assert!(released.len() as u16 + 1 >= FORMAT_VERSION, "only the newest version may be unreleased");
}

#[test]
fn every_released_file_is_read_by_a_test() {
    for (version, list_checksum) in FROZEN {
        let mut read: Vec<_> =
            NAMES.iter().flat_map(|name| [format!("{name}.hex"), format!("{name}.txt")]).collect();
        read.push("records.hex".to_owned());
        read.sort();
        assert_eq!(FrozenFolder { path: folder(version), list_checksum }.files(), read);
    }
}

#[test]
fn every_fixture_has_all_kinds_of_holds_and_all_endings_occur() {
    let mut ends = Vec::new();
    for fixture in Fixture::all() {
        let name = &fixture.name;
        for kind in 0..6_u64 {
            let namespace = fixture.about("namespace").find(|fact| fact.u64("kind") == kind);
            let name_of =
                namespace.unwrap_or_else(|| panic!("{name}: no namespace of kind {kind}")).bytes("namespace");
            // Buckets are not in the log.
            let has_hold = fixture.about("hold").any(|hold| hold.bytes("namespace") == name_of);
            assert_eq!(has_hold, kind != 5, "{name}: holds of kind {kind}");
        }
        for field in ["request_id", "metadata", "release_after", "priority", "session"] {
            assert!(
                fixture.about("hold").any(|hold| hold.get(field).is_some()),
                "{name}: no hold with {field}"
            );
        }
        for lease in ["session", "none"] {
            assert!(
                fixture.about("hold").any(|hold| hold.bytes("lease") == lease.as_bytes()),
                "{name}: {lease}"
            );
        }
        let log = fixture.about("log").next().expect("how the log ends");
        ends.push((log.text("end").to_owned(), log.text("snapshot").to_owned()));
    }
    for end in [
        ("whole", "none"),
        ("whole", "present"),
        ("torn", "none"),
        ("stopped", "none"),
        ("stopped", "present"),
    ] {
        assert!(ends.contains(&(end.0.to_owned(), end.1.to_owned())), "no fixture ends like {end:?}");
    }
}

#[test]
fn a_packed_directory_unpacks_to_the_same_files() {
    let mut bytes = vec![0; 5_000];
    for (index, byte) in bytes.iter_mut().enumerate().skip(100) {
        *byte = if index % 97 < 60 { (index * 7) as u8 } else { 0 };
    }
    let files = vec![
        ("LOCK".to_owned(), b"pid 1".to_vec()),
        ("empty".to_owned(), Vec::new()),
        ("x".to_owned(), bytes),
    ];
    assert_eq!(unpack(&pack(&files)), files);
}
