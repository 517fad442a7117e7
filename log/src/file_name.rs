//! Names of the files in a data directory.

use std::fmt;

use super::block::NUMBER_LIMIT;

/// Name of the superblock in a backup. A server refuses a directory with this file: if a server continued directly from
/// a backup, it would repeat fences that were issued after the backup. `waymaker-ctl restore` makes a usable log from
/// the backup, which continues with higher fences.
pub const BACKUP_SUPERBLOCK_NAME: &str = "superblock.backup";

/// File that the server keeps in a data directory. A file with any other name does not belong to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileName {
    /// Lock file of the data directory.
    Lock,
    /// Both copies of the superblock.
    Superblock,
    /// File of zeros, created before it is needed. It becomes the next segment if it has the configured length. So the
    /// log can begin a segment even if the disk has become full.
    Spare,
    /// File of zeros, created before it is needed. It becomes the next segment only if there is no usable spare file,
    /// for example because the disk is full.
    Reserve,
    /// File whose creation is not finished. Readers of the log ignore it. If a crash leaves it behind, the next start
    /// of the server removes it.
    Temporary(Temporary),
    /// Segment of the log, with its number.
    Segment(u64),
    /// Snapshot, with its number. It has the state that results from all records up to a certain frame, and replaces
    /// these records in the log.
    Snapshot(u64),
}

/// Kind of a file whose creation is not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Temporary {
    /// The superblock of a new log.
    Superblock,
    /// Spare segment.
    Spare,
    /// Reserve segment.
    Reserve,
    /// Next segment of the log, created only when the log needs it. This happens if neither of the two files that are
    /// created in advance (spare and reserve) can be used.
    Segment,
    /// A snapshot.
    Snapshot,
}

const FIXED: [(FileName, &str); 9] = [
    (FileName::Lock, "LOCK"),
    (FileName::Superblock, "superblock"),
    (FileName::Spare, "spare"),
    (FileName::Reserve, "reserve"),
    (FileName::Temporary(Temporary::Superblock), "superblock.tmp"),
    (FileName::Temporary(Temporary::Spare), "spare.tmp"),
    (FileName::Temporary(Temporary::Reserve), "reserve.tmp"),
    (FileName::Temporary(Temporary::Segment), "segment.tmp"),
    (FileName::Temporary(Temporary::Snapshot), "snapshot.tmp"),
];

impl FileName {
    /// Returns the file with this name, or `None` if no file of a data directory has this name. Each file has exactly
    /// one name, so numbers with uppercase hexadecimal digits are rejected.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some((file, _)) = FIXED.iter().find(|(_, fixed)| *fixed == name) {
            return Some(*file);
        }
        let number = |digits: &str| {
            let plain = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            plain
                .then(|| u64::from_str_radix(digits, 16).ok())
                .flatten()
                .filter(|number| (1..NUMBER_LIMIT).contains(number))
        };
        if let Some(digits) = name.strip_prefix("segment-") {
            return number(digits).map(Self::Segment);
        }
        name.strip_prefix("snapshot-").and_then(number).map(Self::Snapshot)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment(number) => write!(f, "segment-{number:016x}"),
            Self::Snapshot(number) => write!(f, "snapshot-{number:016x}"),
            fixed => f.write_str(FIXED.iter().find(|(file, _)| file == fixed).map_or("", |(_, name)| name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_name_is_parsed_back() {
        let files = FIXED.iter().map(|(file, _)| *file);
        for file in files.chain([FileName::Segment(0x1f), FileName::Snapshot(NUMBER_LIMIT - 1)]) {
            assert_eq!(FileName::parse(&file.to_string()), Some(file));
        }
        assert_eq!(FileName::Segment(0x1f).to_string(), "segment-000000000000001f");
    }

    #[test]
    fn other_file_names_are_foreign() {
        for name in [
            "",
            "lock",
            "LOCK~",
            "superblock.bak",
            "segment-1",
            "segment-000000000000001F",
            "segment-0000000000000000",
            "segment-+00000000000001f",
            "segment-000000000000001f.tmp",
            "snapshot-00000000000000001",
            "snapshot-ffffffffffffffff",
            "lost+found",
        ] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }
}
