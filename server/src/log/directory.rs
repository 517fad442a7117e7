//! What lies in a data directory, by name.

use std::collections::BTreeMap;
use std::io;

use waymaker_engine::log::FileName;
pub(super) use waymaker_engine::log::Temporary;

use super::storage::Storage;

/// The files of a data directory with their lengths in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory(BTreeMap<FileName, u64>);

impl Directory {
    /// Lists the directory.
    ///
    /// # Errors
    /// If it cannot be read. The inner error is the name of a file that does not belong there.
    pub fn list(storage: &dyn Storage) -> io::Result<Result<Self, String>> {
        let mut files = BTreeMap::new();
        for (name, len) in storage.list()? {
            match FileName::parse(&name) {
                Some(file) => files.insert(file, len),
                None => return Ok(Err(name)),
            };
        }
        Ok(Ok(Self(files)))
    }

    /// Whether nothing was ever kept here.
    pub fn is_fresh(&self) -> bool {
        self.0.keys().all(|file| matches!(file, FileName::Lock | FileName::Temporary(_)))
    }

    /// The length of a file in bytes, if it is there.
    pub fn len_of(&self, file: FileName) -> Option<u64> {
        self.0.get(&file).copied()
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = FileName> + '_ {
        self.0.keys().copied()
    }

    /// The numbers of all segments, rising.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.0
            .keys()
            .filter_map(|file| if let FileName::Segment(number) = file { Some(*number) } else { None })
    }

    /// The numbers of all snapshots, rising.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.0
            .keys()
            .filter_map(|file| if let FileName::Snapshot(number) = file { Some(*number) } else { None })
    }
}
