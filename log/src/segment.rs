//! First block of a segment file.

use super::block::{BLOCK_LEN, BadBlock, BlockReader, BlockWriter, check_numbers};
use super::frame::Origin;
use super::recovery::Position;

/// Default length of a segment file in bytes.
pub const SEGMENT_LEN_DEFAULT: u64 = 64 << 20;
/// Minimum length of a segment file in bytes.
pub const SEGMENT_LEN_MIN: u64 = 64 << 10;
/// Maximum length of a segment file in bytes. It keeps block numbers far below the limit of their 32 bits.
pub const SEGMENT_LEN_MAX: u64 = 1 << 30;

const MAGIC: [u8; 4] = *b"WMsg";

/// First block of a segment file. It names the last frame of the previous segment, and is durable before the first
/// frame of its own file is written. So bytes behind that frame in the previous segment are not part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Id of the log that the segment belongs to.
    pub log_id: u64,
    /// Number of the segment. Numbers of segments have no gaps.
    pub number: u64,
    /// Number of the server start that created the segment. Later starts may also append to it.
    pub generation: u64,
    /// Length of the file in bytes, including the block of this header.
    pub len: u64,
    /// Frame after which the segment continues.
    pub after: Position,
}

impl SegmentHeader {
    /// Returns whether `len` is a valid length of a segment in bytes.
    pub fn is_len_valid(len: u64) -> bool {
        (SEGMENT_LEN_MIN..=SEGMENT_LEN_MAX).contains(&len) && len.is_multiple_of(BLOCK_LEN as u64)
    }

    /// Returns the header as a block.
    pub fn encode(&self) -> [u8; BLOCK_LEN] {
        BlockWriter::new(MAGIC)
            .u64(self.log_id)
            .u64(self.number)
            .u64(self.generation)
            .u64(self.len)
            .u64(self.after.lsn + 1)
            .u64(self.after.lsn)
            .u32(self.after.checksum)
            .seal()
    }

    /// Reads the header block at the beginning of `bytes`.
    ///
    /// # Errors
    /// Returns an error if the block is damaged, has an impossible value, or has a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadBlock> {
        let mut block = BlockReader::check(bytes, MAGIC)?;
        let (log_id, number, generation, len) = (block.u64(), block.u64(), block.u64(), block.u64());
        let first_lsn = block.u64();
        let after = Position { lsn: block.u64(), checksum: block.u32() };
        if !Self::is_len_valid(len) {
            return Err(BadBlock::Field("length"));
        }
        check_numbers([number, generation, after.lsn])?;
        if after.lsn + 1 != first_lsn {
            return Err(BadBlock::Field("first LSN"));
        }
        Ok(Self { log_id, number, generation, len, after })
    }

    /// Returns the origin (the file and the server start) with which the frames of this file are checked.
    pub fn origin(&self) -> Origin {
        Origin::segment(self.log_id, self.number, self.generation)
    }
}
