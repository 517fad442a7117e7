//! Why a log is not what was written, and where.

use super::block::BadBlock;
use super::file_name::FileName;
use super::frame::BadFrame;

/// What is wrong with the files of a log. Each case names the file, and the byte where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A frame that was durable is not whole: frames or files that were written afterwards show it.
    #[error("{file}, byte {offset}: frame {lsn} was durable, but {reason} ({evidence})")]
    Frame {
        /// The file.
        file: FileName,
        /// Where the frame begins, in bytes.
        offset: u64,
        /// The frame.
        lsn: u64,
        /// What is wrong with it.
        reason: BadFrame,
        /// What shows that it was durable.
        evidence: Evidence,
    },
    /// A block in front of or behind the frames of a file is not whole.
    #[error("{file}, byte {offset}: {reason}")]
    Block {
        /// The file.
        file: FileName,
        /// Where the block begins, in bytes.
        offset: u64,
        /// What is wrong with it.
        reason: BadBlock,
    },
    /// A file has another length than when it was made.
    #[error("{file}, byte {actual}: the file ends here, but it was created with {expected} bytes")]
    Length {
        /// The file.
        file: FileName,
        /// Bytes that it was made with.
        expected: u64,
        /// Bytes that it has.
        actual: u64,
    },
    /// A file that must be there is not.
    #[error("{0} is missing")]
    Missing(FileName),
    /// A file is there that cannot be part of this log.
    #[error("{file}, byte 0: the file does not belong to this log: its {field} differs")]
    Stranger {
        /// The file.
        file: FileName,
        /// What does not fit.
        field: &'static str,
    },
    /// A file does not continue where the one before it ends.
    #[error(
        "{file}, byte 0: the file continues after frame {after}, but the previous file ends with frame {end}"
    )]
    Gap {
        /// The file.
        file: FileName,
        /// The frame after which it continues.
        after: u64,
        /// The last frame before it.
        end: u64,
    },
    /// A record that was written makes no sense.
    #[error("{file}, byte {offset}: a record of frame {lsn} is malformed: {reason}")]
    Record {
        /// The file.
        file: FileName,
        /// Where the frame begins, in bytes.
        offset: u64,
        /// The frame.
        lsn: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A file cannot be read.
    #[error("{file}, byte 0: the file cannot be read: {reason}")]
    Unreadable {
        /// The file.
        file: FileName,
        /// What the system said.
        reason: String,
    },
}

/// What shows that a frame was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Evidence {
    /// A later frame was built when it was known.
    #[error("frame {lsn} at byte {offset} confirms it")]
    LaterFrame {
        /// The later frame.
        lsn: u64,
        /// Where it begins.
        offset: u64,
    },
    /// A crash loses frames and tears them, but it moves none: there is a whole one where it was never written.
    #[error("the frame at byte {offset} was written for another position")]
    Moved {
        /// Where it is.
        offset: u64,
    },
    /// A segment is begun only when everything before it is durable.
    #[error("{0} continues after it")]
    LaterSegment(FileName),
    /// A later start found it, and writes behind this frame.
    #[error("the server started again after frame {0}")]
    LaterStart(u64),
    /// The server was stopped cleanly behind it.
    #[error("the server stopped cleanly after frame {0}")]
    CleanStop(u64),
    /// A snapshot is used only when all of it is durable.
    #[error("the snapshot was complete")]
    Snapshot,
}

impl Damage {
    /// The file.
    pub fn file(&self) -> FileName {
        match self {
            Self::Frame { file, .. }
            | Self::Block { file, .. }
            | Self::Length { file, .. }
            | Self::Missing(file)
            | Self::Stranger { file, .. }
            | Self::Gap { file, .. }
            | Self::Record { file, .. }
            | Self::Unreadable { file, .. } => *file,
        }
    }

    /// The byte in that file from which on nothing is believed.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Frame { offset, .. } | Self::Block { offset, .. } | Self::Record { offset, .. } => *offset,
            Self::Length { actual, .. } => *actual,
            Self::Missing(_) | Self::Stranger { .. } | Self::Gap { .. } | Self::Unreadable { .. } => 0,
        }
    }

    /// The format version that this server does not know, if that is all that is wrong.
    pub fn newer_version(&self) -> Option<u16> {
        match self {
            Self::Block { reason: BadBlock::NewerVersion(version), .. }
            | Self::Frame { reason: BadFrame::NewerVersion(version), .. } => Some(*version),
            _ => None,
        }
    }
}
