//! Damage to a log: its kind and its place.

use super::block::BadBlock;
use super::file_name::FileName;
use super::frame::BadFrame;

/// Damage to the files of a log. Each case names the file, and the byte if there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A durable frame is not intact. Frames or files that were written later prove that it was durable.
    #[error("{file}, byte {offset}: frame {lsn} was durable, but {reason} ({evidence})")]
    Frame {
        /// Damaged file.
        file: FileName,
        /// Offset of the frame in bytes.
        offset: u64,
        /// Number of the frame.
        lsn: u64,
        /// Reason why the frame is not intact.
        reason: BadFrame,
        /// Proof that the frame was durable.
        evidence: Evidence,
    },
    /// A block in front of or behind the frames of a file is not intact.
    #[error("{file}, byte {offset}: {reason}")]
    Block {
        /// Damaged file.
        file: FileName,
        /// Offset of the block in bytes.
        offset: u64,
        /// Reason why the block is not intact.
        reason: BadBlock,
    },
    /// The file is shorter or longer than it was created.
    #[error("{file}, byte {actual}: the file ends here, but it was created with {expected} bytes")]
    Length {
        /// Damaged file.
        file: FileName,
        /// Length at creation in bytes.
        expected: u64,
        /// Actual length in bytes.
        actual: u64,
    },
    /// A required file is missing.
    #[error("{0} is missing")]
    Missing(FileName),
    /// The file has the name of a log file, but one of its fields does not match this log.
    #[error("{file}, byte 0: the file does not belong to this log: its {field} differs")]
    Stranger {
        /// Unexpected file.
        file: FileName,
        /// Field of the file that does not match.
        field: &'static str,
    },
    /// A file does not continue at the end of the file before it.
    #[error(
        "{file}, byte 0: the file continues after frame {after}, but the previous file ends with frame {end}"
    )]
    Gap {
        /// File behind the gap.
        file: FileName,
        /// Number of the frame after which the file continues.
        after: u64,
        /// Number of the last frame before it.
        end: u64,
    },
    /// The checksum of a frame matches, but one of its records is malformed.
    #[error("{file}, byte {offset}: a record of frame {lsn} is malformed: {reason}")]
    Record {
        /// File of the record.
        file: FileName,
        /// Offset of the frame in bytes.
        offset: u64,
        /// Number of the frame.
        lsn: u64,
        /// Reason why the record is malformed.
        reason: String,
    },
    /// A file cannot be read.
    #[error("{file}, byte 0: the file cannot be read: {reason}")]
    Unreadable {
        /// Unreadable file.
        file: FileName,
        /// Error message of the system.
        reason: String,
    },
}

/// Proof that a frame was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Evidence {
    /// A later frame says in its header that the damaged frame was durable when the later one was built. Or a frame has
    /// the number of a start that the superblock does not have, or an unknown format version.
    #[error("frame {lsn} at byte {offset} confirms it")]
    LaterFrame {
        /// Number of the later frame; 0 if the damaged frame itself has an unknown format version.
        lsn: u64,
        /// Offset of the later frame in bytes.
        offset: u64,
    },
    /// A frame with an intact header is at a place where the server cannot have written it. A crash loses and tears
    /// frames, but never moves them.
    #[error("the frame at byte {offset} was written for another position")]
    Moved {
        /// Offset of the moved frame in bytes.
        offset: u64,
    },
    /// A later segment exists. A segment is begun only after everything before it is durable.
    #[error("{0} continues after it")]
    LaterSegment(FileName),
    /// The last start of the server found this frame intact at the end of the log. The superblock says so. All frames
    /// up to it were durable.
    #[error("the server started again after frame {0}")]
    LaterStart(u64),
    /// The server stopped cleanly when this frame was the last one. The superblock says so. All frames up to it were
    /// durable.
    #[error("the server stopped cleanly after frame {0}")]
    CleanStop(u64),
    /// The snapshot is in use. A snapshot is used only after all of it is durable.
    #[error("the snapshot was complete")]
    Snapshot,
}

impl Damage {
    /// Returns the damaged file.
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

    /// Returns the offset in the damaged file, in bytes, from which on its contents are not trusted; 0 if none of it
    /// is.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Frame { offset, .. } | Self::Block { offset, .. } | Self::Record { offset, .. } => *offset,
            Self::Length { actual, .. } => *actual,
            Self::Missing(_) | Self::Stranger { .. } | Self::Gap { .. } | Self::Unreadable { .. } => 0,
        }
    }

    /// Returns the format version of a block or frame that is intact but of a newer format; `None` for other damage.
    pub fn newer_version(&self) -> Option<u16> {
        match self {
            Self::Block { reason: BadBlock::NewerVersion(version), .. }
            | Self::Frame { reason: BadFrame::NewerVersion(version), .. } => Some(*version),
            _ => None,
        }
    }
}
