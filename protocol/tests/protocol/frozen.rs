//! Golden files of released versions. Nothing changes, adds or drops one of them, so the bytes of old clients and servers
//! are read for ever.

use std::path::{Path, PathBuf};

use crate::golden::folder;

/// The list of a frozen folder: a CRC-32C and a file name in each line, in the order of the names.
const LIST: &str = "files.txt";

/// A folder of golden files that were released.
struct Frozen {
    /// Name of the folder: the protocol version whose release added these messages.
    name: &'static str,
    /// CRC-32C of its list, so that the list cannot be rewritten together with a file.
    list_checksum: u32,
}

/// Every released version that added golden files. An entry is never changed.
const FROZEN: [Frozen; 1] = [Frozen { name: "v1", list_checksum: 0x874c_69da }];

impl Frozen {
    fn path(&self) -> PathBuf {
        folder().join(self.name)
    }

    /// The checksum and the name of each file in the list.
    fn list(&self) -> Vec<(u32, String)> {
        let text = read(&self.path().join(LIST));
        let entry = |line: &str| {
            let (checksum, name) = line.split_once(' ').expect("a checksum and a name");
            (u32::from_str_radix(checksum, 16).expect("a checksum of eight digits"), name.to_owned())
        };
        text.lines().map(entry).collect()
    }
}

/// Path of the frozen golden file with this name, if there is one.
pub(crate) fn frozen_path(file: &str) -> Option<PathBuf> {
    let frozen = FROZEN.iter().find(|frozen| frozen.list().iter().any(|(_, name)| name == file))?;
    Some(frozen.path().join(file))
}

/// All frozen golden files that are in their lists.
pub(crate) fn frozen_paths() -> Vec<PathBuf> {
    let paths = |frozen: &Frozen| {
        let folder = frozen.path();
        frozen.list().into_iter().map(move |(_, name)| folder.join(name))
    };
    FROZEN.iter().flat_map(paths).collect()
}

#[test]
fn every_frozen_golden_file_is_as_it_was_released() {
    for frozen in &FROZEN {
        let folder = frozen.path();
        let mut found = String::new();
        for name in file_names(&folder) {
            found.push_str(&format!("{:08x} {name}\n", crc32c::crc32c(read(&folder.join(&name)).as_bytes())));
        }
        let list = read(&folder.join(LIST));
        assert_eq!(
            list,
            found,
            "{}: a released golden file was changed, added or dropped. Released bytes stay as they are: restore the \
             folder, and give a changed message a golden file of its own",
            folder.display()
        );
        assert_eq!(
            format!("{:#010x}", crc32c::crc32c(list.as_bytes())),
            format!("{:#010x}", frozen.list_checksum),
            "{}: the list of a released version was changed",
            folder.display()
        );
    }
}

#[test]
fn every_frozen_folder_has_an_entry() {
    let is_folder = |entry: &std::fs::DirEntry| entry.path().is_dir();
    let entries = std::fs::read_dir(folder()).expect("the golden files are there");
    let folders = entries.map(|entry| entry.expect("the folder can be read")).filter(is_folder);
    for entry in folders {
        let name = entry.file_name();
        assert!(
            FROZEN.iter().any(|frozen| *name == *frozen.name),
            "{name:?} is in no list of released versions"
        );
    }
}

/// The names of all files in a folder but its list, sorted.
fn file_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the frozen files are there");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("the folder can be read").file_name().into_string().expect("names are text")
    };
    let mut names: Vec<_> = entries.map(name).filter(|name| name != LIST).collect();
    names.sort();
    names
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
