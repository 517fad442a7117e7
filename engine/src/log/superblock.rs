//! The superblock: what must be known before any other file is read.
//!
//! It is there twice. An update writes one copy and syncs, then the other and syncs, and is done only then: so either
//! copy alone has everything that was ever relied on, and at any instant one of them is whole.

use super::block::{BLOCK_LEN, BadBlock, BlockReader, BlockWriter, check_numbers};
use super::frame::known_versions;
use super::recovery::Position;

/// The bytes of the file.
pub const SUPERBLOCK_FILE_LEN: usize = 2 * BLOCK_LEN;

const MAGIC: [u8; 4] = *b"WMsb";

/// One of the two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// In the first block.
    First,
    /// In the second block.
    Second,
}

impl Copy {
    /// Where it stands in the file, in bytes.
    pub fn offset(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => BLOCK_LEN as u64,
        }
    }

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// Why a superblock file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// Neither copy is whole.
    #[error("neither copy is whole: first copy: {0}; second copy: {1}")]
    NoGoodCopy(BadBlock, BadBlock),
    /// A whole copy has a format that this server does not know.
    #[error("it has format version {0}, but this server reads only {known}", known = known_versions())]
    NewerVersion(u16),
}

/// The fields of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Superblock {
    /// Rises by one with each update.
    pub sequence: u64,
    /// Drawn when the log was made, in every file of it.
    pub log_id: u64,
    /// The last start of a server that got as far as taking requests.
    pub generation: u64,
    /// The bytes of new segments.
    pub segment_len: u64,
    /// The first segment that still counts.
    pub first_segment: u64,
    /// The last segment that may have acknowledged frames; 0 before the first start.
    pub last_segment: u64,
    /// The snapshot that comes before the first segment; 0 if there is none.
    pub snapshot: u64,
    /// No fence handed out under scope Local is above this.
    pub fence_floor: u64,
    /// The longest lease ever granted, in milliseconds.
    pub longest_lease_ms: u64,
    /// The last frame, if the server was stopped cleanly behind it; else 0.
    pub clean_lsn: u64,
    /// Losses that no server has waited out yet.
    pub losses: Option<Losses>,
    /// The last frame that the last start found. All up to it are durable, and those behind it are of that start's generation.
    pub start: Position,
}

/// Losses after an operator accepted damage. Every start has to make up for them, until one server has waited long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses {
    /// Every fence must be above this.
    pub fence_floor: u64,
    /// How long grants wait, in milliseconds: holds that are lost have expired then.
    pub wait_ms: u64,
}

impl Superblock {
    /// Notes that records were given up: any fence and any lease so far may have been among them.
    pub fn note_losses(&mut self) {
        self.losses = Some(Losses { fence_floor: self.fence_floor, wait_ms: self.longest_lease_ms });
    }

    /// One copy.
    pub fn encode(&self) -> [u8; BLOCK_LEN] {
        BlockWriter::new(MAGIC)
            .u64(self.sequence)
            .u64(self.log_id)
            .u64(self.generation)
            .u64(self.segment_len)
            .u64(self.first_segment)
            .u64(self.last_segment)
            .u64(self.snapshot)
            .u64(self.fence_floor)
            .u64(self.longest_lease_ms)
            .u64(self.clean_lsn)
            .u64(self.losses.is_some().into())
            .u64(self.losses.map_or(0, |losses| losses.fence_floor))
            .u64(self.losses.map_or(0, |losses| losses.wait_ms))
            .u64(self.start.lsn)
            .u32(self.start.checksum)
            .seal()
    }

    /// The copy in front of these bytes.
    ///
    /// # Errors
    /// If it is damaged.
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
            fence_floor: block.u64(),
            longest_lease_ms: block.u64(),
            clean_lsn: block.u64(),
            // Blocks of version 1 have zeros here.
            losses: match (block.u64(), block.u64(), block.u64()) {
                (0, ..) => None,
                (1, fence_floor, wait_ms) => Some(Losses { fence_floor, wait_ms }),
                _ => return Err(BadBlock::Field("losses")),
            },
            start: Position { lsn: block.u64(), checksum: block.u32() },
        };
        check_numbers([this.sequence, this.generation, this.clean_lsn, this.start.lsn])?;
        check_numbers([this.first_segment, this.last_segment, this.snapshot])?;
        check_numbers([this.fence_floor, this.losses.map_or(0, |losses| losses.fence_floor)])?;
        Ok(this)
    }

    /// The newer whole copy of this file, and which must be written first by the next update: the damaged one, else the
    /// older one. `None` instead of it says that both are alike.
    ///
    /// # Errors
    /// If there is no whole copy, or a whole one is of a newer format.
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
