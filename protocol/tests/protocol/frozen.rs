//! Golden files of released versions. All later versions must read their bytes, because old clients and servers send
//! them.

use std::path::PathBuf;

use crate::frozen_folder::FrozenFolder;
use crate::golden::folder;

/// Every protocol version whose release added golden files, with the checksum of its list. Never change an entry.
const FROZEN: [(&str, u32); 2] = [("v1", 0x874c_69da), ("v2", 0x63e6_69ea)];

fn frozen_folders() -> impl Iterator<Item = FrozenFolder> {
    FROZEN.into_iter().map(|(name, list_checksum)| FrozenFolder { path: folder().join(name), list_checksum })
}

/// Returns the path of the frozen golden file with this name, if it exists.
pub(crate) fn frozen_path(file: &str) -> Option<PathBuf> {
    frozen_paths().into_iter().find(|path| path.file_name().is_some_and(|name| name == file))
}

/// Returns the paths of all frozen golden files.
pub(crate) fn frozen_paths() -> Vec<PathBuf> {
    let paths = |frozen: FrozenFolder| {
        let files = frozen.files().into_iter();
        files.map(move |file| frozen.path.join(file))
    };
    frozen_folders().flat_map(paths).collect()
}

#[test]
fn every_frozen_golden_file_is_unchanged_since_its_release() {
    frozen_folders().for_each(|frozen| frozen.assert_unchanged());
}

#[test]
fn every_folder_of_golden_files_is_frozen() {
    let entries = std::fs::read_dir(folder()).expect("the golden files are there");
    let folders =
        entries.map(|entry| entry.expect("the folder can be read")).filter(|entry| entry.path().is_dir());
    for entry in folders {
        let name = entry.file_name();
        assert!(
            FROZEN.iter().any(|(frozen, _)| *name == **frozen),
            "{name:?} has no entry among the frozen versions"
        );
    }
}

/// Shows that the previous test can fail.
#[test]
fn changed_added_and_removed_frozen_files_are_detected() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("frozen");
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(path.join(name), text).expect("a file");
    let line = |name: &str, text: &str| format!("{:08x} {name}\n", crc32c::crc32c(text.as_bytes()));
    let list = line("a.hex", "1") + &line("b.hex", "2");
    let list_checksum = crc32c::crc32c(list.as_bytes());
    let is_unchanged = || {
        let frozen = FrozenFolder { path: path.clone(), list_checksum };
        std::panic::catch_unwind(|| frozen.assert_unchanged()).is_ok()
    };
    let restore = || {
        write("a.hex", "1");
        write("b.hex", "2");
        write("files.txt", &list);
        assert!(is_unchanged());
    };
    restore();
    write("b.hex", "3");
    assert!(!is_unchanged(), "changed");
    write("files.txt", &(line("a.hex", "1") + &line("b.hex", "3")));
    assert!(!is_unchanged(), "changed together with the list");
    restore();
    std::fs::remove_file(path.join("b.hex")).expect("a file");
    assert!(!is_unchanged(), "dropped");
    write("files.txt", &line("a.hex", "1"));
    assert!(!is_unchanged(), "dropped together with its line");
    restore();
    write("c.hex", "4");
    assert!(!is_unchanged(), "added");
}
