//! Superblock: the data of a log that a server must know before it reads any other file.
//!
//! The file has two copies of the superblock. An update writes and syncs one copy, and then the other. The server
//! relies on the update only when both are synced. So each copy alone has all data that the server ever relied on, and
//! at least one copy is always intact.

use super::block::{BLOCK_LEN, BadBlock, BlockReader, BlockWriter, check_numbers};
use super::frame::known_versions;
use super::recovery::Position;
use crate::ids::Fence;

/// Length of the superblock file in bytes.
pub const SUPERBLOCK_FILE_LEN: usize = 2 * BLOCK_LEN;

const MAGIC: [u8; 4] = *b"WMsb";

/// Copy of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// Copy in the first block.
    First,
    /// Copy in the second block.
    Second,
}

impl Copy {
    /// Returns the offset of the copy in the file, in bytes.
    pub fn offset(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => BLOCK_LEN as u64,
        }
    }

    /// Returns the other copy.
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// Reason why a superblock file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// Neither copy is intact.
    #[error("neither copy is whole: first copy: {0}; second copy: {1}")]
    NoGoodCopy(BadBlock, BadBlock),
    /// A copy is intact, but this server does not know its format version.
    #[error("it has format version {0}, but this server reads only {known}", known = known_versions())]
    NewerVersion(u16),
}

/// Fields of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Superblock {
    /// Number of the update. The copy with the higher number is the newer one.
    pub sequence: u64,
    /// Random id of the log, which its superblock, segments and snapshots contain.
    pub log_id: u64,
    /// Number of the last server start that has opened the log.
    pub generation: u64,
    /// Length of new segments in bytes.
    pub segment_len: u64,
    /// Number of the first segment that is not in the snapshot.
    pub first_segment: u64,
    /// Number of the last segment to which frames may have been written and acknowledged; 0 before the first start.
    pub last_segment: u64,
    /// Number of the current snapshot, after which the first segment continues; 0 without a snapshot.
    pub snapshot: u64,
    /// Upper bound of the fences of all recorded grants.
    pub fence_floor: Fence,
    /// Upper bound of the lengths of all recorded leases of holds and sessions, in milliseconds. It is at most 2^32;
    /// only leases of registrations can be longer.
    pub longest_lease_ms: u64,
    /// Number of the last frame of the log if the server stopped cleanly after that frame; otherwise 0.
    pub clean_lsn: u64,
    /// Note that records of this log were lost; `None` if there is none. The superblock keeps the note until a server
    /// process has run for [`Losses::wait_ms`] after its start. Then all lost holds have expired.
    pub losses: Option<Losses>,
    /// Last frame that the last server start found. This frame and all frames before it are durable. Later frames are
    /// valid only if that start (`generation`) wrote them.
    pub start: Position,
}

/// Note that records of this log were lost: its operator accepted damage, or it was restored from a backup. The note
/// applies to every server start, until one start has run for `wait_ms` and removes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses {
    /// Fence below every new one: each new fence must be greater, because the lost records may have contained fences up
    /// to this one.
    pub fence_floor: Fence,
    /// Time that a start must wait before it grants, in milliseconds. After this time, all lost holds have expired.
    pub wait_ms: u64,
}

impl Superblock {
    /// Notes that records were dropped. They may have contained any fence up to the current fence floor, and any lease
    /// up to the longest noted lease.
    pub fn note_losses(&mut self) {
        self.losses = Some(Losses { fence_floor: self.fence_floor, wait_ms: self.longest_lease_ms });
    }

    /// Returns the superblock as a block.
    pub fn encode(&self) -> [u8; BLOCK_LEN] {
        BlockWriter::new(MAGIC)
            .u64(self.sequence)
            .u64(self.log_id)
            .u64(self.generation)
            .u64(self.segment_len)
            .u64(self.first_segment)
            .u64(self.last_segment)
            .u64(self.snapshot)
            .u64(self.fence_floor.get())
            .u64(self.longest_lease_ms)
            .u64(self.clean_lsn)
            .u64(self.losses.is_some().into())
            .u64(self.losses.map_or(0, |losses| losses.fence_floor.get()))
            .u64(self.losses.map_or(0, |losses| losses.wait_ms))
            .u64(self.start.lsn)
            .u32(self.start.checksum)
            .seal()
    }

    /// Reads the copy of the superblock at the beginning of `bytes`.
    ///
    /// # Errors
    /// Returns an error if the copy is damaged, has an impossible value, or has a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadBlock> {
        let mut block = BlockReader::check(bytes, MAGIC)?;
        let this = Self {
            sequence: block.u64(),
            log_id: block.u64(),
            generation: block.u64(),
            segment_len: block.u64(),
            first_segment: block.u64(),
            last_segment: block.u64(),
            snapshot: block.u64(),
            fence_floor: Fence::new(block.u64()),
            longest_lease_ms: block.u64(),
            clean_lsn: block.u64(),
            // Blocks of version 1 have zeros here.
            losses: match (block.u64(), block.u64(), block.u64()) {
                (0, ..) => None,
                (1, fence_floor, wait_ms) => Some(Losses { fence_floor: Fence::new(fence_floor), wait_ms }),
                _ => return Err(BadBlock::Field("losses")),
            },
            start: Position { lsn: block.u64(), checksum: block.u32() },
        };
        check_numbers([this.sequence, this.generation, this.clean_lsn, this.start.lsn])?;
        check_numbers([this.first_segment, this.last_segment, this.snapshot])?;
        check_numbers([this.fence_floor.get(), this.losses.map_or(0, |losses| losses.fence_floor.get())])?;
        Ok(this)
    }

    /// Returns the newer intact copy in this file, and the copy that the next update must write first. That is the
    /// damaged copy or, if none is damaged, the older one; `None` if both are equal.
    ///
    /// # Errors
    /// Returns an error if no copy is intact, or an intact one has a newer format.
    pub fn decode_file(file: &[u8]) -> Result<(Self, Option<Copy>), SuperblockError> {
        let at = |copy: Copy| Self::decode(file.get(copy.offset() as usize..).unwrap_or_default());
        match (at(Copy::First), at(Copy::Second)) {
            (Err(BadBlock::NewerVersion(version)), _) | (_, Err(BadBlock::NewerVersion(version))) => {
                Err(SuperblockError::NewerVersion(version))
            }
            (Err(first), Err(second)) => Err(SuperblockError::NoGoodCopy(first, second)),
            (Ok(first), Err(_)) => Ok((first, Some(Copy::Second))),
            (Err(_), Ok(second)) => Ok((second, Some(Copy::First))),
            (Ok(first), Ok(second)) if first == second => Ok((first, None)),
            (Ok(first), Ok(second)) if first.sequence > second.sequence => Ok((first, Some(Copy::Second))),
            (Ok(_), Ok(second)) => Ok((second, Some(Copy::First))),
        }
    }
}
