//! A folder of test files that belong to a released version. Nothing changes, adds or drops one of them.
//!
//! This file is shared by the tests of the wire format and of the log format.

use std::path::{Path, PathBuf};

/// The list of the folder: a CRC-32C and a file name in each line, in the order of the names.
const LIST: &str = "files.txt";

/// The folder with its list.
pub(crate) struct FrozenFolder {
    pub(crate) path: PathBuf,
    /// CRC-32C of the list, so that the list cannot be rewritten together with a file.
    pub(crate) list_checksum: u32,
}

impl FrozenFolder {
    /// The names of the files that were released.
    pub(crate) fn files(&self) -> Vec<String> {
        let list = String::from_utf8(read(&self.path.join(LIST))).expect("text");
        list.lines().map(|line| line.split_once(' ').expect("a checksum and a name").1.to_owned()).collect()
    }

    /// Asserts that every file is as it was released, and that none was added or dropped.
    pub(crate) fn assert_unchanged(&self) {
        let folder = self.path.display();
        let line = |name: &String| format!("{:08x} {name}\n", crc32c::crc32c(&read(&self.path.join(name))));
        let found: String = file_names(&self.path).iter().map(line).collect();
        let list = String::from_utf8(read(&self.path.join(LIST))).expect("text");
        assert_eq!(
            list, found,
            "{folder}: a released file was changed, added or dropped. Released bytes stay as they are: restore the folder, \
             and give what is new a place of its own"
        );
        let checksum = crc32c::crc32c(list.as_bytes());
        let expected = self.list_checksum;
        assert_eq!(
            checksum, expected,
            "{folder}: the list was changed: its checksum is {checksum:#010x}, not {expected:#010x}"
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

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
