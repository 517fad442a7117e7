//! Damage to a log: the kind of damage, and the file and byte at which it begins.

use super::block::BadBlock;
use super::file_name::FileName;
use super::frame::BadFrame;

/// Damage to the files of a log. Each variant names the damaged file, and the position of the damage if it is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A frame was durable, but is not intact or not valid now. `evidence` says how it is known that the frame was
    /// durable. After a clean stop, this is also the damage if frames follow the last frame of that stop.
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
    /// The first block of a file (its head) is not intact, or a block of a snapshot is the wrong block at its position.
    /// Also, the counts or the checksum in the last block of a snapshot do not match its frames.
    #[error("{file}, byte {offset}: {reason}")]
    Block {
        /// Damaged file.
        file: FileName,
        /// Offset of the block in bytes.
        offset: u64,
        /// Reason why the block cannot be used.
        reason: BadBlock,
    },
    /// The file is shorter or longer than it was created.
    #[error("{file}, byte {actual}: the file ends here, but it was created with {expected} bytes")]
    Length {
        /// Damaged file.
        file: FileName,
        /// Length at creation in bytes. The length of one block if the file is too short for its head.
        expected: u64,
        /// Actual length in bytes.
        actual: u64,
    },
    /// A required file is missing.
    #[error("{0} is missing")]
    Missing(FileName),
    /// The file has the name of a log file, but its head or its number does not fit this log. For example, the head has
    /// the id of another log.
    #[error("{file}, byte 0: the file does not belong to this log: its {field} differs")]
    Stranger {
        /// Unexpected file.
        file: FileName,
        /// Name of the value that does not fit: a field in the head of the file, or `number` for a segment number that
        /// the log cannot have reached.
        field: &'static str,
    },
    /// The head of a segment says that the segment continues after another frame than the last valid frame before it.
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
    /// The checksum of a frame matches, but one of its records is malformed or does not fit the records before it. So
    /// this server cannot apply it.
    #[error("{file}, byte {offset}: a record of frame {lsn} is malformed: {reason}")]
    Record {
        /// File of the record.
        file: FileName,
        /// Offset of the frame in bytes.
        offset: u64,
        /// Number of the frame.
        lsn: u64,
        /// Reason why the record cannot be applied.
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
    /// The header of a later frame says that the damaged frame was durable when the later frame was built. Two other
    /// finds count as this proof too, because in these cases nothing shows that the frame was not durable. A frame at
    /// or behind the position of the damaged frame may name a server start that the superblock does not know. Or the
    /// damaged frame itself may have an unknown format version.
    #[error("frame {lsn} at byte {offset} confirms it")]
    LaterFrame {
        /// Number of the frame whose header gives the proof, at or behind the position of the damaged frame in the same
        /// file. The number is 0 if the damaged frame itself has an unknown format version.
        lsn: u64,
        /// Offset of that frame in bytes.
        offset: u64,
    },
    /// A frame with an intact header is at a position in the file for which it was not written. Its position, number,
    /// previous frame or format version does not fit there. A crash may lose or tear frames, but it never moves them.
    /// So the file was damaged after it was written.
    #[error("the frame at byte {offset} was written for another position")]
    Moved {
        /// Offset of the moved frame in bytes.
        offset: u64,
    },
    /// A later segment of the log exists. The server begins a segment only after everything in the segments before it
    /// is durable.
    #[error("{0} continues after it")]
    LaterSegment(FileName),
    /// The superblock says that the server's last start found this frame intact as the last frame of the log. So all
    /// frames up to it were durable.
    #[error("the server started again after frame {0}")]
    LaterStart(u64),
    /// The superblock says that the server stopped cleanly, with this frame as the last one. So all frames up to it
    /// were durable, and no frame may follow it.
    #[error("the server stopped cleanly after frame {0}")]
    CleanStop(u64),
    /// The damaged file is the snapshot that the superblock names. The server uses a snapshot only after all of it is
    /// durable.
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

    /// Returns the offset in the damaged file, in bytes, from which on its contents are not trusted. Returns 0 if none
    /// of its contents are trusted, and the actual length of a file with a wrong length.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Frame { offset, .. } | Self::Block { offset, .. } | Self::Record { offset, .. } => *offset,
            Self::Length { actual, .. } => *actual,
            Self::Missing(_) | Self::Stranger { .. } | Self::Gap { .. } | Self::Unreadable { .. } => 0,
        }
    }

    /// Returns the format version if the damage is a block or frame header that is intact but of a newer format; `None`
    /// for other damage.
    pub fn newer_version(&self) -> Option<u16> {
        match self {
            Self::Block { reason: BadBlock::NewerVersion(version), .. }
            | Self::Frame { reason: BadFrame::NewerVersion(version), .. } => Some(*version),
            _ => None,
        }
    }
}
