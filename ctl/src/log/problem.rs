//! Reasons why a server would not start on a data directory.

use std::fmt;

use waymaker_log::{Contradiction, Damage, FileName, SuperblockError};

#[derive(Debug)]
pub(crate) enum Problem {
    /// An entry has the name of a file of the log but is not a file.
    NotAFile(FileName),
    /// There are files of a log but no superblock.
    NoSuperblock,
    /// No copy of the superblock is valid.
    Superblock(SuperblockError),
    /// Durable data is damaged or missing.
    Damage(Damage),
    /// The log contains two conflicting holds of one key.
    Contradiction(Contradiction),
    /// A namespace has a kind that only newer servers know.
    UnknownKind { namespace: u16, kind: u8 },
}

impl Problem {
    /// Returns the file and the byte of the problem, if the problem is in one file.
    pub(crate) fn place(&self) -> Option<(String, u64)> {
        match self {
            Self::NoSuperblock | Self::Superblock(_) => Some((FileName::Superblock.to_string(), 0)),
            Self::NotAFile(file) => Some((file.to_string(), 0)),
            Self::Damage(damage) => Some((damage.file().to_string(), damage.offset())),
            Self::Contradiction(_) | Self::UnknownKind { .. } => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = if self.is_newer() { "; use the newer server" } else { "" };
        match self {
            Self::NotAFile(file) => write!(f, "{file} is not a file; move it out of the data directory"),
            Self::NoSuperblock => f.write_str("superblock is missing, but there are other files of a log"),
            Self::Superblock(error) => write!(f, "superblock, byte 0: {error}{advice}"),
            Self::Damage(damage) => write!(f, "{damage}{advice}"),
            Self::Contradiction(contradiction) => write!(f, "{contradiction}"),
            Self::UnknownKind { namespace, kind } => {
                write!(f, "namespace {namespace} has kind {kind}, which this version does not know")
            }
        }
    }
}
