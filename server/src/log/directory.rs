//! What lies in a data directory, by name.

use std::collections::BTreeMap;
use std::io;

use waymaker_engine::log::FileName;
pub(super) use waymaker_engine::log::Temporary;

use super::storage::Storage;

/// The files of a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Lengths in bytes.
    files: BTreeMap<FileName, u64>,
    /// Names of other files, in order.
    foreign: Vec<String>,
}

impl Directory {
    /// Lists the directory.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn list(storage: &dyn Storage) -> io::Result<Self> {
        let mut directory = Self::default();
        for (name, len) in storage.list()? {
            match FileName::parse(&name) {
                Some(file) => _ = directory.files.insert(file, len),
                None => directory.foreign.push(name),
            }
        }
        directory.foreign.sort_unstable();
        Ok(directory)
    }

    /// Returns the names of files that are no part of the log. They are left alone.
    pub fn foreign(&self) -> &[String] {
        &self.foreign
    }

    /// Whether nothing was ever kept here.
    pub fn is_fresh(&self) -> bool {
        self.files.keys().all(|file| matches!(file, FileName::Lock | FileName::Temporary(_)))
    }

    /// The length of a file in bytes, if it is there.
    pub fn len_of(&self, file: FileName) -> Option<u64> {
        self.files.get(&file).copied()
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = FileName> + '_ {
        self.files.keys().copied()
    }

    /// The numbers of all segments, rising.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.files
            .keys()
            .filter_map(|file| if let FileName::Segment(number) = file { Some(*number) } else { None })
    }

    /// The numbers of all snapshots, rising.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.files
            .keys()
            .filter_map(|file| if let FileName::Snapshot(number) = file { Some(*number) } else { None })
    }
}
