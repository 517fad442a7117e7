//! A folder of test files from a released version. Its files are never changed, added or removed.
//!
//! The tests of the wire format and of the log format share this file.

use std::path::{Path, PathBuf};

/// List of the folder: a CRC-32C and a file name in each line, sorted by name.
const LIST: &str = "files.txt";

/// A folder with its list.
pub(crate) struct FrozenFolder {
    pub(crate) path: PathBuf,
    /// CRC-32C of the list, so that nobody rewrites the list together with a file.
    pub(crate) list_checksum: u32,
}

impl FrozenFolder {
    /// Returns the names of the released files.
    pub(crate) fn files(&self) -> Vec<String> {
        let list = String::from_utf8(read(&self.path.join(LIST))).expect("text");
        list.lines().map(|line| line.split_once(' ').expect("a checksum and a name").1.to_owned()).collect()
    }

    /// Asserts that every file is unchanged since the release, and that no file was added or removed.
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

/// Returns the sorted names of all files in a folder except its list.
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
